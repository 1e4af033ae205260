// Batch normalisation against plain loops in double and its gradients against differences; sums of parts of a batch add
// up to the whole's; the mean of maps; max pooling with windows that overlap and reach beyond the map.
#include <limits>

#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

class BatchNormTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, BatchNormTest, testing::Values(1, 3));

// y of all examples, by the definition: mean and variance of each channel.
Values plain_batch_norm(const BatchNormShape& s, const Values& x, const Values& gamma, const Values& beta) {
  Values y(x.size());
  for (std::int64_t c = 0; c < s.channels; ++c) {
    const auto each = [&](const auto& body) {
      for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t p = 0; p < s.pixels; ++p) body(at((b * s.channels + c) * s.pixels + p));
    };
    double mean = 0, variance = 0;
    const auto n = static_cast<double>(s.batch * s.pixels);
    each([&](std::size_t i) { mean += x[i] / n; });
    each([&](std::size_t i) { variance += (x[i] - mean) * (x[i] - mean) / n; });
    each([&](std::size_t i) { y[i] = gamma[at(c)] * (x[i] - mean) / std::sqrt(variance + s.eps) + beta[at(c)]; });
  }
  return y;
}

TEST_P(BatchNormTest, EqualsThePlainLoopAndItsDifferences) {
  for (const BatchNormShape s : {BatchNormShape{3, 5, 7, 21}, BatchNormShape{8, 3, 1, 8}}) {
    const std::int64_t n = s.batch * s.channels * s.pixels;
    const Floats x = random.normal(n), gamma = random.normal(s.channels), beta = random.normal(s.channels),
                 dy = random.normal(n);
    Floats y = poisoned(n), dx = poisoned(n), sums = poisoned(2 * s.channels), d_sums = poisoned(2 * s.channels);
    const Floats before = random.normal(s.channels);
    Floats d_gamma = before, d_beta = before;
    device->batch_norm_sums(s, x.data(), sums.data());
    device->batch_norm_normalise(s, x.data(), sums.data(), gamma.data(), beta.data(), y.data());
    EXPECT_LE(relative_error(y, plain_batch_norm(s, doubles(x), doubles(gamma), doubles(beta))), kTolerance);
    device->batch_norm_backward_sums(s, dy.data(), x.data(), sums.data(), d_sums.data());
    device->batch_norm_backward_weight(s, d_sums.data(), d_gamma.data(), d_beta.data());
    device->batch_norm_backward_input(s, dy.data(), x.data(), sums.data(), gamma.data(), d_sums.data(), dx.data());
    const auto loss = [&](const Values& of_x, const Values& of_gamma, const Values& of_beta) {
      return dot(plain_batch_norm(s, of_x, of_gamma, of_beta), doubles(dy));
    };
    expect_gradient([&](const Values& v) { return loss(v, doubles(gamma), doubles(beta)); }, x, doubles(dx));
    expect_gradient([&](const Values& v) { return loss(doubles(x), v, doubles(beta)); }, gamma, minus(d_gamma, before));
    expect_gradient([&](const Values& v) { return loss(doubles(x), doubles(gamma), v); }, beta, minus(d_beta, before));
  }
}

TEST_P(BatchNormTest, SumsOfHalvesNormaliseAsTheWhole) {
  const BatchNormShape whole{6, 4, 9, 54}, half{3, 4, 9, 54};
  const std::int64_t n = whole.batch * whole.channels * whole.pixels;
  const Floats x = random.normal(n), gamma = random.normal(4), beta = random.normal(4);
  Floats sums(8), first(8), second(8), expected(x.size()), y(x.size());
  device->batch_norm_sums(whole, x.data(), sums.data());
  device->batch_norm_normalise(whole, x.data(), sums.data(), gamma.data(), beta.data(), expected.data());
  device->batch_norm_sums(half, x.data(), first.data());
  device->batch_norm_sums(half, x.data() + n / 2, second.data());
  for (std::size_t i = 0; i < 8; ++i) first[i] += second[i];
  for (const std::int64_t from : {std::int64_t{0}, n / 2})
    device->batch_norm_normalise(half, x.data() + from, first.data(), gamma.data(), beta.data(), y.data() + from);
  EXPECT_LE(relative_error(y, doubles(expected)), kTolerance);
}

TEST_P(BatchNormTest, AveragesAreOfEachMap) {
  const Floats x = {1, 2, 3, -4, 5, 6}, dy = {3, 6};
  Floats y = poisoned(2), dx = poisoned(6);
  device->average_pool_forward(2, 3, x.data(), y.data());
  device->average_pool_backward(2, 3, dy.data(), dx.data());
  EXPECT_EQ(y, (Floats{2, 7.0F / 3}));
  EXPECT_EQ(dx, (Floats{1, 1, 1, 2, 2, 2}));
}

// Two maps of three pixels; a factor's gradient is of its map alone.
TEST_P(BatchNormTest, ScalesAreOfEachMap) {
  const Floats x = {1, 2, 3, -4, 5, 6}, f = {2, -1}, dy = {3, 6, 1, 1, 0, 2};
  Floats y = poisoned(6), dx = poisoned(6), df = poisoned(2);
  device->channel_scale_forward(2, 3, x.data(), f.data(), y.data());
  device->channel_scale_backward(2, 3, dy.data(), x.data(), f.data(), dx.data(), df.data());
  EXPECT_EQ(y, (Floats{2, 4, 6, 4, -5, -6}));
  EXPECT_EQ(dx, (Floats{6, 12, 2, -1, 0, -2}));
  EXPECT_EQ(df, (Floats{18, 8}));
}

// 3x3 windows two apart over 4x5 pixels with a border of one: what windows share gets the sum of their gradients.
TEST_P(BatchNormTest, OverlappingWindowsTakeMaximaAndAddGradients) {
  const PoolShape s{1, 1, 4, 5, 3, 2, 1};
  ASSERT_EQ(s.out_height(), 2);
  ASSERT_EQ(s.out_width(), 3);
  const Floats x = {-9, -8, -7, -6, -5,  //
                    -4, 90, -2, -1, -3,  //
                    -1, -2, -3, -4, -5,  //
                    -6, -7, -8, 80, -9};
  const Floats dy = {1, 2, 4, 8, 16, 32};
  Floats y = poisoned(6), dx = poisoned(20);
  std::vector<std::int32_t> argmax(6, -1);
  device->max_pool_forward(s, x.data(), y.data(), argmax.data());
  device->max_pool_backward(s, dy.data(), argmax.data(), dx.data());
  EXPECT_EQ(y, (Floats{90, 90, -1, 90, 90, 80}));
  Floats expected(20, 0.0F);
  expected[6] = 1 + 2 + 8 + 16;
  expected[8] = 4;
  expected[18] = 32;
  EXPECT_EQ(dx, expected);
  Floats with_nan = x;
  with_nan[0] = std::numeric_limits<float>::quiet_NaN();
  device->max_pool_forward(s, with_nan.data(), y.data(), argmax.data());
  EXPECT_TRUE(std::isnan(y[0]));
}

}  // namespace
}  // namespace rehearse::kernels
