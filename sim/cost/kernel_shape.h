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
// A convolution of 3x3 and stride 1 by Winograd's F(2x2, 3x3): 16 products of a quarter of the outputs, 2.25 times
// fewer multiplications (Lavin and Gray 2015, arXiv 1509.09308, section 4.1). nullopt for others.
std::optional<GemmShape> winograd_product(const program::Conv2d& conv);
bool is_flash(const program::Op& op);
// By which times of kernels of a kind are compared: `flops` of the op (program::work_of). Those count all keys of
// causal attention, half of which it computes; of a window, most of whose keys are computed, they become as many as
// causal attention counts for as much.
double comparable_flops(const program::Op& op, double flops);
MemoryClass memory_class(const program::Op& op);
// What this kernel reaches of the memory's bandwidth, as a share of what others of its class do.
double share_of_class(const program::Op& op);
// Bytes of an op's traffic (program::work_of) that a chip of so many multiprocessors is spared: what batch
// normalisation keeps of its channels between their sums and their normalising (BatchNorm::kept_channels).
double read_once(const program::Role& role, const program::Op& op, int sms);

}  // namespace rehearse::cost
