// The shipped devices: measured shapes come back as measured, accuracy in between is what the files claim, interference
// never speeds a kernel up, and every kind of kernel has a cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "sim/base/diagnostics.h"
#include "sim/base/quantile.h"
#include "sim/cost/cost.h"
#include "sim/cost/device_file.h"
#include "sim/cost/gemm_table.h"
#include "tests/support/temporary.h"
#include "tests/unit/cost/ops.h"

namespace rehearse::cost {
namespace {

using program::DType;
using test::OneOp;

std::string file_of(const std::string& name) {
  return find_device_file(name, REHEARSE_SOURCE_DIR);
}

GemmMachine machine_of(const DeviceData& data) {
  const double bandwidth =
      static_cast<double>(data.device.memory_bandwidth.per_s()) * data.efficiency(MemoryClass::elementwise);
  return {data.device.sms, data.device.peak_bf16.per_s(), bandwidth, data.gemm.tiles};
}

class ShippedDevice : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<CostModel> costs = load_costs({file_of(GetParam())});
  Estimate cost(const OneOp& one, const Interference& beside = {}) const {
    return costs->kernel(one.role, one.op, beside);
  }
};

// Rows of many experts cost as many products of few rows: the more the fewer each has, and never less than the weights
// take to be read.
TEST_P(ShippedDevice, GroupedProductsAreAsManySmallOnes) {
  using program::GroupedPart;
  const auto seconds = [&](const OneOp& one) { return cost(one).duration.seconds(); };
  const double bandwidth = static_cast<double>(costs->device().memory_bandwidth.per_s());
  for (const GroupedPart part : {GroupedPart::forward, GroupedPart::backward_input, GroupedPart::backward_weight}) {
    double before = 0;
    for (const std::int64_t groups : {8, 64, 512}) {
      const double now = seconds(test::grouped(part, groups, 4096, 1536, 4096));
      EXPECT_GT(now, before) << groups << " groups";
      EXPECT_GT(now, static_cast<double>(groups) * 1536 * 4096 * 2 / bandwidth);
      before = now;
    }
  }
  const OneOp batch = test::gemm(512, 1536, 4096, program::DType::bf16, false, 8);
  EXPECT_NEAR(seconds(test::grouped(GroupedPart::forward, 8, 4096, 1536, 4096)) / seconds(batch), 1, 1e-9);
  EXPECT_GT(seconds(test::grouped(GroupedPart::backward_weight, 8, 4096, 1536, 4096, true)),
            seconds(test::grouped(GroupedPart::backward_weight, 8, 4096, 1536, 4096)))
      << "sums in fp32 are read and written";
}

// 1,948 of 2,997 GB/s, and 1.45 of 2.1 TB/s, on an H100 (share_of_class).
TEST_P(ShippedDevice, CastsThatMoveOneElementAtATimeTakeLonger) {
  using program::ElementwiseFn;
  const auto share = [&](ElementwiseFn fn, DType to) {
    const auto seconds = [&](bool unrolled) {
      OneOp one;
      program::Elementwise shape;
      shape.fn = fn, shape.elements = 1 << 26, shape.unrolled = unrolled;
      one.op.dtype = to, one.op.shape = shape;
      one.op.reads = {one.buffer(DType::bf16, {shape.elements})};
      one.op.writes = {one.buffer(to, {shape.elements})};
      return cost(one).duration.seconds();
    };
    return seconds(false) / seconds(true);
  };
  EXPECT_NEAR(share(ElementwiseFn::cast, DType::f32), 1948.0 / 2997, 0.03);
  EXPECT_NEAR(share(ElementwiseFn::fp8_cast_transpose, DType::e4m3), 1.45 / 2.1, 0.03);
}

TEST_P(ShippedDevice, GroupedProductsThatAreLaunchedEachTakeTurns) {
  OneOp grouped = test::grouped(program::GroupedPart::forward, 8, 4096, 1536, 4096);
  std::get<program::GroupedGemm>(grouped.op.shape).each = true;
  grouped.op.launches = 0;  // of a graph, which leaves them products of their own
  EXPECT_NEAR(cost(grouped).duration.seconds() / (8 * cost(test::gemm(512, 1536, 4096)).duration.seconds()), 1, 1e-6);
}

// A forward alone reads the weights of the groups that are chosen; of a product launched for each group, each reads its
// own. Where all are chosen that changes nothing, and half of them take half.
TEST_P(ShippedDevice, GroupedProductsThatAreLaunchedEachReadTheirOwnGroup) {
  const auto seconds = [&](std::int64_t groups, double chosen) {
    OneOp grouped = test::grouped(program::GroupedPart::forward, groups, 64 * groups, 1536, 4096);
    auto& shape = std::get<program::GroupedGemm>(grouped.op.shape);
    shape.each = true, shape.chosen = chosen;
    grouped.op.launches = 0;
    return cost(grouped).duration.seconds();
  };
  EXPECT_NEAR(seconds(128, 128) / seconds(128, 0), 1, 1e-6);
  OneOp half = test::grouped(program::GroupedPart::forward, 128, 64 * 64, 1536, 4096);
  auto& shape = std::get<program::GroupedGemm>(half.op.shape);
  shape.each = true, shape.chosen = 64;
  half.op.launches = 0;
  EXPECT_NEAR(cost(half).duration.seconds() / seconds(64, 0), 1, 1e-6);
}

// Of no training run; nothing was fitted to them.
TEST(GroupedProducts, TakeWhatOthersMeasuredOnAB200) {
  const auto costs = load_costs({file_of("b200-sxm")});
  std::ifstream lines(REHEARSE_SOURCE_DIR "/tests/unit/cost/grouped_b200.csv");
  std::map<std::string, std::vector<double>> ratios;
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with('#') || line.starts_with("part")) continue;
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    std::string part;
    std::int64_t m = 0, n = 0, k = 0, groups = 0;
    double tflops = 0;
    words >> part >> m >> n >> k >> groups >> tflops;
    using program::GroupedPart;
    const bool weights = part == "backward_weight";
    OneOp one = test::grouped(part == "forward" ? GroupedPart::forward
                              : weights         ? GroupedPart::backward_weight
                                                : GroupedPart::backward_input,
                              groups, m * groups, n, k, weights);
    std::get<program::GroupedGemm>(one.op.shape).each = groups > 1;
    const double flops = 2.0 * static_cast<double>(m * groups) * static_cast<double>(n * k);
    ratios[part].push_back(costs->kernel(one.role, one.op, {}).duration.seconds() * tflops * 1e12 / flops);
  }
  ASSERT_EQ(ratios.size(), 3U);
  for (auto& [part, list] : ratios) {
    ASSERT_GE(list.size(), 30U);
    std::nth_element(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2), list.end());
    EXPECT_NEAR(list[list.size() / 2], 1, part == "backward_weight" ? 0.15 : 0.1) << part;
  }
}

