// Cross-entropy: fused, and in three parts over shards of a padded vocabulary, against the plain loss.
#include <algorithm>
#include <limits>

#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

constexpr std::int64_t kRows = 13, kValid = 45, kCols = 56;  // 11 columns of padding: all of the last of eight shards
constexpr double kScale = 0.25;

class CrossEntropyTest : public KernelTest {
 protected:
  CrossEntropyTest() {
    logits = random.normal(kRows * kCols, 3);
    targets = random.below(kRows, kValid);
    // Padding that would show: larger than every logit.
    for (std::int64_t i = 0; i < kRows * kCols; ++i) {
      if (i % kCols >= kValid) logits[at(i)] = 60;
    }
  }
  double expected_loss(const Values& of) const {
    return kScale * reference::cross_entropy(kRows, kCols, kValid, of, targets);
  }

  Floats logits;
  std::vector<std::int32_t> targets;
};
INSTANTIATE_TEST_SUITE_P(Threads, CrossEntropyTest, testing::Values(1, 3));

TEST_P(CrossEntropyTest, FusedAddsTheLossAndItsGradientIsTheDifference) {
  Floats stats = poisoned(kRows * 2), d = poisoned(kRows * kCols);
  float loss = 1.5f;
  device->cross_entropy_forward(kRows, kCols, kValid, kScale, logits.data(), targets.data(), stats.data(), &loss);
  EXPECT_NEAR((loss - 1.5) / expected_loss(doubles(logits)), 1, kTolerance);
  device->cross_entropy_backward(kRows, kCols, kValid, 0, kScale, nullptr, logits.data(), targets.data(), stats.data(),
                                 2, stats.data() + 1, 2, d.data());
  // 728 logits: row by row, of which the others are constants.
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto first = row * kCols, last = first + kCols;
    const auto of_row = [&](const Values& v) {
      return kScale * reference::cross_entropy(1, kCols, kValid, v, {targets[at(row)]});
    };
    expect_gradient(of_row, Floats(logits.begin() + first, logits.begin() + last),
                    Values(d.begin() + first, d.begin() + last));
    for (std::int64_t c = kValid; c < kCols; ++c) EXPECT_EQ(d[at(first + c)], 0.0f);
  }
  Floats in_place = logits;
  device->cross_entropy_backward(kRows, kCols, kValid, 0, kScale, nullptr, in_place.data(), targets.data(),
                                 stats.data(), 2, stats.data() + 1, 2, in_place.data());
  EXPECT_EQ(in_place, d);
}

TEST_P(CrossEntropyTest, ThreePartsOverShardsEqualTheFused) {
  Floats stats = poisoned(kRows * 2), expected = poisoned(kRows * kCols);
  float fused = 0;
  device->cross_entropy_forward(kRows, kCols, kValid, kScale, logits.data(), targets.data(), stats.data(), &fused);
  device->cross_entropy_backward(kRows, kCols, kValid, 0, kScale, nullptr, logits.data(), targets.data(), stats.data(),
                                 2, stats.data() + 1, 2, expected.data());
  for (const std::int64_t shards : {1, 2, 4, 8}) {
    SCOPED_TRACE(shards);
    const std::int64_t cols = kCols / shards;
    std::vector<Floats> shard(at(shards));
    for (std::int64_t i = 0; i < kRows * kCols; ++i) shard[at(i % kCols / cols)].push_back(logits[at(i)]);
    Floats max(at(kRows), -std::numeric_limits<float>::infinity()), sums(at(kRows * 2), 0.0f);
    for (std::int64_t i = 0; i < shards; ++i) {  // an all-reduce of maxima
      Floats mine = poisoned(kRows);
      device->cross_entropy_max(kRows, cols, kValid, i * cols, shard[at(i)].data(), mine.data());
      for (std::size_t r = 0; r < max.size(); ++r) max[r] = std::max(max[r], mine[r]);
    }
    for (std::int64_t i = 0; i < shards; ++i) {  // an all-reduce of sums
      Floats mine = poisoned(kRows * 2);
      device->cross_entropy_exp_sum(kRows, cols, kValid, i * cols, shard[at(i)].data(), targets.data(), max.data(),
                                    mine.data());
      device->accumulate(kRows * 2, mine.data(), sums.data());
    }
    float loss = 2;
    device->cross_entropy_loss(kRows, kScale, sums.data(), &loss);
    EXPECT_NEAR((loss - 2) / fused, 1, kTolerance);
    for (std::int64_t i = 0; i < shards; ++i) {
      Floats d = poisoned(kRows * cols);
      device->cross_entropy_backward(kRows, cols, kValid, i * cols, kScale, nullptr, shard[at(i)].data(),
                                     targets.data(), max.data(), 1, sums.data(), 2, d.data());
      Values part;
      for (std::int64_t k = 0; k < kRows * kCols; ++k) {
        if (k % kCols / cols == i) part.push_back(expected[at(k)]);
      }
      EXPECT_LE(relative_error(d, part), kTolerance);
    }
  }
}

