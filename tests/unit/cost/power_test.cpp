// What devices draw: the published runs under power limits, and the pairs of cards, that the figures of the device
// files come from say the same again; energy is counted by FLOPs and bytes; files are read strictly.
#include "sim/cost/power.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "sim/base/csv.h"
#include "sim/base/diagnostics.h"
#include "sim/base/document.h"
#include "sim/base/quantile.h"
#include "sim/cost/device_file.h"
#include "tests/unit/cost/ops.h"

namespace rehearse::cost {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = REHEARSE_SOURCE_DIR;

DeviceData device_data(const std::string& name) {
  return read_device_files({find_device_file(name, kRoot.string())});
}

std::vector<std::string> shipped_devices() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kRoot / "calibrate" / "devices")) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() == ".yaml" && stem.find('.') == std::string::npos) names.push_back(stem);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<LimitedRun> runs_under_limits() {
  const std::string path = (kRoot / "calibrate" / "published" / "power-limits.csv").string();
  Diagnostics problems;
  CsvTable table(path, read_text_file(path), {{"gpu", "work", "limit_w", "speed", "power_w", "source"}}, problems,
                 CsvDialect::commented, 1);
  std::vector<LimitedRun> runs;
  while (const CsvRow* row = table.next())
    runs.push_back({std::string(row->text("gpu")), std::string(row->text("work")), row->positive_number("speed"),
                    row->positive_number("power_w")});
  problems.throw_if_any();
  return runs;
}

struct Best {
  double error = 1e9, slope = 0, floor = 0;
};
Best best_curve(const std::vector<LimitedRun>& runs) {
  Best best;
  for (int slope = 5; slope <= 20; ++slope)
    for (int floor = 65; floor <= 92; ++floor) {
      const double error = voltage_curve_error(runs, slope / 10.0, floor / 100.0);
      if (error < best.error) best = {error, slope / 10.0, floor / 100.0};
    }
  return best;
}

TEST(VoltageCurve, OfAllDevicesIsTheOneThatFitsTrainingUnderPowerLimits) {
  const std::vector<LimitedRun> runs = runs_under_limits();
  ASSERT_GE(runs.size(), 70U);
  const VoltageCurve shared = shared_voltage_curve();
  const double error = voltage_curve_error(runs, shared.slope.value, shared.floor.value);
  EXPECT_LT(error, 0.05) << "root mean square of the logarithm of the power";
  EXPECT_LT(error, 1.02 * best_curve(runs).error);
  // A voltage that does not fall with the clock, and one in proportion to it, explain them worse.
  EXPECT_GT(voltage_curve_error(runs, 1e-9, 1), 1.5 * error);
  EXPECT_GT(voltage_curve_error(runs, 1, 0.01), 1.1 * error);
}

TEST(VoltageCurve, OfEachDeviceAloneLiesInTheRangesThatAreStated) {
  std::map<std::string, std::vector<LimitedRun>> devices;
  for (const LimitedRun& run : runs_under_limits()) devices[run.device].push_back(run);
  ASSERT_EQ(devices.size(), 2U);
  const VoltageCurve shared = shared_voltage_curve();
  for (const auto& [name, runs] : devices) {
    const Best best = best_curve(runs);
    EXPECT_GE(best.slope, shared.slope.low) << name;
    EXPECT_LE(best.slope, shared.slope.high) << name;
    EXPECT_GE(best.floor, shared.floor.low) << name;
    EXPECT_LE(best.floor, shared.floor.high) << name;
  }
}

TEST(VoltageCurve, FallsWithTheClockToItsFloor) {
  const VoltageCurve curve{{1, 1, 1}, {0.8, 0.8, 0.8}};
  EXPECT_EQ(curve.voltage(1), 1);
  EXPECT_DOUBLE_EQ(curve.voltage(0.9), 0.9);
  EXPECT_EQ(curve.voltage(0.5), 0.8);
}

// The highest clock at which a kernel that is run over and over stays within the power limit, `rate` of FLOP/s and
// `bytes` a FLOP at full clock.
double clock_of(const Power& power, double rate, double bytes, double half_pj) {
  double low = power.lowest_clock(), high = 1;
  const auto watts = [&](double c) {
    const double v = power.voltage.voltage(c);
    return power.idle_w.value + rate * c * (half_pj * v * v + bytes * power.byte.value) * 1e-12;
  };
  if (watts(1) <= power.limit_w) return 1;
  for (int i = 0; i < 60; ++i) (watts((low + high) / 2) > power.limit_w ? high : low) = (low + high) / 2;
  return low;
}

