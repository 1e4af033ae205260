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
  of_rows = t.fp8_rows();
  amax = t.fp8_recipe == plan::Fp8Recipe::tensorwise;
  columns = blocks || of_rows || t.fp8_transposes;
  gradient = blocks || of_rows ? DType::e4m3 : DType::e5m2;
  if (of_rows) scale_bytes = 4;
  if (blocks) scale_bytes = t.fp8_recipe == plan::Fp8Recipe::mxfp8 ? 1 : 4, block = t.fp8_block();
}

std::int64_t fp8_columns(const Context& context, const std::vector<std::int64_t>& shape) {
  return context.scenario.purpose == plan::Purpose::perform ? shape.back() : 0;
}

BufferId emit_amax(const Context& context, RoleBuilder& builder, const std::string& name, const Elementwise& shape,
                   const std::vector<Operand>& reads, bool shared) {
  const BufferId largest = builder.workspace(builder.here(name + ".amax"), DType::f32, {1});
  builder.op(name + ".fp8_amax", shape, context.compute, reads, {{largest}});
  if (!shared) return largest;
  Collective reduce{CollectiveKind::all_reduce, context.groups.tensor, 1};
  reduce.reduce = program::ReduceOp::max;
  builder.op(name + ".fp8_amax.all_reduce", reduce, DType::f32, {{largest}}, {{largest}}, StreamKind::tensor);
  return largest;
}

void emit_row_cast(const Context& context, RoleBuilder& builder, const std::string& name, BufferId x,
                   std::int64_t width, BufferId copy, DType type, bool by_columns) {
  Elementwise pass{ElementwiseFn::fp8_amax, builder.buffer(x).elements(), width};
  pass.each_column = by_columns;
  std::vector<Operand> reads{{x}};
  if (by_columns) {
    const BufferId largest = builder.workspace(builder.here(name + ".amax"), DType::f32, {width});
    builder.op(name + ".fp8_amax", pass, context.compute, reads, {{largest}});
    reads.push_back({largest});
  }
  pass.fn = by_columns ? ElementwiseFn::fp8_cast_transpose : ElementwiseFn::fp8_cast;
  builder.op(name + (by_columns ? ".fp8_cast_transpose" : ".fp8_cast"), pass, type, reads, {{copy}});
}

BufferId Fp8Operands::copy_of(BufferId x, const std::string& suffix, DType type, Lifetime lifetime, bool columns) {
  const program::Buffer b = builder_.buffer(x);
  const std::int64_t width = b.shape.back();
  const std::int64_t size = columns ? column_size(b.elements(), width) : format_.size(b.elements(), width);
  return builder_.activation(b.name + suffix, type, {size}, lifetime);
}

// Where rows are in groups, `reads` has their numbers last.
Elementwise Fp8Operands::shape(ElementwiseFn fn, std::int64_t elements, std::int64_t cols,
                               std::vector<Operand>& reads) const {
  Elementwise e{fn, elements, fp8_columns(context_, {cols})};
  e.groups = row_groups_;
  const BufferId loads = loads_ ? loads_() : -1;
  e.counted = loads >= 0;
  if (e.counted) reads.push_back({loads});
  return e;
}

void Fp8Operands::cast(const std::string& name, BufferId x, BufferId row, BufferId column, DType type,
                       bool shared_scale, bool at_random) {
  std::vector<Operand> reads{{x}}, writes;
  const std::int64_t elements = builder_.buffer(x).elements(), cols = builder_.buffer(x).shape.back();
  if (format_.amax) {
    std::vector<Operand> all{{x}};
    Elementwise pass = shape(ElementwiseFn::fp8_amax, elements, cols, all);
    reads.push_back({emit_amax(context_, builder_, name, pass, all, shared_scale)});
  }
  if (format_.transform) {
    const auto one = [&](const char* suffix, ElementwiseFn fn, BufferId copy) {
      std::vector<Operand> from = reads, to{{copy}};
      parameters_.fp8_scales().of_cast(name + suffix, {copy}, from, to);
      Elementwise e = shape(fn, elements, cols, from);
      e.at_random = at_random;
      builder_.op(name + suffix, e, type, from, to);
    };
    one(".fp8_cast", ElementwiseFn::fp8_cast, row);
    if (column >= 0) one(".hadamard_cast", ElementwiseFn::hadamard_cast, column);
    return;
  }
  std::vector<BufferId> copies{row};
  if (column >= 0) copies.push_back(column);
  for (const BufferId to : copies) writes.push_back({to});
  parameters_.fp8_scales().of_cast(name, copies, reads, writes);
  const ElementwiseFn fn = column >= 0 ? ElementwiseFn::fp8_cast_transpose : ElementwiseFn::fp8_cast;
  const Elementwise e = shape(fn, elements, cols, reads);
  builder_.op(name + (column >= 0 ? ".fp8_cast_transpose" : ".fp8_cast"), e, type, reads, writes);
  if (groups_ == 1) return;
  builder_.takes_launches(std::llround(static_cast<double>(groups_) * context_.profile().fp8_cast_launches));
}

