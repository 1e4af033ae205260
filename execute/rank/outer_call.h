// A call of program::OuterStep.
#pragma once

#include <span>

#include "kernels/device.h"
#include "sim/program/outer_step.h"

namespace rehearse::execute {

// Operands in the order of outer_step.h; all that is fp32 there is so here.
inline void call_outer_step(const program::OuterStep& o, kernels::Device& device, std::span<const kernels::Out> reads,
                            std::span<const kernels::Out> writes) {
  using program::OuterPart;
  const auto f32 = [](const kernels::Out& operand) { return static_cast<float*>(operand.data); };
  if (o.part == OuterPart::difference)
    return device.outer_difference(o.elements, f32(reads[0]), f32(reads[1]), f32(writes[0]));
  const std::size_t param = o.part == OuterPart::mean ? 0 : o.momentum ? 2 : 1;
  float* const master = o.master ? f32(writes[param + 1]) : nullptr;
  if (o.part == OuterPart::mean) return device.outer_mean(o.elements, o.workers, f32(reads[0]), writes[param], master);
  device.outer_update(o.elements, {o.workers, o.lr, o.mu}, f32(reads[0]), f32(writes[0]),
                      o.momentum ? f32(writes[1]) : nullptr, writes[param], master);
}

}  // namespace rehearse::execute