// Heads of latent attention, in burst clocks. The longest one's forward pass is slower than the others say.
TEST(AttentionOfWideKeys, TakesWhatOthersMeasured) {
  std::ifstream lines(REHEARSE_SOURCE_DIR "/tests/unit/cost/attention_192.csv");
  std::map<std::string, std::vector<double>> ratios;
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with('#') || line.starts_with("device")) continue;
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    std::string device, part;
    std::int64_t heads = 0, seq = 0;
    double tflops = 0;
    words >> device >> part >> heads >> seq >> tflops;
    using program::AttentionPart;
    const bool forward = part == "forward";
    OneOp one = test::attention(forward ? AttentionPart::flash_forward : AttentionPart::flash_backward, 1, heads, seq);
    auto& a = std::get<program::Attention>(one.op.shape);
    a.kv_heads = heads, a.head_dim = 192, a.value_dim = 128;
    const double flops = (forward ? 2.0 : 5.0) * static_cast<double>(seq * seq * heads) * (192 + 128);
    const auto costs = load_costs({file_of(device)});
    const double ratio = costs->kernel(one.role, one.op, {}).duration.seconds() * tflops * 1e12 / flops;
    EXPECT_GT(ratio, 0.78) << line;
    EXPECT_LT(ratio, 1.13) << line;
    ratios[device + part].push_back(ratio);
  }
  ASSERT_EQ(ratios.size(), 4U);
  for (auto& [name, list] : ratios) {
    ASSERT_GE(list.size(), 4U);
    std::nth_element(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2), list.end());
    EXPECT_NEAR(list[list.size() / 2], 1, 0.05) << name;
  }
}

