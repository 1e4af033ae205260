// Numbers at the sizes of real training, where addresses pass 2^31 bytes, sums are long and all multiprocessors are
// busy: attention by tiles against the plain kernel, the logits of GPT-2 and their cross-entropy on rows picked at
// random. On a GPU; the emulator runs the same on a few dozen tokens.
#include <algorithm>
#include <array>

#include "kernels/cuda/flash.h"
#include "kernels/cuda/gemm.h"
#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

#ifdef REHEARSE_EMULATED
constexpr std::array kAttentions = {AttentionShape{2, 3, 3, 136, 64, true}, AttentionShape{1, 8, 1, 150, 64, true}};
constexpr std::int64_t kTokens = 48, kCols = 264, kValid = 257, kDepth = 64;
#else
// Micro-batch, heads, key heads, tokens of a sequence, head_dim: GPT-2 124M and a Llama of 1.1 billion parameters.
constexpr std::array kAttentions = {AttentionShape{16, 12, 12, 1024, 64, true},
                                    AttentionShape{4, 32, 4, 2048, 64, true}};
// Sequences of 1,024 by 16, GPT-2's vocabulary of 50,257 words as it is padded.
constexpr std::int64_t kTokens = 16384, kCols = 50264, kValid = 50257, kDepth = 768;
#endif
constexpr int kSampledRows = 8;

class CudaRealSize : public CudaTest {
 protected:
  static std::int64_t out_elements(const AttentionShape& s) { return s.seq * s.micro_batch * s.heads * s.head_dim; }
  void check_flash(const AttentionShape& s, double dropout);
  Floats row_of(const DeviceMemory& logits, std::int64_t row) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(kCols * 2));
    copy(bytes.data(), logits.as<std::byte>() + row * kCols * 2, bytes.size(), stream());
    stream().synchronize();
    return decoded(bytes, DType::bf16);
  }
};

void CudaRealSize::check_flash(const AttentionShape& s, double dropout) {
  SCOPED_TRACE("seq " + std::to_string(s.seq) + ", heads " + std::to_string(s.heads) + " dropout " +
               std::to_string(dropout));
  StepValues step;
  step.step = 7;
  const Tensor on_device = raw(std::vector<StepValues>{step});
  DropoutSite site;
  site.probability = dropout;
  site.seed = 11;
  site.site = 3;
  site.step = on_device.as<StepValues>();
  const FlashCall call(s, site);
  const std::int64_t rows = s.seq * s.micro_batch * s.heads;
  const Tensor qkv = given(normal(qkv_size(s), DType::bf16), DType::bf16),
               d_out = given(normal(out_elements(s), DType::bf16), DType::bf16);
  const Tensor out = poisoned(out_elements(s), DType::bf16), plain_out = poisoned(out_elements(s), DType::bf16);
  const Tensor logsumexp = poisoned(rows, DType::f32), plain_logsumexp = poisoned(rows, DType::f32);
  device().flash_forward(s, site, qkv.in(), out.out(), logsumexp.as<float>());
  flash_forward_plain(call, qkv.in(), plain_out.out(), plain_logsumexp.as<float>(), stream().get());
  EXPECT_LE(relative_error(out.read(), doubles(plain_out.read())), tolerance(DType::bf16));
  EXPECT_LE(relative_error(logsumexp.read(), doubles(plain_logsumexp.read())), 1e-5);
  const Tensor d_qkv = poisoned(qkv_size(s), DType::bf16), plain_d_qkv = poisoned(qkv_size(s), DType::bf16);
  device().flash_backward(s, site, d_out.in(), qkv.in(), out.in(), logsumexp.as<float>(), d_qkv.out());
  flash_backward_plain(call, d_out.in(), qkv.in(), out.in(), logsumexp.as<float>(), plain_d_qkv.out(), stream().get());
  EXPECT_LE(relative_error(d_qkv.read(), doubles(plain_d_qkv.read())), tolerance(DType::bf16));
}

