// Dropout of activations follows dropout_keep element by element, wherever the rows were split; kept values are scaled.
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

// The micro-batch is sequences 7 + 123456789012 + {0, 1, 2} of the global batch.
constexpr StepValues kStep = {.step = 3, .first_sequence = 123456789012};
constexpr std::int64_t kSequences[] = {123456789019, 123456789020, 123456789021};

DropoutSite site_of(double probability) {
  return {.probability = probability,
          .seed = 42,
          .site = 5,
          .step = &kStep,
          .first_sequence = 7,
          .micro_batch = 3,
          .first_position = 6};
}

class DropoutTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, DropoutTest, testing::Values(1, 3));

TEST_P(DropoutTest, FollowsTheDefinitionElementByElement) {
  const DropoutSite site = site_of(0.3);
  for (const std::int64_t cols : {1, 7, 64, 1031}) {
    const std::int64_t rows = 3 * 17;
    const Floats x = random.normal(rows * cols), bias = random.normal(cols), residual = random.normal(rows * cols);
    Floats y = poisoned(rows * cols), sum = y, no_bias = y;
    std::vector<std::uint8_t> mask(x.size(), 77), mask_of_sum = mask;
    device->dropout(rows, cols, site, x.data(), y.data(), mask.data());
    device->bias_dropout_add(rows, cols, site, x.data(), bias.data(), residual.data(), sum.data(), mask_of_sum.data());
    device->bias_dropout_add(rows, cols, site, x.data(), nullptr, residual.data(), no_bias.data(), mask_of_sum.data());
    Values expected, expected_sum, expected_no_bias;
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const std::int64_t row = i / cols, col = i % cols;
      const bool keep = dropout_keep(site, kSequences[row % 3], 6 + row / 3, col);
      ASSERT_EQ(mask[at(i)], keep) << i;
      expected.push_back(keep ? x[at(i)] / 0.7 : 0);
      expected_sum.push_back(residual[at(i)] + (keep ? (x[at(i)] + static_cast<double>(bias[at(col)])) / 0.7 : 0));
    }
    for (std::size_t i = 0; i < x.size(); ++i) expected_no_bias.push_back(residual[i] + expected[i]);
    EXPECT_EQ(mask_of_sum, mask);
    EXPECT_LE(relative_error(no_bias, expected_no_bias), kTolerance);
    EXPECT_LE(relative_error(y, expected), kTolerance);
    EXPECT_LE(relative_error(sum, expected_sum), kTolerance);
  }
}

TEST_P(DropoutTest, WithoutDropoutAddsAndNeedsNoMask) {
  const Floats x = random.normal(6 * 5), bias = random.normal(5), residual = random.normal(6 * 5);
  for (const bool with_bias : {true, false}) {
    Floats y = poisoned(30);
    device->bias_dropout_add(6, 5, {}, x.data(), with_bias ? bias.data() : nullptr, residual.data(), y.data(), nullptr);
    for (std::size_t i = 0; i < 30; ++i) {
      EXPECT_FLOAT_EQ(y[i], residual[i] + (x[i] + (with_bias ? bias[i % 5] : 0.0f)));
    }
  }
}

// Sequence parallelism: the second half of the rows, told its first position, draws the mask it has in the whole.
TEST_P(DropoutTest, MasksDoNotDependOnTheSplitOfPositions) {
  const std::int64_t rows = 3 * 8, cols = 37;
  const Floats x = random.normal(rows * cols);
  Floats y = poisoned(rows * cols);
  std::vector<std::uint8_t> whole(x.size()), half(x.size() / 2);
  DropoutSite site = site_of(0.5);
  device->dropout(rows, cols, site, x.data(), y.data(), whole.data());
  site.first_position += 4;
  device->dropout(rows / 2, cols, site, x.data(), y.data(), half.data());
  EXPECT_TRUE(std::equal(half.begin(), half.end(), whole.begin() + rows / 2 * cols));
}

// 3 * 400 * 1000 draws at p = 0.1: the dropped share lies within six deviations (1.7e-3) of p, and half the elements
// differ between two seeds, two sites and two steps at p = 0.5.
TEST_P(DropoutTest, DropsItsShareAndKeysAreIndependent) {
  const std::int64_t rows = 1200, cols = 1000;
  const Floats x(at(rows * cols), 1.0f);
  Floats y = poisoned(rows * cols);
  std::vector<std::uint8_t> mask(x.size()), other(x.size());
  device->dropout(rows, cols, site_of(0.1), x.data(), y.data(), mask.data());
  const auto kept = static_cast<double>(std::count(mask.begin(), mask.end(), 1));
  EXPECT_NEAR(kept / static_cast<double>(x.size()), 0.9, 1.7e-3);
  device->dropout(rows, cols, site_of(0.5), x.data(), y.data(), mask.data());
  const StepValues next = {.step = kStep.step + 1, .first_sequence = kStep.first_sequence};
  for (int what = 0; what < 3; ++what) {
    DropoutSite site = site_of(0.5);
    if (what == 0) site.seed = 43;
    if (what == 1) site.site = 6;
    if (what == 2) site.step = &next;
    device->dropout(rows, cols, site, x.data(), y.data(), other.data());
    double differ = 0;
    for (std::size_t i = 0; i < mask.size(); ++i) differ += mask[i] != other[i];
    EXPECT_NEAR(differ / static_cast<double>(x.size()), 0.5, 3e-3) << what;
  }
}

TEST_P(DropoutTest, BackwardPassesWhatWasKept) {
  const Floats dy = random.normal(1001);
  std::vector<std::uint8_t> mask(1001);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 != 0;
  Floats dx = poisoned(1001);
  device->dropout_backward(1001, 0.2, dy.data(), mask.data(), dx.data());
  for (std::size_t i = 0; i < mask.size(); ++i) EXPECT_FLOAT_EQ(dx[i], i % 3 != 0 ? dy[i] / 0.8f : 0.0f);
}

}  // namespace
}  // namespace rehearse::kernels