TEST_P(ShippedDevice, LongerKernelsBesideCommunicationInEveryStep) {
  using program::AttentionPart;
  const std::vector<OneOp> kernels = {test::gemm(2048, 4608, 12288),
                                      test::gemm(12288, 6144, 2048, program::DType::bf16, true),
                                      test::gemm(2048, 2048, 128, program::DType::bf16, false, 12),
                                      test::gemm(64, 64, 64),
                                      test::add(1 << 24),
                                      test::attention(AttentionPart::flash_forward, 1, 12, 2048),
                                      test::attention(AttentionPart::flash_backward, 1, 12, 2048),
                                      test::attention(AttentionPart::context, 1, 12, 2048)};
  for (const OneOp& kernel : kernels) {
    Time before = cost(kernel).duration;
    for (int held = 1; held <= costs->device().sms + 8; ++held) {
      const Time now = cost(kernel, {held, 0}).duration;
      ASSERT_GE(now, before) << kernel.op.name << " with " << held << " SMs held";
      before = now;
    }
    before = cost(kernel).duration;
    for (std::int64_t taken = 0; taken <= costs->device().memory_bandwidth.per_s(); taken += 100'000'000'000) {
      const Time now = cost(kernel, {0, taken}).duration;
      ASSERT_GE(now, before) << kernel.op.name << " with " << taken << " B/s taken";
      before = now;
    }
  }
}

TEST_P(ShippedDevice, MemoryBoundKernelTakesFixedTimeAndBytesAtReachableBandwidth) {
  const DeviceData data = read_device_files({file_of(GetParam())});
  const double reachable = static_cast<double>(data.device.memory_bandwidth.per_s()) * data.memory_efficiency[0];
  const std::int64_t elements = 1 << 26;
  const double expected = data.kernel_time.seconds() + 6.0 * static_cast<double>(elements) / reachable;
  EXPECT_NEAR(cost(test::add(elements)).duration.seconds(), expected, 2e-12);
  EXPECT_EQ(cost(test::add(elements)).coverage, Coverage::spec);
}

TEST_P(ShippedDevice, CommunicationNeverTakesMoreThanNineTenthsOfTheMemoryBandwidth) {
  const Time alone = cost(test::add(1 << 28)).duration;
  EXPECT_LE(cost(test::add(1 << 28), {0, INT64_MAX / 2}).duration, alone * 10);
}

TEST_P(ShippedDevice, Float32ProductsAreSlowerThanBfloat16OnesAndExtrapolated) {
  const Estimate f32 = cost(test::gemm(4096, 4096, 4096, program::DType::f32));
  EXPECT_GT(f32.duration.seconds(), 1.5 * cost(test::gemm(4096, 4096, 4096)).duration.seconds());
  EXPECT_EQ(f32.coverage, Coverage::extrapolated);
}

TEST_P(ShippedDevice, AccumulatingInFloat32CostsMoreThanWritingBfloat16) {
  const double plain = cost(test::gemm(6144, 12288, 2048)).duration.seconds();
  const double accumulated = cost(test::gemm(6144, 12288, 2048, program::DType::bf16, true)).duration.seconds();
  EXPECT_GT(accumulated, plain);
  EXPECT_LT(accumulated, 1.2 * plain) << "most of the traffic hides behind the product";
}

TEST_P(ShippedDevice, IntegerProductsCannotBeCostedAndTheErrorNamesOpAndKind) {
  try {
    cost(test::gemm(64, 64, 64, program::DType::i32));
    FAIL() << "expected an InputError";
  } catch (const InputError& error) {
    const std::string text = error.diagnostics().at(0).text();
    EXPECT_NE(text.find("layer0.mlp.up.forward"), std::string::npos) << text;
    EXPECT_NE(text.find("gemm in i32"), std::string::npos) << text;
    EXPECT_NE(text.find(GetParam()), std::string::npos) << text;
  }
}

