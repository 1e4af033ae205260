// LAMB (training.optimizer: lamb; program::Lamb has the rule): of each bucket a pass for the moments and the updates,
// which leaves the squares of every tensor's weights and updates; their sum over the ranks that have the other parts of
// a tensor, ZeRO's shards and the tensor group's, in one all-reduce of two numbers a tensor; and a pass that applies
// the updates. So do NVIDIA's FusedLAMB (apex csrc/multi_tensor_lamb.cu, two stages with norms between) and, with
// shards, DistributedFusedLAMB (apex contrib). Every tensor has a trust ratio, also norms and biases, as with apex's
// use_nvlamb, and packed queries, keys and values are one tensor.
#include <string>
#include <vector>

#include "sim/lower/parallel/parameters.h"

namespace rehearse::lower {

using program::BufferClass;
using program::Collective;
using program::CollectiveKind;
using program::Lamb;
using program::LambPart;
using program::StreamKind;

void ParameterStore::emit_lamb(BufferId coefficient) {
  // In forward order. Last those that this rank alone has: their squares are whole, and no other rank has any of them.
  std::vector<std::size_t> order;
  std::int64_t tensors = 0, summed = 0;
  for (const bool owned : {false, true})
    for (std::size_t i = buckets_.size(); i-- > 0;) {
      const Bucket& b = buckets_[i];
      if (b.frozen || b.owned != owned) continue;
      order.push_back(i);
      tensors += static_cast<std::int64_t>(b.params.size());
      if (!owned) summed = tensors;
    }
  const BufferId all = builder_.workspace("lamb.squares", DType::f32, {tensors, 2}, Lifetime::step);
  struct Pass {
    std::string name;
    Lamb shape;
    const Bucket* bucket;
    BufferId updates, squares;
  };
  std::vector<Pass> passes;
  std::int64_t first = 0;
  for (const std::size_t i : order) {
    const Bucket& b = buckets_[i];
    const std::string suffix = ".bucket" + std::to_string(i);
    Lamb shape;
    shape.clip = coefficient >= 0;
    shape.elements = b.shard;
    if (sharded(b)) shape.shards = axes_of(b);
    for (const ParamId id : b.params) {
      const Param& p = params_[static_cast<std::size_t>(id)];
      shape.tensors.push_back({p.offset, p.elements, b.replicated});
    }
    const auto count = static_cast<std::int64_t>(b.params.size());
    const BufferId squares = builder_.view("lamb.squares" + suffix, all, 2 * first, {count, 2});
    const BufferId updates = builder_.workspace("lamb.updates" + suffix, DType::f32, {b.shard}, Lifetime::step);
    first += count;
    std::vector<Operand> reads{{b.gradient_shard}};
    if (shape.clip) reads.push_back({coefficient});
    for (const BufferId id : {b.master >= 0 ? b.master : b.value_shard, b.exp_avg, b.exp_avg_sq}) reads.push_back({id});
    builder_.op("lamb.moments" + suffix, shape, DType::f32, reads, {{b.exp_avg}, {b.exp_avg_sq}, {updates}, {squares}});
    passes.push_back({"optimizer" + suffix, shape, &b, updates, squares});
  }
  if (context_.groups.lamb >= 0) {
    const BufferId part = summed == tensors ? all : builder_.view("lamb.squares.summed", all, 0, {summed, 2});
    builder_.op_on("norm", StreamKind::data, "lamb.squares.all_reduce",
                   Collective{CollectiveKind::all_reduce, context_.groups.lamb, 2 * summed}, DType::f32, {{part}},
                   {{part}});
  }
  for (Pass& pass : passes) {
    const Bucket& b = *pass.bucket;
    pass.shape.part = LambPart::apply;
    pass.shape.master = b.master >= 0;
    std::vector<Operand> reads{{pass.updates}, {pass.squares}}, writes{{b.value_shard}};
    if (pass.shape.clip) reads.push_back({coefficient});
    if (pass.shape.master) writes.push_back({b.master});
    reads.insert(reads.end(), writes.begin(), writes.end());
    builder_.op(pass.name, pass.shape, DType::f32, reads, writes);
  }
}

}  // namespace rehearse::lower
