// Cross-entropy: fused, and in three parts over shards of a padded vocabulary, against the plain loss and its gradient.
#include <algorithm>

#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

class CudaCrossEntropy : public CudaTest {
 protected:
  struct Case {
    std::int64_t rows, cols, valid;
    Floats logits;
    std::vector<std::int32_t> targets;
  };
  // Padding that would show: larger than every logit.
  Case drawn(std::int64_t rows, std::int64_t cols, std::int64_t valid, DType type) {
    Case c{rows, cols, valid, normal(rows * cols, type, 3), below(rows, static_cast<std::int32_t>(valid))};
    for (std::int64_t i = 0; i < rows * cols; ++i)
      if (i % cols >= valid) c.logits[at(i)] = 60;
    return c;
  }
};

constexpr double kScale = 0.25;

// (softmax - one_hot) * factor; nothing for padding.
Values gradient(std::int64_t rows, std::int64_t cols, std::int64_t valid, const Floats& x,
                const std::vector<std::int32_t>& targets, double factor) {
  Values d(x.size(), 0.0);
  for (std::int64_t row = 0; row < rows; ++row) {
    double total = 0;
    for (std::int64_t c = 0; c < valid; ++c) total += std::exp(static_cast<double>(x[at(row * cols + c)]));
    for (std::int64_t c = 0; c < valid; ++c)
      d[at(row * cols + c)] =
          (std::exp(static_cast<double>(x[at(row * cols + c)])) / total - (c == targets[at(row)] ? 1 : 0)) * factor;
  }
  return d;
}

// Rows that begin at any element (cols 57, 5003), aligned ones, one column.
TEST_F(CudaCrossEntropy, FusedAddsTheLossAndItsGradientIsTheDifference) {
  int turn = 0;
  for (const auto& [cols, valid] : {std::pair<std::int64_t, std::int64_t>{56, 45}, {57, 57}, {5003, 5000}, {1, 1}}) {
    const auto [type, d_type] = kMixes[turn++ % 5];
    const Case c = drawn(13, cols, valid, type);
    const Tensor logits = given(c.logits, type), targets = raw(c.targets), loss = given({1.5F}, DType::f32);
    const Tensor stats = poisoned(2 * c.rows, DType::f32), d = poisoned(c.rows * cols, d_type);
    const Tensor loss_scale = given({8.0F}, DType::f32);
    device().cross_entropy_forward(c.rows, cols, valid, kScale, logits.in(), targets.as<std::int32_t>(),
                                   stats.as<float>(), loss.as<float>());
    const double expected = 1.5 + kScale * reference::cross_entropy(c.rows, cols, valid, doubles(c.logits), c.targets);
    EXPECT_NEAR(loss.read()[0] / expected, 1, 1e-5) << cols;
    device().cross_entropy_backward(c.rows, cols, valid, 0, kScale, loss_scale.as<float>(), logits.in(),
                                    targets.as<std::int32_t>(), stats.as<float>(), 2, stats.as<float>() + 1, 2,
                                    d.out());
    if (valid > 1) expect_near(d, gradient(c.rows, cols, valid, c.logits, c.targets, kScale * 8));
    const Floats out = d.read();
    for (std::int64_t i = 0; i < c.rows * cols; ++i) {
      if (i % cols >= valid) {
        ASSERT_EQ(out[at(i)], 0.0F);
      }
    }
    if (type != d_type) continue;
    const Tensor in_place = given(c.logits, type);
    device().cross_entropy_backward(c.rows, cols, valid, 0, kScale, loss_scale.as<float>(), in_place.in(),
                                    targets.as<std::int32_t>(), stats.as<float>(), 2, stats.as<float>() + 1, 2,
                                    in_place.out());
    EXPECT_EQ(in_place.bytes(), d.bytes());
  }
}

// A target of -1: as if the row were not there, whole and in parts.
TEST_F(CudaCrossEntropy, RowsWithoutATargetAreLeftOut) {
  Case c = drawn(13, 56, 45, DType::f32);
  double expected = 0;
  Values d_expected = gradient(c.rows, c.cols, c.valid, c.logits, c.targets, kScale);
  for (std::int64_t row = 0; row < c.rows; ++row) {
    const Values x(c.logits.begin() + row * c.cols, c.logits.begin() + (row + 1) * c.cols);
    if (row % 3 != 1)
      expected += kScale * reference::cross_entropy(1, c.cols, c.valid, x, {c.targets[at(row)]});
    else
      std::fill_n(d_expected.begin() + row * c.cols, c.cols, 0.0), c.targets[at(row)] = -1;
  }
  const Tensor logits = given(c.logits, DType::f32), targets = raw(c.targets), loss = given({0}, DType::f32),
               parallel = given({0}, DType::f32);
  const Tensor stats = poisoned(2 * c.rows, DType::f32), d = poisoned(c.rows * c.cols, DType::f32),
               max = poisoned(c.rows, DType::f32), sums = poisoned(2 * c.rows, DType::f32);
  device().cross_entropy_forward(c.rows, c.cols, c.valid, kScale, logits.in(), targets.as<std::int32_t>(),
                                 stats.as<float>(), loss.as<float>());
  EXPECT_NEAR(loss.read()[0] / expected, 1, 1e-5);
  device().cross_entropy_backward(c.rows, c.cols, c.valid, 0, kScale, nullptr, logits.in(), targets.as<std::int32_t>(),
                                  stats.as<float>(), 2, stats.as<float>() + 1, 2, d.out());
  expect_near(d, d_expected);
  device().cross_entropy_max(c.rows, c.cols, c.valid, 0, logits.in(), max.as<float>());
  device().cross_entropy_exp_sum(c.rows, c.cols, c.valid, 0, logits.in(), targets.as<std::int32_t>(), max.as<float>(),
                                 sums.as<float>());
  device().cross_entropy_loss(c.rows, kScale, sums.as<float>(), parallel.as<float>());
  EXPECT_NEAR(parallel.read()[0] / expected, 1, 1e-5);
  EXPECT_EQ(sums.read()[2], 1.0F);
  device().cross_entropy_exp_sum(c.rows, c.cols, 2 * c.cols, c.cols, logits.in(), targets.as<std::int32_t>(),
                                 max.as<float>(), sums.as<float>());
  EXPECT_EQ(sums.read()[2], 0.0F) << "of all ranks one has the sum of one";
}

