// A rank's file of a checkpoint: all that the rank keeps from one step to the next, and where each number of it lies in
// the whole model, so that ranks of another grid find what is theirs. In order, little-endian:
//   8 bytes    "RHCKSTAT"
//   4 bytes    kCheckpointVersion
//   8 bytes    length of the header
//   header     JSON: StateHeader
//   payload    the buffers' bytes, as the header says; of a file that has parts alone, these, one after the other
//   16 bytes   XXH3 (128 bits) of all before it (Collet, github.com/Cyan4973/xxHash), against mistakes, not malice
// Written next to its place and renamed (sim/result/output_file.h). What is torn, cut, not such a file or of a later
// version is an InputError that names the file and says why.
//
// A file may have a part of its payload alone: what a rank adds to a checkpoint that is put together (whole_state.h),
// or what has changed since an earlier checkpoint, its base. Then the rest is that of the same rank's file there, which
// may have a base in its turn; each names the next by step, size and checksum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/dtype.h"

namespace rehearse::execute {

inline constexpr std::uint32_t kCheckpointVersion = 2;  // 1, which has no parts, is read too

// `offset`: bytes from the payload's beginning.
struct StateBuffer {
  std::string name;
  DType type = DType::f32;
  std::int64_t elements = 0, offset = 0;

  friend bool operator==(const StateBuffer&, const StateBuffer&) = default;
};
// Elements [global, global + count) of a whole tensor, in its row-major order.
struct StateRun {
  std::int64_t global = 0, count = 0, offset = 0;
};
// What the rank holds of a parameter, or of a state of it: kind "param", "master", "exp_avg", ...
struct StateTensor {
  std::string name, kind;
  DType type = DType::f32;
  std::int64_t elements = 0;  // of the whole
  std::vector<StateRun> runs;
};
// Bytes [offset, offset + bytes) of a payload.
struct StateSpan {
  std::int64_t offset = 0, bytes = 0;

  friend bool operator==(const StateSpan&, const StateSpan&) = default;
};
// The file that has the rest: of the same name, in the folder of that step beside ours.
struct StateBase {
  std::int64_t step = 0, bytes = 0;
  std::string digest;
};
struct StateHeader {
  std::int64_t step = 0;  // optimizer steps done
  int rank = 0, ranks = 1;
  std::vector<StateBuffer> buffers;
  std::vector<StateTensor> tensors;
  std::int64_t payload_bytes = 0;
  std::optional<std::vector<StateSpan>> stored;  // of the payload, ascending; nothing: all of it
  std::optional<StateBase> base;                 // with `stored` alone

  std::int64_t stored_bytes() const;
};

using StateDigest = std::array<std::uint64_t, 2>;
std::string digest_text(const StateDigest& digest);  // 32 hexadecimal digits
std::string digest_of(const std::string& bytes);
StateDigest digest_of(const std::byte* data, std::int64_t bytes);

// Gives a part of a payload; asked for from the beginning to the end.
using StatePayload = std::function<const std::byte*(std::int64_t offset, std::int64_t bytes)>;
// What is stored of the payload. On disk when it returns. Throws std::runtime_error naming the file if it cannot be
// written, Interrupted.
void write_state_file(const std::string& path, const StateHeader& header, const StatePayload& payload);

// What the manifest says of a file.
struct StateFileFacts {
  std::string name;  // in the checkpoint's folder
  std::int64_t bytes = 0;
  std::string digest;
};
// Of a file that is whole: from its size and its last bytes alone.
StateFileFacts state_file_facts(const std::string& folder, const std::string& name);

// Found whole, with all that it is based on. One thread at a time may read.
class StateFile {
 public:
  // `named_by`: who says that it is there, "the checkpoint's manifest".
  StateFile(const std::string& folder, const StateFileFacts& facts,
            const std::string& named_by = "the checkpoint's manifest");
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;
  // What a file says of itself; the rest of it is not looked at. Throws InputError.
  static StateHeader header_of(const std::string& folder, const std::string& name);

  const std::string& path() const { return path_; }
  const StateHeader& header() const { return header_; }
  const StateFile* base() const { return base_.get(); }
  // Bytes [offset, offset + bytes) of the payload, wherever they are. Throws InputError for what no file has.
  void read(std::int64_t offset, std::int64_t bytes, std::byte* to) const;

 private:
  class Open;

  explicit StateFile(std::string path) : path_(std::move(path)) {}
  void find(const std::string& named_by) const;  // refuses a file that could not be opened
  void check_kind(std::int64_t expected);
  void check(const StateFileFacts& facts, const std::string& named_by);
  void read_header();
  void open_base(const std::string& folder, const std::string& name);
  void read_at(std::int64_t at, std::int64_t bytes, void* to) const;
  [[noreturn]] void refuse(const std::string& why, const std::string& hint = "") const;

  std::string path_;
  mutable int fd_ = -1;  // while an Open lives
  std::int64_t bytes_ = 0, payload_ = 0;
  StateHeader header_;
  std::vector<std::int64_t> places_;  // of what is stored: where each span begins in the file's payload
  std::unique_ptr<StateFile> base_;
};

}  // namespace rehearse::execute
