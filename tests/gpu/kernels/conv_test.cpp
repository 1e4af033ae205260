// Convolutions of odd sizes, strides and paddings against plain loops, and max pooling.
#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

class CudaConv : public CudaTest {};

const std::vector<ConvShape> kConvolutions = {
    {2, 3, 4, 5, 7, 3, 1, 1},      {1, 2, 5, 9, 6, 3, 2, 1},     {3, 1, 2, 4, 4, 1, 1, 0},
    {1, 2, 3, 7, 7, 5, 1, 2},      {2, 2, 3, 6, 5, 3, 3, 0},     {1, 1, 1, 3, 2, 5, 2, 2},
    {2, 1, 18, 8, 8, 3, 1, 3},     {3, 20, 70, 12, 11, 3, 1, 1}, {2, 6, 9, 5, 6, 3, 1, 1, 3},
    {3, 12, 10, 7, 4, 3, 2, 1, 2}, {2, 5, 5, 6, 9, 5, 2, 2, 5},  {2, 130, 130, 6, 7, 3, 1, 1, 2},
};

struct Gradients {
  Values dx, dw, d_bias;
};

// Each product of the forward pass, seen from its factors.
Gradients gradients(const ConvShape& s, const Floats& x, const Floats& w, const Floats& dy) {
  const std::int64_t height = (s.height + 2 * s.pad - s.kernel) / s.stride + 1;
  const std::int64_t width = (s.width + 2 * s.pad - s.kernel) / s.stride + 1, window = s.kernel * s.kernel;
  Gradients g{Values(x.size()), Values(w.size()), Values(at(s.c_out))};
  for (std::int64_t i = 0; i < s.batch * s.c_out * height * width; ++i) {
    const std::int64_t b = i / (s.c_out * height * width), o = i / (height * width) % s.c_out;
    const std::int64_t top = i / width % height * s.stride - s.pad, left = i % width * s.stride - s.pad;
    g.d_bias[at(o)] += static_cast<double>(dy[at(i)]);
    const std::int64_t patch = s.c_in / s.groups * window, first = o / (s.c_out / s.groups) * (s.c_in / s.groups);
    for (std::int64_t k = 0; k < patch; ++k) {
      const std::int64_t row = top + k / s.kernel % s.kernel, col = left + k % s.kernel;
      if (row < 0 || row >= s.height || col < 0 || col >= s.width) continue;
      const std::size_t of_x = at(((b * s.c_in + first + k / window) * s.height + row) * s.width + col);
      const std::size_t of_w = at(o * patch + k);
      g.dx[of_x] += static_cast<double>(dy[at(i)]) * w[of_w];
      g.dw[of_w] += static_cast<double>(dy[at(i)]) * x[of_x];
    }
  }
  return g;
}

TEST_F(CudaConv, ForwardAndGradients) {
  int turn = 0;
  for (const ConvShape& s : kConvolutions) {
    const auto [type, w_grad_type] = kMixes[turn++ % 5];
    SCOPED_TRACE(testing::Message() << s.height << " x " << s.width << ", " << name_of(type));
    const Floats x = normal(s.batch * s.c_in * s.height * s.width, type);
    const Floats w = normal(s.c_out * (s.c_in / s.groups) * s.kernel * s.kernel, type), bias = normal(s.c_out, type);
    const Values y = reference::conv(s, doubles(x), doubles(w), doubles(bias));
    const auto outputs = static_cast<std::int64_t>(y.size());
    const Floats dy = normal(outputs, type);
    const Floats before = normal(static_cast<std::int64_t>(w.size()), w_grad_type),
                 bias_before = normal(s.c_out, w_grad_type);
    const Tensor in = given(x, type), weights = given(w, type), b = given(bias, type), d = given(dy, type);
    const Tensor out = poisoned(outputs, type), dx = poisoned(static_cast<std::int64_t>(x.size()), type);
    const Tensor dw = given(before, w_grad_type), d_bias = given(bias_before, w_grad_type);
    device().conv_forward(s, in.in(), weights.in(), b.in(), out.out());
    device().conv_backward_input(s, d.in(), weights.in(), dx.out());
    device().conv_backward_weight(s, d.in(), in.in(), dw.out(), d_bias.out());
    Gradients expected = gradients(s, x, w, dy);
    for (std::size_t i = 0; i < before.size(); ++i) expected.dw[i] += static_cast<double>(before[i]);
    for (std::size_t i = 0; i < bias_before.size(); ++i) expected.d_bias[i] += static_cast<double>(bias_before[i]);
    expect_near(out, y);
    expect_near(dx, expected.dx);
    expect_near(dw, expected.dw);
    expect_near(d_bias, expected.d_bias);
  }
}

// 8 x 23 by windows of 2 and 3: rows and columns left over take no part. Half numbers tie, and the first counts.
TEST_F(CudaConv, PoolingTakesMaximaAndSendsGradientsToThem) {
  const std::int64_t planes = 6, height = 8, width = 23;
  for (const DType type : kTypes) {
    for (const std::int64_t window : {2, 3}) {
      const std::int64_t across = width / window, outputs = planes * (height / window) * across;
      Floats x = normal(planes * height * width, type);
      for (float& v : x) v = std::round(2 * v) / 2;
      x[0] = std::numeric_limits<float>::quiet_NaN();
      const Floats dy = normal(outputs, type);
      const Tensor in = given(x, type), y = poisoned(outputs, type), d = given(dy, type);
      const Tensor dx = poisoned(planes * height * width, type);
      const Tensor argmax = raw(std::vector<std::int32_t>(at(outputs), -1));
      device().pool_forward(2, planes / 2, height, width, window, in.in(), y.out(), argmax.as<std::int32_t>());
      device().pool_backward(2, planes / 2, height, width, window, d.in(), argmax.as<std::int32_t>(), dx.out());
      const std::vector<std::byte> bytes = argmax.bytes();
      std::vector<std::int32_t> chosen(at(outputs));
      std::memcpy(chosen.data(), bytes.data(), bytes.size());
      const Floats out = y.read();
      Floats expected(x.size(), 0.0F);
      for (std::int64_t o = 0; o < outputs; ++o) {
        const std::int64_t plane = o / ((height / window) * across),
                           corner_row = o / across % (height / window) * window;
        std::int64_t best = corner_row * width + o % across * window;
        const std::int64_t corner = best;
        for (std::int64_t k = 0; k < window * window; ++k) {
          const std::int64_t pixel = corner + k / window * width + k % window;
          if (x[at(plane * height * width + pixel)] > x[at(plane * height * width + best)]) best = pixel;
        }
        ASSERT_EQ(chosen[at(o)], o == 0 ? 0 : best) << o;
        if (o == 0) {
          EXPECT_TRUE(std::isnan(out[0]));
        } else {
          EXPECT_EQ(out[at(o)], x[at(plane * height * width + best)]);
        }
        expected[at(plane * height * width + chosen[at(o)])] = dy[at(o)];
      }
      EXPECT_EQ(dx.bytes(), encoded(expected, type));
    }
  }
}

}  // namespace
}  // namespace rehearse::kernels::cuda
