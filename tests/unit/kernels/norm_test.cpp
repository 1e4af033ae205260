// Layer and root-mean-square normalisation against plain loops, and their gradients against differences.
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

constexpr double kEps = 1e-5;

struct Case {
  bool rms, beta;
  std::int64_t rows, cols;
};
const std::vector<Case> kCases = {{false, true, 5, 13}, {false, false, 9, 64},    {true, false, 7, 33},
                                  {true, false, 1, 1},  {false, true, 203, 1061}, {true, true, 130, 256}};

class NormTest : public KernelTest {
 protected:
  void draw(const Case& c) {
    x = random.normal(c.rows * c.cols);
    for (float& v : x) v += 3;  // a mean that matters
    gamma = random.normal(c.cols);
    beta = c.beta ? random.normal(c.cols) : Floats{};
    dy = random.normal(c.rows * c.cols);
    y = poisoned(c.rows * c.cols);
    stats = poisoned(c.rows * (c.rms ? 1 : 2));
    device->norm_forward(c.rms, c.rows, c.cols, kEps, x.data(), gamma.data(), c.beta ? beta.data() : nullptr, y.data(),
                         stats.data());
  }
  double loss(const Case& c, const Values& of_x, const Values& of_gamma, const Values& of_beta) const {
    return dot(reference::norm(c.rms, c.rows, c.cols, kEps, of_x, of_gamma, of_beta).y, doubles(dy));
  }

  Floats x, gamma, beta, dy, y, stats;
};
INSTANTIATE_TEST_SUITE_P(Threads, NormTest, testing::Values(1, 3));

TEST_P(NormTest, ForwardEqualsThePlainLoop) {
  for (const Case& c : kCases) {
    draw(c);
    const auto expected = reference::norm(c.rms, c.rows, c.cols, kEps, doubles(x), doubles(gamma), doubles(beta));
    EXPECT_LE(relative_error(y, expected.y), kTolerance) << c.cols;
    EXPECT_LE(relative_error(stats, expected.stats), kTolerance) << c.cols;
  }
}

TEST_P(NormTest, InputGradientIsTheDifferenceAndAddsTheResidual) {
  for (const Case& c : kCases) {
    if (c.cols == 1) continue;  // the exact gradient is nearly 0
    SCOPED_TRACE(c.cols);
    draw(c);
    const Floats residual = random.normal(c.rows * c.cols), nothing(x.size(), 0.0f);
    Floats dx = poisoned(c.rows * c.cols), with_residual = dx;
    device->norm_backward_input(c.rms, c.rows, c.cols, dy.data(), x.data(), stats.data(), gamma.data(), nullptr,
                                dx.data());
    device->norm_backward_input(c.rms, c.rows, c.cols, dy.data(), x.data(), stats.data(), gamma.data(), residual.data(),
                                with_residual.data());
    expect_gradient([&](const Values& v) { return loss(c, v, doubles(gamma), doubles(beta)); }, x, doubles(dx));
    EXPECT_LE(relative_error(minus(with_residual, residual), doubles(dx)), kTolerance);
  }
}

TEST_P(NormTest, WeightGradientsAreTheDifferencesAndAdd) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.cols);
    draw(c);
    const Floats gamma_before = random.normal(c.cols), beta_before = random.normal(c.cols);
    Floats d_gamma = gamma_before, d_beta = beta_before;
    device->norm_backward_weight(c.rms, c.rows, c.cols, dy.data(), x.data(), stats.data(), d_gamma.data(),
                                 c.beta ? d_beta.data() : nullptr);
    expect_gradient([&](const Values& v) { return loss(c, doubles(x), v, doubles(beta)); }, gamma,
                    minus(d_gamma, gamma_before));
    if (c.beta) {
      expect_gradient([&](const Values& v) { return loss(c, doubles(x), doubles(gamma), v); }, beta,
                      minus(d_beta, beta_before));
    } else {
      EXPECT_EQ(d_beta, beta_before);
    }
  }
}

}  // namespace
}  // namespace rehearse::kernels
