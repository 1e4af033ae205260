// Which model costs an op: a matrix product (also attention's unfused ones and convolutions as implicit products),
// fused attention, a copy from the host, or a kernel bound by memory, and of which class.
#pragma once

#include <optional>

#include "sim/cost/device_file.h"
#include "sim/cost/gemm_model.h"
#include "sim/program/program.h"

namespace rehearse::cost {

// The product an op amounts to; nullopt if it is none. `traffic` is set for convolutions, from their real operands.
std::optional<GemmShape> product_of(const program::Role& role, const program::Op& op);
bool is_flash(const program::Op& op);
// By which times of kernels of a kind are compared: `flops` of the op (program::work_of). Those count all keys of
// causal attention, half of which it computes; of a window, most of whose keys are computed, they become as many as
// causal attention counts for as much.
double comparable_flops(const program::Op& op, double flops);
MemoryClass memory_class(const program::Op& op);

}  // namespace rehearse::cost
