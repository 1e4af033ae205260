// Matrix products of the device, through cuBLASLt or what stands in for it under the emulator (emulator/blas.h).
#include "kernels/cuda/gemm.h"

#include <cmath>
#include <numbers>

#include "tests/gpu/kernels/cuda_test.h"
#include "tests/unit/kernels/reference.h"

namespace rehearse::kernels::cuda {
namespace {

class CudaGemm : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
#ifndef REHEARSE_EMULATED
    std::string reason;
    if (!find_blas_api(&reason)) GTEST_SKIP() << reason;
#endif
  }

  void check(const Gemm& s, DType type, DType result, bool with_bias, DType bias_type, std::int64_t offset = 0) {
    SCOPED_TRACE(std::string(name_of(type)) + " into " + std::string(name_of(result)) + ", " + std::to_string(s.m) +
                 "x" + std::to_string(s.n) + "x" + std::to_string(s.k) + (s.transpose_a ? " A^T" : "") +
                 (s.transpose_b ? " B^T" : "") + (s.accumulate ? " +=" : "") + (with_bias ? " bias" : ""));
    const Floats a = normal(s.m * s.k, type), b = normal(s.k * s.n, type);
    const Floats bias = with_bias ? normal(s.n, bias_type, 4) : Floats(), before = normal(s.m * s.n, result, 4);
    const Tensor on_a = given(a, type, offset), on_b = given(b, type, offset), on_bias = given(bias, bias_type),
                 c = s.accumulate ? given(before, result) : poisoned(s.m * s.n, result);
    device().gemm(s, on_a.in(), on_b.in(), with_bias ? on_bias.in() : In(), c.out());
    EXPECT_LE(relative_error(c.read(), reference::gemm(s, doubles(a), doubles(b), doubles(bias), doubles(before))),
              tolerance(result));
  }
};

TEST_F(CudaGemm, TypesTransposesBiasesAndSums) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    for (const int form : {0, 1, 2, 3}) {
      for (const bool accumulate : {false, true}) {
        const Gemm s{24, 40, 16, (form & 1) != 0, (form & 2) != 0, accumulate};
        check(s, type, type, false, type);
        check(s, type, type, true, type);
        check(s, type, DType::f32, accumulate, DType::f32);
      }
    }
  }
}

// The weight gradient of a layer: dW[out, in] += dY^T X, 16-bit operands into fp32.
TEST_F(CudaGemm, WeightGradientsAddUpInFp32) {
  const Gemm s{12, 20, 33, true, false, true};
  check(s, DType::bf16, DType::f32, false, DType::f32);
  check(s, DType::f16, DType::f32, false, DType::f32);
}

TEST_F(CudaGemm, OddSizesAndAddresses) {
  check({7, 5, 3, false, true, false}, DType::f32, DType::f32, true, DType::f32, 1);
  check({1, 9, 17, false, true, false}, DType::bf16, DType::bf16, false, DType::bf16, 3);
  check({13, 1, 9, true, false, true}, DType::f16, DType::f16, false, DType::f16, 1);
}

TEST_F(CudaGemm, ABiasOfAnotherTypeIsConverted) {
  check({8, 24, 16, false, true, false}, DType::bf16, DType::bf16, true, DType::f32);
  check({8, 24, 16, false, true, false}, DType::bf16, DType::f32, true, DType::bf16);
}

// Products with GELU, its slope and a bias gradient at their end, in one kernel of the library or after it: by size,
// type and address.
class CudaGemmEpilogues : public CudaGemm {
 protected:
  static double gelu_slope(double x) {
    const double c = std::sqrt(2 / std::numbers::pi), t = std::tanh(c * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
  }
  // How many of what the device performed had this at their end.
  int performed(Fused fused) {
    int count = 0;
    for (const auto& p : device().blas_in_use()->performed()) count += p.problem.fused == fused ? 1 : 0;
    return count;
  }

  // A library may refuse what the emulated one takes.
  void expect_performed([[maybe_unused]] Fused fused) {
#ifdef REHEARSE_EMULATED
    EXPECT_GT(performed(fused), 0);
#endif
  }

  void check_gelu(const Gemm& s, DType type, bool with_bias, DType bias_type, std::int64_t offset = 0) {
    SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(s.n) + " columns, from " + std::to_string(offset));
    const Floats a = normal(s.m * s.k, type), b = normal(s.k * s.n, type, 0.25);
    const Floats bias = with_bias ? normal(s.n, bias_type) : Floats();
    const Tensor on_a = given(a, type), on_b = given(b, type), on_bias = given(bias, bias_type),
                 x = poisoned(s.m * s.n, type, offset), y = poisoned(s.m * s.n, type);
    device().gemm_gelu(s, on_a.in(), on_b.in(), with_bias ? on_bias.in() : In(), x.out(), y.out());
    const Values before = reference::gemm(s, doubles(a), doubles(b), doubles(bias), {});
    EXPECT_LE(relative_error(x.read(), before), tolerance(type));
    EXPECT_LE(relative_error(y.read(), reference::activation(Unary::gelu, before)), 2 * tolerance(type));
  }

