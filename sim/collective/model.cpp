// Plans transfers: a model's time alone, corrected by measurements (measurements.h), over the bytes that cross the
// cluster's resources (wire.h).
//
// Time alone splits in two. The part that contention stretches is what the bytes need at the highest bandwidth this
// group reaches, that of very large sizes; the rest is start-up: latency, and the ramp of pipelining through small
// sizes. A resource that is slower than that bandwidth makes the moving part longer: links between switches lengthen
// the transfer, while a port's nominal rate never contradicts a measurement (its bytes are then counted smaller).
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "sim/base/diagnostics.h"
#include "sim/collective/algorithm_choice.h"
#include "sim/collective/algorithms/algorithm.h"
#include "sim/collective/collective.h"
#include "sim/collective/forwarding.h"
#include "sim/collective/links_model.h"
#include "sim/collective/local_model.h"
#include "sim/collective/measured_model.h"
#include "sim/collective/measurements.h"
#include "sim/collective/wire.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

constexpr double kLowestUs = 1e-3;
// Multiprocessors of a kernel that forwards: --moe-deepep-num-sms, 20 unless said otherwise (Megatron-Core).
constexpr int kForwardingSms = 20;

// Bytes of an all-to-all whose parts are all as large as the largest. Of parts that each member has for itself: where
// all get as much as the one that gets, or on the way back sends, most.
Bytes largest_exchange(const Exchange& what, std::size_t members) {
  if (what.parts.size() == members) {
    const std::int64_t most = std::max_element(what.parts.begin(), what.parts.end())->count();
    return Bytes(most * static_cast<std::int64_t>(members));
  }
  std::vector<std::int64_t> got(members, 0);
  for (std::size_t i = 0; i < what.parts.size(); ++i) got[i % members] += what.parts[i].count();
  return Bytes(*std::max_element(got.begin(), got.end()));
}

Time from_us(double us) {
  return Time::from_seconds(us * 1e-6);
}

TransferPlan nothing() {
  TransferPlan plan;
  plan.coverage = Coverage::exact;
  plan.algorithm = "local";
  return plan;
}

// From a device's node to a neighbour's on one leaf.
Time hop_of(const cluster::Cluster& cluster, int device) {
  return cluster.node_view(cluster.node_of(device)).net_hop;
}

// Latency of the way between two nodes beyond that of neighbours on one leaf: the switches above it.
Time detour(const cluster::Cluster& cluster, int from, int to) {
  return cluster.latency(from, to) - std::max(hop_of(cluster, from), hop_of(cluster, to));
}

// What the algorithm makes of them; rounds between nodes take the longest each.
Time detours(const cluster::Cluster& cluster, const Group& group, CollectiveKind kind, const AlgorithmChoice& choice) {
  Time sum, longest, hop;
  for (std::size_t k = 0; k + 1 < group.nodes(); ++k) {
    const int from = group.member(k, 0), to = group.member(k + 1, 0);
    if (k == 0) hop = hop_of(cluster, from);
    const Time next = hop_of(cluster, to), one = cluster.latency(from, to) - std::max(hop, next);
    hop = next;
    sum += one;
    longest = std::max(longest, one);
  }
  if (choice.rounds) return longest * choice.rounds->between_nodes;
  return model_of(choice.estimate.algorithm).detours(kind, sum, longest);
}

// With what the data say of the library and its machine.
Prior with_library(Prior prior, const std::optional<MeasuredData>& data) {
  if (!data) return prior;
  prior.nccl = data->prior.nccl;
  prior.torus = data->prior.torus;
  prior.machine.generation = data->prior.machine.generation;
  prior.machine.cpu = data->prior.machine.cpu;
  prior.machine.pat = data->prior.machine.pat;
  return prior;
}

// What is the same for all groups of one shape is worked out once: a simulation asks of thousands. Several threads may.
template <class Key, class Value>
class Memo {
 public:
  template <class Make>
  Value get(const Key& key, const Make& make) const {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = values_.find(key); found != values_.end()) return found->second;
    }
    const Value made = make();
    const std::lock_guard lock(mutex_);
    return values_.try_emplace(key, made).first->second;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<Key, Value> values_;
};

class MeasuredModel final : public CollectiveModel {
 public:
  MeasuredModel(const cluster::Cluster& cluster, const Prior& prior, const std::optional<MeasuredData>& data,
                const BlockLimits& blocks, Pins pins)
      : cluster_(cluster),
        prior_(prior),
        by_members_(!pins.empty() || prior_.torus),
        chooser_(cluster, prior_, std::move(pins)),
        blocks_(blocks) {
    intervals_.fill({0.5, 2.0});  // no data: the topology's own numbers, latencies above all, may be off by this much
    if (!data) return;
    intervals_ = data->interval;
    corrections_ = Corrections(*data, prior_);
  }