// A target of -1 leaves its row out: nothing is added to the loss, and the gradient is 0, whole and over shards.
TEST_P(CrossEntropyTest, RowsWithoutATargetAreLeftOut) {
  std::vector<std::int32_t> some = targets, kept_targets;
  Floats kept_logits;
  for (std::int64_t row = 0; row < kRows; ++row) {
    if (row % 3 == 1) {
      some[at(row)] = -1;
      continue;
    }
    kept_targets.push_back(targets[at(row)]);
    kept_logits.insert(kept_logits.end(), logits.begin() + row * kCols, logits.begin() + (row + 1) * kCols);
  }
  const auto kept = static_cast<std::int64_t>(kept_targets.size());
  Floats stats = poisoned(kRows * 2), d = poisoned(kRows * kCols), kept_stats = poisoned(kept * 2),
         kept_d = poisoned(kept * kCols);
  float loss = 0, expected = 0;
  device->cross_entropy_forward(kRows, kCols, kValid, kScale, logits.data(), some.data(), stats.data(), &loss);
  device->cross_entropy_forward(kept, kCols, kValid, kScale, kept_logits.data(), kept_targets.data(), kept_stats.data(),
                                &expected);
  EXPECT_NEAR(loss / expected, 1, kTolerance);
  device->cross_entropy_backward(kRows, kCols, kValid, 0, kScale, nullptr, logits.data(), some.data(), stats.data(), 2,
                                 stats.data() + 1, 2, d.data());
  device->cross_entropy_backward(kept, kCols, kValid, 0, kScale, nullptr, kept_logits.data(), kept_targets.data(),
                                 kept_stats.data(), 2, kept_stats.data() + 1, 2, kept_d.data());
  const auto rows_of = [&](const Floats& gradients) {
    Floats rows;
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto first = gradients.begin() + row * kCols, last = first + kCols;
      if (some[at(row)] >= 0)
        rows.insert(rows.end(), first, last);
      else
        EXPECT_EQ(std::count(first, last, 0.0f), kCols) << row;
    }
    return rows;
  };
  EXPECT_EQ(rows_of(d), kept_d);
  Floats max = poisoned(kRows), sums(at(kRows * 2), 0.0f);
  device->cross_entropy_max(kRows, kCols, kValid, 0, logits.data(), max.data());
  for (std::int64_t shard = 0; shard < 2; ++shard) {  // a second one that has padding alone
    Floats mine = poisoned(kRows * 2);
    device->cross_entropy_exp_sum(kRows, kCols, shard == 0 ? kValid : kCols, shard * kCols, logits.data(), some.data(),
                                  max.data(), mine.data());
    device->accumulate(kRows * 2, mine.data(), sums.data());
  }
  float parallel = 0;
  device->cross_entropy_loss(kRows, kScale, sums.data(), &parallel);
  EXPECT_NEAR(parallel / expected, 1, kTolerance);
  d = poisoned(kRows * kCols);
  device->cross_entropy_backward(kRows, kCols, kValid, 0, kScale, nullptr, logits.data(), some.data(), max.data(), 1,
                                 sums.data(), 2, d.data());
  EXPECT_LE(relative_error(rows_of(d), Values(kept_d.begin(), kept_d.end())), kTolerance);
}

// Logits of 1000 do not overflow: the loss of two equal logits is ln 2.
TEST_P(CrossEntropyTest, LargeLogits) {
  const Floats big = {1000, 1000, -1000};
  const std::vector<std::int32_t> target = {1};
  Floats stats = poisoned(2);
  float loss = 0;
  device->cross_entropy_forward(1, 3, 3, 1, big.data(), target.data(), stats.data(), &loss);
  EXPECT_NEAR(loss, std::log(2.0), 1e-6);
}

// Rows far longer than what is taken at a time, whose maximum comes late, early, or after nothing but zeros of the sum.
TEST_P(CrossEntropyTest, LongRowsWhereverTheirMaximumIs) {
  constexpr std::int64_t cols = 1777, rows = 4;
  Floats x = random.normal(rows * cols, 2);
  for (std::int64_t c = 0; c < cols; ++c) {
    x[at(c)] += static_cast<float>(c) / 20;
    x[at(cols + c)] -= static_cast<float>(c) / 20;
    if (c < 1500) x[at(2 * cols + c)] = -std::numeric_limits<float>::infinity();
  }
  x[at(3 * cols + 700)] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int32_t> ids = {1776, 0, 1600, 5};
  for (std::int64_t row = 0; row < rows; ++row) {
    Floats stats = poisoned(2);
    float loss = 0;
    device->cross_entropy_forward(1, cols, cols, 1, x.data() + row * cols, &ids[at(row)], stats.data(), &loss);
    if (row == 3) {
      EXPECT_TRUE(std::isnan(loss));
      continue;
    }
    const auto first = x.begin() + row * cols, last = first + cols;
    EXPECT_EQ(stats[0], *std::max_element(first, last)) << row;
    EXPECT_NEAR(loss / reference::cross_entropy(1, cols, cols, Values(first, last), {ids[at(row)]}), 1, kTolerance)
        << row;
  }
}

// The exponential that all kernels use, read through a sum in which every other term is zero.
TEST_P(CrossEntropyTest, ExponentialIsWithinAUnitInTheLastPlace) {
  constexpr std::int64_t rows = 100'000;
  for (const std::int64_t cols : {1, 8}) {  // alone, in a vector
    Floats x(at(rows * cols), -std::numeric_limits<float>::infinity()), max(at(rows), 0.0f), sums = poisoned(2 * rows);
    for (std::int64_t row = 0; row < rows; ++row)
      x[at(row * cols + row % cols)] = -87.3f + 175.6f * static_cast<float>(row) / static_cast<float>(rows);
    const std::vector<std::int32_t> ids(at(rows), 0);
    device->cross_entropy_exp_sum(rows, cols, cols, 0, x.data(), ids.data(), max.data(), sums.data());
    for (std::int64_t row = 0; row < rows; ++row) {
      const double expected = std::exp(static_cast<double>(x[at(row * cols + row % cols)]));
      ASSERT_LE(std::abs(sums[at(2 * row)] - expected), std::ldexp(1.0, std::ilogb(expected) - 23)) << row;
    }
  }
}

}  // namespace
}  // namespace rehearse::kernels
