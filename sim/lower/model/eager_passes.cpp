#include "sim/lower/model/eager_passes.h"

namespace rehearse::lower {
namespace {

// Bytes an element: of 16 bits 2, of fp32 4. In each sum a term a kernel.
EagerKernels beyond(std::int64_t elements, std::int64_t kernels, std::int64_t read, std::int64_t written,
                    const program::Passes& fused) {
  return {kernels, {elements * (read - fused.read), elements * (written - fused.written)}};
}

}  // namespace

// float, pow, mean, times the rows' factor, cast, times the weight; and two kernels over rows.
EagerKernels eager_rms_norm(std::int64_t elements) {
  return beyond(elements, 8, 2 + 4 + 4 + 4 + 4 + 2, 4 + 4 + 0 + 4 + 2 + 2, {2, 2});
}

// Times the weight, cast, product with the rows' factor, that with x and its sum (the factor's gradient), the mean's
// gradient spread over its row, pow's (x to the first power, times 2, times the gradient), the sum of the two ways to
// x.float(), and its cast; and five kernels over rows. One fused kernel reads x and the gradient.
EagerKernels eager_rms_norm_backward(std::int64_t elements) {
  return beyond(elements, 16, 2 + 2 + 4 + (8 + 4) + 0 + (4 + 4 + 8) + 8 + 4, 2 + 4 + 4 + 4 + 4 + (4 + 4 + 4) + 4 + 2,
                {4, 2});
}

// The product of gradient and normed x, and its sum over the rows.
EagerKernels eager_rms_norm_weight(std::int64_t elements) {
  return beyond(elements, 3, 4 + 2, 2, {4, 0});
}

EagerKernels eager_sum(std::int64_t elements, int parts) {
  return {parts - 1, {(parts - 1) * 4 * elements, (parts - 1) * 2 * elements}};
}

EagerKernels eager_join(std::int64_t elements) {
  return {1, {2 * elements, 2 * elements}};
}

// Of queries and of keys a cast, a product and a cast back.
EagerKernels eager_rotary(std::int64_t turned, std::int64_t keys, std::int64_t copies, bool backward) {
  EagerKernels all = beyond(turned, 6, 2 + 4 + 4, 4 + 4 + 2, {2, 2});
  if (copies == 1) return all;
  const std::int64_t few = 2 * 2 * keys, many = copies * few;
  all.kernels += 2;
  all.passes.read += backward ? many : few;
  all.passes.written += backward ? few : many;
  return all;
}

EagerKernels eager_latent_rotary(std::int64_t turned, bool backward) {
  if (!backward) return {7, {turned * (2 + 2 + 1 + 2 + 2 + 4 + 2), turned * (2 + 2 + 1 + 2 + 2 + 2 + 2)}};
  constexpr std::int64_t kRead = 2 + 1 + 2 + 2 + 4, kWritten = 2 + 1 + 2 + 2 + 2;  // to the two ways' sum
  constexpr std::int64_t kSlices = 1 + 1 + 4 + 4, kZeros = (2 + 1) + (2 + 1) + 2 + 2 + 2;
  return {12, {turned * (kRead + kSlices), turned * (kWritten + kZeros)}};
}

// Of queries and of keys; one fused kernel turns both. Backward: two products, the negation, zeros and a copy for
// either half, their sum and that of both ways.
EagerKernels eager_half_rotary(std::int64_t turned, bool backward) {
  if (!backward) return beyond(turned, 2 * 5, 2 + 1 + 2 + 2 + 4, 2 + 1 + 2 + 2 + 2, {2, 2});
  return beyond(turned, 2 * 9, (2 + 2 + 1) + (1 + 1) + (4 + 4), (2 + 2 + 1) + 2 * (2 + 1) + (2 + 2), {2, 2});
}

// Of queries and of keys; one fused kernel turns both.
EagerKernels eager_scaled_rotary(std::int64_t turned, bool backward) {
  if (!backward) return beyond(turned, 2 * 6, 2 + 1 + 2 + 2 + 4 + 2, 2 + 1 + 2 + 2 + 2 + 2, {2, 2});
  return beyond(turned, 2 * 10, (2 + 2 + 1 + 2 + 4) + (2 + 4), (2 + 2 + 1 + 2 + 2) + (2 + 2 + 2 + 2), {2, 2});
}

EagerKernels eager_clamps(std::int64_t elements, bool backward) {
  if (!backward) return {3, {elements * (2 + 2), elements * (2 + 2)}};
  return {3, {elements * (4 + 2), elements * (2 + 2)}};
}

EagerKernels eager_expert_bias(std::int64_t elements, std::int64_t experts) {
  return beyond(elements, 2 * experts + 1, 4 + 2, 2 + 2 + 2, {2, 2});
}

EagerKernels eager_expert_bias_backward(std::int64_t elements, std::int64_t experts) {
  return beyond(elements, 2 * experts + 1, 2 + 2 + 2, 2 + 2, {2, 0});
}

EagerKernels eager_expert_bias_weights(std::int64_t elements, std::int64_t experts) {
  return beyond(elements, 2 * experts, 2 + 2, 2, {2, 0});
}

// Means over the ranks: of a later step half of them have all queries and half of the keys, the others half of the
// queries and all keys.
EagerKernels eager_ring(std::int64_t queries, std::int64_t keys, std::int64_t ranks, bool compiled, bool backward) {
  const std::int64_t both = 2 * keys, later = ranks - 1;
  EagerKernels all{2, {2 * both, 2 * both}};  // contiguous
  const auto add = [&](std::int64_t kernels, std::int64_t elements, std::int64_t read, std::int64_t written) {
    all.kernels += kernels;
    all.passes.read += elements * read, all.passes.written += elements * written;
  };
  add(compiled ? 1 : later, (compiled ? 1 : later) * both, 2, 2);  // joined; only one of them is sent
  if (!backward) {
    add(2, queries, 2 + 4, 4 + 2);  // the first step's, and the sum
    const std::int64_t twice = queries * later / 2;
    compiled ? add(later, twice, 6 + 5, 4 + 4) : add(4 * later, twice, 22 + 11 + 4, 16 + 8 + 4);
    return all;
  }
  add(3, queries + both, 4, 2);
  if (compiled) {
    add(ranks, queries * ranks, 6, 4);
    add(ranks, both * ranks, 6, 4);
    return all;
  }
  add(3, queries + both, 6, 4 + 4);  // zeros, and the first step's
  const std::int64_t twice_queries = queries * later / 2, twice_keys = both * later / 2;
  add(2 * later, twice_queries, 6 + 7, 4 + 6);
  add(4 * later, twice_keys, 6 + 7, 4 + 6);
  add(ranks, both * ranks, 4, 4);
  return all;
}

EagerKernels eager_head_copies(std::int64_t queries, std::int64_t keys, std::int64_t sequences, bool backward) {
  const std::int64_t three = queries + 2 * keys, pair = 2 * keys, out = sequences > 1 ? queries : 0;
  const std::int64_t copied = three + (backward ? pair : 2 * pair) + out;
  return {(backward ? 2 : 5) + (sequences > 1 ? 1 : 0), {2 * copied, 2 * copied}};
}

}  // namespace rehearse::lower