void Fp8Operands::cast_input(BufferId x, bool gathered) {
  const std::string name = builder_.buffer(x).name + suffix_;
  Copies& c = inputs_[x];
  const bool again = context_.profile().fp8_casts_again || !trains(), columns = trains() && keeps_columns(gathered);
  if (c.row < 0) {
    c.row = copy_of(x, suffix_ + ".fp8", format_.operand, columns || again ? Lifetime::slot : lives(x), false);
    if (columns)
      c.column = copy_of(x, suffix_ + ".fp8.columns", format_.operand, again ? Lifetime::slot : lives(x), true);
  }
  cast(name, x, c.row, c.column, format_.operand, spread(gathered), false);
  c.made_in = builder_.current_body();
}

BufferId Fp8Operands::all_gather(const std::string& name, BufferId shard, std::int64_t width, Lifetime lifetime) {
  const BufferId whole = sequence_.all_gather(name, shard, builder_.buffer(shard).dtype,
                                              {format_.size(context_.tokens * width, width)}, lifetime);
  parameters_.fp8_scales().share(whole, shard);
  return whole;
}

BufferId Fp8Operands::gather_rows(const std::string& name, BufferId shard, std::int64_t width, Lifetime lifetime) {
  if (!sequence_.in_turns()) return all_gather(name, shard, width, lifetime);
  const BufferId whole = sequence_.all_gather_in_turns(name, shard, builder_.buffer(shard).dtype,
                                                       {format_.size(context_.tokens * width, width)}, lifetime);
  parameters_.fp8_scales().share(whole, shard);
  for (const BufferId part : sequence_.turns(whole)) parameters_.fp8_scales().share(part, shard);
  return whole;
}

BufferId Fp8Operands::transposed(const std::string& name, BufferId row, std::int64_t width) {
  const program::Buffer b = builder_.buffer(row);
  const std::int64_t elements = format_.blocks ? format_.elements(b.elements()) : b.elements();
  const BufferId column =
      builder_.workspace(builder_.here(name + ".columns"), b.dtype,
                         of_experts_ ? std::vector<std::int64_t>{column_size(elements, width)} : b.shape);
  std::vector<Operand> reads{{row}};
  const Elementwise e = shape(ElementwiseFn::fp8_transpose, b.elements(), width, reads);
  builder_.op(name + ".fp8_transpose", e, b.dtype, reads, {{column}});
  parameters_.fp8_scales().share(column, row);
  return column;
}

BufferId Fp8Operands::input(const std::string& name, BufferId x, bool gathered, std::int64_t width) {
  if (format_.of_rows) return input_of_rows(name, x, gathered, width);
  gathered_[x] = gathered;
  BufferId row = x;
  if (!is_narrow(builder_.buffer(x).dtype)) {
    // A second product of the same input in this body reads the same copy.
    if (const auto found = inputs_.find(x); found == inputs_.end() || found->second.made_in != builder_.current_body())
      cast_input(x, gathered);
    row = inputs_.at(x).row;
  }
  if (!spread(gathered)) return row;
  return whole_.made(x, gather_rows(name, row, width, gathered_lives()), builder_.current_body());
}

void Fp8Operands::keep_input(BufferId x) {
  if (is_narrow(builder_.buffer(x).dtype) || format_.of_rows) return;
  const bool kept = lives(x) == Lifetime::micro_batch && !context_.profile().fp8_casts_again;
  if (const auto found = inputs_.find(x);
      found != inputs_.end() && (kept || found->second.made_in == builder_.current_body()))
    return;
  cast_input(x, gathered_[x]);
}

