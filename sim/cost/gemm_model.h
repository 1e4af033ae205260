// A matrix product's time from its shape: T = launch + max(compute, bytes / bandwidth) with
//   compute = waves * (wave + tile * tm * tn + K/s * (2 tm tn / (efficiency * peak / SMs) + edge * (tm + tn))) +
//   splits, waves   = ceil(batch * ceil(M/tm) * ceil(N/tn) * s / SMs),
// for the best tile tm x tn and split s of K: products run tile by tile, one wave of tiles over all multiprocessors
// after another (T = t0 + w (a + b K), as NeuSight, arXiv 2407.13853, and WaveTune, arXiv 2604.10187, use). `edge` is
// what loading a tile's two operand edges costs, so small tiles are slower per FLOP. A device without tiles (a CPU) has
// smooth waves: compute = FLOPs / (efficiency * peak). Unaligned rows are loaded element by element, where others are
// by 16 bytes: K takes longer (UnalignedLoop). The library picks tile and split for the whole device: beside
// communication the same tiles run on fewer multiprocessors, in more waves. Leaves out: cache reuse between tiles.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cost/range.h"

namespace rehearse::cost {

struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  double element_bytes = 2;
  double traffic = 0;       // bytes moved, where that is not each operand once (convolutions)
  double result_bytes = 0;  // of an element of the result; 0: as of the operands
  int alignment = 16;  // bytes, at most 16, that the length of each row as stored, of operands and result, divides by
  double loop = 1;     // how many times as long rows of that alignment make the main loop (UnalignedLoop)
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(batch);
  }
  double bytes() const;
};

// Times a main loop whose rows do not all begin at multiples of 16 bytes over one whose rows do: of rows at multiples
// of 4 or 8 bytes, which can still be loaded in the background, and at others. A device file says what was measured on
// the device; else the less of two in bf16 that others timed, and from none to the more. RTX 4090, squares of 2,040 to
// 2,073: 155.9 over 106.8 to 115.6 TFLOP/s, 1.40 (pytorch issue 181718); B200, 1157 x 4096 by 4096 x 1157: 99.08 over
// 61.01 us, with the padding, 1.62 (pytorch pull request 196992).
struct UnalignedLoop {
  Range even{1.40, 1.0, 1.62}, odd{1.40, 1.0, 1.62};

  Range of(int alignment) const { return alignment >= 16 ? Range{} : alignment % 4 == 0 ? even : odd; }
};

struct Tile {
  int m = 0, n = 0;
};

// In seconds; fitted on one element type, applied to others through the machine's peak and the element's size.
struct GemmConstants {
  double efficiency = 0.9;  // of peak, inside the main loop
  double launch = 3e-6;     // per product
  double wave = 0;          // per wave: prologue and epilogue latency
  double tile = 0;          // per wave and tile element: writing the result
  double edge = 0;          // per K and element of tile edge
  double split = 0;         // per product whose K is split
  double partials = 0;      // traffic of partial sums, as a share of the memory's rate
};

struct GemmMachine {
  int sms = 1;
  double peak = 0;       // FLOP/s of the whole device, for the operands' type
  double bandwidth = 0;  // bytes/s reachable
  std::vector<Tile> tiles;
};

// What is left of the machine during communication.
struct GemmShare {
  int sms = 1;
  double bandwidth = 0;
};

struct GemmSeconds {
  double alone = 0, beside = 0;  // beside >= alone
};
GemmSeconds gemm_seconds(const GemmMachine& machine, const GemmConstants& constants, const GemmShape& shape,
                         const GemmShare& share);
// The machine that the library picks tile and split for.
struct GemmLibrary {
  const GemmMachine& machine;
  const GemmConstants& constants;
};
// With what it picks for another machine, for what-ifs: a pick of its own for a faster one might fill just one wave,
// and take two during communication, so that the faster machine were slower.
GemmSeconds gemm_seconds(const GemmMachine& machine, const GemmConstants& constants, const GemmShape& shape,
                         const GemmShare& share, const GemmLibrary& library);
double gemm_seconds(const GemmMachine& machine, const GemmConstants& constants, const GemmShape& shape);

struct GemmPoint {
  GemmShape shape;
  double seconds = 0;
};
// The constants that minimise the mean |log(measured / model)| over the points, by coordinate descent from `start`:
// deterministic, and robust because it weighs a point that is far off no more than one that is near.
GemmConstants fit_gemm_constants(const GemmMachine& machine, const std::vector<GemmPoint>& points, GemmConstants start);
double mean_log_error(const GemmMachine& machine, const GemmConstants& constants, const std::vector<GemmPoint>& points);

}  // namespace rehearse::cost
