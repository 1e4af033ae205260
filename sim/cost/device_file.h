// What a device file holds (calibrate/devices/NAME.yaml, schema rehearse_device: 1) and the tables next to it. Every
// number in a shipped file carries its source in a comment. A file with `measurements_for: NAME` holds only tables:
// more measurements of the device NAME, which replace equal shapes read before.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/cost/gemm_model.h"
#include "sim/cost/measured_device.h"

namespace rehearse::cost {

// Kernels that move bytes, by how near to the nominal bandwidth they come.
enum class MemoryClass : unsigned char {
  elementwise,
  activation,
  dropout,
  norm,
  norm_weight,
  softmax,
  cross_entropy,
  embedding,
  embedding_grad,
  optimizer,
  reduction,
  pool
};
inline constexpr std::array<std::string_view, 12> kMemoryClasses = {
    "elementwise",   "activation", "dropout",        "norm",      "norm_weight", "softmax",
    "cross_entropy", "embedding",  "embedding_grad", "optimizer", "reduction",   "pool"};

// 8-bit products with a 16-bit result.
struct Fp8Gemm {
  bool known = false;  // the file says something of them; else the constants of 16-bit products hold
  bool measured_here = true;
  GemmConstants constants;
  std::vector<Tile> tiles;
  Range sustained, interpolated, extrapolated;
  // Products of backward, whose partial sums are promoted to fp32 as they go (cuBLASLt without FAST_ACCUM), against the
  // table's: a factor of the time.
  Range split_accumulation;
  // The same of kernels for scales of rows, which accumulate as the table's do.
  Range row_scales;
  std::vector<GemmPoint> points;

  // A factor of the table's time, of a product in 8 bits; nullptr: none.
  const Range* against_table(const program::Op& op) const;
};

struct GemmData {
  GemmConstants constants;
  std::vector<Tile> tiles;
  Range sustained;                   // share of the table's rates that a long run reaches
  bool measured_here = true;         // the table is this device's own, not a sibling's
  UnalignedLoop unaligned;           // of products in 16 bits
  double accumulate_exposed = 1;     // share of the extra traffic of fp32 accumulation that is not hidden
  double convolution = 1;            // implicit-gemm convolutions against the product of the same size
  bool tensor_cores_f32 = true;      // fp32 is multiplied by tensor cores (TF32)
  double cores_f32 = 0;              // FLOP/s of fp32 on ordinary cores; 0: not known
  double efficiency_f32 = 0;         // of fp32's main loop, in the place of `constants`' own; 0: as that
  Range sustained_f32;               // of fp32, in the place of `sustained`
  Range interpolated, extrapolated;  // measured / predicted, low and high
  bool intervals_given = false;
  std::vector<GemmPoint> points;  // bf16 and f16 alike
  std::vector<GemmPoint> points_f32;
  Fp8Gemm fp8;

  // UnalignedLoop of a product; ordinary cores take elements one by one, however rows begin.
  Range loop_of(program::DType type, int alignment) const {
    if (type != program::DType::f32) return unaligned.of(alignment);
    return tensor_cores_f32 ? UnalignedLoop().of(alignment) : Range{};
  }
};

// rate: of the FLOPs that causality leaves, at many tiles of 128 rows; tail: idle time at the end, in tiles; ramp: keys
// at which half the rate is reached.
struct FlashRate {
  double rate = 0, tail = 0, ramp = 0, head_dim_64 = 1;
};
struct FlashPoint {
  bool backward = false, causal = true;
  std::int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t value_dim = 0;   // 0: head_dim
  double flops_per_second = 0;  // all keys counted
  bool added = false;           // by a later file of measurements: of this very device
};
// One fused attention kernel on the device.
struct FlashKernel {
  FlashRate forward, backward;
  Range scale;  // this device's rate over that of the device measured
  bool measured_here = true;
  Range error;  // measured / model
  std::vector<FlashPoint> points;
  // Queries and keys wider than values, if they were measured; perhaps on another device than the others.
  std::optional<FlashRate> wide_forward, wide_backward;
  Range wide_scale;
  std::vector<FlashPoint> wide_points;
  // Backward under training.deterministic: its time over the usual; or the gradients of all scores go through memory,
  // from the kernel that makes them to one that multiplies them.
  Range deterministic;
  bool deterministic_given = false, deterministic_scores = false;
};
struct FlashData {
  FlashKernel fastest;
  program::AttentionKernel fastest_is = program::AttentionKernel::best;  // if the file says which
  std::map<program::AttentionKernel, FlashKernel> others;  // their points: of rows that name them, and of later files
  // nullptr: not listed.
  const FlashKernel* find(program::AttentionKernel kernel) const;
};

// A measured kernel of any kind: what it did and how long it took.
struct KernelPoint {
  std::string kind;  // program::kind_name
  program::DType dtype = program::DType::f32;
  double flops = 0, bytes = 0, seconds = 0;
};

struct DeviceData {
  Device device;
  Bandwidth host_bandwidth;  // copies from the host
  Time kernel_time;          // of a kernel that does next to nothing
  std::array<double, kMemoryClasses.size()> memory_efficiency{};
  double memory_saturates = 1;  // share of the SMs that saturates the memory
  Range memory_error;
  // Of a calibrated GPU: time of a kernel bound by memory in the steps of a program over its time alone, with operands
  // in no cache. Of kernels timed alone that take kLeastInSteps or more; launches decide shorter ones.
  std::array<double, kMemoryClasses.size()> in_steps = [] {
    std::array<double, kMemoryClasses.size()> ones{};
    ones.fill(1);
    return ones;
  }();
  static constexpr double kLeastInSteps = 20e-6;
  GemmData gemm;
  FlashData flash;
  std::vector<KernelPoint> kernels;
  MeasuredDevice measured;  // of a calibration
  double efficiency(MemoryClass c) const { return memory_efficiency[static_cast<std::size_t>(c)]; }
};

// The device that X.yaml adds measurements to; "" if it is no such file. Throws InputError if it cannot be read.
std::string measurements_for(const std::string& file);
// The first file is the device, later ones add measurements. Throws InputError with all problems of all files.
DeviceData read_device_files(const std::vector<std::string>& files);

}  // namespace rehearse::cost
