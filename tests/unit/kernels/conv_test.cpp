// Convolutions of odd sizes, strides and paddings against plain loops; gradients against differences; max pooling.
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

const std::vector<ConvShape> kShapes = {
    {2, 3, 4, 5, 7, 3, 1, 1},
    {1, 2, 5, 9, 6, 3, 2, 1},
    {3, 1, 2, 4, 4, 1, 1, 0},
    {1, 2, 3, 7, 7, 5, 1, 2},
    {2, 2, 3, 6, 5, 3, 3, 0},
    {1, 1, 1, 3, 2, 5, 2, 2},
    {2, 1, 18, 8, 8, 3, 1, 3},
    // In groups of 2 maps to 3, 6 to 5, of one to one (depthwise) and to two.
    {2, 6, 9, 5, 6, 3, 1, 1, 3},
    {3, 12, 10, 7, 4, 3, 2, 1, 2},
    {2, 5, 5, 6, 9, 5, 2, 2, 5},
    {2, 19, 38, 4, 5, 3, 1, 1, 19},
};

std::int64_t out_size(const ConvShape& s) {
  return s.batch * s.c_out * ((s.height + 2 * s.pad - s.kernel) / s.stride + 1) *
         ((s.width + 2 * s.pad - s.kernel) / s.stride + 1);
}

class ConvTest : public KernelTest {
 protected:
  void draw(const ConvShape& s) {
    x = random.normal(s.batch * s.c_in * s.height * s.width);
    w = random.normal(s.c_out * (s.c_in / s.groups) * s.kernel * s.kernel);
    bias = random.normal(s.c_out);
    dy = random.normal(out_size(s));
  }
  double loss(const ConvShape& s, const Values& of_x, const Values& of_w, const Values& of_bias) const {
    return dot(reference::conv(s, of_x, of_w, of_bias), doubles(dy));
  }
  Floats x, w, bias, dy;
};
INSTANTIATE_TEST_SUITE_P(Threads, ConvTest, testing::Values(1, 3));

TEST_P(ConvTest, ForwardEqualsThePlainLoop) {
  for (const ConvShape& s : kShapes) {
    draw(s);
    Floats y = poisoned(out_size(s));
    device->conv_forward(s, x.data(), w.data(), bias.data(), y.data());
    EXPECT_LE(relative_error(y, reference::conv(s, doubles(x), doubles(w), doubles(bias))), kTolerance) << s.height;
  }
}

TEST_P(ConvTest, GradientsAreTheDifferencesAndThoseOfWeightsAdd) {
  for (const ConvShape& s : kShapes) {
    SCOPED_TRACE(s.height);
    draw(s);
    Floats dx = poisoned(static_cast<std::int64_t>(x.size()));
    const Floats w_before = random.normal(static_cast<std::int64_t>(w.size())), bias_before = random.normal(s.c_out);
    Floats dw = w_before, d_bias = bias_before;
    device->conv_backward_input(s, dy.data(), w.data(), dx.data());
    device->conv_backward_weight(s, dy.data(), x.data(), dw.data(), d_bias.data());
    expect_gradient([&](const Values& v) { return loss(s, v, doubles(w), doubles(bias)); }, x, doubles(dx));
    expect_gradient([&](const Values& v) { return loss(s, doubles(x), v, doubles(bias)); }, w, minus(dw, w_before));
    expect_gradient([&](const Values& v) { return loss(s, doubles(x), doubles(w), v); }, bias,
                    minus(d_bias, bias_before));
  }
}

// Of several groups the maps are those of as many convolutions, each of its own.
TEST_P(ConvTest, GroupsAreConvolutionsOfTheirOwn) {
  for (const std::int64_t width : {2, 6}) {  // maps of a group: few, which are not unfolded, and more
    const ConvShape all{1, 3 * width, 3 * width, 6, 7, 3, 1, 1, 3}, one{1, width, width, 6, 7, 3, 1, 1};
    draw(all);
    Floats y = poisoned(out_size(all));
    device->conv_forward(all, x.data(), w.data(), bias.data(), y.data());
    for (std::int64_t g = 0; g < 3; ++g) {
      Floats own = poisoned(out_size(one));
      device->conv_forward(one, x.data() + g * width * 42, w.data() + g * width * width * 9, bias.data() + g * width,
                           own.data());
      const Floats there(y.begin() + g * width * 42, y.begin() + (g + 1) * width * 42);
      EXPECT_LE(relative_error(there, doubles(own)), kTolerance) << width << " maps, group " << g;
    }
  }
}

// 8 x 23 by windows of 2 and 3: rows and columns left over take no part.
TEST_P(ConvTest, PoolingTakesMaximaAndSendsGradientsToThem) {
  const std::int64_t planes = 6, height = 8, width = 23;
  for (const std::int64_t window : {2, 3}) {
    const std::int64_t out_width = width / window, outputs = height / window * out_width;
    x = random.normal(planes * height * width);
    dy = random.normal(planes * outputs);
    Floats y = poisoned(planes * outputs), dx = poisoned(planes * height * width);
    std::vector<std::int32_t> argmax(y.size(), -1);
    device->pool_forward(2, 3, height, width, window, x.data(), y.data(), argmax.data());
    device->pool_backward(2, 3, height, width, window, dy.data(), argmax.data(), dx.data());
    Floats expected(x.size(), 0.0f);
    for (std::int64_t i = 0; i < planes * outputs; ++i) {
      const std::int64_t top = i % outputs / out_width * window, left = i % out_width * window;
      std::int64_t best = -1;
      for (std::int64_t pixel = 0; pixel < height * width; ++pixel) {
        const std::int64_t row = pixel / width - top, col = pixel % width - left,
                           at_x = i / outputs * height * width + pixel;
        if (row < 0 || row >= window || col < 0 || col >= window) continue;
        if (best < 0 || x[at(at_x)] > x[at(best)]) best = at_x;
      }
      EXPECT_EQ(y[at(i)], x[at(best)]);
      expected[at(best)] += dy[at(i)];
    }
    EXPECT_EQ(dx, expected);
  }
}

TEST_P(ConvTest, PoolingKeepsNotANumberAndTheFirstOfEquals) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  x = {5,   1, 2, 2,  //
       nan, 3, 2, 2};
  Floats y = poisoned(2);
  std::vector<std::int32_t> argmax(2, -1);
  device->pool_forward(1, 1, 2, 4, 2, x.data(), y.data(), argmax.data());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 2.0f);
  EXPECT_EQ(argmax, (std::vector<std::int32_t>{4, 2}));
}

}  // namespace
}  // namespace rehearse::kernels
