// Calls of a device's kernels::CpuOnlyCalls, with the operands that sim/program/op.h names.
#pragma once

#include <span>

#include "execute/rank/kernel_call.h"

namespace rehearse::execute {

// The parts `sinks` and `sink_gradient`; `shape` is the attention's.
void call_sinks(const kernels::AttentionShape& shape, const program::Attention& a, std::span<const kernels::Out> reads,
                std::span<const kernels::Out> writes, const CallContext& c);
// `up`: where it is an operand of its own.
void call_swiglu_oai(const program::Activation& a, kernels::In up, std::span<const kernels::Out> reads,
                     std::span<const kernels::Out> writes, const CallContext& c);
void call_grouped_bias(const program::GroupedBias& g, std::span<const kernels::Out> reads,
                       std::span<const kernels::Out> writes, const CallContext& c);
void call_row_scale(const program::RowScale& r, std::span<const kernels::Out> reads,
                    std::span<const kernels::Out> writes, const CallContext& c);

}  // namespace rehearse::execute