TEST_F(CudaCrossEntropy, TargetsThatCountAreCounted) {
  std::vector<std::int32_t> targets(3000, 7);
  for (std::size_t i = 0; i < targets.size(); i += 4) targets[i] = -1;
  targets.back() = 0;
  const Tensor of = raw(targets), counted = given({5, 0}, DType::f32), loss = given({0.75F}, DType::f32);
  device().count_targets(static_cast<std::int64_t>(targets.size()), of.as<std::int32_t>(), counted.as<float>());
  EXPECT_EQ(counted.read()[0], 2255.0F);
  EXPECT_EQ(counted.read()[1], 0.0F);
  device().mean_of_counted(given({0.25F, 0}, DType::f32).as<float>(), loss.as<float>());
  EXPECT_EQ(loss.read()[0], 3.0F);
  device().mean_of_counted(given({0, 0}, DType::f32).as<float>(), loss.as<float>());
  EXPECT_EQ(loss.read()[0], 0.0F);
}

// 11 columns of padding: all of the last of eight shards.
TEST_F(CudaCrossEntropy, ThreePartsOverShards) {
  for (const DType type : kTypes) {
    const Case c = drawn(13, 56, 45, type);
    const Values expected = gradient(c.rows, c.cols, c.valid, c.logits, c.targets, kScale);
    const Tensor targets = raw(c.targets);
    for (const std::int64_t shards : {1, 2, 8}) {
      const std::int64_t cols = c.cols / shards;
      std::vector<Floats> part(at(shards));
      std::vector<Values> of(at(shards));
      for (std::int64_t i = 0; i < c.rows * c.cols; ++i) {
        part[at(i % c.cols / cols)].push_back(c.logits[at(i)]);
        of[at(i % c.cols / cols)].push_back(expected[at(i)]);
      }
      Floats max(at(c.rows), -std::numeric_limits<float>::infinity()), sums(at(2 * c.rows), 0.0F);
      for (std::int64_t i = 0; i < shards; ++i) {
        const Tensor mine = poisoned(c.rows, DType::f32), x = given(part[at(i)], type);
        device().cross_entropy_max(c.rows, cols, c.valid, i * cols, x.in(), mine.as<float>());
        const Floats read = mine.read();
        for (std::size_t r = 0; r < max.size(); ++r) max[r] = std::max(max[r], read[r]);
      }
      const Tensor of_max = given(max, DType::f32);
      for (std::int64_t i = 0; i < shards; ++i) {
        const Tensor mine = poisoned(2 * c.rows, DType::f32), x = given(part[at(i)], type);
        device().cross_entropy_exp_sum(c.rows, cols, c.valid, i * cols, x.in(), targets.as<std::int32_t>(),
                                       of_max.as<float>(), mine.as<float>());
        const Floats read = mine.read();
        for (std::size_t r = 0; r < sums.size(); ++r) sums[r] += read[r];
      }
      const Tensor of_sums = given(sums, DType::f32), loss = given({2.0F}, DType::f32);
      device().cross_entropy_loss(c.rows, kScale, of_sums.as<float>(), loss.as<float>());
      const double whole = 2 + kScale * reference::cross_entropy(c.rows, c.cols, c.valid, doubles(c.logits), c.targets);
      EXPECT_NEAR(loss.read()[0] / whole, 1, 1e-5);
      for (std::int64_t i = 0; i < shards; ++i) {
        const Tensor x = given(part[at(i)], type), d = poisoned(c.rows * cols, type);
        device().cross_entropy_backward(c.rows, cols, c.valid, i * cols, kScale, nullptr, x.in(),
                                        targets.as<std::int32_t>(), of_max.as<float>(), 1, of_sums.as<float>(), 2,
                                        d.out());
        expect_near(d, of[at(i)]);
      }
    }
  }
}

// Logits of 1000 do not overflow: the loss of two equal ones is ln 2. Minus infinities are zeros of the sum, a NaN is
// not lost, nor is a target outside the vocabulary.
TEST_F(CudaCrossEntropy, LogitsAtTheEnds) {
  const auto loss_of = [&](const Floats& x, std::int32_t target) {
    const Tensor logits = given(x, DType::f32), targets = raw(std::vector<std::int32_t>{target});
    const Tensor stats = poisoned(2, DType::f32), loss = given({0.0F}, DType::f32);
    const auto cols = static_cast<std::int64_t>(x.size());
    device().cross_entropy_forward(1, cols, cols, 1, logits.in(), targets.as<std::int32_t>(), stats.as<float>(),
                                   loss.as<float>());
    return loss.read()[0];
  };
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_NEAR(loss_of({1000, 1000, -1000}, 1), std::log(2.0), 1e-6);
  Floats late(9000, -inf);
  late[8999] = late[8990] = -3;
  EXPECT_NEAR(loss_of(late, 8999), std::log(2.0), 1e-6);
  EXPECT_TRUE(std::isnan(loss_of({1, std::numeric_limits<float>::quiet_NaN(), 2}, 0)));
  EXPECT_TRUE(std::isnan(loss_of({1, 2}, 2)));
}

}  // namespace
}  // namespace rehearse::kernels::cuda
