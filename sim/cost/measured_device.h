// What a calibration of a GPU adds to a device file (`rehearse calibrate --device cuda`; keys in docs/data.md): tables
// as literal blocks of comma-separated rows, so that a calibration is one file. Products carry the tile, the split and
// the waves that the library reported, every other kernel its exact shape; times are device times of one kernel, in
// bursts and, where it was measured, in a run of ten seconds. Rows marked `held_out` were kept out of the calibration:
// costs never read them, comparisons do.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/document.h"
#include "sim/cost/gemm_model.h"
#include "sim/program/program.h"

namespace rehearse::cost {

// What tells one product from another. `out`: type of C. Batched products are not measured.
struct ProductKey {
  program::DType dtype = program::DType::bf16, out = program::DType::bf16;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;
  std::int64_t m = 0, n = 0, k = 0;
  program::Epilogue epilogue = program::Epilogue::none;
  // Only sizes and types tell it from others.
  bool plain() const { return out == dtype && !accumulate && epilogue == program::Epilogue::none; }
  friend auto operator<=>(const ProductKey&, const ProductKey&) = default;
};

struct ProductPoint {
  ProductKey key;
  Tile tile;                   // zeros: the library did not tell
  int stages = 0;              // of the main loop's pipeline; 0: not known
  int split = 1;               // of K
  double waves = 0;            // as the library counts them (tiles over what the device runs at once); 0: not known
  double seconds = 0;          // as performed, in a burst
  double sustained = 0;        // in performed steps, or in a long run of products; 0: not measured
  double first = 0, best = 0;  // the library's first choice, and the fastest of those it offered; 0: not measured
  double p10 = 0, p90 = 0;
  std::int64_t repetitions = 0;
  bool held_out = false;
  std::string algorithm = {};  // the library's, by a name that a performance records too; "": not known
};

// Any other kernel. operands: types of what it reads and writes, "bf16 bf16>bf16 f32".
struct ShapePoint {
  std::string kind, shape, operands;
  program::DType dtype = program::DType::f32;
  double flops = 0, bytes = 0;
  double seconds = 0, sustained = 0, p10 = 0, p90 = 0;
  std::int64_t repetitions = 0;
  bool held_out = false;
};

struct CopyPoint {
  std::string direction;  // to_device, from_device, on_device, to_peer
  std::int64_t bytes = 0;
  double seconds = 0;
};

// A product during a kernel that holds multiprocessors, or one that moves memory.
struct InterferencePoint {
  ProductKey key;
  int sms_held = 0;
  double bandwidth_taken = 0;  // bytes/s
  double slowdown = 1;         // of the product
};

// Host time from one launch to the next, and what lies between two kernels on the device.
struct LaunchTimes {
  double plain = 0, graph = 0;          // host seconds a kernel: launched alone, in a graph of many
  double plain_gap = 0, graph_gap = 0;  // device seconds from one kernel's end to the next one's start
};

struct MeasuredDevice {
  std::vector<ProductPoint> products;
  std::vector<ShapePoint> shapes;
  std::vector<CopyPoint> copies;
  std::vector<InterferencePoint> interference;
  LaunchTimes launch;
  bool empty() const { return products.empty() && shapes.empty(); }
};

// Columns of the tables, in the order they are written.
const std::vector<std::string>& product_columns();
const std::vector<std::string>& shape_columns();
const std::vector<std::string>& copy_columns();
const std::vector<std::string>& interference_columns();

// Reads the sections `products`, `shapes`, `copies`, `interference` and `launch` of a device file;
// each may be absent.
void read_measured(const Node& root, MeasuredDevice& measured, Diagnostics& diagnostics);

// The key of an op that is one product, and its operand types as ShapePoint has them.
ProductKey product_key(const program::Role& role, const program::Op& op);
std::string operand_types(const program::Role& role, const program::Op& op);
// "nt bf16>f32 accumulate bias_gradient": what a product is besides its sizes; n and t are A's and B's transposition.
std::string form_text(const ProductKey& key);

}  // namespace rehearse::cost
