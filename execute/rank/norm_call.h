// Calls of a device for norms of rows and of heads, with the operands that sim/program/op.h names.
#pragma once

#include <span>

#include "kernels/device.h"
#include "sim/program/op.h"

namespace rehearse::execute {

void call_norm(kernels::Device& device, const program::Norm& n, std::span<const kernels::Out> reads,
               std::span<const kernels::Out> writes);
void call_head_norm(kernels::Device& device, const program::HeadNorm& n, std::span<const kernels::Out> reads,
                    std::span<const kernels::Out> writes);

}  // namespace rehearse::execute