BufferId Fp8Operands::kept_input(const std::string& name, BufferId x, bool gathered, std::int64_t width) {
  BufferId kept = x;
  if (spread(gathered) && context_.profile().keeps_gathered_input)
    if (const BufferId whole = whole_.kept(x, builder_.current_body(), saved_); whole >= 0) return whole;
  if (format_.of_rows) return wide(name, x, gathered, width, Lifetime::slot);
  if (!is_narrow(builder_.buffer(x).dtype)) kept = keeps_columns(gathered) ? inputs_.at(x).column : inputs_.at(x).row;
  return spread(gathered) ? all_gather(name, kept, width) : kept;
}

BufferId Fp8Operands::by_columns(const std::string& name, BufferId x, bool gathered, BufferId kept) {
  const bool cast_before = is_narrow(builder_.buffer(x).dtype);
  if (format_.of_rows) return columns_of_rows(name, kept, builder_.buffer(x).shape.back(), format_.operand);
  const bool columns = !cast_before && keeps_columns(gathered);
  if (columns || !format_.columns) return kept;
  const std::int64_t width = builder_.buffer(x).shape.back();
  return transposed(name, kept, cast_before && format_.blocks ? format_.elements(width) : width);
}

Fp8Operands::Pair Fp8Operands::gradient(const std::string& name, BufferId dy, bool gathered, std::int64_t width) {
  if (is_narrow(builder_.buffer(dy).dtype)) return {dy, transposed(name, dy, width)};
  if (format_.of_rows) return gradient_of_rows(name, dy, gathered, width);
  const bool columns = trains() && keeps_columns(gathered);
  const std::int64_t elements = builder_.buffer(dy).elements();
  const auto copy = [&](const char* suffix, std::int64_t size) {
    return builder_.workspace(builder_.here(name + suffix), format_.gradient, {size});
  };
  Pair pair{copy(".fp8", format_.size(elements, builder_.buffer(dy).shape.back())),
            columns ? copy(".fp8.columns", column_size(elements, builder_.buffer(dy).shape.back())) : -1};
  cast(name, dy, pair.row, pair.column, format_.gradient, spread(gathered), true);
  if (spread(gathered)) {
    pair.row = gather_rows(name, pair.row, width);
    if (columns) pair.column = all_gather(name + ".columns", pair.column, width);
  }
  if (!columns) pair.column = trains() && format_.columns ? transposed(name, pair.row, width) : pair.row;
  return pair;
}

BufferId Fp8Operands::wide(const std::string& name, BufferId x, bool gathered, std::int64_t width, Lifetime lifetime) {
  return spread(gathered) ? sequence_.all_gather(name, x, width, lifetime) : x;
}

// A second product of the same input in this body reads the same copy.
BufferId Fp8Operands::input_of_rows(const std::string& name, BufferId x, bool gathered, std::int64_t width) {
  Copies& c = inputs_[x];
  if (c.row >= 0 && c.made_in == builder_.current_body()) return c.row;
  const BufferId whole = wide(name, x, gathered, width, gathered_lives());
  if (spread(gathered)) whole_.made(x, whole, builder_.current_body());
  if (c.row < 0) c.row = copy_of(whole, suffix_ + ".fp8", format_.operand, Lifetime::slot, false);
  emit_row_cast(context_, builder_, builder_.buffer(x).name + suffix_, whole, width, c.row, format_.operand, false);
  c.made_in = builder_.current_body();
  return c.row;
}

BufferId Fp8Operands::columns_of_rows(const std::string& name, BufferId whole, std::int64_t width, DType type) {
  const BufferId column = builder_.workspace(builder_.here(name + ".fp8.columns"), type,
                                             {column_size(builder_.buffer(whole).elements(), width)});
  emit_row_cast(context_, builder_, name, whole, width, column, type, true);
  return column;
}

Fp8Operands::Pair Fp8Operands::gradient_of_rows(const std::string& name, BufferId dy, bool gathered,
                                                std::int64_t width) {
  const BufferId whole = wide(name, dy, gathered, width, Lifetime::slot);
  Pair pair;
  pair.row = builder_.workspace(builder_.here(name + ".fp8"), format_.gradient,
                                {format_.size(builder_.buffer(whole).elements(), width)});
  emit_row_cast(context_, builder_, name, whole, width, pair.row, format_.gradient, false);
  pair.column = trains() ? columns_of_rows(name, whole, width, format_.gradient) : pair.row;
  return pair;
}

}  // namespace rehearse::lower