// Products of more than 2e10 FLOPs: how many a table has, and the error of one predicted from the others. GB200's table
// is small, and its kernels differ more.
struct LargeProducts {
  std::string_view device;
  std::size_t points;
  double median, ninth_decile;
};
constexpr LargeProducts kLargeProducts[] = {{"a100-sxm-80g", 301, 0.03, 0.10}, {"a100-sxm-40g", 301, 0.03, 0.10},
                                            {"h100-sxm", 301, 0.03, 0.10},     {"h200-sxm", 238, 0.03, 0.10},
                                            {"b200-sxm", 532, 0.03, 0.10},     {"gb200", 239, 0.05, 0.13}};

TEST_P(ShippedDevice, LeaveOneOutErrorIsWhatTheFileClaims) {
  const DeviceData data = read_device_files({file_of(GetParam())});
  const GemmTable table(machine_of(data), data.gemm.constants, data.gemm.points);
  const std::vector<double> ratios = table.leave_one_out();
  std::vector<double> large;
  for (std::size_t i = 0; i < ratios.size(); ++i)
    if (table.points()[i].shape.flops() > 2e10) large.push_back(std::fabs(1 / ratios[i] - 1));
  const auto expected = std::find_if(std::begin(kLargeProducts), std::end(kLargeProducts),
                                     [](const LargeProducts& e) { return e.device == GetParam(); });
  ASSERT_NE(expected, std::end(kLargeProducts));
  ASSERT_GE(large.size(), expected->points);
  EXPECT_LT(quantile(large, 0.5), expected->median) << "median error of a product predicted from the others";
  EXPECT_LT(quantile(large, 0.9), expected->ninth_decile) << "90th percentile";
  EXPECT_NEAR(data.gemm.interpolated.low, quantile(ratios, 0.05), 0.02);
  EXPECT_NEAR(data.gemm.interpolated.high, quantile(ratios, 0.95), 0.02);
}

TEST_P(ShippedDevice, ConstantsAreAsGoodAsAFreshFit) {
  const DeviceData data = read_device_files({file_of(GetParam())});
  if (!data.gemm.measured_here) GTEST_SKIP() << "the table is another device's, and so are the constants";
  const GemmMachine machine = machine_of(data);
  const GemmConstants fitted = fit_gemm_constants(machine, data.gemm.points, data.gemm.constants);
  const double fresh = mean_log_error(machine, fitted, data.gemm.points);
  EXPECT_NEAR(mean_log_error(machine, data.gemm.constants, data.gemm.points), fresh, 0.01 * fresh);
}

GemmMachine fp8_machine_of(const DeviceData& data) {
  GemmMachine machine = machine_of(data);
  machine.peak = data.device.peak_fp8.per_s();
  machine.tiles = data.gemm.fp8.tiles;
  return machine;
}

TEST(Fp8Products, LeaveOneOutErrorIsWhatTheFileClaims) {
  const DeviceData data = read_device_files({file_of("h100-sxm")});
  ASSERT_EQ(data.gemm.fp8.points.size(), 261U);
  const GemmTable table(fp8_machine_of(data), data.gemm.fp8.constants, data.gemm.fp8.points);
  const std::vector<double> ratios = table.leave_one_out();
  EXPECT_NEAR(data.gemm.fp8.interpolated.low, quantile(ratios, 0.05), 0.02);
  EXPECT_NEAR(data.gemm.fp8.interpolated.high, quantile(ratios, 0.95), 0.02);
  EXPECT_LT(mean_log_error(fp8_machine_of(data), data.gemm.fp8.constants, data.gemm.fp8.points), 0.037);
}

