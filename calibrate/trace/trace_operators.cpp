#include "calibrate/trace/trace_operators.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

namespace rehearse::calibrate::trace {
namespace {

using program::DType;

constexpr std::int64_t kMost = 1'000'000'000'000;  // elements of anything that fits a device

Found left_out(std::string why) {
  return {std::nullopt, std::move(why), "", false};
}
Found found(Shape shape, std::string used_as) {
  return {std::move(shape), "", std::move(used_as), false};
}

std::optional<DType> dtype_of(std::string_view type) {
  if (type.starts_with("c10::")) type.remove_prefix(5);
  if (type == "BFloat16") return DType::bf16;
  if (type == "Half") return DType::f16;
  if (type == "float" || type == "Float") return DType::f32;
  if (type == "int" || type == "Int") return DType::i32;
  return std::nullopt;
}

std::optional<DType> float_of(const Operator& op, std::size_t input) {
  if (input >= op.inputs.size()) return std::nullopt;
  const auto dtype = dtype_of(op.inputs[input].type);
  return dtype && *dtype != DType::i32 ? dtype : std::nullopt;
}

bool sound(const std::vector<std::int64_t>& dims, std::size_t least) {
  std::int64_t all = 1;
  for (const std::int64_t d : dims) {
    if (d <= 0 || all > kMost / d) return false;
    all *= d;
  }
  return dims.size() >= least;
}

bool has(const Operator& op, std::size_t input, std::size_t least) {
  return input < op.inputs.size() && sound(op.inputs[input].dims, least);
}

std::int64_t last(const Tensor& t) {
  return t.dims.back();
}
std::int64_t rows_of(const Tensor& t) {
  return t.elements() / last(t);
}

std::optional<std::int64_t> integer_at(const Operator& op, std::size_t input) {
  if (input >= op.scalars.size()) return std::nullopt;
  std::int64_t value = 0;
  const std::string& text = op.scalars[input];
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A row-major matrix [rows, cols] has strides [cols, 1]; the transpose of one [1, rows].
enum class Layout : unsigned char { plain, transposed, unknown };
Layout layout_of(const Tensor& t) {
  if (t.strides.size() != 2) return Layout::unknown;
  if (t.strides[1] == 1 || t.dims[1] == 1) return Layout::plain;
  return t.strides[0] == 1 || t.dims[0] == 1 ? Layout::transposed : Layout::unknown;
}

// A [m, k] times B [k, n], inputs `a` and `a + 1`.
Found product_found(const Operator& op, std::size_t a, bool bias) {
  if (!has(op, a, 2) || !has(op, a + 1, 2)) return left_out("its operator has no shapes");
  const Tensor &A = op.inputs[a], &B = op.inputs[a + 1];
  const auto dtype = float_of(op, a);
  if (!dtype) return left_out("a product of a type that no program has");
  if (A.dims.size() != 2 || B.dims.size() != 2 || A.dims[1] != B.dims[0]) return left_out("a product of other shapes");
  const Layout la = layout_of(A), lb = layout_of(B);
  ProductShape shape;
  shape.layout = la != Layout::unknown && lb != Layout::unknown;
  shape.key = {*dtype,    *dtype,   la == Layout::transposed, lb == Layout::transposed, false, bias, A.dims[0],
               B.dims[1], A.dims[1]};
  return found(shape, "products");
}

// torch.nn.functional.linear where it is not taken apart: x [..., k], weight [n, k].
Found linear_found(const Operator& op) {
  if (!has(op, 0, 2) || !has(op, 1, 2)) return left_out("its operator has no shapes");
  const auto dtype = float_of(op, 0);
  if (!dtype || op.inputs[1].dims.size() != 2 || last(op.inputs[0]) != op.inputs[1].dims[1])
    return left_out("a product of other shapes");
  ProductShape shape;
  shape.key = {*dtype,
               *dtype,
               false,
               true,
               false,
               has(op, 2, 1),
               rows_of(op.inputs[0]),
               op.inputs[1].dims[0],
               op.inputs[1].dims[1]};
  return found(shape, "products");
}

Found batched_found(const Operator& op) {
  if (!has(op, 0, 3) || !has(op, 1, 3) || op.inputs[0].dims[0] != 1 || op.inputs[1].dims[0] != 1)
    return left_out("a batched product, of which device files hold none");
  Operator flat = op;
  for (std::size_t i = 0; i < 2; ++i) {
    flat.inputs[i].dims.erase(flat.inputs[i].dims.begin());
    if (!flat.inputs[i].strides.empty()) flat.inputs[i].strides.erase(flat.inputs[i].strides.begin());
  }
  return product_found(flat, 0, false);
}

// Fused attention: where query, key and the flag is_causal stand among the inputs, and whether a tensor is [batch,
// heads, seq, dim] (PyTorch's) or [batch, seq, heads, dim] (the kernel's own). flash_attn_3's are those of its
// TORCH_LIBRARY (Dao-AILab/flash-attention hopper/flash_api.cpp).
struct AttentionOperator {
  std::string_view name;
  std::size_t query, causal;
  bool heads_first, backward;
};
constexpr std::array<AttentionOperator, 12> kAttention = {{
    {"aten::_scaled_dot_product_flash_attention", 0, 4, true, false},
    {"aten::_scaled_dot_product_flash_attention_backward", 1, 11, true, true},
    {"aten::_flash_attention_forward", 0, 8, false, false},
    {"aten::_flash_attention_backward", 1, 11, false, true},
    {"aten::_scaled_dot_product_cudnn_attention", 0, 6, true, false},
    {"aten::_scaled_dot_product_cudnn_attention_backward", 1, 14, true, true},
    {"aten::_cudnn_attention_forward", 0, 10, true, false},
    {"aten::_cudnn_attention_backward", 1, 14, true, true},
    {"flash_attn::_flash_attn_forward", 0, 5, false, false},
    {"flash_attn::_flash_attn_backward", 1, 11, false, true},
    {"flash_attn_3::fwd", 0, 24, false, false},
    {"flash_attn_3::bwd", 1, 16, false, true},
}};

program::AttentionKernel attention_kernel(const Operator& op, const std::string& kernel) {
  if (op.name.find("cudnn") != std::string::npos || kernel.find("cudnn") != std::string::npos)
    return program::AttentionKernel::cudnn;
  const bool third = op.name.starts_with("flash_attn_3::") || kernel.find("FlashAttnFwdSm90") != std::string::npos ||
                     kernel.find("FlashAttnBwdSm90") != std::string::npos || kernel.find("flash3") != std::string::npos;
  if (third) return program::AttentionKernel::flash3;
  return op.name.starts_with("aten::") ? program::AttentionKernel::sdpa_flash : program::AttentionKernel::flash2;
}

Found attention_found(const Operator& op, const AttentionOperator& how, const std::string& kernel) {
  if (!has(op, how.query, 4) || !has(op, how.query + 1, 4)) return left_out("its operator has no shapes");
  const auto dtype = float_of(op, how.query);
  const std::vector<std::int64_t>&q = op.inputs[how.query].dims, &k = op.inputs[how.query + 1].dims;
  const std::size_t heads = how.heads_first ? 1 : 2, seq = how.heads_first ? 2 : 1;
  if (!dtype || q.size() != 4 || k.size() != 4 || q[seq] != k[seq] || q[heads] % k[heads] != 0)
    return left_out("attention of other shapes than a program has");
  AttentionShape shape{
      attention_kernel(op, kernel), *dtype, how.backward, true, q[0], q[seq], q[heads], k[heads], q[3]};
  const std::string said = how.causal < op.scalars.size() ? op.scalars[how.causal] : "";
  shape.causal = said != "False";
  Found answer = found(shape, "attention");
  answer.causal_assumed = said != "True" && said != "False";
  return answer;
}

Found memory_found(const char* kind, DType dtype, std::int64_t bytes) {
  return found(MemoryShape{kind, dtype, bytes}, "kernels bound by memory");
}
Found part_found(const char* name, DType dtype, std::int64_t rows, std::int64_t cols) {
  return found(PartShape{name, dtype, rows, cols}, "kernels bound by memory");
}

// Statistics of a layer norm are two fp32 numbers a row, of an RMS norm one.
Found norm_found(const Operator& op, const std::string& kernel, bool rms, bool backward) {
  const std::size_t x = backward ? 1 : 0;
  const auto dtype = float_of(op, x);
  if (!has(op, x, 2) || !dtype) return left_out("its operator has no shapes");
  const std::int64_t cols = last(op.inputs[x]), rows = rows_of(op.inputs[x]), size = size_of(*dtype);
  const std::int64_t all = rows * cols * size, stats = rows * (rms ? 4 : 8);
  const bool bias = !rms && has(op, backward ? 6 : 3, 1);
  if (!backward)
    return memory_found(rms ? "rms_norm_forward" : "layer_norm_forward", *dtype,
                        2 * all + stats + cols * size * (bias ? 2 : 1));
  if (is_weight_pass(kernel))  // fp32 gradients, read and written
    return memory_found(rms ? "rms_norm_backward_weight" : "layer_norm_backward_weight", *dtype,
                        2 * all + stats + 8 * cols * (bias ? 2 : 1));
  return memory_found(rms ? "rms_norm_backward_input" : "layer_norm_backward_input", *dtype,
                      3 * all + stats + cols * size);
}

Found copy_found(const Operator& op) {
  const auto to = float_of(op, 0), from = float_of(op, 1);
  if (!has(op, 0, 1) || !has(op, 1, 1) || !to || !from) return left_out("a copy of a type that no program has");
  if (op.inputs[0].elements() != op.inputs[1].elements()) return left_out("a copy that broadcasts");
  return memory_found(*to == *from ? "copy" : "cast", *to, op.inputs[0].elements() * (size_of(*to) + size_of(*from)));
}

// Sums of two tensors of one shape; in place they accumulate.
Found add_found(const Operator& op, bool in_place) {
  const auto dtype = float_of(op, 0);
  if (!dtype || !has(op, 0, 1) || !has(op, 1, 1) || op.inputs[0].dims != op.inputs[1].dims)
    return left_out("an addition that broadcasts");
  const auto other = float_of(op, 1);
  const std::int64_t n = op.inputs[0].elements();
  return memory_found(in_place ? "accumulate" : "add", *dtype,
                      n * (2 * size_of(*dtype) + size_of(other.value_or(*dtype))));
}

// dense: table [rows, cols], ids; backward: gradient [..., cols], ids, rows as a number.
Found embedding_found(const Operator& op, bool backward) {
  const std::size_t ids = backward ? 1 : op.name == "aten::index_select" ? 2 : 1;
  if (!has(op, 0, 2) || !has(op, ids, 1)) return left_out("its operator has no shapes");
  const auto dtype = float_of(op, 0);
  const std::int64_t tokens = op.inputs[ids].elements(), cols = last(op.inputs[0]);
  const auto rows = backward ? integer_at(op, 2) : std::optional(op.inputs[0].dims[0]);
  if (!dtype || !rows || *rows <= 0 || *rows > kMost) return left_out("an embedding without its number of rows");
  const std::int64_t used = std::min(tokens, *rows) * cols;
  if (!backward)
    return memory_found("embedding_forward", *dtype, 4 * tokens + (used + tokens * cols) * size_of(*dtype));
  return memory_found("embedding_backward", *dtype, tokens * cols * size_of(*dtype) + 4 * tokens + 8 * used);
}

Found rows_part(const Operator& op, std::size_t input, const char* name) {
  const auto dtype = float_of(op, input);
  if (!has(op, input, 2) || !dtype) return left_out("its operator has no shapes");
  return part_found(name, *dtype, rows_of(op.inputs[input]), last(op.inputs[input]));
}

Found elementwise_part(const Operator& op, const char* name, bool both) {
  const auto dtype = float_of(op, 0);
  if (!has(op, 0, 1)) return left_out("its operator has no shapes");
  if (!dtype) return left_out("a kernel on a type that no program has");
  if (both && (!has(op, 1, 1) || op.inputs[0].dims != op.inputs[1].dims)) return left_out("a product that broadcasts");
  return part_found(name, *dtype, 1, op.inputs[0].elements());
}

Found memory_bound(const Operator& op, const std::string& kernel) {
  const std::string_view name = op.name;
  const auto elements = [&](const char* kind, std::int64_t times) {
    const auto dtype = float_of(op, 0);
    if (!has(op, 0, 1) || !dtype) return left_out("its operator has no shapes");
    return memory_found(kind, *dtype, times * op.inputs[0].elements() * size_of(*dtype));
  };
  if (name == "aten::native_layer_norm") return norm_found(op, kernel, false, false);
  if (name == "aten::native_layer_norm_backward") return norm_found(op, kernel, false, true);
  if (name == "aten::_fused_rms_norm") return norm_found(op, kernel, true, false);
  if (name == "aten::_fused_rms_norm_backward") return norm_found(op, kernel, true, true);
  if (name == "aten::gelu") return elements("gelu_forward", 2);
  if (name == "aten::gelu_backward") return elements("gelu_backward", 3);
  if (name == "aten::silu") return elementwise_part(op, "silu", false);
  if (name == "aten::silu_backward") return elementwise_part(op, "silu_backward", false);
  if (name == "aten::mul") return elementwise_part(op, "multiply", true);
  if (name == "aten::add") return add_found(op, false);
  if (name == "aten::add_") return add_found(op, true);
  if (name == "aten::copy_") return copy_found(op);
  if (name == "aten::embedding" || name == "aten::index_select") return embedding_found(op, false);
  if (name == "aten::embedding_dense_backward") return embedding_found(op, true);
  if (name == "aten::_log_softmax") return rows_part(op, 0, "log_softmax");
  if (name == "aten::_log_softmax_backward_data") return rows_part(op, 0, "log_softmax_backward");
  if (name == "aten::nll_loss_forward") return rows_part(op, 0, "nll_loss");
  if (name == "aten::nll_loss_backward") return rows_part(op, 1, "nll_loss_backward");
  if (name == "aten::_fused_adamw_") {
    if (!has(op, 0, 1)) return left_out("its operator has no shapes");
    // As the program's fused step with an fp32 master copy counts them.
    return memory_found("adamw", DType::f32, 32 * op.inputs[0].elements() + 4);
  }
  if (name.starts_with("aten::_foreach_")) return left_out("a foreach optimizer's kernel, one of many for each step");
  return left_out("an operator that no program's op is measured by");
}

struct CollectiveName {
  std::string_view name;
  program::CollectiveKind kind;
};
// As ProcessGroupNCCL records them.
constexpr std::array<CollectiveName, 15> kCollectives = {{
    {"allreduce", program::CollectiveKind::all_reduce},
    {"all_reduce", program::CollectiveKind::all_reduce},
    {"_allgather_base", program::CollectiveKind::all_gather},
    {"allgather", program::CollectiveKind::all_gather},
    {"all_gather", program::CollectiveKind::all_gather},
    {"_reduce_scatter_base", program::CollectiveKind::reduce_scatter},
    {"reduce_scatter", program::CollectiveKind::reduce_scatter},
    {"broadcast", program::CollectiveKind::broadcast},
    {"_broadcast_oop", program::CollectiveKind::broadcast},
    {"all_to_all", program::CollectiveKind::all_to_all},
    {"all_to_allv", program::CollectiveKind::all_to_all},
    {"alltoall_base", program::CollectiveKind::all_to_all},
    // Of lists of tensors in one kernel, whose elements are counted together.
    {"allreduce_coalesced", program::CollectiveKind::all_reduce},
    {"allgather_into_tensor_coalesced", program::CollectiveKind::all_gather},
    {"reduce_scatter_tensor_coalesced", program::CollectiveKind::reduce_scatter},
}};

std::int64_t size_of_type(std::string_view type) {
  if (const auto dtype = dtype_of(type)) return size_of(*dtype);
  if (type == "Long" || type == "Double") return 8;
  if (type == "Byte" || type == "Char" || type == "Bool" || type.starts_with("Float8")) return 1;
  return 0;
}

}  // namespace

bool is_weight_pass(const std::string& kernel) {
  return kernel.find("GammaBeta") != std::string::npos || kernel.find("gamma_beta") != std::string::npos;
}

bool is_nccl_kernel(const std::string& kernel) {
  return kernel.starts_with("nccl");
}

std::string collective_of_kernel(const std::string& kernel) {
  if (!is_nccl_kernel(kernel)) return "";
  constexpr std::array<std::pair<std::string_view, const char*>, 4> kNames = {{{"AllReduce", "allreduce"},
                                                                               {"AllGather", "all_gather"},
                                                                               {"ReduceScatter", "reduce_scatter"},
                                                                               {"Broadcast", "broadcast"}}};
  for (const auto& [part, name] : kNames)
    if (kernel.find(part) != std::string::npos) return name;
  return "";
}

std::string why_no_kernel(const std::string& name) {
  if (name.find("DtoD") != std::string::npos) return "";
  if (name.starts_with("Memset")) return "a fill that is no kernel";
  return "a copy between memories";
}

Found of_operator(const Operator& op, const std::string& kernel) {
  const std::string_view name = op.name;
  const auto attention =
      std::find_if(kAttention.begin(), kAttention.end(), [&](const AttentionOperator& a) { return a.name == name; });
  if (attention != kAttention.end()) return attention_found(op, *attention, kernel);
  if (name.find("efficient_attention") != std::string_view::npos)
    return left_out("memory-efficient attention, which no framework profile has");
  if (name == "aten::mm") return product_found(op, 0, false);
  if (name == "aten::addmm") return product_found(op, 1, true);
  if (name == "aten::linear") return linear_found(op);
  if (name == "aten::bmm") return batched_found(op);
  if (name == "aten::baddbmm") return left_out("a batched product, of which device files hold none");
  if (name == "aten::_scaled_mm") return left_out("an 8-bit product");
  const auto called = [&](const char* part) { return name.find(part) != std::string_view::npos; };
  if (name.starts_with("triton_") || kernel.starts_with("triton_") || called("CompiledFunction") ||
      called("CompiledFxGraph") || called("Torch-Compiled Region"))
    return left_out("fused by torch.compile");
  return memory_bound(op, kernel);
}

Found of_collective(const Collective& c, int gpus_per_node, int world) {
  const auto known =
      std::find_if(kCollectives.begin(), kCollectives.end(), [&](const CollectiveName& n) { return n.name == c.name; });
  if (known == kCollectives.end())
    return left_out(c.name == "send" || c.name == "recv" ? "a message between two ranks, whose time is mostly waiting"
                                                         : "a collective that device files do not hold");
  const std::int64_t size = size_of_type(c.dtype);
  if (c.size < 2) return left_out("a collective of one rank, or of a group whose size was not recorded");
  if (size == 0 || c.in <= 0) return left_out("a collective whose bytes were not recorded");
  std::set<int> nodes;
  for (const int rank : c.ranks) nodes.insert(rank / gpus_per_node);
  int count = static_cast<int>(nodes.size());
  if (count == 0 && (world > 0 && world <= gpus_per_node)) count = 1;
  if (count == 0 && c.size == world) count = (c.size + gpus_per_node - 1) / gpus_per_node;
  if (count == 0) return left_out("a collective whose ranks were not recorded");
  if (c.size % count != 0) return left_out("a collective of unequally many ranks a node");
  // In: a rank's own tensor, which for an all-gather is a part of the whole.
  const bool gathers = known->kind == program::CollectiveKind::all_gather;
  const std::int64_t elements = gathers ? std::max(c.out, c.in * c.size) : std::max(c.in, c.out);
  if (elements > kMost) return left_out("a collective whose bytes were not recorded");
  return found(CollectiveShape{known->kind, c.size, count, elements * size}, "collectives");
}

}  // namespace rehearse::calibrate::trace
