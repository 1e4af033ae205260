// Calls of what is done to a network's maps beside convolutions and norms. Operands in the order of
// sim/program/image_ops.h.
#pragma once

#include <span>

#include "kernels/device.h"
#include "sim/program/image_ops.h"

namespace rehearse::execute {

inline void call_pool(const program::Pool2d& p, kernels::Device& device, std::span<const kernels::Out> reads,
                      std::span<const kernels::Out> writes) {
  const auto places = [](const kernels::Out& operand) { return static_cast<std::int32_t*>(operand.data); };
  if (!p.plain()) {
    const kernels::PoolShape s{p.batch, p.channels, p.height, p.width, p.window, p.step(), p.pad};
    if (p.backward) return device.max_pool_backward(s, reads[0], places(reads[1]), writes[0]);
    return device.max_pool_forward(s, reads[0], writes[0], places(writes[1]));
  }
  if (p.backward)
    return device.pool_backward(p.batch, p.channels, p.height, p.width, p.window, reads[0], places(reads[1]),
                                writes[0]);
  device.pool_forward(p.batch, p.channels, p.height, p.width, p.window, reads[0], writes[0], places(writes[1]));
}

inline void call_average_pool(const program::AveragePool& p, kernels::Device& device,
                              std::span<const kernels::Out> reads, std::span<const kernels::Out> writes) {
  const std::int64_t planes = p.batch * p.channels;
  if (p.backward) return device.average_pool_backward(planes, p.pixels, reads[0], writes[0]);
  device.average_pool_forward(planes, p.pixels, reads[0], writes[0]);
}

inline void call_channel_scale(const program::ChannelScale& s, kernels::Device& device,
                               std::span<const kernels::Out> reads, std::span<const kernels::Out> writes) {
  const std::int64_t planes = s.batch * s.channels;
  if (s.backward)
    return device.channel_scale_backward(planes, s.pixels, reads[0], reads[1], reads[2], writes[0], writes[1]);
  device.channel_scale_forward(planes, s.pixels, reads[0], reads[1], writes[0]);
}

}  // namespace rehearse::execute