// Every fifth product held out of constants and table: 2.5% is what was found.
TEST(Fp8Products, HeldOutProductsArePredictedFromTheOthers) {
  const DeviceData data = read_device_files({file_of("h100-sxm")});
  std::vector<GemmPoint> known, held_out;
  for (std::size_t i = 0; i < data.gemm.fp8.points.size(); ++i)
    (i % 5 == 2 ? held_out : known).push_back(data.gemm.fp8.points[i]);
  const GemmMachine machine = fp8_machine_of(data);
  const GemmConstants constants = fit_gemm_constants(machine, known, data.gemm.fp8.constants);
  const GemmTable table(machine, constants, known);
  double sum = 0;
  for (const GemmPoint& p : held_out)
    sum += std::fabs(std::log(p.seconds / (gemm_seconds(machine, constants, p.shape) * table.correction(p.shape))));
  EXPECT_LT(sum / static_cast<double>(held_out.size()), 0.03);
}

// A product measured by itself: the table's time less the cast of its input, over what a long run sustains.
TEST(Fp8Products, MeasuredOnesComeBackWithoutTheirCast) {
  const auto costs = load_costs({file_of("h100-sxm")});
  OneOp one = test::gemm(16384, 16384, 8192, DType::e4m3);
  one.op.writes = {one.buffer(DType::bf16, {16384, 16384})};
  const Estimate e = costs->kernel(one.role, one.op, {});
  const double cast = 6e-6 + 2.45e-12 * 16384 * 8192;
  EXPECT_NEAR(e.duration.seconds() * 0.933 / (3187.89e-6 - cast), 1, 1e-3) << "aiconfigurator-0538";
  EXPECT_EQ(e.coverage, Coverage::exact);
  const double sixteen = [&] {
    const OneOp half = test::gemm(16384, 16384, 8192);
    return costs->kernel(half.role, half.op, {}).duration.seconds();
  }();
  EXPECT_GT(sixteen / e.duration.seconds(), 1.5);
  EXPECT_LT(sixteen / e.duration.seconds(), 2.2);
}

// Measured on H100 (tests/gpu/records/2026-11-26-h100-80gb-hbm3/torch_kernels.csv, part "unaligned"): gradients of the
// logits of 8,192 tokens, 50,257 and 50,258 columns over 50,304. On A100 nobody measured it.
TEST(Products, RowsThatAreNotAlignedTakeWhatWasMeasured) {
  const auto ratio = [](const char* device, std::int64_t columns) {
    const auto costs = load_costs({file_of(device)});
    const auto seconds = [&](std::int64_t k) {
      const OneOp one = test::gemm(8192, 4096, k);
      return costs->kernel(one.role, one.op, {}).duration.seconds();
    };
    return seconds(columns) / seconds(50304);
  };
  EXPECT_NEAR(ratio("h100-sxm", 50257), 23260.45 / 4701.89, 0.3);
  EXPECT_NEAR(ratio("h100-sxm", 50258), 13480.61 / 4701.89, 0.3);
  EXPECT_NEAR(ratio("h100-sxm", 50264), 1, 0.1);
  EXPECT_NEAR(ratio("a100-sxm-80g", 50257), 1.4, 0.1);
}

TEST(Fp8Products, PromoteTheirPartialSumsInBackward) {
  const auto ratio = [](const char* device, DType type) {
    const auto costs = load_costs({file_of(device)});
    OneOp one = test::gemm(8192, 8192, 8192, type);
    const double forward = costs->kernel(one.role, one.op, {}).duration.seconds();
    one.op.phase = program::Phase::backward;
    return costs->kernel(one.role, one.op, {}).duration.seconds() / forward;
  };
  EXPECT_NEAR(ratio("h100-sxm", DType::e5m2), 1.15, 1e-9);
  EXPECT_NEAR(ratio("h100-sxm", DType::bf16), 1, 1e-9);
  EXPECT_NEAR(ratio("b200-sxm", DType::e5m2), 1, 1e-9);
}

