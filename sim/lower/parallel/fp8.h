// 8-bit and 4-bit copies of the operands of linear layers, and the kernels that make them, as Transformer Engine does
// it (transformer_engine/pytorch/module/linear.py and layernorm_linear.py, release 2.x). A product reads both operands
// along the dimension that is summed over: forward its input and weight row by row, the input's gradient that of the
// output row by row and the weight by columns, the weight's gradient both by columns. With scales of whole tensors one
// copy's transpose is the other; devices whose products take any layout (training.fp8_transposes: false) need none.
// With scales of blocks (blockwise, mxfp8) either copy is cast from 16 bits. Forward keeps for backward the copy that
// this reads, in place of the 16 bits; where a sequence is spread over the tensor group it keeps its shard, and what is
// gathered is 8 bits.
//
//   recipe      before the cast                                     format of gradients   scales
//   delayed     nothing; largest values of earlier steps            e5m2                  one
//   tensorwise  a pass for the largest value (over the group, of    e5m2                  one
//               a tensor that is gathered)
//   blockwise   nothing; blocks are on chip                         e4m3                  fp32 of 128
//   mxfp8       the same                                            e4m3                  a byte of 32
//   rowwise     by rows nothing; by columns a pass for the largest  e4m3                  fp32 of a row or column
//               value of each
//
// rowwise is torchao's (torchao/float8, Float8LinearConfig.from_recipe_name), which keeps inputs in 16 bits and casts
// both of a product's operands for it alone: nothing in 8 bits is kept or sent, and neither copy is made of the other.
// torchtitan gathers sequences in 16 bits with it (torchtitan/models/llama3/infra/parallelize.py).
//
// Products in 4 bits (training.precision nvfp4) have operands of e2m1 with a scale of e4m3 for each 16 elements and one
// of fp32 for the tensor (NVIDIA 2025, arXiv 2509.25149; NVFP4Quantizer of transformer_engine/pytorch/csrc, 2.8):
// a pass for the largest values, as they are and transformed; a cast by rows; a cast by columns of what a random
// Hadamard transform gives (operands of the weight's gradient). Weights, scaled in blocks of 16 x 16 and not
// transformed, have one pass for both copies. Rounding gradients at random takes no pass.
//
// Scales of whole tensors are in programs that are performed alone (fp8_scales.h); copies of blocks hold their own.
//
// Leaves out: casts that a framework fuses into activations, kernels of experts one by one.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/lower/parallel/parameters.h"
#include "sim/lower/parallel/sequence.h"
#include "sim/lower/stage.h"

namespace rehearse::lower {

// What a recipe asks for, of a copy of `elements`.
struct Fp8Format {
  explicit Fp8Format(const Context& context);
  // Elements of a copy of rows of `width` and its scales, in bytes.
  std::int64_t size(std::int64_t elements, std::int64_t width, bool by_columns = false) const {
    if (of_rows) return elements + (by_columns ? width : elements / width) * scale_bytes;
    return elements / packed + elements * scale_bytes / block;
  }
  // Of so many bytes, of 8-bit elements.
  std::int64_t elements(std::int64_t bytes) const { return bytes * block / (block + scale_bytes); }

  bool amax = false;       // a pass for the largest value before a cast
  bool blocks = false;     // scales of blocks
  bool of_rows = false;    // scales of rows, and in a copy by columns of columns
  bool columns = false;    // copies by columns differ from copies by rows
  bool transform = false;  // copies by columns are of what a Hadamard transform gives
  DType operand = DType::e4m3, gradient = DType::e4m3;
  std::int64_t packed = 1;  // elements a byte
  std::int64_t scale_bytes = 0, block = 1;
};

class Fp8Operands {
 public:
  // `on`: products of this branch are in 8 bits. `saved`: how long what backward reads lives.
  // `suffix` tells copies of several of these apart. `groups`: of rows that are cast one after the other, experts'.
  Fp8Operands(const Context& context, RoleBuilder& builder, ParameterStore& parameters, bool on, Lifetime saved,
              std::string suffix = "", std::int64_t groups = 1)
      : context_(context),
        builder_(builder),
        parameters_(parameters),
        sequence_(context, builder),
        format_(context),
        on_(on),
        saved_(saved),
        suffix_(std::move(suffix)),
        groups_(groups) {}

