// Kernels on shared cores. The order of trust: this kernel (kind, shape, type, threads) measured with as many busy
// cores; the same with others busy, scaled by what company costs it; other shapes of its kind (shape_space.h); kinds of
// its class, as a roofline. "program" entries come before "grid" ones, and their means are the durations: what a step
// takes is a sum of means. Beside `busy` cores in all a kernel is slowed in proportion to the cores that are not its
// own, from 1 when it is alone to the calibration's `sharing` when all are busy.
//
// Leaves out: what exactly the other cores do (the mean of products and memory-bound kernels is taken), and caches
// warmer or colder than in the measured company.
#include "sim/cost/calibrated_costs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "sim/base/check.h"
#include "sim/base/quantile.h"
#include "sim/cost/kernel_shape.h"
#include "sim/cost/shape_space.h"
#include "sim/program/describe.h"
#include "sim/program/work.h"

namespace rehearse::cost {
namespace {

using program::DType;
using program::Op;
using program::Role;

constexpr std::size_t kMostLeftOut = 64;  // points of a kind that leave-one-out looks at

struct Interval {
  double low = 1, high = 1;
};

Load load_of(double flops) {
  return flops > 0 ? Load::gemm : Load::memory;
}

class CalibratedCosts final : public CostModel {
 public:
  CalibratedCosts(std::vector<Calibration> calibrations, const HostShare& share, const Scale& scale);
  const Device& device() const override { return device_; }
  Estimate kernel(const Role& role, const Op& op, const Interference& beside) const override;
  bool by_kind() const override { return true; }

 private:
  using Key = std::tuple<std::string, std::string, DType, int>;  // kind, shape, type, threads
  using ByBusy = std::map<int, CalibratedKernel>;
  using Kind = std::tuple<std::string, DType, int>;

  double slowdown(Load load, int threads, int busy) const;
  double roofline(double flops, double bytes, int threads, const Scale& scale = {}) const;
  void add(const CalibratedKernel& kernel);
  void learn();
  double scale(const Key& key, const CalibratedKernel& from, int busy) const;
  std::optional<Estimate> measured(const Key& key, int busy) const;
  Estimate predicted(const Key& key, double flops, double bytes, int busy) const;

