#include "sim/cost/power.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "sim/base/document.h"
#include "sim/cost/kernel_shape.h"
#include "sim/program/work.h"

namespace rehearse::cost {
namespace {

constexpr double kLeast = 1e-3, kMostWatts = 1e5, kMostMegahertz = 1e5, kMostPicojoules = 1e6;

// `key`: {value, low, high}, in the unit that its name says.
Range read_measure(const Node& parent, std::string_view key, double most) {
  const Node node = parent.get(key);
  Range range;
  if (!node) {
    parent.error("missing key '" + std::string(key) + "'");
    return range;
  }
  range.value = node.number("value", {}, kLeast, most);
  range.low = node.number("low", {}, kLeast, most);
  range.high = node.number("high", {}, kLeast, most);
  node.finish();
  if (range.low > range.value || range.value > range.high) node.error("expected low <= value <= high");
  return range;
}

VoltageCurve read_voltage(const Node& power) {
  const Node node = power.get("voltage");
  if (!node || node.as_text() == "shared") return shared_voltage_curve();
  VoltageCurve curve{read_measure(node, "slope", 10), read_measure(node, "floor", 1)};
  node.finish();
  return curve;
}

// Faster than this a limit was not reached, and the run says nothing of clocks.
constexpr double kUnlimited = 0.998;

// The error of a work of which `share` of the time does not follow the clock.
double work_error(const std::vector<LimitedRun>& runs, double idle, const VoltageCurve& curve, double share) {
  const double free = runs.back().watts;
  double sum = 0;
  for (const LimitedRun& run : runs) {
    if (run.speed > kUnlimited) continue;
    const double clock = std::min(1.0, (1 - share) / (1 / run.speed - share));
    const double voltage = curve.voltage(clock);
    const double watts = idle + (free - idle) * run.speed * voltage * voltage;
    sum += std::pow(std::log(run.watts / watts), 2);
  }
  return sum;
}

}  // namespace

double VoltageCurve::voltage(double clock) const {
  return std::max(floor.value, 1 - slope.value * (1 - clock));
}

VoltageCurve shared_voltage_curve() {
  return {{1.1, 0.8, 1.5}, {0.79, 0.74, 0.84}};
}

Power read_power(const Node& node) {
  Power p;
  p.limit_w = node.number("limit_w", {}, kLeast, kMostWatts);
  const Node clock = node.get("clock_mhz");
  if (!clock) node.error("missing key 'clock_mhz'");
  p.min_mhz = clock.number("min", {}, 1, kMostMegahertz);
  const double base = clock.number("base", p.min_mhz, 1, kMostMegahertz);  // guaranteed by the maker; for people
  p.boost_mhz = clock.number("boost", {}, 1, kMostMegahertz);
  clock.finish();
  if (p.min_mhz > base || base > p.boost_mhz) clock.error("expected min <= base <= boost");
  p.idle_w = read_measure(node, "idle_w", kMostWatts);
  p.half = read_measure(node, "half_pj", kMostPicojoules);
  p.single = read_measure(node, "single_pj", kMostPicojoules);
  // Without a measurement: the tensor cores do twice as many at the same power, between 0.4 (a long burn of an H100
  // runs 2.1 times as many, huggingface/gpu-fryer@704ba85c README.md) and 0.6. A judgement.
  p.eight = {0.5 * p.half.value, 0.4 * p.half.low, 0.6 * p.half.high};
  if (node.has("eight_pj")) p.eight = read_measure(node, "eight_pj", kMostPicojoules);
  p.byte = read_measure(node, "byte_pj", kMostPicojoules);
  p.port = read_measure(node, "port_pj", kMostPicojoules);
  p.zeros = read_measure(node, "zeros", 1);
  p.voltage = read_voltage(node);
  node.finish();
  return p;
}

KernelEnergy kernel_energy(const Power& power, const program::Role& role, const program::Op& op) {
  const program::Work work = program::work_of(role, op);
  const auto times = [](const Range& each, double count) {
    constexpr double kPico = 1e-12;
    return Range{each.value * count * kPico, each.low * count * kPico, each.high * count * kPico};
  };
  double flops = comparable_flops(op, work.flops);
  // These count all keys; fused kernels leave out the blocks that causality does.
  if (is_flash(op) && std::get<program::Attention>(op.shape).causal) flops /= 2;
  Range each = op.dtype == program::DType::f32 ? power.single : is_narrow(op.dtype) ? power.eight : power.half;
  // Of 4-bit products half as much as of 8-bit ones, as of these and 16-bit ones: a judgement.
  if (op.dtype == program::DType::e2m1) each = {each.value / 2, each.low / 2, each.high / 2};
  return {times(each, flops), times(power.byte, static_cast<double>(work.bytes_read + work.bytes_written))};
}

double voltage_curve_error(const std::vector<LimitedRun>& runs, double slope, double floor) {
  const VoltageCurve curve{{slope, slope, slope}, {floor, floor, floor}};
  std::map<std::string, std::map<std::string, std::vector<LimitedRun>>> devices;
  for (const LimitedRun& run : runs) devices[run.device][run.work].push_back(run);
  double sum = 0;
  for (const auto& [device, works] : devices) {
    double best = std::numeric_limits<double>::max();
    for (int idle = 20; idle <= 110; idle += 5) {
      double of_device = 0;
      for (const auto& [work, of_work] : works) {
        double of_share = std::numeric_limits<double>::max();
        for (int share = 0; share <= 60; share += 5)
          of_share = std::min(of_share, work_error(of_work, idle, curve, share / 100.0));
        of_device += of_share;
      }
      best = std::min(best, of_device);
    }
    sum += best;
  }
  const auto limited =
      std::count_if(runs.begin(), runs.end(), [](const LimitedRun& run) { return run.speed <= kUnlimited; });
  return std::sqrt(sum / static_cast<double>(std::max<std::ptrdiff_t>(1, limited)));
}

}  // namespace rehearse::cost
