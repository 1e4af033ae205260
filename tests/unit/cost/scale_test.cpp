// A device with other rates, for what-ifs: kernels bound by one rate follow it, measured ones as well, and a factor of
// 1 changes nothing.
#include <gtest/gtest.h>

#include "sim/cost/cost.h"
#include "tests/unit/cost/ops.h"

namespace rehearse::cost {
namespace {

using test::OneOp;

class ScaledDevice : public testing::TestWithParam<const char*> {
 protected:
  double seconds(const OneOp& one, const Scale& scale = {}, const Interference& beside = {}) const {
    const auto costs = load_costs({find_device_file(GetParam(), REHEARSE_SOURCE_DIR)}, {}, scale);
    return costs->kernel(one.role, one.op, beside).duration.seconds();
  }
};

TEST_P(ScaledDevice, ALargeProductFollowsComputeAndNotTheMemory) {
  for (const std::int64_t m : {4096, 8192, 8000}) {  // shapes that are measured, and one that is not
    const OneOp product = test::gemm(m, 8192, 8192);
    EXPECT_NEAR(seconds(product, {2, 1, 1}) / seconds(product), 0.5, 0.02) << m;
    EXPECT_NEAR(seconds(product, {0.5, 1, 1}) / seconds(product), 2, 0.04) << m;
    EXPECT_DOUBLE_EQ(seconds(product, {1, 2, 1}) / seconds(product), 1) << m;
  }
}

TEST_P(ScaledDevice, AnElementwiseKernelFollowsTheMemoryAndNotCompute) {
  const OneOp kernel = test::add(std::int64_t{1} << 30);
  EXPECT_NEAR(seconds(kernel, {1, 2, 1}) / seconds(kernel), 0.5, 0.01);
  EXPECT_NEAR(seconds(kernel, {1, 0.5, 1}) / seconds(kernel), 2, 0.02);
  EXPECT_DOUBLE_EQ(seconds(kernel, {2, 1, 1}) / seconds(kernel), 1);
}

TEST_P(ScaledDevice, FlashAttentionOfLongSequencesFollowsCompute) {
  const OneOp kernel = test::attention(program::AttentionPart::flash_forward, 4, 32, 8192);
  EXPECT_NEAR(seconds(kernel, {2, 1, 1}) / seconds(kernel), 0.5, 0.01);
}

TEST_P(ScaledDevice, AFasterDeviceIsNeverSlowerAndWhatItsLaunchTakesStays) {
  for (const OneOp& kernel : {test::gemm(2048, 2304, 6144), test::gemm(64, 64, 64), test::add(1 << 12)})
    for (const Interference& beside : {Interference{}, Interference{16, 100'000'000'000}}) {
      const double plain = seconds(kernel, {}, beside);
      EXPECT_LE(seconds(kernel, {2, 1, 1}, beside), plain);
      EXPECT_LE(seconds(kernel, {1, 2, 1}, beside), plain);
      EXPECT_GE(seconds(kernel, {2, 2, 1}, beside), plain / 2 * (1 - 1e-9)) << "twice of all is no more than twice";
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, ScaledDevice, testing::Values("a100-sxm-80g", "h100-sxm"), [](const auto& device) {
  std::string name = device.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
});

}  // namespace
}  // namespace rehearse::cost
