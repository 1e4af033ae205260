// What an op has to do, from its kind and shape: the one place where FLOPs and bytes are counted; costs, MFU and
// reports all read it.
#pragma once

#include <vector>

#include "sim/base/units.h"
#include "sim/program/program.h"

namespace rehearse::program {

struct Work {
  double flops = 0;             // multiply-add counts 2; only matrix products, attention and convolutions have any
  std::int64_t bytes_read = 0;  // device memory traffic, each operand once (embedding: the rows used)
  std::int64_t bytes_written = 0;
};

// Work of one kernel. Causal attention is counted in full, as everywhere in Rehearse (MFU formulas of the field do so).
// With a window flash parts count its keys for each query, unfused ones all of the sequence, as they compute what is
// masked. Unfused attention parts: scores, context and the four backward products are matrix products of 2*b*h*s*s*d
// FLOPs each; flash_forward counts 2 products, flash_backward 5 (it recomputes the scores). Transfers have no work here
// (see bytes_of).
Work work_of(const Role& role, const Op& op);

// How often PyTorch's log_softmax reads a row of so many bytes: for its maximum, for the sum, and to write the result;
// once where the row stays on the chip (aten/src/ATen/native/cuda/SoftMax.cu, cunn_SoftMaxForward and its variants). On
// an A100 an element of fp32 takes 17.1 to 17.6 bytes of traffic in rows of 128 to 512 KiB, 12.9 in rows of 64 KiB
// (linkedin/Liger-Kernel@ead96b61 benchmark/data/all_benchmark_data.csv, cross_entropy, forward, huggingface).
std::int64_t log_softmax_reads(std::int64_t row_bytes);

// Bytes of a collective's full tensor, or of one leg.
std::int64_t collective_bytes(const Op& op);
// Of an all-to-all, by member, or a row of these for each (Collective); `bytes`: of all that one sends. Equal ones if
// `parts` is -1.
std::vector<Bytes> part_bytes(const Program& program, std::int32_t parts, std::int64_t bytes, std::size_t members);
std::int64_t leg_bytes(const Op& op, const Leg& leg);

}  // namespace rehearse::program