  void check_gelu_backward(const Gemm& s, DType type, std::int64_t offset = 0) {
    SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(s.n) + " columns, from " + std::to_string(offset));
    const Floats a = normal(s.m * s.k, type), b = normal(s.k * s.n, type), x = normal(s.m * s.n, type);
    const Tensor on_a = given(a, type), on_b = given(b, type), on_x = given(x, type, offset),
                 c = poisoned(s.m * s.n, type);
    device().gemm_gelu_backward(s, on_a.in(), on_b.in(), on_x.in(), c.out());
    Values expected = reference::gemm(s, doubles(a), doubles(b), {}, {});
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= gelu_slope(x[i]);
    EXPECT_LE(relative_error(c.read(), expected), 2 * tolerance(type));
  }

  void check_bias_gradient(const Gemm& s, DType type, DType result, DType bias_type) {
    SCOPED_TRACE(std::string(name_of(type)) + " into " + std::string(name_of(result)) + ", the bias's gradient " +
                 std::string(name_of(bias_type)) + (s.accumulate ? " +=" : ""));
    const Floats dy = normal(s.k * s.m, type), x = normal(s.k * s.n, type), before = normal(s.m * s.n, result, 4),
                 sums_before = normal(s.m, bias_type, 4);
    const Tensor on_dy = given(dy, type), on_x = given(x, type), d_bias = given(sums_before, bias_type),
                 c = s.accumulate ? given(before, result) : poisoned(s.m * s.n, result);
    device().gemm_bias_grad(s, on_dy.in(), on_x.in(), c.out(), d_bias.out());
    EXPECT_LE(relative_error(c.read(), reference::gemm(s, doubles(dy), doubles(x), {}, doubles(before))),
              tolerance(result));
    Values sums = doubles(sums_before);
    for (std::int64_t k = 0; k < s.k; ++k)
      for (std::int64_t m = 0; m < s.m; ++m) sums[at(m)] += dy[at(k * s.m + m)];
    EXPECT_LE(relative_error(d_bias.read(), sums), std::max(tolerance(result), tolerance(bias_type)));
  }
};

TEST_F(CudaGemmEpilogues, GeluAndWhatItIsOf) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16})
    for (const bool transposed : {false, true}) {
      const Gemm s{24, 40, 16, false, transposed};
      check_gelu(s, type, true, type);
      check_gelu(s, type, false, type);
    }
  check_gelu({24, 40, 16, false, true}, DType::bf16, true, DType::f32);
  expect_performed(Fused::gelu);
}

TEST_F(CudaGemmEpilogues, TheSlopeOfGelu) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) check_gelu_backward({24, 40, 16}, type);
  expect_performed(Fused::gelu_backward);
}

// The weight gradient dW[out, in] += dY^T X, with the bias's: dY's columns added up.
TEST_F(CudaGemmEpilogues, TheGradientOfABias) {
  for (const bool accumulate : {false, true}) {
    const Gemm s{24, 40, 33, true, false, accumulate};
    check_bias_gradient(s, DType::f32, DType::f32, DType::f32);
    check_bias_gradient(s, DType::bf16, DType::f32, DType::f32);
    check_bias_gradient(s, DType::f16, DType::f32, DType::f32);
    check_bias_gradient(s, DType::bf16, DType::bf16, DType::bf16);
    check_bias_gradient(s, DType::bf16, DType::bf16, DType::f32);
  }
  expect_performed(Fused::bias_gradient);
}