  // What the library would not choose is corrected as what it would: by what this size misses.
  TransferPlan collective(CollectiveKind kind, const std::vector<int>& members, Bytes bytes) const override {
    return collective(kind, members, bytes, nullptr);
  }

  TransferPlan exchange(const std::vector<int>& members, const Exchange& what) const override {
    if (members.size() <= 1) return nothing();
    const Group group = group_of(cluster_, members);
    OwnBytes own{uneven_exchange_activity(cluster_, group, members, what), 0};
    for (const Bytes part : what.parts) own.bytes += part.count();
    own.bytes /= static_cast<std::int64_t>(what.parts.size() / members.size());  // of one sender
    const Bytes largest = largest_exchange(what, members.size());
    if (what.to.experts == 0) return collective(CollectiveKind::all_to_all, members, largest, &own);
    const double plain = busiest(own.activity);
    Forwarding forwarded = forwarding(cluster_, group, members, what);
    own = {std::move(forwarded.activity), forwarded.bytes};
    const double less = plain > 0 ? busiest(own.activity) / plain : 1;
    const Bytes as_busy(static_cast<std::int64_t>(static_cast<double>(largest.count()) * less));
    TransferPlan plan = collective(CollectiveKind::all_to_all, members, as_busy, &own);
    if (plan.activities.empty()) return plan;
    plan.algorithm = "forwarding", plan.protocol.clear(), plan.pinned = false;
    plan.sms = kForwardingSms;
    return plan;
  }

  // Measured as one half of an exchange between two devices: all_to_all of twice the bytes on two ranks sends as much
  // to one peer. Between nodes nothing is measured and the model stands uncorrected.
  TransferPlan send(int from, int to, Bytes bytes) const override {
    if (from == to || bytes.count() == 0) return nothing();
    const bool crosses = cluster_.node_of(from) != cluster_.node_of(to);
    const auto size = static_cast<double>(bytes.count());
    const SendTimes times = sends_.get({crosses, bytes.count()}, [&] { return send_times(crosses, size); });
    TransferPlan plan;
    plan.activities.push_back(send_activity(cluster_, from, to, bytes.count()));
    set_confidence(plan, times.correction.coverage);
    set_times(plan, times.estimate.time_us * times.correction.ratio,
              size / (1000 * times.highest_gbps) * times.large_ratio);
    if (crosses) plan.startup += detour(cluster_, from, to);
    plan.algorithm = name_of(Algorithm::direct);
    if (prior_.nccl) plan.protocol = name_of(times.estimate.protocol);
    plan.sms = blocks_.send;
    plan.memory_bytes = 2 * bytes.count();
    return plan;
  }

 private:
  // What is on the network if it is not the algorithm's, and the bytes of a member in the mean.
  struct OwnBytes {
    Activity activity;
    std::int64_t bytes;
  };
  // Seconds that the busiest resource needs.
  double busiest(const Activity& activity) const {
    const Bottleneck b = bottleneck(cluster_, {activity});
    return std::max(b.ports, b.links).seconds();
  }

  struct SendTimes {
    nccl::Estimate estimate;
    double highest_gbps = 0, large_ratio = 1;
    Corrections::Answer correction;
  };
  SendTimes send_times(bool crosses, double size) const {
    SendTimes times{prior_.send(crosses, size), prior_.send(crosses, kVeryLargeBytes).gbps, 1, {}};
    if (crosses) return times;
    const nccl::Placement pair{2, 1, 2};
    times.correction = corrections_.at(CollectiveKind::all_to_all, pair, 2 * size);
    if (times.correction.coverage == Coverage::exact) times.correction.coverage = Coverage::interpolated;
    times.large_ratio = corrections_.at(CollectiveKind::all_to_all, pair, 2 * kVeryLargeBytes).ratio;
    return times;
  }

  // What the shape of a group decides; a pinned algorithm's rounds also depend on which its members are.
  struct CollectiveTimes {
    AlgorithmChoice choice;
    Corrections::Answer correction;
    double large_ratio = 1;
    Interval bounds;
  };
  CollectiveTimes times_of(CollectiveKind kind, const Group& group, double size) const {
    CollectiveTimes times{chooser_.choose(kind, group, size), {}, 1, {}};
    const auto corrected = [&](double bytes_there) {
      return corrections_.at(kind, group.place, bytes_there,
                             times.choice.pinned ? std::optional(times.choice.estimate.algorithm) : std::nullopt);
    };
    times.correction = corrected(size);
    // What goes in rounds has one bandwidth at all sizes, and so one correction.
    times.large_ratio = times.choice.rounds ? times.correction.ratio : corrected(kVeryLargeBytes).ratio;
    times.bounds = corrections_.bounds(kind, group.place, size, prior_);
    return times;
  }

