// Calls of a device for copies in 8 bits, and for products of groups of rows that read them (sim/program/op.h).
#pragma once

#include <span>

#include "execute/rank/kernel_call.h"

namespace rehearse::execute {

// Of a copy of a matrix whose rows (`columns`: whose columns) products sum over.
kernels::Fp8Layout fp8_layout(const plan::Training& training, std::int64_t rows, std::int64_t cols, bool columns);

// fp8_amax, fp8_cast, fp8_cast_transpose, fp8_transpose, fp8_widen, fp8_scale_update.
void call_fp8(const program::Elementwise& e, std::span<const kernels::Out> reads, std::span<const kernels::Out> writes,
              const CallContext& c);
void call_fp8(const program::GroupedGemm& g, std::span<const kernels::Out> reads, std::span<const kernels::Out> writes,
              const CallContext& c);

}  // namespace rehearse::execute
