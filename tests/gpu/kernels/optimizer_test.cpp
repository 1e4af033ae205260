// Optimizer updates against the published formulas in double precision; sums of squares, clipping, loss scaling.
#include "sim/base/moment_codes.h"
#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

class CudaOptimizer : public CudaTest {};

// torch.optim.AdamW, four steps: its own fp32 parameter, and a half one with a master copy.
TEST_F(CudaOptimizer, AdamW) {
  const AdamW rule{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
  const double lr = 0.01;
  for (const auto& [grad_type, param_type] : kMixes) {
    const bool own = param_type == DType::f32;
    const std::int64_t n = 5011;
    const Floats start = normal(n, DType::f32);
    const Tensor param = given(start, param_type), master = given(start, DType::f32);
    const Tensor m = given(Floats(at(n), 0.0F), DType::f32), v = given(Floats(at(n), 0.0F), DType::f32);
    const Tensor coefficient = given({0.5F}, DType::f32);
    Values p = doubles(start), first(at(n), 0), second(at(n), 0);
    for (std::int64_t step = 0; step < 4; ++step) {
      const Floats grad = normal(n, grad_type);
      const double correction1 = 1 - std::pow(0.9, static_cast<double>(step + 1));
      const double correction2 = 1 - std::pow(0.95, static_cast<double>(step + 1));
      const Tensor values = raw(std::vector<StepValues>{{.step = step,
                                                         .lr = static_cast<float>(lr),
                                                         .correction1 = static_cast<float>(correction1),
                                                         .correction2 = static_cast<float>(correction2)}});
      AdamW o = rule;
      o.step = values.as<StepValues>();
      const Tensor g = given(grad, grad_type);
      device().adamw(n, o, g.in(), coefficient.as<float>(), param.out(), own ? nullptr : master.as<float>(),
                     m.as<float>(), v.as<float>());
      stream().synchronize();
      for (std::size_t i = 0; i < at(n); ++i) {
        const double d = grad[i] * 0.5;
        p[i] -= lr * o.weight_decay * p[i];
        first[i] = o.beta1 * first[i] + (1 - o.beta1) * d;
        second[i] = o.beta2 * second[i] + (1 - o.beta2) * d * d;
        p[i] -= lr * (first[i] / correction1) / (std::sqrt(second[i] / correction2) + o.eps);
      }
    }
    expect_near(param, p);
    expect_near(m, first);
    expect_near(v, second);
    if (own) continue;
    expect_near(master, p);
    EXPECT_EQ(param.bytes(), encoded(master.read(), param_type));  // the master's rounding
  }
}

// torch.optim.SGD with and without momentum, three steps.
TEST_F(CudaOptimizer, Sgd) {
  const Tensor values = raw(std::vector<StepValues>{{.lr = 0.1F}});
  for (const double momentum : {0.0, 0.9}) {
    for (const DType type : kTypes) {
      const std::int64_t n = 1003;
      const Sgd o{.momentum = momentum, .weight_decay = 0.01, .step = values.as<StepValues>()};
      const Floats start = normal(n, DType::f32);
      const Tensor param = given(start, type), master = given(start, DType::f32);
      const Tensor velocity = given(Floats(at(n), 0.0F), DType::f32);
      const bool own = type == DType::f32;
      Values p = doubles(start), v(at(n), 0);
      for (int step = 0; step < 3; ++step) {
        const Floats grad = normal(n, type);
        const Tensor g = given(grad, type);
        device().sgd(n, o, g.in(), nullptr, param.out(), own ? nullptr : master.as<float>(),
                     momentum > 0 ? velocity.as<float>() : nullptr);
        stream().synchronize();
        for (std::size_t i = 0; i < at(n); ++i) {
          v[i] = momentum * v[i] + grad[i] + o.weight_decay * p[i];
          p[i] -= 0.1 * v[i];
        }
      }
      expect_near(param, p);
      if (momentum > 0) expect_near(velocity, v);
    }
  }
}

// Moments in bf16, at addresses that are multiples of 16 bytes and at others: the call with wide ones, rounded to
// nearest when it stores them. An element in a thousand may round the other way.
TEST_F(CudaOptimizer, MomentsInBf16) {
  const Tensor values = raw(std::vector<StepValues>{{.lr = 0.01F, .correction1 = 0.1F, .correction2 = 0.05F}});
  const AdamW o{.eps = 1e-6, .weight_decay = 0.1, .step = values.as<StepValues>()};
  const Sgd sgd{.momentum = 0.9, .weight_decay = 0.01, .step = values.as<StepValues>()};
  const auto expect_rounded = [](const Tensor& moments, const Tensor& wide) {
    const Floats rounded = decoded(encoded(wide.read(), DType::bf16), DType::bf16);
    EXPECT_LE(relative_error(moments.read(), doubles(rounded)), 3e-4);
  };
  for (const DType type : kTypes)
    for (const std::int64_t offset : {0, 1}) {
      const std::int64_t n = 5011;
      const bool own = type == DType::f32;
      const Floats start = normal(n, DType::f32), first = normal(n, DType::bf16);
      Floats second = normal(n, DType::bf16);
      for (float& x : second) x = std::abs(x);
      const Tensor grad = given(normal(n, type), type), param = given(start, type), param2 = given(start, type);
      const Tensor master = given(start, DType::f32), master2 = given(start, DType::f32);
      const Tensor m = given(first, DType::bf16, offset), v = given(second, DType::bf16, offset);
      const Tensor m2 = given(first, DType::f32), v2 = given(second, DType::f32);
      device().adamw(n, o, grad.in(), nullptr, param.out(), own ? nullptr : master.as<float>(), m.out(), v.out());
      device().adamw(n, o, grad.in(), nullptr, param2.out(), own ? nullptr : master2.as<float>(), m2.out(), v2.out());
      stream().synchronize();
      EXPECT_LE(relative_error((own ? param : master).read(), doubles((own ? param2 : master2).read())), 1e-6);
      expect_rounded(m, m2);
      expect_rounded(v, v2);

      const Tensor velocity = given(first, DType::bf16, offset), wide = given(first, DType::f32);
      device().sgd(n, sgd, grad.in(), nullptr, param.out(), own ? nullptr : master.as<float>(), velocity.out());
      device().sgd(n, sgd, grad.in(), nullptr, param2.out(), own ? nullptr : master2.as<float>(), wide.out());
      stream().synchronize();
      EXPECT_LE(relative_error((own ? param : master).read(), doubles((own ? param2 : master2).read())), 1e-6);
      expect_rounded(velocity, wide);
    }
}

// Moments in 8 bits against the fp32 call from what their codes stand for: the same update, and codes of the averages
// that it left. An average at the edge of a code may take the next one: 1% of it.
TEST_F(CudaOptimizer, MomentsInEightBits) {
  const Tensor values = raw(std::vector<StepValues>{{.lr = 0.01F, .correction1 = 0.1F, .correction2 = 0.05F}});
  const std::int64_t n = 40 * kMomentBlock, blocks = 40;
  for (const DType type : kTypes)
    for (const std::int64_t offset : {0, 1}) {
      const bool own = type == DType::f32;
      Floats start = normal(n, DType::f32), gradient = normal(n, type);
      for (std::int64_t i = 0; i < n; ++i) gradient[at(i)] *= std::ldexp(1.0F, static_cast<int>(i % 23) - 12);
      for (std::int64_t i = 3 * kMomentBlock; i < 4 * kMomentBlock; ++i) gradient[at(i)] = 0;
      const Tensor grad = given(gradient, type, offset), param = given(start, type), param2 = given(start, type);
      const Tensor master = given(start, DType::f32), master2 = given(start, DType::f32);
      const std::vector<std::uint8_t> none(at(n), 0);
      const Tensor m = raw(none), v = raw(none), velocity = raw(none);
      const Tensor m_most = given(Floats(at(blocks), 0.0F), DType::f32),
                   v_most = given(Floats(at(blocks), 0.0F), DType::f32),
                   velocity_most = given(Floats(at(blocks), 0.0F), DType::f32);
      const AdamW o{.eps = 1e-6,
                    .weight_decay = 0.1,
                    .step = values.as<StepValues>(),
                    .exp_avg_largest = m_most.as<float>(),
                    .exp_avg_sq_largest = v_most.as<float>()};
      const Sgd sgd{.momentum = 0.9,
                    .weight_decay = 0.01,
                    .step = values.as<StepValues>(),
                    .momentum_largest = velocity_most.as<float>()};
      const auto decoded_moment = [&](const Tensor& codes, const Tensor& most, bool is_signed) {
        Floats x(at(n));
        const std::vector<std::byte> bytes = codes.bytes();
        const Floats largest = most.read();
        for (std::int64_t b = 0; b < blocks; ++b)
          decode_moments(is_signed, reinterpret_cast<const std::uint8_t*>(&bytes[at(b * kMomentBlock)]), largest[at(b)],
                         kMomentBlock, &x[at(b * kMomentBlock)]);
        return x;
      };
      const auto expect_coded = [&](const Tensor& codes, const Tensor& most, const Tensor& wide, bool is_signed) {
        const Floats x = wide.read(), largest = most.read(), there = decoded_moment(codes, most, is_signed);
        std::int64_t others = 0;
        for (std::int64_t b = 0; b < blocks; ++b) {
          std::vector<std::uint8_t> expected(at(kMomentBlock));
          Floats back(at(kMomentBlock));
          float expected_most = 0;
          encode_moments(is_signed, &x[at(b * kMomentBlock)], kMomentBlock, expected.data(), expected_most);
          EXPECT_NEAR(largest[at(b)], expected_most, 1e-6 * static_cast<double>(expected_most));
          decode_moments(is_signed, expected.data(), expected_most, kMomentBlock, back.data());
          for (std::int64_t i = 0; i < kMomentBlock; ++i)
            others += std::abs(back[at(i)] - there[at(b * kMomentBlock + i)]) > 1e-5F * std::abs(back[at(i)]);
        }
        EXPECT_LE(others, n / 1000);
      };
      for (int step = 0; step < 3; ++step) {
        const Tensor m2 = given(decoded_moment(m, m_most, true), DType::f32),
                     v2 = given(decoded_moment(v, v_most, false), DType::f32),
                     wide = given(decoded_moment(velocity, velocity_most, true), DType::f32);
        const auto coded_out = [](const Tensor& t) { return Out(t.data(), DType::u8); };
        device().adamw(n, o, grad.in(), nullptr, param.out(), own ? nullptr : master.as<float>(), coded_out(m),
                       coded_out(v));
        device().adamw(n, o, grad.in(), nullptr, param2.out(), own ? nullptr : master2.as<float>(), m2.out(), v2.out());
        device().sgd(n, sgd, grad.in(), nullptr, param.out(), own ? nullptr : master.as<float>(), coded_out(velocity));
        device().sgd(n, sgd, grad.in(), nullptr, param2.out(), own ? nullptr : master2.as<float>(), wide.out());
        stream().synchronize();
        EXPECT_LE(relative_error((own ? param : master).read(), doubles((own ? param2 : master2).read())), 1e-5);
        expect_coded(m, m_most, m2, true);
        expect_coded(v, v_most, v2, false);
        expect_coded(velocity, velocity_most, wide, true);
      }
    }
}

// Adafactor in double, on matrices and on a tensor that is not factored; the second step is clipped, the third not.
TEST_F(CudaOptimizer, Adafactor) {
  struct Size {
    std::int64_t rows, cols;
  };
  for (const auto& [rows, cols] : {Size{37, 5}, {300, 600}, {0, 9001}})
    for (const auto& [grad_type, param_type] : kMixes) {
      const bool own = param_type == DType::f32;
      const std::int64_t n = rows > 0 ? rows * cols : cols, height = std::max<std::int64_t>(1, rows);
      const Floats start = normal(n, DType::f32), sizes = {1, 4, 0.25F, 1};
      const Tensor param = given(start, param_type), master = given(start, DType::f32);
      const Tensor row = given(Floats(at(height), 0.0F), DType::f32), col = given(Floats(at(cols), 0.0F), DType::f32);
      const Tensor coefficient = given({0.5F}, DType::f32);
      Values p = doubles(start), r(at(height), 0), c(at(cols), 0);
      for (std::int64_t step = 0; step < 4; ++step) {
        Floats gradient = normal(n, grad_type);
        for (float& x : gradient) x *= sizes[at(step)];
        const Tensor values = raw(std::vector<StepValues>{{.step = step, .lr = 0.01F}});
        const kernels::Adafactor o{.rows = rows, .cols = cols, .weight_decay = 0.1, .step = values.as<StepValues>()};
        const Tensor grad = given(gradient, grad_type);
        device().adafactor(o, grad.in(), coefficient.as<float>(), param.out(), own ? nullptr : master.as<float>(),
                           rows > 0 ? row.as<float>() : nullptr, col.as<float>());
        stream().synchronize();
        const double beta = 1 - std::pow(static_cast<double>(step + 1), -0.8);
        Values rows_now(at(height), 0), cols_now(at(cols), 0);
        for (std::int64_t i = 0; i < n; ++i) {
          const double s = 0.25 * double{gradient[at(i)]} * double{gradient[at(i)]} + 1e-30;
          rows_now[at(i / cols)] += s / static_cast<double>(cols);
          cols_now[at(i % cols)] += s / static_cast<double>(height);
        }
        double mean = 0, squares = 0;
        for (std::size_t i = 0; i < r.size(); ++i) {
          r[i] = beta * r[i] + (1 - beta) * rows_now[i];
          mean += r[i] / static_cast<double>(height);
        }
        for (std::size_t j = 0; j < c.size(); ++j) c[j] = beta * c[j] + (1 - beta) * cols_now[j];
        const auto update = [&](std::int64_t i) {
          return 0.5 * gradient[at(i)] / std::sqrt(c[at(i % cols)] * (rows > 0 ? r[at(i / cols)] / mean : 1));
        };
        for (std::int64_t i = 0; i < n; ++i) squares += update(i) * update(i);
        const double most = std::max(1.0, std::sqrt(squares / static_cast<double>(n)));
        EXPECT_EQ(most > 1.1, step == 1) << most;
        for (std::int64_t i = 0; i < n; ++i) p[at(i)] -= 0.01 * (0.1 * p[at(i)] + update(i) / most);
      }
      expect_near(param, p);
      expect_near(col, c);
      if (rows > 0) expect_near(row, r);
      if (own) continue;
      expect_near(master, p);
      EXPECT_EQ(param.bytes(), encoded(master.read(), param_type));
    }
}

TEST_F(CudaOptimizer, AStepWithoutACoefficientChangesNothing) {
  const Tensor values = raw(std::vector<StepValues>{{.lr = 0.1F}});
  const Tensor coefficient = poisoned(1, DType::f32);
  const Floats start = normal(100, DType::f32);
  const Tensor p = given(start, DType::f32), m = given(start, DType::f32), v = given(start, DType::f32);
  const Tensor g = given(start, DType::f32);
  device().adamw(100, {.step = values.as<StepValues>()}, g.in(), coefficient.as<float>(), p.out(), nullptr,
                 m.as<float>(), v.as<float>());
  device().sgd(100, {.momentum = 0.5, .step = values.as<StepValues>()}, g.in(), coefficient.as<float>(), p.out(),
               nullptr, m.as<float>());
  EXPECT_EQ(p.read(), start);
  EXPECT_EQ(m.read(), start);
  EXPECT_EQ(v.read(), start);
}

// A square of 2^24, then 2^16 of 2^-10: single precision would lose every one of the small ones.
TEST_F(CudaOptimizer, SumsOfSquares) {
  Floats x((std::size_t{1} << 16) + 8, 0x1p-5F);
  for (std::size_t i = 0; i < 8; ++i) x[i] = 0;
  x[0] = 4096;
  const Tensor in = given(x, DType::f32), sum = given({1.0F}, DType::f32);
  device().sum_squares(static_cast<std::int64_t>(x.size()), in.in(), sum.as<float>());
  EXPECT_EQ(sum.read()[0], 0x1p24F + 64 + 1);
  device().sum_squares(0, nullptr, sum.as<float>());
  EXPECT_EQ(sum.read()[0], 0x1p24F + 64 + 1);
  for (const DType type : kTypes) {
    for (const std::int64_t n : {1, 8191, 40003}) {
      for (const std::int64_t offset : {0, 1}) {
        const Floats y = normal(n, type);
        const Tensor of = given(y, type, offset), total = given({0.0F}, DType::f32), again = given({0.0F}, DType::f32);
        device().sum_squares(n, of.in(), total.as<float>());
        device().sum_squares(n, of.in(), again.as<float>());
        double expected = 0;
        for (const float v : y) expected += static_cast<double>(v) * static_cast<double>(v);
        expect_near(total, {expected});
        EXPECT_EQ(total.bytes(), again.bytes());
      }
    }
  }
}

TEST_F(CudaOptimizer, ClippingAndLossScaling) {
  const auto coefficient = [&](double max_norm, float sum, const float* scale) {
    const Tensor s = given({sum}, DType::f32), c = poisoned(1, DType::f32);
    device().clip_coefficient(max_norm, s.as<float>(), scale, c.as<float>());
    return c.read()[0];
  };
  const Tensor eight = given({8.0F}, DType::f32);
  EXPECT_EQ(coefficient(0, 100, nullptr), 1.0F);
  EXPECT_EQ(coefficient(20, 100, nullptr), 1.0F);             // a norm of 10
  EXPECT_NEAR(coefficient(1, 100, nullptr), 0.1, 1e-7);       // 1 / (10 + 1e-6)
  EXPECT_EQ(coefficient(2, 100, eight.as<float>()), 0.125F);  // a norm of 10 / 8
  EXPECT_NEAR(coefficient(0.5, 100, eight.as<float>()), 0.5 / 1.25 / 8, 1e-7);
  const Tensor none = given({0.0F}, DType::f32);
  EXPECT_EQ(coefficient(1, 0, none.as<float>()), 0.0F);  // no target counts
  EXPECT_TRUE(std::isnan(coefficient(0, std::numeric_limits<float>::infinity(), nullptr)));
  EXPECT_TRUE(std::isnan(coefficient(0, std::numeric_limits<float>::quiet_NaN(), nullptr)));

  const LossScaleRule rule{.growth = 2, .backoff = 0.5F, .interval = 2};
  const Tensor state = given({8.0F, 0.0F}, DType::f32), good = given({0.1F}, DType::f32), bad = poisoned(1, DType::f32);
  const auto after = [&](const Tensor& c) {
    device().update_loss_scale(rule, c.as<float>(), state.as<float>());
    return state.read();
  };
  EXPECT_EQ(after(good), (Floats{8, 1}));
  EXPECT_EQ(after(good), (Floats{16, 0}));
  EXPECT_EQ(after(good), (Floats{16, 1}));
  EXPECT_EQ(after(bad), (Floats{8, 0}));
}

}  // namespace
}  // namespace rehearse::kernels::cuda
