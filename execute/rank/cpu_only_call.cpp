#include "execute/rank/cpu_only_call.h"

#include "sim/base/check.h"

namespace rehearse::execute {
namespace {

using kernels::In;
using kernels::Out;

float* f32(const Out& o) {
  REHEARSE_CHECK(o.type == DType::f32, "an fp32 operand of type {}", static_cast<int>(o.type));
  return static_cast<float*>(o.data);
}

// Of the sinks of a tensor rank's heads, from those of this rank's on.
Out own_sinks(const Out& sinks, const program::Attention& a, const CallContext& c) {
  const std::int64_t first = a.heads_split_over_context ? c.context_coordinate * a.heads : 0;
  return {static_cast<std::byte*>(sinks.data) + first * size_of(sinks.type), sinks.type};
}

}  // namespace

void call_sinks(const kernels::AttentionShape& shape, const program::Attention& a, std::span<const Out> reads,
                std::span<const Out> writes, const CallContext& c) {
  if (a.part == program::AttentionPart::sinks)
    return c.device.attention_sinks(shape, own_sinks(reads[2], a, c), writes[0], f32(writes[1]));
  c.device.attention_sink_gradient(shape, reads[0], reads[1], f32(reads[2]), own_sinks(reads[3], a, c),
                                   own_sinks(writes[0], a, c));
}

void call_swiglu_oai(const program::Activation& a, In up, std::span<const Out> reads, std::span<const Out> writes,
                     const CallContext& c) {
  const float* weights = a.weighted ? f32(reads[a.backward ? 2 : 1]) : nullptr;
  if (!a.backward) return c.device.swiglu_oai_forward(a.rows, a.cols, reads[0], up, weights, writes[0]);
  float* d_weights = a.weighted ? f32(writes[1]) : nullptr;
  c.device.swiglu_oai_backward(a.rows, a.cols, reads[0], reads[1], up, weights, writes[0], d_weights);
}

void call_grouped_bias(const program::GroupedBias& g, std::span<const Out> reads, std::span<const Out> writes,
                       const CallContext& c) {
  using program::GroupedBiasPart;
  const kernels::GroupedBiasShape s{g.groups, g.rows, g.n, g.shares};
  const std::size_t operands = g.part == GroupedBiasPart::backward ? 1 : 2;
  const float* loads = g.counted ? f32(reads[operands]) : nullptr;
  const float* weights = nullptr;
  if (g.weighted && g.part != GroupedBiasPart::weights_backward) weights = f32(reads[operands + (g.counted ? 1 : 0)]);
  switch (g.part) {
    case GroupedBiasPart::forward:
      return c.device.grouped_bias(s, reads[1], loads, weights, writes[0]);
    case GroupedBiasPart::backward:
      return c.device.grouped_bias_backward(s, reads[0], loads, weights, writes[0]);
    case GroupedBiasPart::weights_backward:
      return c.device.grouped_bias_weights(s, reads[0], reads[1], loads, f32(writes[0]));
  }
}

void call_row_scale(const program::RowScale& r, std::span<const Out> reads, std::span<const Out> writes,
                    const CallContext& c) {
  if (!r.backward) return c.device.row_scale(r.rows, r.cols, reads[0], f32(reads[1]), writes[0]);
  c.device.row_scale_backward(r.rows, r.cols, reads[0], reads[1], f32(reads[2]), writes[0], f32(writes[1]));
}

}  // namespace rehearse::execute
