// Weights of 8-bit and 4-bit products: the copies that products read, and where a step keeps them.
//
//   training.fp8_params   copies of a weight         gathered     made
//   false                 16 bits, by rows, columns  16 bits      cast in the first forward
//   true, of tensors      by rows, columns           8 bits       cast by the optimizer, then transposed for columns
//   true, of blocks       by rows, columns           16 bits      cast in the first forward
//
// Without a copy by columns where products take any layout (training.fp8_transposes: false). Copies of blocks differ,
// so neither can be gathered alone: Megatron-Core gathers 16 bits into the place of the gradients, casts both copies of
// them and zeroes that place (megatron/core/distributed/param_and_grad_buffer.py, shared_buffer; Megatron-Bridge's
// reuse_grad_buf_for_mxfp8_param_ag). Scales of tensors: Transformer Engine casts the optimizer's shards with the scale
// of the whole weight, whose largest value the ranks of a shard agree on (pytorch/tensor/utils.py,
// cast_master_weights_to_fp8). With ZeRO-3 shards of 8 bits are gathered wherever weights are read, and transposed
// there.
#include <map>
#include <string>
#include <vector>

#include "sim/lower/parallel/fp8.h"

namespace rehearse::lower {

using program::BufferClass;
using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::StreamKind;

ParameterStore::Held ParameterStore::held(const Param& p) const {
  if (!p.spec.eight_bits || !context_.scenario.training.fp8_params) return Held::none;
  return Fp8Format(context_).blocks ? Held::blocks : Held::eight_bits;
}

BufferId ParameterStore::fp8_copy(const Param& p, bool by_columns, bool kept) {
  const std::string name = p.spec.name + (by_columns ? ".fp8.columns" : ".fp8");
  const Fp8Format format(context_);
  const std::int64_t size = format.size(p.elements, p.local_shape.back(), by_columns);
  if (!kept) return builder_.workspace(name, format.operand, {size});
  return builder_.add_buffer({name,
                              format.operand,
                              {size},
                              BufferClass::parameter,
                              Lifetime::persistent,
                              -1,
                              0,
                              0,
                              {},
                              {program::Init::Kind::zeros, 0, {}, -1}});
}

// 16 bits of a bucket of blocks, until both copies are cast of them: each in the place of its gradient.
void ParameterStore::hold_in_place_of_gradients(Bucket& bucket, const std::string& suffix) {
  const auto view = [&](const std::string& name, std::int64_t n, bool shard) {
    return builder_.add_buffer({name + suffix,
                                context_.compute,
                                {n},
                                BufferClass::parameter,
                                Lifetime::persistent,
                                bucket.gradients,
                                0,
                                shard ? n : 0,
                                shard ? axes_of(bucket) : AxisSet{},
                                {}});
  };
  bucket.values = view("param", bucket.padded, false);
  bucket.value_shard = bucket.shard == bucket.padded ? bucket.values : view("param.shard", bucket.shard, true);
}

void ParameterStore::cast_fp8(Param& p, bool row, bool column) {
  const Fp8Format format(context_);
  const bool kept = keeps_fp8_weights();
  if (row && p.fp8_row < 0) p.fp8_row = fp8_copy(p, false, kept);
  if (column && format.columns && p.fp8_column < 0) p.fp8_column = fp8_copy(p, true, kept);
  if (!format.columns) p.fp8_column = p.fp8_row;
  if (row) p.row_in = builder_.current_body();
  if (column) p.column_in = builder_.current_body();
  if (format.of_rows) {
    const std::int64_t width = p.local_shape.back();
    if (row) emit_row_cast(context_, builder_, p.spec.name, p.value, width, p.fp8_row, format.operand, false);
    if (column) emit_row_cast(context_, builder_, p.spec.name, p.value, width, p.fp8_column, format.operand, true);
    return;
  }
  const bool transposes = column && format.columns;
  std::vector<Operand> reads{{p.value}}, writes;
  if (format.amax) {
    if (p.amax_in != builder_.current_body()) p.amax = emit_amax(context_, builder_, p.spec.name, p.value);
    p.amax_in = builder_.current_body();
    reads.push_back({p.amax});
  }
  std::vector<BufferId> copies;
  if (row || !transposes) copies.push_back(p.fp8_row);
  if (transposes) copies.push_back(p.fp8_column);
  for (const BufferId copy : copies) writes.push_back({copy});
  fp8_scales_.of_cast(p.spec.name, copies, reads, writes);
  Elementwise cast{transposes ? ElementwiseFn::fp8_cast_transpose : ElementwiseFn::fp8_cast, p.elements};
  cast.cols = fp8_columns(context_, p.local_shape);
  cast.square = true;
  if (cast.cols > 0 && p.spec.experts) cast.groups = p.local_shape.front();
  builder_.op(p.spec.name + (transposes ? ".fp8_cast_transpose" : ".fp8_cast"), cast, format.operand, reads, writes);
  if (!transposes) p.row_in = builder_.current_body();
  if (held(p) == Held::blocks)
    builder_.op(p.spec.name + ".zero_grad", Elementwise{ElementwiseFn::fill, p.elements}, context_.gradient, {},
                {{p.gradient}});
}

// The transpose of a weight that is held by rows alone.
void ParameterStore::transpose_held(Param& p) {
  if (!Fp8Format(context_).columns) {
    p.fp8_column = p.value;
    return;
  }
  if (p.column_in == builder_.current_body()) return;
  p.column_in = builder_.current_body();
  if (p.fp8_column < 0) p.fp8_column = fp8_copy(p, true, keeps_fp8_weights());
  builder_.op(p.spec.name + ".fp8_transpose", Elementwise{ElementwiseFn::fp8_transpose, p.elements}, DType::e4m3,
              {{p.value}}, {{p.fp8_column}});
}

bool ParameterStore::casts_weight(const program::Role& role, const program::Op& op) {
  const auto* e = std::get_if<Elementwise>(&op.shape);
  if (e == nullptr) return false;
  const auto of = [&](const Operand& operand, BufferClass cls) {
    return role.buffers[static_cast<std::size_t>(operand.buffer)].cls == cls;
  };
  switch (e->fn) {
    case ElementwiseFn::fp8_amax:
    case ElementwiseFn::fp8_cast:
    case ElementwiseFn::fp8_cast_transpose:
    case ElementwiseFn::fp8_transpose:
      return of(op.reads.front(), BufferClass::parameter);
    case ElementwiseFn::fill:
      return of(op.writes.front(), BufferClass::gradient);
    default:
      return false;
  }
}

BufferId ParameterStore::fp8_row(ParamId id) {
  Param& p = params_[static_cast<std::size_t>(id)];
  if (held(p) == Held::eight_bits) {
    if (keeps_fp8_weights() && first_forward_) transpose_held(p);
    return p.value;
  }
  const bool here = p.row_in == builder_.current_body();
  if (keeps_fp8_weights()) {
    if (first_forward_ && !here) cast_fp8(p, true, true);
  } else if (!here) {
    cast_fp8(p, true, false);
  }
  return p.fp8_row;
}

BufferId ParameterStore::fp8_column(ParamId id) {
  Param& p = params_[static_cast<std::size_t>(id)];
  if (held(p) == Held::eight_bits) {
    if (!keeps_fp8_weights()) transpose_held(p);
    return p.fp8_column;
  }
  if (!keeps_fp8_weights() && p.column_in != builder_.current_body()) {
    const bool any = !Fp8Format(context_).columns && p.row_in == builder_.current_body();
    if (!any) cast_fp8(p, false, true);
  }
  return p.fp8_column;
}

// After the optimizer: what it wrote in fp32, as it is held and gathered. With current scaling the largest values come
// first, one of a weight; those of a bucket are one kernel, and all of them one all-reduce.
void ParameterStore::emit_held() {
  const Fp8Format format(context_);
  std::vector<int> held_buckets;
  for (std::size_t i = buckets_.size(); i-- > 0;)
    if (buckets_[i].held != Held::none) held_buckets.push_back(static_cast<int>(i));
  std::map<int, BufferId> largest;
  for (const bool experts : {false, true}) {
    std::vector<int> those;
    for (const int i : held_buckets)
      if (buckets_[static_cast<std::size_t>(i)].experts == experts) those.push_back(i);
    if (!format.amax || those.empty()) continue;
    const auto n = static_cast<std::int64_t>(those.size());
    const BufferId all =
        builder_.workspace(experts ? "fp8_experts.amax" : "fp8_weights.amax", DType::f32, {n}, Lifetime::step);
    for (std::int64_t k = 0; k < n; ++k) {
      const int i = those[static_cast<std::size_t>(k)];
      const Bucket& b = buckets_[static_cast<std::size_t>(i)];
      const std::string name = "fp8_weights.bucket" + std::to_string(i);
      largest[i] = builder_.view(name + ".amax", all, k, {1});
      builder_.op(name + ".fp8_amax", Elementwise{ElementwiseFn::fp8_amax, b.shard}, DType::f32, {{b.master}},
                  {{largest[i]}});
    }
    const Bucket& any = buckets_[static_cast<std::size_t>(those.front())];
    if (!sharded(any)) continue;
    Collective reduce{CollectiveKind::all_reduce, group_of(any), n};
    reduce.reduce = program::ReduceOp::max;
    builder_.op_on("amax", StreamKind::data, "fp8_weights.amax.all_reduce", reduce, DType::f32, {{all}}, {{all}});
  }
  for (const int i : held_buckets) {
    const Bucket& b = buckets_[static_cast<std::size_t>(i)];
    const std::string name = "optimizer.bucket" + std::to_string(i);
    if (b.held == Held::blocks) {
      builder_.op(name + ".cast", Elementwise{ElementwiseFn::cast, b.shard}, context_.compute, {{b.master}},
                  {{b.value_shard}});
      continue;
    }
    std::vector<Operand> reads{{b.master}}, writes{{b.value_shard}};
    if (format.amax) reads.push_back({largest.at(i)});
    fp8_scales_.of_cast(builder_.buffer(b.master).name, {b.value_shard}, reads, writes);
    builder_.op(name + ".fp8_cast", Elementwise{ElementwiseFn::fp8_cast, b.shard}, DType::e4m3, reads, writes);
  }
}

}  // namespace rehearse::lower
