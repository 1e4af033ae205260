#include "sim/lower/parallel/fp8.h"

#include <cmath>

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::StreamKind;

Fp8Format::Fp8Format(const Context& context) {
  const plan::Training& t = context.scenario.training;
  if (t.four_bits()) {
    amax = blocks = columns = transform = true;
    operand = gradient = DType::e2m1;
    packed = 2, scale_bytes = 1, block = 16;
    return;
  }
  if (!t.eight_bits()) return;
  blocks = t.fp8_block() > 0;
  amax = t.fp8_recipe == plan::Fp8Recipe::tensorwise;
  columns = blocks || t.fp8_transposes;
  gradient = blocks ? DType::e4m3 : DType::e5m2;
  if (blocks) scale_bytes = t.fp8_recipe == plan::Fp8Recipe::mxfp8 ? 1 : 4, block = t.fp8_block();
}

std::int64_t fp8_columns(const Context& context, const std::vector<std::int64_t>& shape) {
  return context.scenario.purpose == plan::Purpose::perform ? shape.back() : 0;
}

BufferId emit_amax(const Context& context, RoleBuilder& builder, const std::string& name, BufferId x, bool shared) {
  const BufferId largest = builder.workspace(builder.here(name + ".amax"), DType::f32, {1});
  builder.op(name + ".fp8_amax", Elementwise{ElementwiseFn::fp8_amax, builder.buffer(x).elements()}, context.compute,
             {{x}}, {{largest}});
  if (!shared) return largest;
  Collective reduce{CollectiveKind::all_reduce, context.groups.tensor, 1};
  reduce.reduce = program::ReduceOp::max;
  builder.op(name + ".fp8_amax.all_reduce", reduce, DType::f32, {{largest}}, {{largest}}, StreamKind::tensor);
  return largest;
}

BufferId Fp8Operands::copy_of(BufferId x, const std::string& suffix, DType type, Lifetime lifetime) {
  const program::Buffer& b = builder_.buffer(x);
  return builder_.activation(b.name + suffix, type, {format_.size(b.elements())}, lifetime);
}

void Fp8Operands::cast(const std::string& name, BufferId x, BufferId row, BufferId column, DType type,
                       bool shared_scale) {
  std::vector<Operand> reads{{x}}, writes;
  if (format_.amax) reads.push_back({emit_amax(context_, builder_, name, x, shared_scale)});
  if (format_.transform) {
    const std::int64_t elements = builder_.buffer(x).elements();
    builder_.op(name + ".fp8_cast", Elementwise{ElementwiseFn::fp8_cast, elements}, type, reads, {{row}});
    if (column >= 0)
      builder_.op(name + ".hadamard_cast", Elementwise{ElementwiseFn::hadamard_cast, elements}, type, reads,
                  {{column}});
    return;
  }
  std::vector<BufferId> copies{row};
  if (column >= 0) copies.push_back(column);
  for (const BufferId to : copies) writes.push_back({to});
  parameters_.fp8_scales().of_cast(name, copies, reads, writes);
  const ElementwiseFn fn = column >= 0 ? ElementwiseFn::fp8_cast_transpose : ElementwiseFn::fp8_cast;
  builder_.op(name + (column >= 0 ? ".fp8_cast_transpose" : ".fp8_cast"),
              Elementwise{fn, builder_.buffer(x).elements(), fp8_columns(context_, builder_.buffer(x).shape)}, type,
              reads, writes);
  if (groups_ == 1) return;
  builder_.takes_launches(std::llround(static_cast<double>(groups_) * context_.profile().fp8_cast_launches));
}

void Fp8Operands::cast_input(BufferId x, bool gathered) {
  const std::string name = builder_.buffer(x).name + suffix_;
  Copies& c = inputs_[x];
  const bool again = context_.profile().fp8_casts_again || !trains(), columns = trains() && keeps_columns(gathered);
  if (c.row < 0) {
    c.row = copy_of(x, suffix_ + ".fp8", format_.operand, columns || again ? Lifetime::slot : saved_);
    if (columns) c.column = copy_of(x, suffix_ + ".fp8.columns", format_.operand, again ? Lifetime::slot : saved_);
  }
  cast(name, x, c.row, c.column, format_.operand, spread(gathered));
  c.made_in = builder_.current_body();
}

