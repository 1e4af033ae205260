// Layer and root-mean-square normalisation, and sums of columns.
#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

class CudaNorm : public CudaTest {};

// A warp a row, a row of several warps, chunks held one, two and four a thread, rows read again, and odd lengths.
constexpr Shape kNormShapes[] = {{1, 1},    {5, 13},   {9, 256},  {6, 768},   {3, 1027},
                                 {2, 4096}, {2, 5120}, {1, 9000}, {1, 16384}, {2, 16400}};

struct Expected {
  Values dx, d_gamma, d_beta;
};

// By the formulas at the head of kernels/cuda/norm.cu, in double precision.
Expected gradients(bool rms, const Shape& s, const Floats& dy, const Floats& x, const Values& stats,
                   const Floats& gamma, const Floats& residual) {
  Expected e{Values(x.size()), Values(at(s.cols)), Values(at(s.cols))};
  const auto n = static_cast<double>(s.cols);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const double mean = rms ? 0 : stats[at(2 * row)], inverse = rms ? stats[at(row)] : stats[at(2 * row + 1)];
    double sum_g = 0, sum_gx = 0;
    for (std::int64_t c = 0; c < s.cols; ++c) {
      const std::size_t i = at(row * s.cols + c);
      const double g = static_cast<double>(dy[i]) * gamma[at(c)], hat = (x[i] - mean) * inverse;
      sum_g += rms ? 0 : g;
      sum_gx += g * hat;
      e.d_gamma[at(c)] += dy[i] * hat;
      e.d_beta[at(c)] += static_cast<double>(dy[i]);
    }
    for (std::int64_t c = 0; c < s.cols; ++c) {
      const std::size_t i = at(row * s.cols + c);
      const double g = static_cast<double>(dy[i]) * gamma[at(c)], hat = (x[i] - mean) * inverse;
      e.dx[i] = (residual.empty() ? 0 : residual[i]) + (g - sum_g / n - hat * sum_gx / n) * inverse;
    }
  }
  return e;
}

TEST_F(CudaNorm, ForwardAndBackward) {
  int turn = 0;
  for (const Shape& s : kNormShapes) {
    for (const bool rms : {false, true}) {
      const DType type = kMixes[turn % 5].x, y_type = kMixes[turn % 5].y, of_weights = kTypes[turn % 3];
      ++turn;
      SCOPED_TRACE(testing::Message() << s.rows << " x " << s.cols << ", " << name_of(type));
      const std::int64_t n = s.rows * s.cols;
      Floats x = normal(n, type);
      if (s.cols > 1)
        for (float& v : x) v = decoded(encoded({v + 2}, type), type)[0];  // a mean that counts
      const Floats gamma = normal(s.cols, of_weights), beta = normal(s.cols, of_weights);
      const Floats dy = normal(n, y_type), residual = normal(n, y_type);
      const Tensor in = given(x, type), g = given(gamma, of_weights), b = given(beta, of_weights);
      const Tensor y = poisoned(n, y_type), stats = poisoned(s.rows * (rms ? 1 : 2), DType::f32);
      const bool with_beta = !rms, with_residual = s.rows % 2 == 0;
      device().norm_forward(rms, s.rows, s.cols, 1e-5, in.in(), g.in(), with_beta ? b.in() : In(), y.out(),
                            stats.as<float>());
      const reference::Normed expected =
          reference::norm(rms, s.rows, s.cols, 1e-5, doubles(x), doubles(gamma), with_beta ? doubles(beta) : Values{});
      expect_near(y, expected.y);
      expect_near(stats, expected.stats);

      const Tensor d = given(dy, y_type), r = given(residual, y_type), dx = poisoned(n, y_type);
      const Floats before = normal(s.cols, DType::f32);
      const Tensor d_gamma = given(before, DType::f32), d_beta = given(before, DType::f32);
      device().norm_backward_input(rms, s.rows, s.cols, d.in(), in.in(), stats.as<float>(), g.in(),
                                   with_residual ? r.in() : In(), dx.out());
      device().norm_backward_weight(rms, s.rows, s.cols, d.in(), in.in(), stats.as<float>(), d_gamma.out(),
                                    with_beta ? d_beta.out() : Out());
      Expected e = gradients(rms, s, dy, x, expected.stats, gamma, with_residual ? residual : Floats{});
      if (s.cols > 1) expect_near(dx, e.dx);  // of one column dx is the difference of two equal numbers
      for (std::size_t c = 0; c < before.size(); ++c) {
        e.d_gamma[c] += static_cast<double>(before[c]);
        e.d_beta[c] += static_cast<double>(before[c]);
      }
      expect_near(d_gamma, e.d_gamma);
      expect_near(d_beta, with_beta ? e.d_beta : doubles(before));
    }
  }
}

// Many slabs of rows, columns of several tiles, odd addresses; the same bits every time.
TEST_F(CudaNorm, BiasGradientAddsTheColumnSums) {
  for (const auto& [rows, cols] : {Shape{1, 1}, {7, 5}, {300, 1100}, {65, 64}, {1000, 24}}) {
    for (const auto& [type, to] : kMixes) {
      for (const std::int64_t offset : {0, 1}) {
        const Floats dy = normal(rows * cols, type), before = normal(cols, to);
        const Tensor d = given(dy, type, offset);
        Values expected = doubles(before);
        for (std::int64_t i = 0; i < rows * cols; ++i) expected[at(i % cols)] += static_cast<double>(dy[at(i)]);
        const Tensor d_bias = given(before, to), again = given(before, to);
        device().bias_grad(rows, cols, d.in(), d_bias.out());
        device().bias_grad(rows, cols, d.in(), again.out());
        expect_near(d_bias, expected);
        EXPECT_EQ(d_bias.bytes(), again.bytes());
      }
    }
  }
}

}  // namespace
}  // namespace rehearse::kernels::cuda