TEST_F(CudaRealSize, FlashTilesAgainstThePlainKernel) {
  for (const AttentionShape& s : kAttentions)
    for (const double dropout : {0.0, 0.1}) check_flash(s, dropout);
}

TEST_F(CudaRealSize, LogitsAndTheirCrossEntropyInSampledRows) {
  const Floats x = normal(kTokens * kDepth, DType::bf16), w = normal(kCols * kDepth, DType::bf16, 0.05);
  const Tensor on_x = given(x, DType::bf16), on_w = given(w, DType::bf16);
  const DeviceMemory logits(static_cast<std::size_t>(kTokens * kCols * 2));
  const Out all{logits.data(), DType::bf16};
  device().gemm({kTokens, kCols, kDepth, false, true, false}, on_x.in(), on_w.in(), nullptr, all);

  const std::vector<std::int32_t> classes = below(kTokens, static_cast<std::int32_t>(kValid));
  const Tensor targets = raw(classes), stats = poisoned(2 * kTokens, DType::f32), loss = given({0.0F}, DType::f32);
  const double scale = 1.0 / static_cast<double>(kTokens);
  device().cross_entropy_forward(kTokens, kCols, kValid, scale, all, targets.as<std::int32_t>(), stats.as<float>(),
                                 loss.as<float>());
  std::vector<std::int32_t> sampled = below(kSampledRows, static_cast<std::int32_t>(kTokens));
  sampled.push_back(0);
  sampled.push_back(static_cast<std::int32_t>(kTokens - 1));
  const Floats of_rows = stats.read();
  std::vector<Values> gradients;  // of the sampled rows
  for (const std::int64_t row : sampled) {
    SCOPED_TRACE("row " + std::to_string(row));
    Values expected(at(kCols), 0.0);
    for (std::int64_t c = 0; c < kCols; ++c)
      for (std::int64_t k = 0; k < kDepth; ++k)
        expected[at(c)] += static_cast<double>(x[at(row * kDepth + k)]) * w[at(c * kDepth + k)];
    const Floats found = row_of(logits, row);
    EXPECT_LE(relative_error(found, expected), tolerance(DType::bf16));
    // What follows is of the logits as they are rounded.
    const double max = *std::max_element(found.begin(), found.begin() + kValid);
    double sum = 0;
    for (std::int64_t c = 0; c < kValid; ++c) sum += std::exp(found[at(c)] - max);
    EXPECT_EQ(of_rows[at(2 * row)], static_cast<float>(max));
    EXPECT_NEAR(of_rows[at(2 * row + 1)] / sum, 1, 1e-5);
    Values& d = gradients.emplace_back(at(kCols), 0.0);
    for (std::int64_t c = 0; c < kValid; ++c)
      d[at(c)] = (std::exp(found[at(c)] - max) / sum - (c == classes[at(row)] ? 1 : 0)) * scale;
  }

  // The loss of all rows: from their statistics, which the sampled ones vouch for, and the targets' logits.
  std::vector<std::byte> bytes(logits.bytes());
  copy(bytes.data(), logits.data(), bytes.size(), stream());
  stream().synchronize();
  double total = 0;
  for (std::int64_t row = 0; row < kTokens; ++row) {
    const auto from = bytes.begin() + (row * kCols + classes[at(row)]) * 2;
    const double target = decoded({from, from + 2}, DType::bf16)[0];
    total += std::log(static_cast<double>(of_rows[at(2 * row + 1)])) + of_rows[at(2 * row)] - target;
  }
  EXPECT_NEAR(loss.read()[0] / (total * scale), 1, 1e-5);

  device().cross_entropy_backward(kTokens, kCols, kValid, 0, scale, nullptr, all, targets.as<std::int32_t>(),
                                  stats.as<float>(), 2, stats.as<float>() + 1, 2, all);
  for (std::size_t i = 0; i < sampled.size(); ++i)
    EXPECT_LE(relative_error(row_of(logits, sampled[i]), gradients[i]), tolerance(DType::bf16)) << sampled[i];
}

}  // namespace
}  // namespace rehearse::kernels::cuda