struct Pair {
  double rate, limited, bytes;  // of the burst and of the limited card, FLOP/s; bytes a FLOP
};
std::vector<Pair> pairs_of(const std::string& device) {
  const std::string path = (kRoot / "calibrate" / "published" / "limited-products.csv").string();
  Diagnostics problems;
  CsvTable table(path, read_text_file(path), {{"device", "bursts", "m", "n", "k", "tflops", "source"}}, problems,
                 CsvDialect::commented, 1);
  std::vector<Pair> pairs;
  std::map<std::string, DeviceData> bursts;
  while (const CsvRow* row = table.next()) {
    const std::string of(row->text("bursts"));
    const GemmShape shape{row->positive_integer("m"), row->positive_integer("n"), row->positive_integer("k")};
    const double tflops = row->positive_number("tflops");
    if (row->text("device") != device) continue;
    const DeviceData& data = bursts.try_emplace(of, device_data(of)).first->second;
    for (const GemmPoint& point : data.gemm.points)
      if (point.shape.m == shape.m && point.shape.n == shape.n && point.shape.k == shape.k)
        pairs.push_back({shape.flops() / point.seconds, tflops * 1e12, shape.bytes() / shape.flops()});
  }
  problems.throw_if_any();
  return pairs;
}

// Logarithms of predicted / measured with so much energy a FLOP.
std::vector<double> errors_of(const std::vector<Pair>& pairs, const Power& power, double half_pj) {
  std::vector<double> errors;
  for (const Pair& p : pairs)
    errors.push_back(std::log(p.rate * clock_of(power, p.rate, p.bytes, half_pj) / p.limited));
  return errors;
}

double mean_size(const std::vector<double>& errors) {
  double sum = 0;
  for (const double e : errors) sum += std::fabs(e);
  return sum / static_cast<double>(errors.size());
}

double best_energy(const std::vector<Pair>& pairs, const Power& power) {
  double best = 0, least = 1e9;
  for (int hundredth = 40; hundredth <= 250; ++hundredth) {
    const double error = mean_size(errors_of(pairs, power, hundredth / 100.0));
    if (error < least) least = error, best = hundredth / 100.0;
  }
  return best;
}

// 24 products on an A100 of 300 W against bursts on one of 400: 1.17 times as long, 1.09 to 1.16 where the burst is
// slow and 1.22 where it is near the peak.
TEST(Power, OfAnA100At300WattsExplainsHowMuchSlowerItIs) {
  const Power power = device_data("a100-pcie-80g").device.power;
  const std::vector<Pair> pairs = pairs_of("a100-pcie-80g");
  ASSERT_EQ(pairs.size(), 24U);
  const std::vector<double> errors = errors_of(pairs, power, power.half.value);
  EXPECT_LT(mean_size(errors), 0.045);
  EXPECT_NEAR(quantile(errors, 0.5), 0, 0.02);
  EXPECT_NEAR(best_energy(pairs, power), power.half.value, 0.1);
}

// 58 products on two B200: 1.39 times as long, from 1.07 to 1.47. Why is not stated; a limit of 1000 W explains
// the median and half of the mean.
TEST(Power, OfAB200At1000WattsExplainsHalfOfWhyAnotherIsSlower) {
  const Power power = device_data("b200-sxm").device.power;
  const std::vector<Pair> pairs = pairs_of("b200-sxm");
  ASSERT_EQ(pairs.size(), 58U);
  std::vector<double> unlimited;
  for (const Pair& p : pairs) unlimited.push_back(std::log(p.rate / p.limited));
  const std::vector<double> errors = errors_of(pairs, power, power.half.value);
  EXPECT_LT(mean_size(errors), 0.55 * mean_size(unlimited));
  EXPECT_LT(std::fabs(quantile(errors, 0.5)), 0.08);
  EXPECT_GE(best_energy(pairs, power), power.half.low);
  EXPECT_LE(best_energy(pairs, power), power.half.high);
}

