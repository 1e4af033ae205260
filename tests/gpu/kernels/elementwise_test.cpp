// Casts, sums, copies and activations: each element by position.
#include <array>

#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

class CudaElementwise : public CudaTest {};

// Around what a thread and a block take, ...
constexpr std::int64_t kSizes[] = {1, 7, 8, 4096, 8195};

// ... from aligned and odd addresses.
TEST_F(CudaElementwise, CopiesRoundToNearestEven) {
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      for (const std::int64_t n : kSizes) {
        for (const std::int64_t offset : {0, 3}) {
          const Floats x = normal(n, from, 3);
          const Tensor in = given(x, from, offset), y = poisoned(n, to);
          device().copy(n, in.in(), y.out());
          EXPECT_EQ(y.bytes(), encoded(x, to)) << name_of(from) << " to " << name_of(to) << ", " << n;
        }
      }
    }
  }
}

TEST_F(CudaElementwise, CastsOfWhatDoesNotFit) {
  const Floats x = {65519, 65520, -1e30F, 3.4e38F, 1e-8F, 3e-8F, -0.0F, std::numeric_limits<float>::infinity()};
  for (const DType to : {DType::bf16, DType::f16}) {
    const Tensor in = given(x, DType::f32), y = poisoned(8, to);
    device().copy(8, in.in(), y.out());
    EXPECT_EQ(y.bytes(), encoded(x, to)) << name_of(to);
  }
}

TEST_F(CudaElementwise, SumsAreRoundedOnce) {
  for (const auto& [x_type, y_type] : kMixes) {
    for (const std::int64_t n : kSizes) {
      const Floats a = normal(n, x_type), b = normal(n, y_type);
      Floats sum = a, scaled = a;
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] = a[i] + b[i];
        scaled[i] = 1.7F * a[i];
      }
      const Tensor in_a = given(a, x_type), in_b = given(b, y_type, 1), y = poisoned(n, y_type);
      const Tensor total = given(b, y_type), s = poisoned(n, y_type), in_place = given(a, x_type);
      const Tensor filled = poisoned(n, y_type, 1);
      device().add(n, in_a.in(), in_b.in(), y.out());
      device().accumulate(n, in_a.in(), total.out());
      device().scale(n, 1.7F, in_a.in(), s.out());
      device().scale(n, 1.7F, in_place.in(), in_place.out());
      device().fill(n, -2.5F, filled.out());
      EXPECT_EQ(y.bytes(), encoded(sum, y_type)) << n;
      EXPECT_EQ(total.bytes(), encoded(sum, y_type)) << n;
      EXPECT_EQ(s.bytes(), encoded(scaled, y_type)) << n;
      EXPECT_EQ(in_place.bytes(), encoded(scaled, x_type)) << n;
      EXPECT_EQ(filled.bytes(), encoded(Floats(at(n), -2.5F), y_type)) << n;
    }
  }
}

// The derivatives of reference::activation.
double slope(Unary fn, double x) {
  if (fn != Unary::gelu) return x > 0 ? (fn == Unary::relu ? 1 : 2 * x) : 0;
  const double c = std::sqrt(2 / M_PI), u = c * (x + 0.044715 * x * x * x), t = std::tanh(u);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

TEST_F(CudaElementwise, ActivationsAndTheirGradients) {
  for (const auto& [x_type, y_type] : kMixes) {
    for (const Unary fn : {Unary::gelu, Unary::relu, Unary::squared_relu}) {
      const std::int64_t n = 5003;
      const Floats x = normal(n, x_type, 3), dy = normal(n, y_type);
      const Tensor in = given(x, x_type), d = given(dy, y_type), y = poisoned(n, y_type), dx = poisoned(n, x_type);
      device().activation_forward(fn, n, in.in(), y.out());
      device().activation_backward(fn, n, d.in(), in.in(), dx.out());
      expect_near(y, reference::activation(fn, doubles(x)));
      Values expected;
      for (std::size_t i = 0; i < x.size(); ++i) expected.push_back(static_cast<double>(dy[i]) * slope(fn, x[i]));
      expect_near(dx, expected);
    }
  }
}

// gelu(-5) = -2.29e-7, where 1 + tanh cancels; __expf's error grows with its argument, here 17.
TEST_F(CudaElementwise, ActivationsAtTheEndsOfTheRange) {
  const Floats x = {-5, -1e4F, 1e4F, 0, std::numeric_limits<float>::quiet_NaN()};
  for (const Unary fn : {Unary::gelu, Unary::relu}) {
    const Tensor in = given(x, DType::f32), y = poisoned(5, DType::f32);
    device().activation_forward(fn, 5, in.in(), y.out());
    const Floats out = y.read();
    const double u = std::sqrt(2 / M_PI) * (-5 + 0.044715 * -125);
    EXPECT_NEAR(out[0] / (-5 / (1 + std::exp(-2 * u))), fn == Unary::gelu ? 1 : 0, 1e-5);
    EXPECT_EQ(out[1], 0.0F);
    EXPECT_EQ(out[2], 1e4F);
    EXPECT_EQ(out[3], 0.0F);
    EXPECT_TRUE(std::isnan(out[4]));
  }
}

// Recorded once, the same launches read what lies in memory when they are replayed.
TEST_F(CudaElementwise, GraphsReplayWhatTheyRecorded) {
  const std::int64_t n = 1000;
  const Floats a = normal(n, DType::f32);
  const Tensor x = given(a, DType::f32), y = given(Floats(at(n), 1.0F), DType::f32);
  const Graph graph(stream(), [&] { device().accumulate(n, x.in(), y.out()); });
  EXPECT_EQ(graph.nodes(), 1U);
  EXPECT_EQ(y.read(), Floats(at(n), 1.0F));  // nothing ran yet
  graph.launch(stream());
  graph.launch(stream());
  Floats expected(at(n), 1.0F);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = expected[i] + a[i] + a[i];
  EXPECT_EQ(y.read(), expected);
}

}  // namespace
}  // namespace rehearse::kernels::cuda