// Of rows' scales: another kernel, which accumulates alike in both directions.
TEST(Fp8Products, WithScalesOfRowsTakeAsMuchMoreForwardAsBackward) {
  const auto costs = load_costs({file_of("h100-sxm")});
  OneOp one = test::gemm(8192, 8192, 8192, DType::e4m3);
  const Estimate tensor = costs->kernel(one.role, one.op, {});
  std::get<program::Gemm>(one.op.shape).row_scales = true;
  for (const program::Phase phase : {program::Phase::forward, program::Phase::backward}) {
    one.op.phase = phase;
    const Estimate row = costs->kernel(one.role, one.op, {});
    EXPECT_NEAR(row.duration.seconds() / tensor.duration.seconds(), 1.03, 1e-9);
    EXPECT_NEAR(row.high / tensor.high, 1.2 / 1.03, 1e-9);
  }
}

TEST(Fp8Products, ADeviceWithoutMeasurementsHasItsPeakAndAWideInterval) {
  const auto b200 = load_costs({file_of("b200-sxm")}), a100 = load_costs({file_of("a100-sxm-80g")});
  const OneOp one = test::gemm(8192, 8192, 8192, DType::e5m2);
  const Estimate e = b200->kernel(one.role, one.op, {});
  EXPECT_EQ(e.coverage, Coverage::spec);
  EXPECT_GT(e.high / e.low, 1.5);
  EXPECT_THROW(a100->kernel(one.role, one.op, {}), InputError) << "it has no 8-bit products";
}

// A large product in 4 bits takes the 16-bit one's time by the ratio of the peaks, and its kernel's start.
TEST(Fp4Products, AreAtTheSharesOfSixteenBitOnesWithAWideInterval) {
  struct Peaks {
    const char* device;
    double ratio;
  };
  for (const Peaks& p : {Peaks{"b200-sxm", 4}, {"gb200", 4}, {"b300-sxm", 14.0 / 2.25}, {"gb300", 6}}) {
    const auto costs = load_costs({file_of(p.device)});
    const OneOp four = test::gemm(65536, 16384, 16384, DType::e2m1), sixteen = test::gemm(65536, 16384, 16384);
    const Estimate e = costs->kernel(four.role, four.op, {});
    EXPECT_EQ(e.coverage, Coverage::spec) << p.device;
    EXPECT_GT(e.high / e.low, 2) << p.device;
    const double ratio = costs->kernel(sixteen.role, sixteen.op, {}).duration.seconds() / e.duration.seconds();
    EXPECT_NEAR(ratio / p.ratio, 1, 0.15) << p.device;
  }
  const OneOp one = test::gemm(8192, 8192, 8192, DType::e2m1);
  EXPECT_THROW(load_costs({file_of("h100-sxm")})->kernel(one.role, one.op, {}), InputError)
      << "it has no such products";
}

