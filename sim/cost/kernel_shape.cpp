// The table of kernel_shape.h: op kinds to the model that costs them.
#include "sim/cost/kernel_shape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <variant>

#include "sim/base/window.h"
#include "sim/program/work.h"

namespace rehearse::cost {
namespace {

using namespace program;

// S = Q K^T is [seq, keys, head_dim] per head, dP = dO V^T as wide as values; products with a probability matrix or its
// gradient are [seq, that width, keys], or for keys and values [keys, that width, seq].
std::optional<GemmShape> attention_product(const Attention& a) {
  const std::int64_t batch = a.micro_batch * a.heads;
  switch (a.part) {
    case AttentionPart::scores:
      return GemmShape{a.seq, a.compared(), a.head_dim, batch};
    case AttentionPart::context_backward_probs:
      return GemmShape{a.seq, a.compared(), a.values(), batch};
    case AttentionPart::context:
      return GemmShape{a.seq, a.values(), a.compared(), batch};
    case AttentionPart::context_backward_value:
      return GemmShape{a.compared(), a.values(), a.seq, batch};
    case AttentionPart::scores_backward_query:
      return GemmShape{a.seq, a.head_dim, a.compared(), batch};
    case AttentionPart::scores_backward_key:
      return GemmShape{a.compared(), a.head_dim, a.seq, batch};
    default:
      return std::nullopt;
  }
}

// Implicit products as cuDNN's are (NVIDIA, Convolutional Layers User's Guide, "Implicit GEMM dimensions"): forward
// [N P Q, K, C R S], inputs' gradients [N H W, C, K R S], weights' [K, C R S, N P Q]. With a stride only every
// stride^2-th element of the window meets an output's gradient.
//
// Groups are as many products, of few columns each. As many as fill the narrowest tile, 64, are taken as one product of
// all their maps, zeros where input and output are of two groups: a tile multiplies these in either case, and so for 4
// maps a group does 16 times what counts (a judgement: cuDNN's tiles are not known).
GemmShape convolution_product(const Conv2d& c) {
  constexpr std::int64_t kTile = 64;
  const std::int64_t outputs = c.batch * c.out_height() * c.out_width(), window = c.kernel * c.kernel;
  const std::int64_t wide = std::max(c.group_in(), c.group_out());
  const std::int64_t together = std::clamp<std::int64_t>(kTile / wide, 1, c.groups);
  const std::int64_t in = together * c.group_in(), out = together * c.group_out(),
                     products = (c.groups + together - 1) / together;
  switch (c.part) {
    case ConvPart::forward:
      return {outputs, out, in * window, products};
    case ConvPart::backward_input:
      return {c.batch * c.height * c.width, in, (out * window + c.stride * c.stride - 1) / (c.stride * c.stride),
              products};
    case ConvPart::backward_weight:
      return {out, in * window, outputs, products};
  }
  return {};
}

// As many products as there are groups, whose tiles run together where one kernel does all (a judgement). Where each is
// launched on its own they take their times one after the other (DeviceCosts::product), although Transformer Engine has
// several streams for them: so do 93 that others timed on a B200 (tests/unit/cost/grouped_b200.csv). Rows are taken as
// even, which makes the least tiles.
// Where few tokens choose, as many products as groups are expected to be chosen.
GemmShape grouped_product(const GroupedGemm& g) {
  const std::int64_t groups = g.chosen > 0 ? std::max<std::int64_t>(1, std::llround(g.chosen)) : g.groups;
  const std::int64_t rows = (g.rows + groups - 1) / groups;
  switch (g.part) {
    case GroupedPart::forward:
      return {rows, g.n, g.k, groups};
    case GroupedPart::backward_input:
      return {rows, g.k, g.n, groups};
    case GroupedPart::backward_weight:
      return {g.n, g.k, rows, groups};
  }
  return {};
}

// One product of as many FLOPs as an iteration's three, and as many of them as there are iterations.
GemmShape muon_product(const program::Muon& m) {
  const std::int64_t r = m.small(), c = m.rows + m.cols - r;
  return {r, c, 2 * r + r * r / c, 5 * m.matrices};
}

MemoryClass elementwise_class(const Elementwise& e) {
  switch (e.fn) {
    case ElementwiseFn::dropout:
      return MemoryClass::dropout;
    case ElementwiseFn::bias_dropout_add:
      return e.dropout > 0 ? MemoryClass::dropout : MemoryClass::elementwise;
    case ElementwiseFn::bias_grad:
    case ElementwiseFn::position_grad:
    case ElementwiseFn::fp8_amax:
      return MemoryClass::reduction;
    default:
      return MemoryClass::elementwise;
  }
}

MemoryClass attention_class(const Attention& a) {
  switch (a.part) {
    case AttentionPart::softmax:
    case AttentionPart::softmax_backward:
      return MemoryClass::softmax;
    case AttentionPart::bias_gradient:
    case AttentionPart::sink_gradient:
      return MemoryClass::reduction;
    case AttentionPart::dropout:
      return MemoryClass::dropout;
    default:
      return MemoryClass::elementwise;
  }
}

struct ClassOf {
  MemoryClass operator()(const Norm& n) const {
    return n.part == NormPart::backward_weight ? MemoryClass::norm_weight : MemoryClass::norm;
  }
  MemoryClass operator()(const HeadNorm& n) const {
    return n.part == NormPart::backward_weight ? MemoryClass::norm_weight : MemoryClass::norm;
  }
  MemoryClass operator()(const StateSpace& s) const {
    if (s.part == StateSpacePart::norm || s.part == StateSpacePart::norm_backward) return MemoryClass::norm;
    return s.part == StateSpacePart::gate_backward ? MemoryClass::activation : MemoryClass::elementwise;
  }
  MemoryClass operator()(const Activation&) const { return MemoryClass::activation; }
  MemoryClass operator()(const Elementwise& e) const { return elementwise_class(e); }
  MemoryClass operator()(const Attention& a) const { return attention_class(a); }
  MemoryClass operator()(const GroupedBias& g) const {
    return g.part == GroupedBiasPart::forward ? MemoryClass::elementwise : MemoryClass::reduction;
  }
  MemoryClass operator()(const Permute&) const { return MemoryClass::embedding; }
  MemoryClass operator()(const Router&) const { return MemoryClass::softmax; }
  MemoryClass operator()(const Embedding& e) const {
    return e.backward ? MemoryClass::embedding_grad : MemoryClass::embedding;
  }
  MemoryClass operator()(const EmbeddingBags& e) const {
    return e.part == BagPart::forward ? MemoryClass::embedding : MemoryClass::embedding_grad;
  }
  MemoryClass operator()(const BinaryCrossEntropy& b) const {
    return b.backward ? MemoryClass::elementwise : MemoryClass::reduction;
  }
  MemoryClass operator()(const Lamb&) const { return MemoryClass::optimizer; }
  MemoryClass operator()(const AdafactorParts& a) const {
    return a.part == AdafactorPart::sums ? MemoryClass::reduction : MemoryClass::elementwise;
  }
  MemoryClass operator()(const CrossEntropy&) const { return MemoryClass::cross_entropy; }
  MemoryClass operator()(const MeanSquaredError& m) const {
    return m.backward ? MemoryClass::elementwise : MemoryClass::reduction;
  }
  MemoryClass operator()(const Optimizer&) const { return MemoryClass::optimizer; }
  MemoryClass operator()(const OuterStep& o) const {
    return o.part == OuterPart::update ? MemoryClass::optimizer : MemoryClass::elementwise;
  }
  MemoryClass operator()(const Compress& c) const {
    if (c.code.sent == GradientCode::Sent::all) return MemoryClass::elementwise;
    return c.decompress ? MemoryClass::embedding_grad : MemoryClass::reduction;
  }
  MemoryClass operator()(const LowRank& l) const {
    return l.part == LowRankPart::orthogonalise ? MemoryClass::reduction : MemoryClass::elementwise;
  }
  MemoryClass operator()(const CountedTargets&) const { return MemoryClass::reduction; }
  MemoryClass operator()(const SumSquares&) const { return MemoryClass::reduction; }
  MemoryClass operator()(const Pool2d&) const { return MemoryClass::pool; }
  MemoryClass operator()(const AveragePool& p) const {
    return p.backward ? MemoryClass::elementwise : MemoryClass::reduction;
  }
  MemoryClass operator()(const ChannelScale&) const { return MemoryClass::elementwise; }
  MemoryClass operator()(const BatchNorm& n) const {
    return n.part == BatchNormPart::normalise ? MemoryClass::elementwise : MemoryClass::norm;
  }
  MemoryClass operator()(const auto&) const { return MemoryClass::elementwise; }
};

// Lengths of the rows of an op's matrices as stored; of convolutions, whose channels cuDNN pads, and of what is no
// product none.
std::array<std::int64_t, 3> rows_of(const Op& op) {
  if (const auto* g = std::get_if<Gemm>(&op.shape))
    return {g->transpose_a ? g->m : g->k, g->transpose_b ? g->k : g->n, g->n};
  if (const auto* g = std::get_if<GroupedGemm>(&op.shape)) return {g->k, g->n, g->n};
  if (const auto* a = std::get_if<Attention>(&op.shape)) return {a->head_dim, a->values(), a->compared()};
  return {};
}

}  // namespace

std::optional<GemmShape> product_of(const Role& role, const Op& op) {
  std::optional<GemmShape> shape;
  if (const auto* gemm = std::get_if<Gemm>(&op.shape)) shape = GemmShape{gemm->m, gemm->n, gemm->k, gemm->batch};
  if (const auto* grouped = std::get_if<GroupedGemm>(&op.shape)) {
    shape = grouped_product(*grouped);
    if (grouped->chosen > 0) {
      const Work work = work_of(role, op);
      shape->traffic = static_cast<double>(work.bytes_read + work.bytes_written);
    }
  }
  if (const auto* attention = std::get_if<Attention>(&op.shape)) shape = attention_product(*attention);
  if (const auto* conv = std::get_if<Conv2d>(&op.shape)) {
    shape = convolution_product(*conv);
    const Work work = work_of(role, op);
    shape->traffic = static_cast<double>(work.bytes_read + work.bytes_written);
  }
  if (const auto* muon = std::get_if<program::Muon>(&op.shape); muon != nullptr && muon->multiplies()) {
    shape = muon_product(*muon);
    const Work work = work_of(role, op);
    shape->traffic = static_cast<double>(work.bytes_read + work.bytes_written);
  }
  if (shape) shape->element_bytes = static_cast<double>(size_of(op.dtype));
  if (shape && op.dtype == DType::e2m1) shape->element_bytes = 0.5 + 1.0 / 16;  // with its scales
  if (shape && size_of(op.dtype) > 1)
    for (const std::int64_t elements : rows_of(op))
      shape->alignment = std::gcd(shape->alignment, static_cast<int>(elements * size_of(op.dtype) % 16));
  if (shape && is_narrow(op.dtype)) shape->result_bytes = static_cast<double>(size_of(DType::bf16));
  return shape;
}

std::optional<GemmShape> winograd_product(const Conv2d& c) {
  if (c.kernel != 3 || c.stride != 1 || c.groups != 1) return std::nullopt;
  const std::int64_t tiles = c.batch * ((c.out_height() + 1) / 2) * ((c.out_width() + 1) / 2);
  switch (c.part) {
    case ConvPart::forward:
      return GemmShape{tiles, c.c_out, c.c_in, 16};
    case ConvPart::backward_input:
      return GemmShape{tiles, c.c_in, c.c_out, 16};
    case ConvPart::backward_weight:
      return GemmShape{c.c_out, c.c_in, tiles, 16};
  }
  return std::nullopt;
}

double comparable_flops(const program::Op& op, double flops) {
  const auto* a = std::get_if<Attention>(&op.shape);
  if (a == nullptr || a->window == 0 || !is_flash(op)) return flops;
  // More than queries where a context group gathers them; of packed sequences a document's.
  const std::int64_t keys = a->document > 0 ? std::min(a->document, a->compared()) : a->compared();
  return flops * window_share(keys, a->window) * static_cast<double>(keys) / static_cast<double>(a->window);
}

bool is_flash(const Op& op) {
  const auto* a = std::get_if<Attention>(&op.shape);
  const bool flash = a && (a->part == AttentionPart::flash_forward || a->part == AttentionPart::flash_backward);
  return flash && a->cached == 0;
}

// PyTorch widens 16 bits to fp32 at 1,948 GB/s on an H100, and casts fp32 to 16 bits at 2,997 (16,384 x 4,096;
// PyTorch 2.11, tests/gpu/records/2026-11-26-h100-80gb-hbm3/torch_kernels.csv); of logits of 16,384 x 50,304 it is
// 1,940. Other GPUs: taken to be alike, a judgement.
// What Inductor generates for a cast to 8 bits that writes a transpose reaches 1.4 to 1.5 TB/s on an H100, where its
// other kernels around 8-bit products reach 2.0 to 2.2 (pytorch/pytorch#133242, of 2024).
double share_of_class(const Op& op) {
  constexpr double kUnrolledCast = 0.65, kGeneratedTranspose = 0.69;
  const auto* e = std::get_if<Elementwise>(&op.shape);
  if (e == nullptr || !e->unrolled) return 1;
  return e->fn == program::ElementwiseFn::fp8_cast_transpose ? kGeneratedTranspose : kUnrolledCast;
}

MemoryClass memory_class(const Op& op) {
  return std::visit(ClassOf{}, op.shape);
}

// Two blocks of 512 threads a multiprocessor, 16 threads a pixel of 64 channels in 16 bits, and a thread has 5 pixels
// in registers and 10 in shared memory in forward, 3 and 5 of x and of dy in backward: 120 KiB and 128 KiB
// (lanchongyizu/ngc-mxnet src/operator/nn/cudnn/nhwc_batch_norm_add_relu.h; the same numbers on V100 and A100). That
// cuDNN's kernels of maps that lie channel by channel keep as much is a judgement.
double read_once(const program::Role& role, const Op& op, int sms) {
  const auto* norm = std::get_if<program::BatchNorm>(&op.shape);
  if (norm == nullptr || norm->kept_channels == 0) return 0;
  const bool backward = norm->part == program::BatchNormPart::backward;
  const double on_chip = static_cast<double>(sms) * (backward ? 128 << 10 : 120 << 10);
  double again = 0;  // of all channels: x, in backward dy too
  for (std::size_t i = 0; i < (backward ? 2U : 1U); ++i)
    again += static_cast<double>(role.buffers[static_cast<std::size_t>(op.reads[i].buffer)].bytes());
  const double channels = static_cast<double>(std::min(norm->kept_channels, norm->channels));
  return std::min(again, on_chip * static_cast<double>(norm->channels) / channels);
}

}  // namespace rehearse::cost
