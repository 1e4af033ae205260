// Mean squared error against the plain sum in double precision.
#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

class CudaMeanSquaredError : public CudaTest {};

constexpr double kMseScale = 0.25;

// Around what a thread and a block take, and more than a block; from aligned and odd addresses.
TEST_F(CudaMeanSquaredError, AddsTheLossAndItsGradientIsTwiceTheDifference) {
  for (const auto& [x_type, d_type] : kMixes) {
    for (const std::int64_t n : {1, 7, 8, 2048, 2051, 10007}) {
      for (const std::int64_t offset : {0, 3}) {
        const Floats x = normal(n, x_type, 3), target = normal(n, DType::f32, 2);
        double sum = 0;
        Values expected;
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double difference = static_cast<double>(x[i]) - static_cast<double>(target[i]);
          sum += difference * difference;
          expected.push_back(2 * kMseScale * 8 * difference);
        }
        const Tensor in = given(x, x_type, offset), to = given(target, DType::f32), d = poisoned(n, d_type);
        const Tensor loss = given({1.5F}, DType::f32), loss_scale = given({8}, DType::f32);
        device().mse_forward(n, kMseScale, in.in(), to.as<float>(), loss.as<float>());
        EXPECT_NEAR(loss.read()[0] / (1.5 + kMseScale * sum), 1, 1e-6) << n;
        device().mse_backward(n, kMseScale, loss_scale.as<float>(), in.in(), to.as<float>(), d.out());
        expect_near(d, expected);
        device().mse_backward(n, 8 * kMseScale, nullptr, in.in(), to.as<float>(), in.out());  // in place
        expect_near(in, expected);
      }
    }
  }
}

TEST_F(CudaMeanSquaredError, OneThatIsNotANumberMakesTheLossOne) {
  Floats x(5000, 1.0F);
  x[4321] = std::numeric_limits<float>::quiet_NaN();
  const Tensor in = given(x, DType::f32), to = given(Floats(5000, 1.0F), DType::f32), loss = given({0}, DType::f32);
  device().mse_forward(5000, kMseScale, in.in(), to.as<float>(), loss.as<float>());
  EXPECT_TRUE(std::isnan(loss.read()[0]));
}

}  // namespace
}  // namespace rehearse::kernels::cuda
