// Fused attention's time from its shape. Rows of 128 queries are a tile:
//   T = flops / rate * (1 + tail * SMs / tiles) * (1 + ramp / keys),
// with the FLOPs and keys that causality leaves, and half the tail where tiles are alike (no causality). Between heads
// of 64 and 128 columns the rate is on a line, above it stays. Where queries and keys are wider than values (latent
// attention, 192 and 128) the kernel has a rate, tail and ramp of its own if it was measured; else the mean width
// decides, a judgement. With a window a tile of queries takes the tiles of 128 keys that any of its queries sees, in
// the place of all up to the diagonal: FLOPs and keys are those of causal attention times the share of its tiles that
// are left (FlashAttention-2 and -3 leave out the others: n_block_min in their forward kernels), and the more tiles of
// queries are alike, the nearer is the tail to half. Sequences packed of documents are as
// many sequences of that length. Leaves out: what bytes take (device_costs.cpp takes the larger of the two).
//
// Dropout takes clock cycles of a multiprocessor for each score that is kept, whatever the products take: random
// numbers are made beside the tensor cores, by the units that exponentials need (Ma et al. 2024, arXiv 2410.07531). How
// many is of one measurement, of FlashAttention-4 on GB200: with dropout it reaches 75 to 85% of its rate forward and
// 60 to 70% backward (Dao-AILab/flash-attention#2597). 0.80 of 1494 TFLOP/s and 0.65 of 971, as it is timed without at
// 192 and 128 columns (#2270, causal), on 148 multiprocessors at 2 GHz and heads of 128 columns. By that dropout makes
// heads of 128 columns 3 and 7% slower on 48 multiprocessors of a GB10, where -11 to +5 and +1 to +6% were measured
// (#2439).
#pragma once

#include <vector>

#include "sim/cost/device_file.h"
#include "sim/program/op.h"

namespace rehearse::cost {

// FLOPs of one pass, all keys counted: 2 products forward, 5 backward.
double flash_flops(const FlashPoint& point);
// Tiles of keys that all tiles of queries of one head take, causal; window 0: none.
std::int64_t visited_tiles(std::int64_t seq, std::int64_t window);
// `flops`: of the op (program::work_of). `sms` of the device's `device_sms` are left; `scale` multiplies the rate.
double flash_compute_seconds(const program::Attention& a, const FlashRate& rate, double scale, double flops,
                             int device_sms, double sms);

// What dropout adds on `sms` multiprocessors of a clock in Hz; 0 where nothing is dropped.
double flash_dropout_seconds(const program::Attention& a, double flops, double sms, double hertz);

// FlashAttention-2's deterministic backward. As many blocks a head as make one wave on the device, each of which takes
// every n-th tile of 128 keys and adds to gradients of queries of its own, in fp32, which another kernel adds up
// (flash_bwd_launch_template.h, gridDimx; flash_api.cpp, dq_accum). Multiprocessors take a block each, in the order of
// launches: the time of the last over that of all of them evenly busy.
struct SplitBackward {
  std::int64_t blocks = 1;  // of a head
  double makespan = 1;      // of one multiprocessor's share of all work
};
SplitBackward split_backward(const program::Attention& a, int device_sms, int sms);
// Bytes of all blocks' gradients of queries.
std::int64_t split_backward_bytes(const program::Attention& a, int device_sms);
// Bytes of the gradients of all scores, in 16 bits, that cuDNN's deterministic backward writes for another kernel to
// read.
std::int64_t score_gradients_bytes(const program::Attention& a);
// The time of its products: as flash_compute_seconds, with that makespan in the place of the tail.
double flash_split_seconds(const program::Attention& a, const FlashRate& rate, double scale, double flops,
                           int device_sms, int sms);

// The rate, tail and ramp that minimise the mean |log(measured / model)| over the points of one direction, by
// coordinate descent from `start`: deterministic. `fixed`: of every kernel, seconds.
FlashRate fit_flash_rate(const std::vector<FlashPoint>& points, bool backward, int device_sms, double fixed,
                         FlashRate start);

}  // namespace rehearse::cost
