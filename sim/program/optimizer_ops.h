// Shapes of what ends a step (op.h has all others): gradients on the wire, their norm, optimizers, the loss scale.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/axis.h"
#include "sim/base/gradient_code.h"

namespace rehearse::program {

// One step of AdamW or SGD on a flat range: {grad, coefficient f32 [1]?, param, master f32?, exp_avg?, exp_avg_sq?,
// exp_avg_largest?, exp_avg_sq_largest?} -> {param, master?, exp_avg?, exp_avg_sq?, exp_avg_largest?,
// exp_avg_sq_largest?}. With a master copy the parameter is written as its cast; the averages are f32, or both bf16, or
// both u8: codes of blocks of kMomentBlock elements, which `elements` is a multiple of, and of each block the largest
// absolute value, f32 (sim/base/moment_codes.h). The coefficient multiplies the gradient; not a number: nothing
// changes.
struct Optimizer {
  bool adam = true, master = false, clip = false;
  std::int64_t elements = 0;
  bool separate = false;    // a pass an arithmetic operation (costs; the result is the same)
  bool eight_bits = false;  // moments are codes of blocks
  friend bool operator==(const Optimizer&, const Optimizer&) = default;
};
// One step of Adafactor on a tensor [rows, cols] whose second moments are kept as means of rows and of columns, or with
// rows = 0 on one of `cols` elements whose second moments are kept whole: {grad, coefficient f32 [1]?, param, master
// f32?, row f32 [rows]?, col f32 [cols]} -> {param, master?, row?, col}. Shazeer and Stern 2018 (arXiv 1804.04235,
// algorithms 4 and 5), without first moment, with a learning rate that is given (as fairseq's adafactor.py and that of
// Hugging Face Transformers with relative_step, scale_parameter and warmup_init False):
//   s = g^2 + 1e-30, beta2 = 1 - t^-0.8 in step t = 1, 2, ...; row = beta2 row + (1 - beta2) mean of s over columns,
//   col likewise over rows; u = g / sqrt(row col / mean of row), or g / sqrt(col) with rows = 0;
//   u /= max(1, rms of u / d), d = 1; param -= lr weight_decay param + lr u.
struct Adafactor {
  bool master = false, clip = false;
  std::int64_t rows = 0, cols = 0;
  std::int64_t elements() const { return rows > 0 ? rows * cols : cols; }
  friend bool operator==(const Adafactor&, const Adafactor&) = default;
};
// The same of tensors of which ranks have parts, in a flat range of `elements`, from place * elements on of the range
// that the tensors lie in, place being the rank's among those that differ on `shards` only:
//   sums     {grad, coefficient?} -> {sums f32}: of each matrix the sums of s along its rows and its columns, 0 where
//            this rank has none, to be added up over all ranks that have parts;
//   squares  {grad, coefficient?, sums?, means f32} -> {means, squares f32 [tensors]}: the means, and of each tensor
//            the sum of u^2 here, to be added up likewise;
//   apply    {grad, coefficient?, means, squares, param, master?} -> {param, master?}.
// means: of each tensor rows + cols of the whole matrix, or all elements of what is none (where a tensor group splits
// it, of the rank's part; those of other ranks' shards stay 0). A coefficient that is not a number: nothing changes.
// `once`: every rank of a tensor group has the same, and the first counts it.
struct AdafactorTensor {
  std::int64_t offset = 0, elements = 0;  // of the rank's part of the tensor group
  std::int64_t rows = 0, cols = 0;        // of the whole; rows 0: no matrix
  std::int64_t own_cols = 0;              // of the part: fewer where the group splits columns
  std::int64_t block = 0;                 // where it splits rows: as many are one rank's, the next the next one's; or 0
  std::int64_t parts = 1;                 // ranks of the tensor group that have one
  std::int64_t whole = 0;                 // elements of all parts
  std::int64_t means = 0, sums = 0;       // where its own begin
  bool once = false;
  std::int64_t summed() const { return rows > 0 ? rows + cols : 0; }
  std::int64_t kept() const { return rows > 0 ? rows + cols : elements; }
  friend bool operator==(const AdafactorTensor&, const AdafactorTensor&) = default;
};
enum class AdafactorPart : unsigned char { sums, squares, apply };
struct AdafactorParts {
  AdafactorPart part = AdafactorPart::sums;
  bool master = false, clip = false;
  std::int64_t elements = 0;
  AxisSet shards = {};
  std::int64_t means = 0, sums = 0;  // elements
  std::vector<AdafactorTensor> tensors;
  friend bool operator==(const AdafactorParts&, const AdafactorParts&) = default;
};
// One step of Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon, with Nesterov momentum, and the
// scale and weight decay of Liu et al. 2025, arXiv 2502.16982, section 2.2) on `matrices` matrices [rows, cols] in a
// tensor of `elements`: {grad, coefficient f32 [1]?, param, master f32?, momentum f32} -> {param, master?, momentum,
// scratch}:
//   momentum = mu momentum + g; X = g + mu momentum; X /= |X|_F + 1e-7; five times A = X X^T, X = a X + (b A + c A A) X
//   with (a, b, c) = (3.4445, -4.7750, 2.0315), X transposed meanwhile where rows > cols;
//   param -= lr (0.2 sqrt(max(rows, cols)) X + weight_decay param).
// Matrices follow one another. Each may be made of `blocks` equal runs of rows, the first one at row `first`, each
// beginning `apart` rows after the one before, in a tensor of blocks * apart rows (queries, keys or values of packed
// qkv). scratch, of the op's type, is X twice and A twice; what it holds is not read before it is written.
// Where a tensor group splits the matrices it takes two steps. momentum {grad, coefficient?, momentum} -> {momentum,
// u [elements] of the op's type}: the first, u = g + mu momentum. update {u [parts * elements], param, master?} ->
// {param, master?, scratch}: the others, X being made of u of all `parts` ranks of the group, in its order, each of
// which has as many of a matrix's rows, or with by_columns of its columns; param is this rank's part of the result.
// Where ranks have shards of layers (ZeRO-3) it takes three: momentum, of a rank's shard; orthogonal {u [parts *
// elements]} -> {x [elements], scratch}, of a whole layer, where the tensor begins at element `offset`: X, times its
// 0.2 sqrt(max(rows, cols)), or this rank's part of it; apply {x, coefficient?, param, master?} -> {param, master?}, of
// a shard again: param -= lr (x + weight_decay param). x may be the buffer of u.
enum class MuonPart : unsigned char { whole, momentum, update, orthogonal, apply };
struct Muon {
  MuonPart part = MuonPart::whole;
  bool master = false, clip = false;
  std::int64_t elements = 0, matrices = 1, rows = 0, cols = 0, blocks = 1, apart = 0, first = 0;
  std::int64_t parts = 1;  // of whole matrices, which `rows` and `cols` are of
  bool by_columns = false;
  std::int64_t offset = 0;
  // Whether it makes matrices orthogonal, which the other parts, of single elements, do not.
  bool multiplies() const { return part != MuonPart::momentum && part != MuonPart::apply; }
  std::int64_t small() const { return rows < cols ? rows : cols; }
  std::int64_t scratch() const { return 2 * (rows * cols + small() * small()); }
  friend bool operator==(const Muon&, const Muon&) = default;
};
// A bucket's gradients as they go over the wire (plan.gradient_compression; sim/base/gradient_code.h). compress {grad,
// residual f32?} -> {packed, residual?}: with `feedback` the residual, what earlier steps did not send, is added first,
// and is then what this one does not (error feedback: Seide et al. 2014; Karimireddy et al. 2019, arXiv 1901.09847).
// decompress {packed of all members} -> {grad}: the sum of what `members` sent, in their order. packed: u8
// [code.bytes()] of each member; fp32 [kept] where what they send adds up (GradientCode::adds_up), of which there is
// one sum. What is drawn at random is drawn by `site`, and rounding by the rank's place among those that differ from it
// on `spread` only.
//
// Corrected (Lin et al. 2017, arXiv 1712.01887, Deep Gradient Compression, section 3.1 and algorithm 1 with momentum
// factor masking): compress {grad, residual, momentum f32, coefficient f32 [1]?} -> {packed, residual, momentum}, with
// u = mu u + coefficient g, v += u, what is sent of v taken from it, and u = 0 in the places that were sent.
struct Compress {
  bool decompress = false, feedback = false, corrected = false, clip = false;
  GradientCode code = {};
  std::int64_t members = 1;
  int site = 0;
  AxisSet spread = {};
  friend bool operator==(const Compress&, const Compress&) = default;
};
// What PowerSGD (Vogels et al. 2019, arXiv 1905.13727) does besides products, of a bucket of `elements`, fp32:
//   orthogonalise {x [rows, rank]} -> {x}: its columns, made orthonormal one after the other (Gram-Schmidt, each column
//     twice: Giraud et al. 2005, "The loss of orthogonality in the Gram-Schmidt orthogonalization process"), divided by
//     their norm + epsilon; one that nothing is left of becomes the next unit vector, as QR would have it;
//   pack {gradients} -> {rest}, unpack {rest} -> {gradients}: what no matrix is made of, one behind the other;
//   keep {gradients, residual} -> {residual}: error feedback: residual -= gradients / members, 0 in the rest. The
//     gradients are sums over the members by now, of which each counts as 1 / members.
struct FlatRange {
  std::int64_t offset = 0, elements = 0;
  friend bool operator==(const FlatRange&, const FlatRange&) = default;
};
enum class LowRankPart : unsigned char { orthogonalise, pack, unpack, keep };
struct LowRank {
  LowRankPart part = LowRankPart::orthogonalise;
  std::int64_t rows = 0, rank = 0;
  double epsilon = 0;
  std::int64_t elements = 0, members = 1;
  std::vector<FlatRange> rest = {};
  std::int64_t packed() const {
    std::int64_t sum = 0;
    for (const FlatRange& r : rest) sum += r.elements;
    return sum;
  }
  friend bool operator==(const LowRank&, const LowRank&) = default;
};
// LAMB (You et al. 2019, arXiv 1904.00962, algorithm 2) on a flat range of several tensors, or of a rank's shards of
// them: `elements` from place * elements on of the range that the tensors lie in, place being that among the ranks that
// differ on `shards` only. moments {grad, coefficient f32 [1]?, value, exp_avg f32, exp_avg_sq f32} -> {exp_avg,
// exp_avg_sq, u f32, squares f32 [tensors, 2]}: the moments as AdamW has them, the update u = m / (sqrt(v) + eps) +
// weight_decay w with corrected moments, and of each tensor the sum of the squares of w and of u in the range, 0 for
// those that only the first rank of a tensor group counts (`once`). apply {u, squares, coefficient?, param, master
// f32?}
// -> {param, master?}: w -= lr r u with the trust ratio r = |w| / |u| of each tensor, 1 where one of the two is 0.
// `value` is the master if there is one. A coefficient that is not a number: nothing changes.
struct LambTensor {
  std::int64_t offset = 0, elements = 0;
  bool once = false;
  friend bool operator==(const LambTensor&, const LambTensor&) = default;
};
enum class LambPart : unsigned char { moments, apply };
struct Lamb {
  LambPart part = LambPart::moments;
  bool master = false, clip = false;
  std::int64_t elements = 0;
  AxisSet shards = {};
  std::vector<LambTensor> tensors;
  friend bool operator==(const Lamb&, const Lamb&) = default;
};
// {grad, sum f32 [1]} -> {sum}: adds the squares of the range. `copies` consecutive ranks of the tensor group have the
// same gradients: only the first of them, whose tensor coordinate is a multiple of it, adds.
struct SumSquares {
  std::int64_t elements = 0;
  std::int64_t copies = 1;
  friend bool operator==(const SumSquares&, const SumSquares&) = default;
};
// With training.ignored_token the mean is over targets that count. Sum {targets i32 [rows], counted f32 [2]} ->
// {counted}: its first number grows by the targets that are not CrossEntropy::kNoTarget, of which `copies` consecutive
// ranks of the tensor group have the same, on the first of them. Mean {loss f32 [1], counted} -> {loss}: over the
// first number; 0 where that is.
struct CountedTargets {
  bool mean = false;
  std::int64_t rows = 0;
  std::int64_t copies = 1;
  friend bool operator==(const CountedTargets&, const CountedTargets&) = default;
};
// {sum f32 [1], loss_scale f32 [2]?} -> {coefficient f32 [1]}: min(1, max_norm / (norm + 1e-6)) / scale with norm =
// sqrt(sum) / scale, as torch.nn.utils.clip_grad_norm_ of unscaled gradients; max_norm 0: 1 / scale. Not a number if
// the sum is not finite: the step is skipped. The scale may also be that of CountedTargets; 0 where that is.
struct ClipCoefficient {
  double max_norm = 1;
  bool scaled = false;  // there is such a scale
  friend bool operator==(const ClipCoefficient&, const ClipCoefficient&) = default;
};
// {coefficient f32 [1], loss_scale f32 [2]} -> {loss_scale}: the scale halves if the step is skipped, and doubles after
// `interval` steps that were not (Micikevicius et al. 2017, arXiv 1710.03740; torch.amp.GradScaler).
struct UpdateLossScale {
  std::int64_t interval = 2000;
  friend bool operator==(const UpdateLossScale&, const UpdateLossScale&) = default;
};

}  // namespace rehearse::program
