// The end of a round of local steps: known answers.
#include "sim/base/half.h"
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

// Three workers from 1: sums of values 6 and of differences -1.5, 0.75.
TEST(OuterStep, KnownAnswers) {
  const auto device = make_cpu_device(1);
  Floats value = {3, 0.75F}, outer = {1, 1}, difference(2);
  device->outer_difference(2, value.data(), outer.data(), difference.data());
  EXPECT_EQ(difference, (Floats{-2, 0.25F}));

  const Floats sum = {6, -1.5F};
  device->outer_mean(2, 3, sum.data(), Out(value.data(), DType::f32), nullptr);
  EXPECT_EQ(value, (Floats{2, -0.5F}));

  const Floats differences = {-1.5F, 0.75F};
  Floats momentum = {1, 0};
  device->outer_update(2, {3, 0.5, 0.5}, differences.data(), outer.data(), momentum.data(),
                       Out(value.data(), DType::f32), nullptr);
  EXPECT_EQ(momentum, (Floats{0, 0.25F})) << "0.5 x 1 - 0.5, 0.25";
  EXPECT_EQ(outer, (Floats{1.25F, 0.8125F})) << "1 - 0.5 (-0.5 + 0), 1 - 0.5 (0.25 + 0.125)";
  EXPECT_EQ(value, outer);

  device->outer_update(2, {3, 1, 0}, differences.data(), outer.data(), nullptr, Out(value.data(), DType::f32), nullptr);
  EXPECT_EQ(outer, (Floats{1.75F, 0.5625F})) << "without momentum";
}

TEST(OuterStep, TheParameterIsACastOfItsFp32Copy) {
  const auto device = make_cpu_device(2);
  constexpr std::int64_t n = 40'000;
  Floats sum(n), master(n);
  std::vector<std::uint16_t> param(n);
  for (std::int64_t i = 0; i < n; ++i) sum[static_cast<std::size_t>(i)] = static_cast<float>(i) / 7;
  device->outer_mean(n, 2, sum.data(), Out(param.data(), DType::bf16), master.data());
  Floats back(n);
  to_float(DType::bf16, param.data(), n, back.data());
  for (std::size_t i = 0; i < master.size(); ++i) {
    ASSERT_EQ(master[i], sum[i] / 2) << i;
    ASSERT_NEAR(back[i], master[i], master[i] / 256) << i;
  }
}

}  // namespace
}  // namespace rehearse::kernels