// A row that is no multiple of 8 elements, and an address that is none of 16 bytes.
TEST_F(CudaGemmEpilogues, WhatTheLibraryRefusesIsDoneByKernelsOfOurOwn) {
  check_gelu({24, 20, 16, false, true}, DType::bf16, true, DType::bf16);
  check_gelu({24, 40, 16, false, true}, DType::bf16, true, DType::f32, 1);
  check_gelu_backward({24, 20, 16}, DType::f16);
  check_gelu_backward({24, 40, 16}, DType::f32, 1);
  EXPECT_EQ(performed(Fused::gelu) + performed(Fused::gelu_backward), 0);
}

TEST_F(CudaGemm, TypesThatHaveNoProductAreNamed) {
  const Tensor x = poisoned(64, DType::f32), y = poisoned(64, DType::bf16);
  const Gemm s{8, 8, 8};
  for (const auto& [a, b, c] : {std::tuple{x.in(), y.in(), x.out()}, std::tuple{x.in(), x.in(), y.out()}}) {
    try {
      device().gemm(s, a, b, nullptr, c);
      ADD_FAILURE() << "taken";
    } catch (const DeviceError& e) {
      EXPECT_NE(std::string(e.what()).find("no matrix product of f32"), std::string::npos) << e.what();
    }
  }
}

#ifdef REHEARSE_EMULATED
constexpr int kMostProposed = 2;  // of three, one asks for too much workspace
#else
constexpr int kMostProposed = Blas::kProposals;
#endif

// Every algorithm that is proposed gives the same product; the first is what the device performs, and says so.
TEST_F(CudaGemm, EveryAlgorithmGivesTheProductAndTheFirstIsPerformed) {
  const Gemm s{64, 96, 128, false, true, false};
  const Floats a = normal(s.m * s.k, DType::bf16), b = normal(s.k * s.n, DType::bf16);
  const Tensor on_a = given(a, DType::bf16), on_b = given(b, DType::bf16);
  const Values expected = reference::gemm(s, doubles(a), doubles(b), {}, {});
  const MatmulProblem p = gemm_problem(s, DType::bf16, DType::bf16, false, DType::bf16, false);
  const std::vector<Algorithm> all = device().blas().algorithms(p);
  ASSERT_GE(all.size(), 1U);
  ASSERT_LE(all.size(), static_cast<std::size_t>(kMostProposed));
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_GT(all[i].waves, 0) << all[i].describe();
    EXPECT_GT(all[i].tile_rows * all[i].tile_cols, 0) << all[i].describe();
    const Tensor c = poisoned(s.m * s.n, DType::bf16);
    MatmulOperands x;
    x.a = on_a.data();
    x.b = on_b.data();
    x.c = c.data();
    device().blas().run(p, x, i, stream().get());
    EXPECT_LE(relative_error(c.read(), expected), tolerance(DType::bf16)) << all[i].describe();
  }
  EXPECT_TRUE(device().blas_in_use()->performed().empty()) << "these were only timed";
  const Tensor c = poisoned(s.m * s.n, DType::bf16);
  device().gemm(s, on_a.in(), on_b.in(), nullptr, c.out());
  const auto performed = device().blas_in_use()->performed();
  ASSERT_EQ(performed.size(), 1U);
  EXPECT_EQ(performed.front().problem, p);
  EXPECT_EQ(performed.front().algorithm.name(), all.front().name());
}

std::int64_t score_size(const AttentionShape& s) {
  return s.micro_batch * s.heads * s.seq * s.seq;
}

