#include "sim/lower/parallel/context.h"

#include <algorithm>

#include "sim/lower/model/eager_passes.h"

namespace rehearse::lower {

using program::AttentionPart;
using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::PointToPoint;
using program::StreamKind;
using program::StridedCopy;

// [context, tokens, width / context]: what goes to, or comes from, each rank of the group.
BufferId HeadExchange::parts(const std::string& name, std::int64_t width) {
  return builder_.workspace(builder_.here(name), context_.compute, {context_.tokens, width});
}

void HeadExchange::exchange(const std::string& name, BufferId from, BufferId to, std::int64_t width) {
  builder_.op(name + ".all_to_all",
              Collective{CollectiveKind::all_to_all, context_.groups.context, context_.tokens * width},
              context_.compute, {{from}}, {{to}}, StreamKind::context);
}

void HeadExchange::to_heads(const std::string& name, BufferId tokens, BufferId whole, std::int64_t width) {
  const std::int64_t part = width / context_.plan().context;
  const BufferId sent = parts(name + ".by_rank", width);
  const StridedCopy copy{
      context_.tokens, context_.plan().context, part, {width, part, 0}, {part, context_.tokens * part, 0}};
  builder_.op(name + ".by_rank", copy, context_.compute, {{tokens}}, {{sent}});
  exchange(name, sent, whole, width);
}

void HeadExchange::to_tokens(const std::string& name, BufferId whole, BufferId tokens, std::int64_t width) {
  const std::int64_t part = width / context_.plan().context;
  const BufferId received = parts(name + ".received", width);
  exchange(name, whole, received, width);
  const StridedCopy copy{
      context_.tokens, context_.plan().context, part, {part, context_.tokens * part, 0}, {width, part, 0}};
  builder_.op(name + ".by_token", copy, context_.compute, {{received}}, {{tokens}});
}

program::Attention KeyExchange::attention(AttentionPart which, int step) const {
  program::Attention a = part_;
  a.part = which;
  a.seq = context_.seq / ranks();
  a.keys = step < 0 ? context_.seq : a.seq;
  a.key_steps = step;
  a.merge = step > 0;
  // Of each document a rank has so much, and a step's keys are those of as much (plan::held_tokens).
  if (a.document > 0 && step >= 0) a.document = std::max<std::int64_t>(1, a.document / ranks());
  return a;
}

BufferId KeyExchange::keys_of(const std::string& name, std::int64_t ranks) {
  return builder_.workspace(builder_.here(name), context_.compute, {ranks * context_.tokens, key_width()});
}

void KeyExchange::copy_queries(const std::string& name, BufferId from, BufferId to) {
  const std::int64_t queries = part_.heads / part_.kv_heads * part_.head_dim;
  const StridedCopy copy{
      context_.tokens * part_.kv_heads, 1, queries, {queries, 0, 0}, {queries + key_and_value(), 0, 0}};
  builder_.op(name, copy, context_.compute, {{from}}, {{to}});
}

void KeyExchange::copy_keys(const std::string& name, BufferId from, BufferId to, bool packed) {
  const std::int64_t queries = part_.heads / part_.kv_heads * part_.head_dim, width = key_and_value();
  const program::Strides inside{queries + width, 0, queries}, apart{width, 0, 0};
  const StridedCopy copy{context_.tokens * part_.kv_heads, 1, width, packed ? inside : apart, packed ? apart : inside};
  builder_.op(name, copy, context_.compute, {{from}}, {{to}});
}

BufferId KeyExchange::own_keys(const std::string& name, BufferId qkv) {
  const BufferId keys = keys_of(name, 1);
  copy_keys(name, qkv, keys, true);
  return keys;
}

BufferId KeyExchange::gathered_keys(const std::string& name, BufferId qkv) {
  const BufferId own = own_keys(name, qkv), all = keys_of(name + ".gathered", ranks());
  builder_.op(name + ".all_gather",
              Collective{CollectiveKind::all_gather, context_.groups.context, builder_.buffer(all).elements()},
              context_.compute, {{own}}, {{all}}, StreamKind::context);
  return all;
}

// To the next rank, from the one before.
OpRef KeyExchange::pass_on(const std::string& name, BufferId sent, BufferId received) {
  const std::int64_t n = builder_.buffer(sent).elements();
  return builder_.op(name, PointToPoint{{{true, Axis::context, 1, 0, n}, {false, Axis::context, -1, 0, n}}},
                     context_.compute, {{sent}}, {{received}}, StreamKind::context);
}

void KeyExchange::attend(BufferId qkv, BufferId keys, BufferId out, BufferId logsumexp, int step) {
  std::vector<Operand> reads{{qkv}, {keys}};
  if (step > 0) reads.insert(reads.end(), {{out}, {logsumexp}});
  builder_.op(name_ + ".flash_forward" + (step < 0 ? "" : "." + std::to_string(step)),
              attention(AttentionPart::flash_forward, step), context_.compute, reads, {{out}, {logsumexp}});
}

// What is added up around the kernels of all steps, all at once: their stream waits for one after the other anyway.
void KeyExchange::adds_in_fp32(bool backward) {
  const plan::FrameworkProfile& profile = context_.profile();
  if (!profile.ring_in_fp32) return;
  const std::int64_t queries = context_.tokens * part_.heads * part_.head_dim,
                     keys = profile.fused_rope ? context_.tokens * part_.kv_heads * part_.head_dim : queries;
  const EagerKernels eager = eager_ring(queries, keys, ranks(), profile.fused_elementwise, backward);
  builder_.takes_kernels(1 + eager.kernels, eager.passes);
}

void KeyExchange::forward(BufferId qkv, BufferId out, BufferId logsumexp) {
  if (!ring()) return attend(qkv, gathered_keys(name_ + ".keys", qkv), out, logsumexp, -1);
  BufferId keys = own_keys(name_ + ".keys.0", qkv);
  adds_in_fp32(false);
  for (int step = 0; step < ranks(); ++step) {
    BufferId next = -1;
    if (step + 1 < ranks()) {
      next = keys_of(name_ + ".keys." + std::to_string(step + 1), 1);
      pass_on(name_ + ".keys.pass_on." + std::to_string(step), keys, next);
    }
    attend(qkv, keys, out, logsumexp, step);
    keys = next;
  }
}

// reads: the output's gradient, qkv, keys, the output, logsumexp.
void KeyExchange::attend_backward(const std::vector<BufferId>& reads, BufferId d_query, BufferId d_keys, int step) {
  std::vector<Operand> operands;
  for (const BufferId id : reads) operands.push_back({id});
  if (step > 0) operands.push_back({d_query});
  builder_.op(name_ + ".flash_backward" + (step < 0 ? "" : "." + std::to_string(step)),
              attention(AttentionPart::flash_backward, step), context_.compute, operands, {{d_query}, {d_keys}});
}

// The gradient of this rank's own keys, which comes home from the next rank.
BufferId KeyExchange::ring_backward(const std::vector<BufferId>& reads, BufferId qkv, BufferId d_query) {
  const auto named = [&](const std::string& what, int step) {
    return "d_" + name_ + "." + what + "." + std::to_string(step);
  };
  BufferId keys = own_keys("d_" + name_ + ".keys.0", qkv), sum = -1;
  adds_in_fp32(true);
  for (int step = 0; step < ranks(); ++step) {
    BufferId next = -1;
    if (step + 1 < ranks()) {
      next = keys_of(named("keys", step + 1), 1);
      pass_on(named("keys.pass_on", step), keys, next);
    }
    const BufferId part = keys_of(named("keys.gradient", step), 1);
    std::vector<BufferId> operands = reads;
    operands[2] = keys;
    attend_backward(operands, d_query, part, step);
    if (step > 0)
      builder_.op(named("keys.gradient.add", step),
                  Elementwise{ElementwiseFn::accumulate, builder_.buffer(part).elements()}, context_.compute,
                  {{sum}, {part}}, {{part}});
    if (step > 0 && context_.profile().ring_in_fp32) builder_.takes_no_kernel({});  // counted by adds_in_fp32
    sum = keys_of(named("keys.gradient.received", step), 1);
    pass_on(named("keys.gradient.pass_on", step), part, sum);
    keys = next;
  }
  return sum;
}

BufferId KeyExchange::backward(BufferId out_gradient, BufferId qkv, BufferId out, BufferId logsumexp) {
  const BufferId d_query =
      builder_.workspace(builder_.here("d_" + name_ + ".query"), context_.compute, {context_.tokens, query_width()});
  std::vector<BufferId> reads{out_gradient, qkv, -1, out, logsumexp};
  BufferId d_keys = -1;
  if (ring()) {
    d_keys = ring_backward(reads, qkv, d_query);
  } else {
    reads[2] = gathered_keys("d_" + name_ + ".keys", qkv);
    const BufferId all = keys_of("d_" + name_ + ".keys.whole", ranks());
    attend_backward(reads, d_query, all, -1);
    d_keys = keys_of("d_" + name_ + ".keys.scattered", 1);
    builder_.op("d_" + name_ + ".keys.reduce_scatter",
                Collective{CollectiveKind::reduce_scatter, context_.groups.context, builder_.buffer(all).elements()},
                context_.compute, {{all}}, {{d_keys}}, StreamKind::context);
  }
  const BufferId d_qkv =
      builder_.workspace(builder_.here("d_" + name_ + ".qkv"), context_.compute, builder_.buffer(qkv).shape);
  copy_queries("d_" + name_ + ".query.pack", d_query, d_qkv);
  copy_keys("d_" + name_ + ".keys.pack", d_keys, d_qkv, false);
  return d_qkv;
}

}  // namespace rehearse::lower
