// Optimizer updates against the published formulas, element by element in double precision; sums of squares.
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

class OptimizerTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, OptimizerTest, testing::Values(1, 3));

// torch.optim.AdamW, four steps.
TEST_P(OptimizerTest, AdamW) {
  const std::int64_t n = 20011;
  AdamW o{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
  Floats param = random.normal(n), m(at(n), 0.0f), v(at(n), 0.0f);
  Values p = doubles(param), first(at(n), 0), second(at(n), 0);
  for (o.step = 1; o.step <= 4; ++o.step) {
    const Floats grad = random.normal(n);
    device->adamw(n, o, grad.data(), 0.5f, param.data(), m.data(), v.data());
    const auto step = static_cast<double>(o.step);
    for (std::size_t i = 0; i < at(n); ++i) {
      const double g = grad[i] * 0.5;
      p[i] -= o.lr * o.weight_decay * p[i];
      first[i] = o.beta1 * first[i] + (1 - o.beta1) * g;
      second[i] = o.beta2 * second[i] + (1 - o.beta2) * g * g;
      const double m_hat = first[i] / (1 - std::pow(o.beta1, step)), v_hat = second[i] / (1 - std::pow(o.beta2, step));
      p[i] -= o.lr * m_hat / (std::sqrt(v_hat) + o.eps);
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
    const Sgd o{.lr = 0.1, .momentum = momentum, .weight_decay = 0.01};
    Floats param = random.normal(n), velocity(at(n), 0.0f);
    Values p = doubles(param), v(at(n), 0);
    for (int step = 0; step < 3; ++step) {
      const Floats grad = random.normal(n);
      device->sgd(n, o, grad.data(), 2.0f, param.data(), momentum > 0 ? velocity.data() : nullptr);
      for (std::size_t i = 0; i < at(n); ++i) {
        v[i] = momentum * v[i] + 2.0 * grad[i] + o.weight_decay * p[i];
        p[i] -= o.lr * v[i];
      }
    }
    EXPECT_LE(relative_error(param, p), kTolerance) << momentum;
  }
}

// One square of 2^24, then 2^22 of 2^-26: single precision would lose the small ones, double keeps all exactly.
TEST_P(OptimizerTest, SumOfSquaresIsTakenInDouble) {
  Floats x((std::size_t{1} << 22) + 1, 0x1p-13f);
  x[0] = 4096;
  EXPECT_EQ(device->sum_squares(static_cast<std::int64_t>(x.size()), x.data()), 0x1p24 + 0x1p-4);
  EXPECT_EQ(device->sum_squares(0, nullptr), 0);
}

TEST_P(OptimizerTest, SumOfSquaresDoesNotDependOnTheThreads) {
  const Floats x = random.normal(300007);
  EXPECT_EQ(device->sum_squares(300007, x.data()), make_cpu_device(1)->sum_squares(300007, x.data()));
}

}  // namespace
}  // namespace rehearse::kernels