// Every part of unfused attention, from scores to the gradient of qkv, against flash attention and the plain loops.
TEST_F(CudaGemm, UnfusedAttentionIsFlashAttention) {
  for (const AttentionShape& s : {AttentionShape{2, 4, 2, 24, 16, true}, AttentionShape{2, 3, 3, 21, 8, false},
                                  AttentionShape{1, 2, 1, 280, 8, true}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(std::string(name_of(type)) + " seq " + std::to_string(s.seq));
      StepValues step;
      step.step = 3;
      step.first_sequence = 11;
      const Tensor on_device = raw(std::vector<StepValues>{step});
      DropoutSite site;
      site.probability = 0.25;
      site.seed = 5;
      site.site = 8;
      site.step = on_device.as<StepValues>();
      site.first_head = 1;
      DropoutSite same = site;
      same.step = &step;
      const std::int64_t outs = s.seq * s.micro_batch * s.heads * s.head_dim;
      const Floats x = normal(qkv_size(s), type), g = normal(outs, type);
      const Tensor qkv = given(x, type), d_out = given(g, type), out = poisoned(outs, type);
      const Tensor scores = poisoned(score_size(s), type), p = poisoned(score_size(s), type),
                   d = poisoned(score_size(s), type), mask = raw(std::vector<std::uint8_t>(at(score_size(s)), 77));
      device().attention_scores(s, qkv.in(), scores.out());
      device().attention_softmax(s, scores.in(), p.out());
      device().attention_dropout(s, site, p.in(), d.out(), mask.as<std::uint8_t>());
      device().attention_context(s, d.in(), qkv.in(), out.out());
      const auto expected = reference::attention(s, same, doubles(x));
      const double allowed = 2 * tolerance(type);  // 16-bit scores are rounded on the way
      EXPECT_LE(relative_error(scores.read(), expected.scores), allowed);
      EXPECT_LE(relative_error(p.read(), expected.p), allowed);
      EXPECT_LE(relative_error(d.read(), expected.d), allowed);
      EXPECT_LE(relative_error(out.read(), expected.out), allowed);
      const auto kept = mask.bytes();
      for (std::size_t i = 0; i < kept.size(); ++i)
        ASSERT_EQ(static_cast<int>(kept[i]), expected.d[i] != 0 ? 1 : 0) << i;

      const Tensor d_d = poisoned(score_size(s), type), d_p = poisoned(score_size(s), type),
                   d_s = poisoned(score_size(s), type), d_qkv = poisoned(qkv_size(s), type);
      device().attention_context_backward_probs(s, d_out.in(), qkv.in(), d_d.out());
      device().attention_context_backward_value(s, d_out.in(), d.in(), d_qkv.out());
      device().attention_dropout_backward(s, site.probability, d_d.in(), mask.as<std::uint8_t>(), d_p.out());
      device().attention_softmax_backward(s, d_p.in(), p.in(), d_s.out());
      device().attention_scores_backward_query(s, d_s.in(), qkv.in(), d_qkv.out());
      device().attention_scores_backward_key(s, d_s.in(), qkv.in(), d_qkv.out());

      const Tensor logsumexp = poisoned(s.seq * s.micro_batch * s.heads, DType::f32), flash_out = poisoned(outs, type),
                   flash_d_qkv = poisoned(qkv_size(s), type);
      device().flash_forward(s, site, qkv.in(), flash_out.out(), logsumexp.as<float>());
      device().flash_backward(s, site, d_out.in(), qkv.in(), flash_out.in(), logsumexp.as<float>(), flash_d_qkv.out());
      EXPECT_LE(relative_error(d_qkv.read(), doubles(flash_d_qkv.read())), allowed);
    }
  }
}

// Rows longer than what a warp keeps in registers.
TEST_F(CudaGemm, SoftmaxOfLongRows) {
  const AttentionShape s{1, 1, 1, 2061, 64, true};
  const Floats x = normal(s.seq * s.seq, DType::f32, 20);
  const Tensor scores = given(x, DType::f32), p = poisoned(s.seq * s.seq, DType::f32),
               d_s = poisoned(s.seq * s.seq, DType::f32);
  device().attention_softmax(s, scores.in(), p.out());
  const Floats y = p.read();
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{700}, s.seq - 1}) {
    double max = -1e30, total = 0;
    for (std::int64_t k = 0; k <= row; ++k) max = std::max(max, static_cast<double>(x[at(row * s.seq + k)]) / 8);
    for (std::int64_t k = 0; k <= row; ++k) total += std::exp(x[at(row * s.seq + k)] / 8.0 - max);
    for (std::int64_t k = 0; k < s.seq; ++k) {
      const double expected = k <= row ? std::exp(x[at(row * s.seq + k)] / 8.0 - max) / total : 0;
      ASSERT_NEAR(y[at(row * s.seq + k)], expected, 1e-5) << row << " " << k;
    }
  }
  // A gradient of one everywhere changes nothing: rows of P sum to one.
  const Tensor ones = given(Floats(x.size(), 1.0F), DType::f32);
  device().attention_softmax_backward(s, ones.in(), p.in(), d_s.out());
  for (const float v : d_s.read()) ASSERT_NEAR(v, 0, 1e-6);
}

}  // namespace
}  // namespace rehearse::kernels::cuda
