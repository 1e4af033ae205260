// A call of program::AdafactorParts.
#pragma once

#include <span>
#include <vector>

#include "execute/rank/kernel_call.h"
#include "execute/rank/tensor_ranges.h"
#include "kernels/device.h"
#include "sim/program/optimizer_ops.h"

namespace rehearse::execute {

// Operands in the order of optimizer_ops.h; but for the gradient and the values all are fp32.
inline void call_adafactor_parts(const program::AdafactorParts& a, const CallContext& context, kernels::Device& device,
                                 std::span<const kernels::Out> reads, std::span<const kernels::Out> writes) {
  const auto f32 = [](const kernels::Out& operand) { return static_cast<float*>(operand.data); };
  const std::vector<kernels::AdafactorTensor> tensors = tensors_here(a, context);
  const kernels::Adafactor rule{0, 0, context.scenario.training.weight_decay, context.step};
  const float* const coefficient = a.clip ? f32(reads[1]) : nullptr;
  const std::size_t next = a.clip ? 2 : 1;
  if (a.part == program::AdafactorPart::sums)
    return device.adafactor_sums(a.elements, tensors, reads[0], coefficient, a.sums, f32(writes[0]));
  if (a.part == program::AdafactorPart::squares)
    return device.adafactor_squares(a.elements, rule, tensors, reads[0], coefficient,
                                    a.sums > 0 ? f32(reads[next]) : nullptr, f32(writes[0]), f32(writes[1]));
  device.adafactor_apply(a.elements, rule, tensors, reads[0], coefficient, f32(reads[next]), f32(reads[next + 1]),
                         writes[0], a.master ? f32(writes[1]) : nullptr);
}

}  // namespace rehearse::execute
