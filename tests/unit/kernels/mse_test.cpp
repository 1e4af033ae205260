// Mean squared error against the plain sum.
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

class MeanSquaredErrorTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, MeanSquaredErrorTest, testing::Values(1, 3));

constexpr double kScale = 0.25;

// Around what a vector and a block take.
TEST_P(MeanSquaredErrorTest, AddsTheLossAndItsGradientIsTwiceTheDifference) {
  for (const std::int64_t n : {1, 7, 8, 33, 4096, 4097, 20000}) {
    const Floats x = random.normal(n, 3), target = random.normal(n, 2);
    double sum = 0;
    Values expected;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double difference = static_cast<double>(x[i]) - static_cast<double>(target[i]);
      sum += difference * difference;
      expected.push_back(2 * kScale * difference);
    }
    float loss = 1.5f;
    device->mse_forward(n, kScale, x.data(), target.data(), &loss);
    EXPECT_NEAR(loss / (1.5 + kScale * sum), 1, kTolerance) << n;
    Floats d = poisoned(n);
    device->mse_backward(n, kScale, nullptr, x.data(), target.data(), d.data());
    for (std::size_t i = 0; i < d.size(); ++i) EXPECT_NEAR(d[i], expected[i], 1e-5) << n;
    Floats in_place = x;
    const float loss_scale = 8;
    device->mse_backward(n, kScale, &loss_scale, in_place.data(), target.data(), in_place.data());
    for (std::size_t i = 0; i < d.size(); ++i) EXPECT_EQ(in_place[i], 8 * d[i]) << n;
  }
}

TEST_P(MeanSquaredErrorTest, TheSumDoesNotDependOnTheThreads) {
  const std::int64_t n = 100'003;
  const Floats x = random.normal(n, 3), target = random.normal(n, 2);
  float loss = 0, alone = 0;
  device->mse_forward(n, kScale, x.data(), target.data(), &loss);
  make_cpu_device(1)->mse_forward(n, kScale, x.data(), target.data(), &alone);
  EXPECT_EQ(loss, alone);
}

}  // namespace
}  // namespace rehearse::kernels