// Products in long runs: the energy a FLOP at full clock that a card at its limit must then take lies in the range of
// its file. `burst`: the same or the best product without a limit.
struct LongRun {
  const char* device;
  double limit_w, idle_w, tflops, burst;
};
constexpr LongRun kLongRuns[] = {
    {"a100-sxm-80g", 400, 80, 257, 295},     // 8192^3, random numbers against zeros (thonking.ai)
    {"a100-sxm-80g", 400, 80, 270, 298},     // long burn (gpu-fryer) against the best of the table
    {"a100-pcie-80g", 300, 65, 252.9, 295},  // best shape, mean of 100 (mamf-0004)
    {"a100-pcie-80g", 250, 60, 224, 295},    // the 40 GB card, long burn (gpu-fryer)
    {"h100-sxm", 700, 120, 730, 827.7},      // long burn (gpu-fryer) against the best of the table
    {"h100-sxm", 700, 120, 794.5, 827.7},    // best shape, mean of 100 (mamf-0005)
    {"gb200", 1200, 200, 1550, 1841},        // long burn (gpu-fryer) against the table's nearest
};

TEST(Power, OfProductsInLongRunsLiesInTheRangesOfTheFiles) {
  for (const LongRun& run : kLongRuns) {
    const Power power = device_data(run.device).device.power;
    const double v = power.voltage.voltage(run.tflops / run.burst);
    const double pj = (run.limit_w - run.idle_w) / run.tflops / (v * v);
    EXPECT_GE(pj, power.half.low - 0.005) << run.device << " at " << run.tflops;
    EXPECT_LE(pj, power.half.high + 0.005) << run.device << " at " << run.tflops;
  }
}

// Where nobody measured products in a long run, the file's factor is what the power leaves of the clock.
TEST(Power, GivesTheSustainedClockOfDevicesThatNobodyMeasured) {
  for (const char* name : {"h100-pcie", "l40s", "b300-sxm", "gb300"}) {
    const DeviceData data = device_data(name);
    const double rate = data.gemm.constants.efficiency * data.device.peak_bf16.per_s();
    const double bytes = 6.0 / (2 * 8192);  // a product of 8192^3, each operand once
    EXPECT_NEAR(clock_of(data.device.power, rate, bytes, data.device.power.half.value), data.gemm.sustained.value,
                0.015)
        << name;
  }
}

TEST(Power, OfAKernelIsThatOfItsFlopsAndBytes) {
  const Power power = device_data("a100-sxm-80g").device.power;
  const test::OneOp half = test::gemm(1024, 1024, 1024);
  const KernelEnergy energy = kernel_energy(power, half.role, half.op);
  EXPECT_DOUBLE_EQ(energy.flops.value, 2.0 * (1 << 30) * 1.47e-12);
  EXPECT_DOUBLE_EQ(energy.flops.high, 2.0 * (1 << 30) * 1.69e-12);
  EXPECT_DOUBLE_EQ(energy.bytes.value, 3 * 2.0 * (1 << 20) * 46e-12);
  const test::OneOp single = test::gemm(1024, 1024, 1024, program::DType::f32);
  EXPECT_DOUBLE_EQ(kernel_energy(power, single.role, single.op).flops.value, 2.0 * (1 << 30) * 3.05e-12);
  const test::OneOp add = test::add(1000);
  EXPECT_EQ(kernel_energy(power, add.role, add.op).flops.value, 0);
}

TEST(Power, OfFusedAttentionIsThatOfTheBlocksThatCausalityLeaves) {
  const Power power = device_data("a100-sxm-80g").device.power;
  test::OneOp one = test::attention(program::AttentionPart::flash_forward, 1, 16, 2048);
  const double causal = kernel_energy(power, one.role, one.op).flops.value;
  std::get<program::Attention>(one.op.shape).causal = false;
  EXPECT_DOUBLE_EQ(kernel_energy(power, one.role, one.op).flops.value, 2 * causal);
}