  TransferPlan collective(CollectiveKind kind, const std::vector<int>& members, Bytes bytes,
                          const OwnBytes* own) const {
    if (members.size() <= 1 || bytes.count() == 0) return nothing();
    const Group group = group_of(cluster_, members);
    const auto size = static_cast<double>(bytes.count());
    const nccl::Placement& place = group.place;
    const CollectiveTimes times =
        by_members_ ? times_of(kind, group, size)
                    : collectives_.get({kind, place.ranks, place.nodes, place.per_node, place.uniform, bytes.count()},
                                       [&] { return times_of(kind, group, size); });
    const AlgorithmChoice& choice = times.choice;
    const nccl::Estimate& estimate = choice.estimate;
    const AlgorithmModel& algorithm = model_of(estimate.algorithm);
    Corrections::Answer correction = times.correction;
    if (!choice.own) correction.coverage = std::max(correction.coverage, Coverage::extrapolated);
    const double guess_us = estimate.time_us * correction.ratio;
    const double alone_us = std::clamp(guess_us, times.bounds.low, times.bounds.high);
    // Of a time that is taken from other groups all but the latency moves bytes.
    const double moving_us = alone_us == guess_us ? size / (1000 * choice.highest_gbps) * times.large_ratio
                                                  : std::max(0.0, alone_us - estimate.latency_us * correction.ratio);

    TransferPlan plan;
    if (own != nullptr)
      plan.activities = {own->activity};
    else if (choice.rounds)
      plan.activities = {choice.rounds->activity};
    else
      plan.activities = algorithm.activities(cluster_, group, kind, bytes.count());
    set_confidence(plan, correction.coverage);
    set_times(plan, alone_us, moving_us);
    plan.startup += detours(cluster_, group, kind, choice);
    plan.algorithm = name_of(estimate.algorithm);
    if (prior_.nccl) plan.protocol = name_of(estimate.protocol);
    plan.pinned = choice.pinned;
    plan.sms = algorithm.blocks(group.place, estimate.protocol, size, blocks_);
    const std::int64_t mean = own != nullptr ? own->bytes : bytes.count();
    plan.memory_bytes = algorithm.memory_bytes(kind, mean, wire_bytes(kind, group.place.ranks, mean));
    return plan;
  }

  void set_confidence(TransferPlan& plan, Coverage coverage) const {
    plan.coverage = coverage;
    plan.low = intervals_[static_cast<std::size_t>(coverage)].low;
    plan.high = intervals_[static_cast<std::size_t>(coverage)].high;
  }

  // moving_us: what the bytes need at the highest bandwidth this group reaches. Reads the plan's coverage.
  void set_times(TransferPlan& plan, double alone_us, double moving_us) const {
    Time alone = from_us(std::max(alone_us, kLowestUs));
    const Bottleneck slowest = bottleneck(cluster_, plan.activities);
    const bool measured = plan.coverage == Coverage::exact || plan.coverage == Coverage::interpolated;
    if (!measured) alone = std::max(alone, slowest.ports);
    if (slowest.ports > alone) {
      const double factor = alone.seconds() / slowest.ports.seconds();
      for (Activity& activity : plan.activities)
        for (Use& use : activity.uses) use.bytes = static_cast<std::int64_t>(static_cast<double>(use.bytes) * factor);
    }
    const Time moving = std::min(alone, std::max(from_us(moving_us), slowest.ports));
    plan.startup = alone - moving;
    // Ports may take so long that no start-up seems left; before bytes that wait for slower links it is there.
    const Time hidden = measured ? Time() : Time(from_us(std::max(0.0, alone_us - moving_us))) - plan.startup;
    const Time links = slowest.links > Time() ? slowest.links + std::max(Time(), hidden) : Time();
    for (Activity& activity : plan.activities) activity.min_duration = std::max(moving, links);
  }

  const cluster::Cluster& cluster_;
  Prior prior_;
  const bool by_members_;  // which its members are decides how a group goes, not its shape alone
  AlgorithmChooser chooser_;
  Corrections corrections_;
  BlockLimits blocks_;
  std::array<Interval, 4> intervals_;
  Memo<std::pair<bool, std::int64_t>, SendTimes> sends_;
  // By collective, placement and bytes.
  Memo<std::tuple<CollectiveKind, int, int, int, bool, std::int64_t>, CollectiveTimes> collectives_;
};

// Ring formula on capacities: exact closed forms for tests.
class PlainModel final : public CollectiveModel {
 public:
  PlainModel(const cluster::Cluster& cluster, Time latency_per_step) : cluster_(cluster), latency_(latency_per_step) {}