  Calibration host_;
  Device device_;
  Scale scale_;
  int threads_;
  double base_ = 1e-7;  // of a kernel that does next to nothing
  std::map<Key, ByBusy> program_, grid_;
  std::map<Kind, ShapeSpace> kinds_;
  std::array<double, 2> class_ratio_{1, 1};  // gemm, memory: measured / roofline, the median
  Interval inside_, outside_, spec_{0.3, 3};
};

CalibratedCosts::CalibratedCosts(std::vector<Calibration> calibrations, const HostShare& share, const Scale& scale)
    : scale_(scale), threads_(std::max(1, share.threads)) {
  host_ = std::move(calibrations.front());
  for (const CalibratedKernel& kernel : host_.kernels) add(kernel);
  for (std::size_t i = 1; i < calibrations.size(); ++i)
    for (const CalibratedKernel& kernel : calibrations[i].kernels) add(kernel);
  device_.name = host_.name;
  device_.file = host_.file;
  device_.cpu = true;
  device_.sms = host_.host.cores;
  device_.memory = Bytes(host_.host.memory_bytes / share.ranks);
  const double cores = std::min<double>(threads_, static_cast<double>(host_.host.cores) / share.ranks);
  const double part = std::min(1.0, cores / host_.host.cores);
  device_.memory_bandwidth = Bandwidth(std::llround(host_.memory_bandwidth * part));
  device_.peak_fp32 = device_.peak_bf16 = device_.peak_fp16 = FlopRate(host_.peak_flops * part);
  device_.dispatch = Time::from_seconds(host_.dispatch_s * scale.launch);
  device_.wake = Time::from_seconds(host_.wake_s * scale.launch);
  device_.jitter = host_.jitter;
  device_.jitter.kernel_delays =
      nearest_delays(host_.kernel_delays, threads_, std::min(host_.host.cores, share.ranks * threads_));
  device_.pace = host_.pace;
  learn();
}

void CalibratedCosts::add(const CalibratedKernel& kernel) {
  auto& table = kernel.origin == Origin::program ? program_ : grid_;
  table[{kernel.kind, kernel.shape, kernel.dtype, kernel.threads}].insert_or_assign(kernel.busy, kernel);
}

double CalibratedCosts::slowdown(Load load, int threads, int busy) const {
  const int others = host_.host.cores - threads;
  if (others <= 0 || busy <= threads) return 1;
  const auto& beside = host_.slowdown[static_cast<std::size_t>(load)];
  const double full =
      (beside[static_cast<std::size_t>(Load::gemm)] + beside[static_cast<std::size_t>(Load::memory)]) / 2;
  return 1 + (full - 1) * std::min(1.0, static_cast<double>(busy - threads) / others);
}

double CalibratedCosts::roofline(double flops, double bytes, int threads, const Scale& scale) const {
  const double part = std::min(1.0, static_cast<double>(threads) / host_.host.cores);
  return base_ + flops / (host_.peak_flops * part * scale.compute) +
         bytes / (host_.memory_bandwidth * part * scale.memory);
}

// What entries alone on the host would take over what the roofline says, by kind; and how well they foretell each
// other.
void CalibratedCosts::learn() {
  for (const auto* table : {&program_, &grid_})
    for (const auto& [key, by_busy] : *table)
      for (const auto& [busy, kernel] : by_busy) base_ = std::min(base_, kernel.mean / 2);
  std::array<std::vector<double>, 2> by_class;
  for (const auto* table : {&program_, &grid_})
    for (const auto& [key, by_busy] : *table) {
      if (table == &grid_ && program_.contains(key)) continue;
      const CalibratedKernel& k = by_busy.begin()->second;
      const double alone = k.mean / slowdown(load_of(k.flops), k.threads, k.busy);
      const double ratio = alone / roofline(k.flops, k.bytes, k.threads);
      kinds_[{k.kind, k.dtype, k.threads}].add(k.shape, ratio);
      by_class[k.flops > 0 ? 0 : 1].push_back(ratio);
    }
  for (std::size_t c = 0; c < by_class.size(); ++c) {
    auto& ratios = by_class[c].empty() ? by_class[1 - c] : by_class[c];
    std::sort(ratios.begin(), ratios.end());
    class_ratio_[c] = ratios[ratios.size() / 2];
  }
  std::vector<double> errors;
  for (const auto& [kind, space] : kinds_) space.leave_one_out(kMostLeftOut, errors);
  std::sort(errors.begin(), errors.end());
  const auto at = [&](double q) { return errors.empty() ? 1.0 : at_rank(errors, q, Rank::below); };
  inside_ = {std::min(0.9, at(0.05)), std::max(1.1, at(0.95))};
  outside_ = {inside_.low * inside_.low, inside_.high * inside_.high};
}

// From an entry's company to that of `busy` cores: as the same kernel alone on the grid did, if it was measured with
// both, else as its class does.
double CalibratedCosts::scale(const Key& key, const CalibratedKernel& from, int busy) const {
  if (from.busy == busy) return 1;
  const auto grid = grid_.find(key);
  if (from.origin == Origin::program && grid != grid_.end() && grid->second.contains(from.busy) &&
      grid->second.contains(busy))
    return grid->second.at(busy).mean / grid->second.at(from.busy).mean;
  const Load load = load_of(from.flops);
  return slowdown(load, from.threads, busy) / slowdown(load, from.threads, from.busy);
}

std::optional<Estimate> CalibratedCosts::measured(const Key& key, int busy) const {
  const ByBusy* entries = nullptr;
  if (const auto found = program_.find(key); found != program_.end()) entries = &found->second;
  if (const auto found = grid_.find(key); entries == nullptr && found != grid_.end()) entries = &found->second;
  if (entries == nullptr) return std::nullopt;
  const auto above = entries->lower_bound(busy);
  const CalibratedKernel& high = above == entries->end() ? entries->rbegin()->second : above->second;
  double seconds = high.mean * scale(key, high, busy);
  if (high.busy > busy && above != entries->begin()) {
    const CalibratedKernel& low = std::prev(above)->second;
    const double share = static_cast<double>(busy - low.busy) / (high.busy - low.busy);
    seconds = low.mean + (high.mean - low.mean) * share;
  }
  Estimate e;
  e.duration = Time::from_seconds(seconds);
  e.coverage = high.busy == busy ? Coverage::exact : Coverage::interpolated;
  e.low = std::min(1.0, high.time.p10 / high.mean);
  e.high = std::max(1.0, high.time.p90 / high.mean);
  if (host_.jitter.any()) {  // what calls scatter is drawn; the mean of so many is known better than one of them
    const double root = std::sqrt(std::max(1, high.repetitions));
    e.low = 1 + (e.low - 1) / root, e.high = 1 + (e.high - 1) / root;
  }
  return e;
}

Estimate CalibratedCosts::predicted(const Key& key, double flops, double bytes, int busy) const {
  const auto& [kind, shape, dtype, threads] = key;
  Estimate e;
  double ratio = class_ratio_[flops > 0 ? 0 : 1];
  Interval interval = spec_;
  // The same kind with other threads of the rank, or in another type, is the next best.
  const ShapeSpace* space = nullptr;
  bool own = false;
  for (const auto& [known, candidate] : kinds_) {
    if (std::get<0>(known) != kind) continue;
    if (space == nullptr || known == Kind{kind, dtype, threads}) space = &candidate;
    own = own || known == Kind{kind, dtype, threads};
  }
  if (space != nullptr) {
    const ShapeSpace::Answer answer = space->at(parse_shape(shape));
    ratio = answer.ratio;
    e.coverage = own && answer.inside ? Coverage::interpolated : Coverage::extrapolated;
    interval = own && answer.inside ? inside_ : outside_;
  }
  e.low = interval.low, e.high = interval.high;
  e.duration = Time::from_seconds(roofline(flops, bytes, threads) * ratio * slowdown(load_of(flops), threads, busy));
  return e;
}

Estimate CalibratedCosts::kernel(const Role& role, const Op& op, const Interference& beside) const {
  REHEARSE_CHECK(!program::is_transfer(op) && !std::holds_alternative<program::HostSync>(op.shape), "{} is no kernel",
                 op.name);
  // Streams other than the compute stream have one thread each (execute/rank/cpu_rank.cpp).
  const auto stream = static_cast<std::size_t>(op.stream);
  const bool compute = stream >= role.streams.size() || role.streams[stream].kind == program::StreamKind::compute;
  const int threads = compute ? threads_ : 1;
  const int busy = std::clamp(beside.busy_cores, std::min(threads, host_.host.cores), host_.host.cores);
  const program::Work work = program::work_of(role, op);
  const double bytes = static_cast<double>(work.bytes_read + work.bytes_written);
  const double flops = comparable_flops(op, work.flops);
  const Key key{program::kind_name(op.shape), program::shape_text(role, op), op.dtype, threads};
  const auto known = measured(key, busy);
  Estimate e = known ? *known : predicted(key, flops, bytes, busy);
  if (!scale_.none())
    e.duration = Time::from_seconds(e.duration.seconds() * roofline(flops, bytes, threads, scale_) /
                                    roofline(flops, bytes, threads));
  REHEARSE_CHECK(e.duration > Time(), "{} would take no time", op.name);
  return e;
}

}  // namespace

std::unique_ptr<CostModel> make_calibrated_costs(std::vector<Calibration> calibrations, const HostShare& share,
                                                 const Scale& scale) {
  REHEARSE_CHECK(!calibrations.empty() && share.ranks > 0, "{} calibrations for {} ranks", calibrations.size(),
                 share.ranks);
  return std::make_unique<CalibratedCosts>(std::move(calibrations), share, scale);
}

}  // namespace rehearse::cost
