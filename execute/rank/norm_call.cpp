#include "execute/rank/norm_call.h"

#include <algorithm>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/half.h"

namespace rehearse::execute {
namespace {

using kernels::In;
using kernels::Out;
using program::NormPart;

float* stats_of(const Out& o) {
  REHEARSE_CHECK(o.type == DType::f32, "an fp32 operand of type {}", static_cast<int>(o.type));
  return static_cast<float*>(o.data);
}

// On CPUs, as all norms around 1.
std::vector<float> added_to_one(std::int64_t cols, In gamma) {
  std::vector<float> weight(static_cast<std::size_t>(cols));
  if (is_half(gamma.type))
    to_float(gamma.type, static_cast<const std::uint16_t*>(gamma.data), cols, weight.data());
  else
    std::copy_n(static_cast<const float*>(gamma.data), cols, weight.data());
  for (float& w : weight) w += 1;
  return weight;
}

}  // namespace

void call_norm(kernels::Device& device, const program::Norm& n, std::span<const Out> reads,
               std::span<const Out> writes) {
  const auto optional = [&](std::size_t i) { return i < reads.size() ? In(reads[i]) : In(); };
  switch (n.part) {
    case NormPart::forward:
      if (is_fp8(writes[0].type)) {
        const std::vector<float> weight = n.zero_centered ? added_to_one(n.cols, reads[1]) : std::vector<float>();
        const In gamma = n.zero_centered ? In(weight.data(), DType::f32) : In(reads[1]);
        return device.norm_forward_fp8(
            n.rms, n.rows, n.cols, n.eps, reads[0], gamma, reads.size() == 4 ? In(reads[2]) : In(),
            {stats_of(reads.back()), stats_of(writes[2]), stats_of(writes[3])}, writes[0], stats_of(writes[1]));
      }
      if (n.zero_centered)
        return device.zero_centered_norm_forward(n.rows, n.cols, n.eps, reads[0], reads[1], writes[0],
                                                 stats_of(writes[1]));
      return device.norm_forward(n.rms, n.rows, n.cols, n.eps, reads[0], reads[1], optional(2), writes[0],
                                 stats_of(writes[1]));
    case NormPart::backward_input: {
      const In residual = n.add_residual ? In(reads[4]) : In();
      if (n.zero_centered)
        return device.zero_centered_norm_backward_input(n.rows, n.cols, reads[0], reads[1], stats_of(reads[2]),
                                                        reads[3], residual, writes[0]);
      return device.norm_backward_input(n.rms, n.rows, n.cols, reads[0], reads[1], stats_of(reads[2]), reads[3],
                                        residual, writes[0]);
    }
    case NormPart::backward_weight:
      return device.norm_backward_weight(n.rms, n.rows, n.cols, reads[0], reads[1], stats_of(reads[2]), writes[0],
                                         writes.size() > 1 ? writes[1] : Out());
  }
}

void call_head_norm(kernels::Device& device, const program::HeadNorm& n, std::span<const Out> reads,
                    std::span<const Out> writes) {
  const kernels::HeadNormShape s{n.rows, n.kv_heads, n.group, n.head_dim, n.eps, n.zero_centered};
  switch (n.part) {
    case NormPart::forward:
      return device.head_norm_forward(s, reads[1], reads[2], writes[0], writes[1], stats_of(writes[2]));
    case NormPart::backward_input:
      return device.head_norm_backward_input(s, reads[1], stats_of(reads[2]), reads[3], reads[4], writes[0]);
    case NormPart::backward_weight:
      return device.head_norm_backward_weight(s, reads[0], reads[1], stats_of(reads[2]), writes[0], writes[1]);
  }
}

}  // namespace rehearse::execute