  TransferPlan collective(CollectiveKind kind, const std::vector<int>& members, Bytes bytes) const override {
    if (members.size() <= 1) return nothing();
    const Group group = group_of(cluster_, members);
    const std::int64_t steps = (kind == CollectiveKind::all_reduce ? 2 : 1) * (std::int64_t{group.place.ranks} - 1);
    const Algorithm algorithm = kind == CollectiveKind::all_to_all ? Algorithm::direct : Algorithm::ring;
    return plan("ring", model_of(algorithm).activities(cluster_, group, kind, bytes.count()), steps);
  }

  TransferPlan exchange(const std::vector<int>& members, const Exchange& what) const override {
    if (members.size() <= 1) return nothing();
    const Group group = group_of(cluster_, members);
    if (what.to.experts > 0)
      return plan("forwarding", {forwarding(cluster_, group, members, what).activity}, group.place.ranks - 1);
    return plan("ring", {uneven_exchange_activity(cluster_, group, members, what)}, group.place.ranks - 1);
  }

  TransferPlan send(int from, int to, Bytes bytes) const override {
    if (from == to) return nothing();
    return plan("direct", {send_activity(cluster_, from, to, bytes.count())}, 1);
  }

 private:
  TransferPlan plan(const char* algorithm, std::vector<Activity> activities, std::int64_t steps) const {
    TransferPlan made;
    made.startup = latency_ * steps;
    const Bottleneck slowest = bottleneck(cluster_, activities);
    const Time moving = std::max(slowest.ports, slowest.links);
    for (Activity& activity : activities) activity.min_duration = moving;
    made.activities = std::move(activities);
    made.algorithm = algorithm;
    return made;
  }

  const cluster::Cluster& cluster_;
  Time latency_;
};

// The one place where ranks are threads that copy from one another.
bool is_local_host(const cluster::Cluster& cluster) {
  const auto& resources = cluster.resources();
  return resources.size() == 1 && resources.front().kind == cluster::ResourceKind::loopback;
}

class FreeModel final : public CollectiveModel {
 public:
  TransferPlan collective(CollectiveKind, const std::vector<int>&, Bytes) const override { return nothing(); }
  TransferPlan send(int, int, Bytes) const override { return nothing(); }
};

}  // namespace

Time TransferPlan::alone() const {
  Time longest;
  for (const Activity& activity : activities) longest = std::max(longest, activity.min_duration);
  return startup + longest + copy_out + copy_in;
}

TransferPlan CollectiveModel::exchange(const std::vector<int>& members, const Exchange& what) const {
  return collective(CollectiveKind::all_to_all, members, largest_exchange(what, members.size()));
}

std::unique_ptr<CollectiveModel> make_model(const cluster::Cluster& cluster, const std::string& device_file,
                                            const Pins& pins, const std::vector<std::string>& more) {
  std::optional<cost::Calibration> calibration;
  if (cost::is_calibration_path(device_file)) calibration = cost::read_calibration(device_file);
  const bool local = calibration && is_local_host(cluster);
  if (!pins.empty() && (local || cluster.explicit_links()))
    throw InputError(Diagnostic{"", 0, 0, pins.front().key,
                                local ? "ranks of one host copy from one another: there is no algorithm to choose"
                                      : "on explicit links collectives go as Gloo's: there is nothing to choose",
                                ""});
  if (cluster.explicit_links()) return make_links_model(cluster, calibration);
  if (local) return make_local_model(cluster, *calibration);
  std::optional<MeasuredData> data = find_measured_data(device_file);
  if (data)
    for (const std::string& file : more) add_measured_rows(file, *data);
  return make_measured_model(cluster, prior_of(cluster), data, pins);
}

std::unique_ptr<CollectiveModel> make_measured_model(const cluster::Cluster& cluster, const Prior& rates,
                                                     const std::optional<MeasuredData>& data, const Pins& pins) {
  return std::make_unique<MeasuredModel>(cluster, with_library(rates, data), data, data ? data->blocks : BlockLimits(),
                                         pins);
}

std::unique_ptr<CollectiveModel> make_unmeasured_model(const cluster::Cluster& cluster, const Prior& prior,
                                                       const BlockLimits& blocks, const Pins& pins) {
  return std::make_unique<MeasuredModel>(cluster, prior, std::nullopt, blocks, pins);
}

std::unique_ptr<CollectiveModel> make_plain_model(const cluster::Cluster& cluster, Time latency_per_step) {
  return std::make_unique<PlainModel>(cluster, latency_per_step);
}

std::unique_ptr<CollectiveModel> make_free_model() {
  return std::make_unique<FreeModel>();
}

}  // namespace rehearse::collective
