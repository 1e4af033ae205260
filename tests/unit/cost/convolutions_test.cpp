// Convolutions as implicit products: their sizes, what lies channel by channel, Winograd in fp32 without tensor cores.
#include <gtest/gtest.h>

#include "sim/cost/cost.h"
#include "sim/cost/device_file.h"
#include "sim/program/work.h"
#include "tests/unit/cost/ops.h"

namespace rehearse::cost {
namespace {

using program::Conv2d;
using program::ConvPart;
using program::DType;
using test::OneOp;

std::unique_ptr<CostModel> device(const char* name) {
  return load_costs({find_device_file(name, REHEARSE_SOURCE_DIR)});
}

OneOp convolution(Conv2d shape, DType dtype) {
  OneOp one;
  shape.bias = false;
  one.op.name = "conv";
  one.op.dtype = dtype;
  one.op.shape = shape;
  const auto x = one.buffer(dtype, {shape.batch, shape.c_in, shape.height, shape.width});
  const auto w = one.buffer(dtype, {shape.c_out, shape.group_in(), shape.kernel, shape.kernel});
  const auto y = one.buffer(dtype, {shape.batch, shape.c_out, shape.out_height(), shape.out_width()});
  one.op.reads = shape.part == ConvPart::forward ? std::vector{x, w} : std::vector{y, w};
  one.op.writes = {shape.part == ConvPart::forward ? y : x};
  return one;
}

double seconds(const CostModel& costs, const OneOp& one) {
  return costs.kernel(one.role, one.op, {}).duration.seconds();
}

// 64 images of 256 maps of 28 x 28 to 256.
Conv2d square(ConvPart part, std::int64_t kernel, std::int64_t stride = 1) {
  return {part, 64, 256, 256, 28, 28, kernel, stride, kernel / 2};
}

TEST(Convolutions, OfTheInputsGradientAreTheProductOfTheOtherWayRound) {
  const auto costs = device("a100-sxm-80g");
  Conv2d narrow = square(ConvPart::backward_input, 1), wide = square(ConvPart::forward, 1);
  narrow.c_in = wide.c_out = 64;  // dx of 64 maps from dy of 256 is forward from 256 to 64
  EXPECT_EQ(seconds(*costs, convolution(narrow, DType::f16)), seconds(*costs, convolution(wide, DType::f16)));
}

TEST(Convolutions, ThatLieChannelByChannelAreTransposedForTensorCores) {
  for (const DType type : {DType::f16, DType::f32}) {
    const auto a100 = device("a100-sxm-80g");
    Conv2d shape = square(ConvPart::forward, 3);
    const double last = seconds(*a100, convolution(shape, type));
    shape.channels_first = true;
    const OneOp one = convolution(shape, type);
    const program::Work work = program::work_of(one.role, one.op);
    const double moved = static_cast<double>(work.bytes_read + work.bytes_written) / (2039e9 * 0.87);
    EXPECT_NEAR(seconds(*a100, one) - last, 2 * (2e-6 + moved), 2e-12) << "read and written once more, by two kernels";
  }
  const auto v100 = device("v100-sxm2-32g");
  Conv2d shape = square(ConvPart::forward, 1);
  const double last = seconds(*v100, convolution(shape, DType::f32));
  shape.channels_first = true;
  EXPECT_EQ(seconds(*v100, convolution(shape, DType::f32)), last) << "its fp32 has no tensor cores";
}

// 2.25 times fewer multiplications where nothing else counts.
TEST(Convolutions, OfThreeByThreeTakeWinogradsMultiplicationsOnOrdinaryCores) {
  const auto v100 = device("v100-sxm2-32g"), a100 = device("a100-sxm-80g");
  const auto ratio = [](const CostModel& costs, std::int64_t stride) {
    return seconds(costs, convolution(square(ConvPart::forward, 3, stride), DType::f32)) /
           seconds(costs, convolution(square(ConvPart::forward, 1, stride), DType::f32));
  };
  EXPECT_NEAR(ratio(*v100, 1), 9 / 2.25, 0.25);
  EXPECT_GT(ratio(*v100, 2), 6) << "not with a stride";
  EXPECT_GT(ratio(*a100, 1), 6) << "nor on tensor cores";
}

Conv2d grouped(std::int64_t maps, std::int64_t groups, std::int64_t size) {
  Conv2d conv{ConvPart::forward, 128, maps, maps, size, size, 3, 1, 1};
  conv.groups = groups;
  return conv;
}

// Four maps a group: a tile of 64 columns has 16 groups' and multiplies 16 times what counts. Not 32 times faster than
// the dense one, as its multiplications would have it, nor slower.
TEST(GroupedConvolutions, AreFarFromAsFastAsTheirMultiplicationsAreFew) {
  const auto a100 = device("a100-sxm-80g");
  for (const DType type : {DType::f16, DType::f32}) {
    const double dense = seconds(*a100, convolution(grouped(128, 1, 56), type)),
                 few = seconds(*a100, convolution(grouped(128, 32, 56), type));
    EXPECT_LT(few, dense);
    EXPECT_GT(few, dense / 3);
  }
  const double narrow = seconds(*a100, convolution(grouped(512, 128, 14), DType::f16)),
               wide = seconds(*a100, convolution(grouped(512, 8, 14), DType::f16));
  EXPECT_NEAR(narrow / wide, 1, 0.02) << "a tile of 64 has 16 groups of 4 or one of 64";
}

// A fifth of 15.7 TFLOP/s: 2 x 128 x 56 x 56 x 128 maps x 4 x 9.
TEST(GroupedConvolutions, OnOrdinaryCoresTakeADirectKernelsRate) {
  const auto v100 = device("v100-sxm2-32g");
  const double flops = 2.0 * 128 * 56 * 56 * 128 * 36;
  EXPECT_NEAR(seconds(*v100, convolution(grouped(128, 32, 56), DType::f32)), 2e-6 + flops / (0.2 * 15.7e12), 1e-9);
}

// Depthwise: next to nothing to multiply, and the maps to read and write.
TEST(GroupedConvolutions, OfOneMapAreBoundByMemory) {
  const auto a100 = device("a100-sxm-80g");
  const double bytes = 2 * (2.0 * 128 * 56 * 56 * 128 + 128 * 9);
  EXPECT_NEAR(seconds(*a100, convolution(grouped(128, 128, 56), DType::f16)),
              2e-6 + std::max(bytes / (2039e9 * 0.87), 2.0 * 128 * 56 * 56 * 128 * 9 / (0.2 * 19.5e12)), 1e-9);
}

TEST(GroupedConvolutions, SayHowLittleIsKnown) {
  const auto a100 = device("a100-sxm-80g");
  const OneOp one = convolution(grouped(128, 32, 56), DType::f16), dense = convolution(grouped(128, 1, 56), DType::f16);
  const Estimate estimate = a100->kernel(one.role, one.op, {}), known = a100->kernel(dense.role, dense.op, {});
  EXPECT_EQ(estimate.coverage, Coverage::spec);
  EXPECT_GE(estimate.high / known.high, 1.8);
  EXPECT_LE(estimate.low / known.low, 0.6);
}

TEST(V100, Fp32ProductsTakeWhatWasMeasured) {
  const auto v100 = device("v100-sxm2-32g");
  const OneOp one = test::gemm(4096, 4096, 4096, DType::f32);
  EXPECT_NEAR(2 * 4096.0 * 4096 * 4096 / seconds(*v100, one) / 1e12, 0.896 * 15.60, 0.1);
}

// x [batch, 256, 56 x 56] in 16 bits, of `kept` channels at a time.
OneOp normalisation(bool backward, std::int64_t batch, std::int64_t kept) {
  OneOp one;
  program::BatchNorm norm{backward ? program::BatchNormPart::backward : program::BatchNormPart::forward, batch, 256,
                          56 * 56};
  norm.kept_channels = kept;
  one.op.name = "norm";
  one.op.dtype = DType::f16;
  one.op.shape = norm;
  const auto map = [&] { return one.buffer(DType::f16, {batch, 256, 56 * 56}); };
  const auto values = [&] { return one.buffer(DType::f32, {256}); };
  one.op.reads = {map()};
  if (backward) one.op.reads.push_back(map());
  one.op.reads.push_back(values());
  one.op.writes = {map(), values()};
  return one;
}

// An A100 keeps 108 x 120 KiB of a group of channels, and in backward 108 x 128 KiB of both maps.
TEST(BatchNormalisation, ReadsAgainWhatDoesNotStayOnTheChip) {
  const auto a100 = device("a100-sxm-80g");
  const auto saved = [&](bool backward, std::int64_t batch, std::int64_t kept) {
    return (seconds(*a100, normalisation(backward, batch, 0)) - seconds(*a100, normalisation(backward, batch, kept))) *
           2039e9 * 0.80;  // bytes at the rate of norms
  };
  const auto map = [](std::int64_t batch) { return 2.0 * static_cast<double>(batch * 256 * 56 * 56); };
  EXPECT_NEAR(saved(false, 32, 64) / map(32), 1, 1e-6) << "64 channels of 32 images are 12.8 MB";
  EXPECT_NEAR(saved(false, 512, 64), 256 / 64 * 108 * 120 * 1024, 10);
  EXPECT_NEAR(saved(true, 512, 64), 256 / 64 * 108 * 128 * 1024, 10);
  EXPECT_NEAR(saved(true, 512, 1) / (2 * map(512)), 1, 1e-6) << "a channel of both is 6.4 MB";
}

}  // namespace
}  // namespace rehearse::cost