INSTANTIATE_TEST_SUITE_P(All, ShippedDevice,
                         testing::Values("a100-sxm-80g", "a100-sxm-40g", "h100-sxm", "h200-sxm", "b200-sxm", "gb200"),
                         [](const testing::TestParamInfo<const char*>& device) {
                           std::string name = device.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(A100, AMeasuredShapeTakesItsMeasuredTimeAtTheSustainedClock) {
  const auto costs = load_costs({file_of("a100-sxm-80g")});
  const OneOp one = test::gemm(512, 1024, 2048);  // row aiconfigurator-0499: 122.6 TFLOP/s
  const Estimate estimate = costs->kernel(one.role, one.op, {});
  const double burst = 2.0 * 512 * 1024 * 2048 / 122.6e12;
  EXPECT_EQ(costs->device().sustained, 0.895);
  EXPECT_NEAR(estimate.duration.seconds(), burst / 0.895, 1e-12);
  EXPECT_EQ(estimate.coverage, Coverage::exact);
  EXPECT_NEAR(estimate.low, 0.98 * 0.895 / 0.959, 1e-12);
  EXPECT_NEAR(estimate.high, 1.02 * 0.895 / 0.86, 1e-12);
}

// FlashAttention-2's figures of an A100-SXM4 (arXiv 2307.08691), forward and backward together, 16 heads of 128, 16384
// tokens, causal: 189 TFLOP/s of FlashAttention-2, 83 of FlashAttention, 80 of the Triton kernel.
TEST(A100, AttentionTakesWhatTheKernelNamedTakes) {
  const auto costs = load_costs({file_of("a100-sxm-80g")});
  const auto rate = [&](program::AttentionKernel kernel) {
    double seconds = 0;
    for (const auto part : {program::AttentionPart::flash_forward, program::AttentionPart::flash_backward}) {
      OneOp one = test::attention(part, 1, 16, 16384);
      std::get<program::Attention>(one.op.shape).kernel = kernel;
      seconds += costs->kernel(one.role, one.op, {}).duration.seconds();
    }
    return 3.5 * 4 * 16 * 16384.0 * 16384 * 128 / 2 / seconds * 1e-12;
  };
  EXPECT_EQ(rate(program::AttentionKernel::flash2), rate(program::AttentionKernel::best));
  EXPECT_NEAR(rate(program::AttentionKernel::flash1), 83, 0.1 * 83);
  EXPECT_NEAR(rate(program::AttentionKernel::flash_triton), 80, 0.15 * 80);
}

// FlashAttention-4 on GB200 with dropout, 16 heads: 75 to 85% of its rate forward, 60 to 70% backward
// (Dao-AILab/flash-attention#2597). Products are faster there beside what exponentials' units do than on an A100.
TEST(Gb200, DropoutCostsAttentionWhatWasMeasured) {
  const auto share = [](const char* device, program::AttentionPart part) {
    const auto costs = load_costs({file_of(device)});
    OneOp one = test::attention(part, 1, 16, 32768);
    const double without = costs->kernel(one.role, one.op, {}).duration.seconds();
    std::get<program::Attention>(one.op.shape).dropout = 0.125;
    return without / costs->kernel(one.role, one.op, {}).duration.seconds();
  };
  using program::AttentionPart;
  EXPECT_NEAR(share("gb200", AttentionPart::flash_forward), 0.80, 0.05);
  EXPECT_NEAR(share("gb200", AttentionPart::flash_backward), 0.65, 0.05);
  EXPECT_GT(share("a100-sxm-80g", AttentionPart::flash_forward), 0.90);
  EXPECT_LT(share("a100-sxm-80g", AttentionPart::flash_forward), 0.97);
  EXPECT_GT(share("h100-sxm", AttentionPart::flash_backward), share("gb200", AttentionPart::flash_backward));
}

TEST(A100, AKernelNobodyTimedTakesTheFastestOnesTimeAsASpecification) {
  const auto costs = load_costs({file_of("a100-sxm-80g")});
  OneOp one = test::attention(program::AttentionPart::flash_forward, 1, 16, 2048);
  const Estimate best = costs->kernel(one.role, one.op, {});
  std::get<program::Attention>(one.op.shape).kernel = program::AttentionKernel::cudnn;
  const Estimate other = costs->kernel(one.role, one.op, {});
  EXPECT_EQ(other.duration, best.duration);
  EXPECT_EQ(other.coverage, Coverage::spec);
  EXPECT_GE(other.high, 3);
}

TEST(BlockingLaunches, AddAGapToEveryKernel) {
  const auto plain = load_costs({file_of("a100-sxm-80g")});
  const auto blocking = with_blocking_launches(load_costs({file_of("a100-sxm-80g")}), Time::from_us(40));
  const OneOp one = test::gemm(512, 1024, 2048);
  EXPECT_EQ(blocking->kernel(one.role, one.op, {}).duration,
            plain->kernel(one.role, one.op, {}).duration + Time::from_us(40));
  EXPECT_EQ(blocking->device().name, plain->device().name);
}

TEST(A100, CoverageSaysHowNearAShapeIsToMeasuredOnes) {
  const auto costs = load_costs({file_of("a100-sxm-80g")});
  const auto coverage = [&](const OneOp& one) { return costs->kernel(one.role, one.op, {}).coverage; };
  EXPECT_EQ(coverage(test::gemm(2048, 4608, 12288)), Coverage::interpolated) << "between table rows";
  EXPECT_EQ(coverage(test::gemm(12288, 4608, 2048)), Coverage::interpolated) << "its mirror image is between rows";
  EXPECT_EQ(coverage(test::gemm(2048, 9600, 25600)), Coverage::extrapolated) << "K beyond 16384";
  EXPECT_EQ(coverage(test::gemm(2048, 2048, 1024, program::DType::bf16, false, 12)), Coverage::extrapolated)
      << "batched products were not measured";
  using program::AttentionPart;
  EXPECT_EQ(coverage(test::attention(AttentionPart::flash_forward, 1, 12, 2048)), Coverage::interpolated);
  EXPECT_EQ(coverage(test::attention(AttentionPart::flash_forward, 1, 12, 16384)), Coverage::extrapolated)
      << "measured at 4096 only";
}

TEST(A100, TheFortyGigabyteCardUsesTheOtherCardsTableAndSaysSo) {
  const auto large = load_costs({file_of("a100-sxm-80g")}), small = load_costs({file_of("a100-sxm-40g")});
  const OneOp one = test::gemm(512, 1024, 2048), copy = test::add(1 << 26);
  EXPECT_EQ(small->kernel(one.role, one.op, {}).duration, large->kernel(one.role, one.op, {}).duration);
  EXPECT_EQ(small->kernel(one.role, one.op, {}).coverage, Coverage::interpolated);
  EXPECT_GT(small->kernel(copy.role, copy.op, {}).duration, large->kernel(copy.role, copy.op, {}).duration);
}

// FlashAttention rows of the PCIe card, predicted by the model behind the table (one head more, so not exact).
TEST(A100, FlashAttentionModelFollowsItsMeasurements) {
  const DeviceData data = read_device_files({file_of("a100-sxm-80g")});
  const auto costs = load_costs({file_of("a100-sxm-80g")});
  for (const FlashPoint& point : data.flash.fastest.points) {
    const auto part = point.backward ? program::AttentionPart::flash_backward : program::AttentionPart::flash_forward;
    const OneOp one = test::attention(part, point.batch, point.heads, point.seq);  // kv_heads = heads: no table row
    const double product = 2.0 * static_cast<double>(point.heads * point.seq * point.seq * 128);
    const double measured =
        (point.backward ? 5 : 2) * product / (point.flops_per_second * data.flash.fastest.scale.value);
    EXPECT_NEAR(costs->kernel(one.role, one.op, {}).duration.seconds() / measured, 1, 0.12)
        << point.heads << (point.backward ? " heads backward" : " heads forward");
  }
}

TEST(FindDevice, NamesTheNearestDeviceAndExplainsLocal) {
  // "local" looks in the user's cache, here an empty one.
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::optional<std::string> cache = before == nullptr ? std::nullopt : std::optional<std::string>(before);
  ::setenv("XDG_CACHE_HOME", rehearse::test::temporary_path("empty-cache").c_str(), 1);
  const auto message = [](const std::string& name) -> std::string {
    try {
      return find_device_file(name, REHEARSE_SOURCE_DIR);
    } catch (const InputError& error) {
      return error.diagnostics().at(0).text();
    }
  };
  EXPECT_NE(message("h100-sxn").find("did you mean 'h100-sxm'?"), std::string::npos) << message("h100-sxn");
  EXPECT_NE(message("local").find("rehearse calibrate"), std::string::npos) << message("local");
  EXPECT_EQ(message("some/where.yaml"), "some/where.yaml");
  if (cache)
    ::setenv("XDG_CACHE_HOME", cache->c_str(), 1);
  else
    ::unsetenv("XDG_CACHE_HOME");
}

TEST(UniformCosts, EveryKernelTakesTheGivenTime) {
  const auto costs = make_uniform_costs(Time::from_us(7));
  const OneOp one = test::gemm(3, 5, 7, program::DType::i32);
  EXPECT_EQ(costs->kernel(one.role, one.op, {}).duration, Time::from_us(7));
  EXPECT_EQ(costs->kernel(one.role, one.op, {100, 1'000'000}).duration, Time::from_us(7));
}

}  // namespace
}  // namespace rehearse::cost