  bool on() const { return on_; }
  // Whether a sequence that is spread is gathered in 16 bits, and cast then.
  bool gathers_wide() const { return format_.of_rows; }
  // Of what input() and gradient() give by rows.
  bool arrives_in_turns(BufferId whole) const { return sequence_.arrives_in_turns(whole); }
  const std::vector<BufferId>& turns(BufferId whole) { return sequence_.turns(whole); }
  // Of rows in groups, experts', whose copies by columns programs that are performed keep apart. `loads`: f32 [groups],
  // how many rows each has; -1: as many each.
  void set_row_groups(std::int64_t groups, std::function<BufferId()> loads) {
    if (context_.scenario.purpose != plan::Purpose::perform) return;
    of_experts_ = true, row_groups_ = groups, loads_ = std::move(loads);
  }
  // Backward makes x again before it reads it: no copy of it is kept.
  void made_again(BufferId x) { again_.insert(x); }
  // Forward: x [rows, width] by rows. x may be an 8-bit copy by rows itself, with scales of blocks [rows, bytes of a
  // row]; its copy by columns is then cast of what it stands for. `gathered`: of a shard of the sequence,
  // all of it.
  BufferId input(const std::string& name, BufferId x, bool gathered, std::int64_t width);
  // Backward: the same by columns, in three steps. Casts x where its copy was not kept; that copy, of all of the
  // sequence where forward read it so; what is to be transposed of it.
  void keep_input(BufferId x);
  BufferId kept_input(const std::string& name, BufferId x, bool gathered, std::int64_t width);
  BufferId by_columns(const std::string& name, BufferId x, bool gathered, BufferId kept);
  // The output's gradient, by rows and by columns; it may be a copy by rows as well.
  struct Pair {
    BufferId row = -1, column = -1;
  };
  Pair gradient(const std::string& name, BufferId dy, bool gathered, std::int64_t width);

 private:
  struct Copies {
    BufferId row = -1, column = -1;
    BodyId made_in = -1;
  };
  // Adapters' frozen weights have no gradients, which alone read copies by columns of what goes in and comes out.
  bool trains() const { return !context_.scenario.training.lora(); }
  Lifetime lives(BufferId x) const { return again_.contains(x) ? Lifetime::slot : saved_; }
  Lifetime gathered_lives() const { return context_.profile().keeps_gathered_input ? saved_ : Lifetime::slot; }
  bool spread(bool gathered) const { return gathered && sequence_.on(); }
  // Whether forward keeps the copy by columns of what is (not) gathered.
  bool keeps_columns(bool gathered) const { return format_.blocks || (format_.columns && !spread(gathered)); }
  BufferId copy_of(BufferId x, const std::string& suffix, DType type, Lifetime lifetime, bool columns);
  // Of a copy by columns, whose groups (one where a rank has one expert) may end with a block that is not full.
  std::int64_t column_size(std::int64_t elements, std::int64_t cols) const {
    const std::int64_t ends = of_experts_ && format_.blocks ? row_groups_ * cols * format_.scale_bytes : 0;
    return format_.size(elements, cols, true) + ends;
  }
  program::Elementwise shape(program::ElementwiseFn fn, std::int64_t elements, std::int64_t cols,
                             std::vector<Operand>& reads) const;
  void cast(const std::string& name, BufferId x, BufferId row, BufferId column, DType type, bool shared_scale,
            bool at_random);
  void cast_input(BufferId x, bool gathered);
  // With scales of rows: all of a sequence of which x is (not) a shard, in 16 bits; what input(), by_columns() and
  // gradient() give.
  BufferId wide(const std::string& name, BufferId x, bool gathered, std::int64_t width, Lifetime lifetime);
  BufferId input_of_rows(const std::string& name, BufferId x, bool gathered, std::int64_t width);
  BufferId columns_of_rows(const std::string& name, BufferId whole, std::int64_t width, DType type);
  Pair gradient_of_rows(const std::string& name, BufferId dy, bool gathered, std::int64_t width);
  BufferId all_gather(const std::string& name, BufferId shard, std::int64_t width, Lifetime lifetime = Lifetime::slot);
  // Of what a product reads row by row.
  BufferId gather_rows(const std::string& name, BufferId shard, std::int64_t width, Lifetime lifetime = Lifetime::slot);
  BufferId transposed(const std::string& name, BufferId row, std::int64_t width);

  const Context& context_;
  RoleBuilder& builder_;
  ParameterStore& parameters_;
  SequenceParallel sequence_;
  Fp8Format format_;
  bool on_;
  Lifetime saved_;
  std::string suffix_;
  bool of_experts_ = false;
  std::int64_t groups_ = 1, row_groups_ = 1;
  std::function<BufferId()> loads_;
  std::map<BufferId, Copies> inputs_;
  std::map<BufferId, bool> gathered_;
  std::set<BufferId> again_;
  GatheredInputs whole_;
};

// Columns of a cast or of a transpose, for programs that are performed: kernels must know how a matrix lies. 0 where
// they are simulated.
std::int64_t fp8_columns(const Context& context, const std::vector<std::int64_t>& shape);

// The pass `shape` for the largest value of what is first in `reads`; the largest over the tensor group if `shared`.
// f32 [1].
BufferId emit_amax(const Context& context, RoleBuilder& builder, const std::string& name,
                   const program::Elementwise& shape, const std::vector<Operand>& reads, bool shared);
// With scales of rows: the cast of x, rows of `width`, by rows; or by columns, behind a pass for the largest of each.
void emit_row_cast(const Context& context, RoleBuilder& builder, const std::string& name, BufferId x,
                   std::int64_t width, BufferId copy, DType type, bool by_columns);
inline BufferId emit_amax(const Context& context, RoleBuilder& builder, const std::string& name, BufferId x) {
  return emit_amax(context, builder, name, {program::ElementwiseFn::fp8_amax, builder.buffer(x).elements()}, {{x}},
                   false);
}

}  // namespace rehearse::lower