BufferId Fp8Operands::all_gather(const std::string& name, BufferId shard, std::int64_t width, Lifetime lifetime) {
  const BufferId whole = sequence_.all_gather(name, shard, builder_.buffer(shard).dtype,
                                              {format_.size(context_.tokens * width)}, lifetime);
  parameters_.fp8_scales().share(whole, shard);
  return whole;
}

BufferId Fp8Operands::transposed(const std::string& name, BufferId row, std::int64_t width) {
  const program::Buffer& b = builder_.buffer(row);
  const BufferId column = builder_.workspace(builder_.here(name + ".columns"), b.dtype, b.shape);
  builder_.op(
      name + ".fp8_transpose",
      Elementwise{ElementwiseFn::fp8_transpose, builder_.buffer(row).elements(), fp8_columns(context_, {width})},
      builder_.buffer(row).dtype, {{row}}, {{column}});
  parameters_.fp8_scales().share(column, row);
  return column;
}

BufferId Fp8Operands::input(const std::string& name, BufferId x, bool gathered, std::int64_t width) {
  gathered_[x] = gathered;
  BufferId row = x;
  if (!is_narrow(builder_.buffer(x).dtype)) {
    // A second product of the same input in this body reads the same copy.
    if (const auto found = inputs_.find(x); found == inputs_.end() || found->second.made_in != builder_.current_body())
      cast_input(x, gathered);
    row = inputs_.at(x).row;
  }
  if (!spread(gathered)) return row;
  return whole_.made(x, all_gather(name, row, width, gathered_lives()), builder_.current_body());
}

void Fp8Operands::keep_input(BufferId x) {
  if (is_narrow(builder_.buffer(x).dtype)) return;
  const bool kept = saved_ == Lifetime::micro_batch && !context_.profile().fp8_casts_again;
  if (const auto found = inputs_.find(x);
      found != inputs_.end() && (kept || found->second.made_in == builder_.current_body()))
    return;
  cast_input(x, gathered_[x]);
}

BufferId Fp8Operands::kept_input(const std::string& name, BufferId x, bool gathered, std::int64_t width) {
  BufferId kept = x;
  if (spread(gathered) && context_.profile().keeps_gathered_input)
    if (const BufferId whole = whole_.kept(x, builder_.current_body(), saved_); whole >= 0) return whole;
  if (!is_narrow(builder_.buffer(x).dtype)) kept = keeps_columns(gathered) ? inputs_.at(x).column : inputs_.at(x).row;
  return spread(gathered) ? all_gather(name, kept, width) : kept;
}

BufferId Fp8Operands::by_columns(const std::string& name, BufferId x, bool gathered, BufferId kept) {
  const bool cast_before = is_narrow(builder_.buffer(x).dtype);
  const bool columns = !cast_before && keeps_columns(gathered);
  return columns || !format_.columns ? kept : transposed(name, kept, builder_.buffer(x).shape.back());
}

Fp8Operands::Pair Fp8Operands::gradient(const std::string& name, BufferId dy, bool gathered, std::int64_t width) {
  const bool columns = trains() && keeps_columns(gathered);
  const auto copy = [&](const char* suffix) {
    return builder_.workspace(builder_.here(name + suffix), format_.gradient,
                              {format_.size(builder_.buffer(dy).elements())});
  };
  Pair pair{copy(".fp8"), columns ? copy(".fp8.columns") : -1};
  cast(name, dy, pair.row, pair.column, format_.gradient, spread(gathered));
  if (spread(gathered)) {
    pair.row = all_gather(name, pair.row, width);
    if (columns) pair.column = all_gather(name + ".columns", pair.column, width);
  }
  if (!columns) pair.column = trains() && format_.columns ? transposed(name, pair.row, width) : pair.row;
  return pair;
}

}  // namespace rehearse::lower
