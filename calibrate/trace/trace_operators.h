// Which product, attention, memory-bound kernel or collective a call of an operator was, by the operator's name and the
// shapes of its inputs (PyTorch's native_functions.yaml). Operators that a program's op is the sum of (silu and the
// product after it; log_softmax and nll_loss) are parts. Bytes are those that the program's op counts
// (sim/program/work.cpp), so that the op finds its measurement.
//
// Leaves out, with the reason: batched products and unfused attention (which of its products one is cannot be told
// from its shape), 8-bit products, memory-efficient attention, kernels that torch.compile fused, foreach optimizers,
// sends and receives (their time is mostly waiting).
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <variant>

#include "calibrate/trace/kineto_trace.h"
#include "sim/cost/measured_device.h"
#include "sim/program/op.h"

namespace rehearse::calibrate::trace {

struct ProductShape {
  cost::ProductKey key;
  bool layout = true;  // known: strides were recorded
  friend auto operator<=>(const ProductShape&, const ProductShape&) = default;
};
struct AttentionShape {
  program::AttentionKernel kernel = program::AttentionKernel::best;
  program::DType dtype = program::DType::bf16;
  bool backward = false, causal = true;
  std::int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  friend auto operator<=>(const AttentionShape&, const AttentionShape&) = default;
};
// A kernel bound by memory; bytes as the program's op counts them.
struct MemoryShape {
  std::string kind;  // program::kind_name
  program::DType dtype = program::DType::f32;
  std::int64_t bytes = 0;
  friend auto operator<=>(const MemoryShape&, const MemoryShape&) = default;
};
// One of several operators whose times make a program's op.
struct PartShape {
  std::string name;  // "silu", "multiply", "log_softmax", ...
  program::DType dtype = program::DType::f32;
  std::int64_t rows = 0, cols = 0;  // elementwise: rows 1
  friend auto operator<=>(const PartShape&, const PartShape&) = default;
};
struct CollectiveShape {
  program::CollectiveKind kind = program::CollectiveKind::all_reduce;
  int ranks = 0, nodes = 1;
  std::int64_t bytes = 0;  // of the full tensor
  friend auto operator<=>(const CollectiveShape&, const CollectiveShape&) = default;
};
using Shape = std::variant<ProductShape, AttentionShape, MemoryShape, PartShape, CollectiveShape>;

// What a call's kernels were. Without a shape: why they are left out.
struct Found {
  std::optional<Shape> shape;
  std::string why;
  std::string used_as;          // "products", "attention", ...
  bool causal_assumed = false;  // attention whose flag was not recorded
};

// Whether a kernel of a norm's backward is that of its weights: one pass of two, and an op of its own.
bool is_weight_pass(const std::string& kernel);
// `kernel`: the name of the call's first one.
Found of_operator(const Operator& op, const std::string& kernel);
// Of a copy between this GPU's memory and another's or the host's, and of a fill: why no operator's shape says what it
// was. "": a copy within this GPU's memory, as a kernel would make it.
std::string why_no_kernel(const std::string& name);
// "allreduce", "all_gather", ... of a kernel of NCCL or RCCL, by its name alone
// (ncclDevKernel_AllReduce_Sum_bf16_RING_LL, ncclKernel_AllGather_RING_LL_Sum_int8_t); "": of none, or of one whose
// name does not say (ncclDevKernel_Generic; of SendRecv, how many of which).
std::string collective_of_kernel(const std::string& kernel);
bool is_nccl_kernel(const std::string& kernel);
// `world`: ranks in all, 0 if the trace does not say.
Found of_collective(const Collective& collective, int gpus_per_node, int world);

}  // namespace rehearse::calibrate::trace
