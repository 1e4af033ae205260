// Optimizer updates against the published formulas, element by element in double precision; sums of squares.
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

class OptimizerTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, OptimizerTest, testing::Values(1, 3));

// torch.optim.AdamW, four steps.
TEST_P(OptimizerTest, AdamW) {
  const std::int64_t n = 20011;
  StepValues now{.lr = 0.01F};
  const AdamW o{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .step = &now};
  const double lr = now.lr;
  const float half = 0.5F;
  Floats param = random.normal(n), m(at(n), 0.0f), v(at(n), 0.0f);
  Values p = doubles(param), first(at(n), 0), second(at(n), 0);
  for (now.step = 0; now.step < 4; ++now.step) {
    const Floats grad = random.normal(n);
    const auto step = static_cast<double>(now.step + 1);
    now.correction1 = static_cast<float>(1 - std::pow(o.beta1, step));
    now.correction2 = static_cast<float>(1 - std::pow(o.beta2, step));
    device->adamw(n, o, grad.data(), &half, param.data(), nullptr, m.data(), v.data());
    for (std::size_t i = 0; i < at(n); ++i) {
      const double g = grad[i] * 0.5;
      p[i] -= lr * o.weight_decay * p[i];
      first[i] = o.beta1 * first[i] + (1 - o.beta1) * g;
      second[i] = o.beta2 * second[i] + (1 - o.beta2) * g * g;
      const double m_hat = first[i] / (1 - std::pow(o.beta1, step)), v_hat = second[i] / (1 - std::pow(o.beta2, step));
      p[i] -= lr * m_hat / (std::sqrt(v_hat) + o.eps);
    }
  }
  EXPECT_LE(relative_error(param, p), kTolerance);
  EXPECT_LE(relative_error(m, first), kTolerance);
  EXPECT_LE(relative_error(v, second), kTolerance);
}

// torch.optim.SGD with and without momentum, three steps.
TEST_P(OptimizerTest, Sgd) {
  const std::int64_t n = 1003;
  for (const double momentum : {0.0, 0.9}) {
    const StepValues now{.lr = 0.1F};
    const Sgd o{.momentum = momentum, .weight_decay = 0.01, .step = &now};
    const float two = 2;
    Floats param = random.normal(n), velocity(at(n), 0.0f);
    Values p = doubles(param), v(at(n), 0);
    for (int step = 0; step < 3; ++step) {
      const Floats grad = random.normal(n);
      device->sgd(n, o, grad.data(), &two, param.data(), nullptr, momentum > 0 ? velocity.data() : nullptr);
      for (std::size_t i = 0; i < at(n); ++i) {
        v[i] = momentum * v[i] + 2.0 * grad[i] + o.weight_decay * p[i];
        p[i] -= static_cast<double>(now.lr) * v[i];
      }
    }
    EXPECT_LE(relative_error(param, p), kTolerance) << momentum;
  }
}

// One square of 2^24, then 2^21 of 2^-20: single precision would lose the small ones, double keeps all exactly. What
// was there before is added to.
TEST_P(OptimizerTest, SumOfSquaresIsTakenInDouble) {
  Floats x((std::size_t{1} << 21) + 1, 0x1p-10f);
  x[0] = 4096;
  float sum = 0;
  device->sum_squares(static_cast<std::int64_t>(x.size()), x.data(), &sum);
  EXPECT_EQ(sum, 0x1p24F + 2);
  device->sum_squares(0, nullptr, &sum);
  EXPECT_EQ(sum, 0x1p24F + 2);
  device->sum_squares(1, x.data(), &sum);
  EXPECT_EQ(sum, 0x1p25F + 2);
}

TEST_P(OptimizerTest, SumOfSquaresDoesNotDependOnTheThreads) {
  const Floats x = random.normal(300007);
  float here = 0, alone = 0;
  device->sum_squares(300007, x.data(), &here);
  make_cpu_device(1)->sum_squares(300007, x.data(), &alone);
  EXPECT_EQ(here, alone);
}

}  // namespace
}  // namespace rehearse::kernels
