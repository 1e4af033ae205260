// A checkpoint that is one file: each parameter, moment and counter once, whole and in its row-major order, whatever
// ranks had which part of it. Each rank writes what no lower rank has (part_of()) to a file of its own; put_together()
// makes the one file of them, and takes them away. Tensors lie by kind and name, behind them the states that belong to
// no tensor in particular (a loss scale), which all ranks that have one must have alike.
//
// Of plans whose ranks keep what cannot be cut - codes of 8-bit moments, histories of 8-bit scales, what compressed
// gradients leave behind - there is no whole.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "execute/checkpoint/rank_state.h"
#include "execute/checkpoint/state_file.h"

namespace rehearse::execute {

class WholeState {
 public:
  // Of all ranks, or parameter servers, in order. Throws InputError for what has no whole, naming it.
  explicit WholeState(const std::vector<RankState>& holders);

  // The header of its file, with what it has to write of its payload.
  StateHeader part_of(const StateHeader& holder) const;
  // Of all parts, which are there. Throws InputError naming a part that is not whole, or a state that is not alike.
  void put_together(const std::string& checkpoint, std::int64_t step) const;

 private:
  struct Piece {
    std::int64_t to, bytes;  // in the whole's payload
    int holder;
    std::int64_t from;  // in the holder's
  };
  // The same state elsewhere.
  struct Copy {
    std::string name;
    Piece piece;
  };
  using Covered = std::map<std::int64_t, std::int64_t>;  // elements, from and to

  struct Tensor {
    DType type;
    std::int64_t elements;
    Covered covered;
    std::vector<Piece> pieces;  // `to` counts from the tensor's beginning until it is laid out
  };

  void add_tensor(const StateTensor& tensor, int holder);
  void add_buffer(const StateBuffer& buffer, int holder);
  void lay_out();

  std::map<std::pair<std::string, std::string>, Tensor> tensors_;  // by kind and name
  std::map<std::string, std::pair<StateBuffer, Piece>> buffers_;
  std::vector<Copy> copies_;
  std::vector<std::vector<StateSpan>> parts_;  // by holder
  StateHeader header_;
  std::vector<Piece> pieces_;  // by `to`
};

}  // namespace rehearse::execute