// 2,048 queries see 2,048 x 2,049 / 2 keys in all, through a window of 512 512 x 513 / 2 + 1,536 x 512 of them.
TEST(Power, OfAWindowIsThatOfItsPairs) {
  const Power power = device_data("a100-sxm-80g").device.power;
  test::OneOp one = test::attention(program::AttentionPart::flash_forward, 1, 16, 2048);
  const double causal = kernel_energy(power, one.role, one.op).flops.value;
  std::get<program::Attention>(one.op.shape).window = 512;
  EXPECT_DOUBLE_EQ(kernel_energy(power, one.role, one.op).flops.value, causal * 917'760 / 2'098'176);
}

TEST(DeviceFile, OfEveryShippedDeviceLoadsAndSaysWhatItDraws) {
  const std::vector<std::string> names = shipped_devices();
  ASSERT_GE(names.size(), 16U);
  for (const std::string& name : names) {
    const Device device = load_costs({find_device_file(name, kRoot.string())})->device();
    EXPECT_EQ(device.name, name);
    EXPECT_TRUE(device.power.known()) << name;
    EXPECT_LT(device.power.idle_w.high, 0.4 * device.power.limit_w) << name;
    EXPECT_GT(device.power.single.value, device.power.half.value) << name;
  }
}

// A figure's source stands behind it, or on the line above, or once for a block whose first line or whose heading says
// so.
TEST(DeviceFile, EveryFigureOfWhatADeviceIsAndDrawsNamesItsSource) {
  for (const std::string& name : shipped_devices()) {
    std::ifstream in(kRoot / "calibrate" / "devices" / (name + ".yaml"));
    std::string line, before, section;
    int figures = 0;
    while (std::getline(in, line)) {
      if (!line.empty() && line[0] != ' ' && line[0] != '#') section = line.substr(0, line.find(':'));
      const bool of_interest = section == "sms" || section.starts_with("memory") || section == "host_bandwidth" ||
                               section == "kernel_time" || section == "power";
      const bool figure = line.find(": ") != std::string::npos &&
                          line.find_first_of("0123456789") != std::string::npos &&
                          line.find_first_not_of(' ') != line.find('#');
      if (of_interest && figure && section != "memory_efficiency") {
        ++figures;
        EXPECT_TRUE(line.find('#') != std::string::npos || before.find('#') != std::string::npos)
            << name << ".yaml: " << line;
      }
      before = line;
    }
    EXPECT_GE(figures, 12) << name;
  }
}

// A file's `power`, read; the messages of what is wrong with it.
std::string problems_of(const std::string& text) {
  Diagnostics problems;
  const Document document = Document::from_text("d.yaml", text, problems);
  read_power(document.root().get("power"));
  try {
    problems.throw_if_any();
  } catch (const InputError& error) {
    std::string all;
    for (const Diagnostic& d : error.diagnostics()) all += d.text() + "\n";
    return all;
  }
  return "";
}

const std::string kPower = R"(power:
  limit_w: 400
  clock_mhz: {min: 210, base: 1095, boost: 1410}
  idle_w: {value: 80, low: 50, high: 100}
  half_pj: {value: 1.5, low: 1.3, high: 1.7}
  single_pj: {value: 3, low: 2.6, high: 3.4}
  byte_pj: {value: 46, low: 30, high: 60}
  port_pj: {value: 44, low: 10, high: 60}
  zeros: {value: 0.6, low: 0.5, high: 0.7}
  voltage: {slope: {value: 1, low: 0.9, high: 1.1}, floor: {value: 0.8, low: 0.7, high: 0.9}}
)";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kPower;
  return text.replace(text.find(from), from.size(), to);
}

TEST(DeviceFile, PowerIsReadStrictly) {
  EXPECT_EQ(problems_of(kPower), "");
  EXPECT_NE(problems_of(with("low: 50", "low: 90")).find("expected low <= value <= high"), std::string::npos);
  EXPECT_NE(problems_of(with("min: 210", "min: 1500")).find("expected min <= base <= boost"), std::string::npos);
  EXPECT_NE(problems_of(with("  limit_w: 400\n", "")).find("limit_w"), std::string::npos);
  EXPECT_NE(problems_of(with("  byte_pj: {value: 46, low: 30, high: 60}\n", "")).find("missing key 'byte_pj'"),
            std::string::npos);
  EXPECT_NE(problems_of(with("zeros", "zeroes")).find("zeros"), std::string::npos);
  EXPECT_NE(problems_of(with("high: 0.9}", "high: 0.9, width: 1}")).find("width"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::cost
