// See ways.h.
#include "sim/collective/ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"

namespace rehearse::collective {
namespace {

using nccl::Algorithm;
using nccl::Protocol;
using program::CollectiveKind;

constexpr double kLargeBytes = 4294967296.0;  // where bandwidth is taken to be at its highest

bool goes_in_rounds(CollectiveKind kind, Algorithm algorithm) {
  return algorithm == Algorithm::halving_doubling || algorithm == Algorithm::hierarchical ||
         (algorithm == Algorithm::direct && kind != CollectiveKind::all_to_all);
}

std::vector<Algorithm> algorithms(const Pin& pin) {
  if (pin.algorithm) return {*pin.algorithm};
  std::vector<Algorithm> library;
  for (int a = 0; a < nccl::kAlgorithms; ++a)
    if (const auto algorithm = static_cast<Algorithm>(a); !goes_in_rounds(pin.kind, algorithm))
      library.push_back(algorithm);
  return library;
}

std::string counted(int count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

Ways::Ways(const cluster::Cluster& cluster, const Prior& prior, Pins pins)
    : cluster_(cluster), prior_(prior), pins_(std::move(pins)) {
  for (const Pin& pin : pins_) check(pin);
}

std::string Ways::refusal(CollectiveKind kind, const Group& group, Algorithm algorithm, MaybeProtocol protocol) const {
  if (goes_in_rounds(kind, algorithm)) return rounds_refusal(group, kind, algorithm);
  if (kind == CollectiveKind::all_to_all) {
    if (algorithm != Algorithm::direct) return "does not do all_to_all";
    return protocol == Protocol::ll128 ? "has the protocols ll and simple only" : "";
  }
  if (prior_.nccl) return nccl::refusal(prior_.machine, group.place, kind, algorithm, *protocol);
  return algorithm == Algorithm::ring ? "" : "is NCCL's, and nothing is known of NCCL on this device";
}

std::vector<Ways::MaybeProtocol> Ways::protocols(const Pin& pin) const {
  if (!prior_.nccl) return {std::nullopt};
  if (pin.protocol) return {pin.protocol};
  return {Protocol::ll, Protocol::ll128, Protocol::simple};
}

std::string Ways::refusal(const Pin& pin, const Group& group, Algorithm algorithm) const {
  std::string why;
  for (const MaybeProtocol protocol : protocols(pin)) {
    why = refusal(pin.kind, group, algorithm, protocol);
    if (why.empty()) break;
  }
  return why;
}

Way Ways::way(CollectiveKind kind, const Group& group, Algorithm algorithm, MaybeProtocol protocol,
              double bytes) const {
  Way way;
  nccl::Estimate& e = way.estimate;
  if (goes_in_rounds(kind, algorithm)) {
    way.rounds = in_rounds(cluster_, group, rounds_of(group, kind, algorithm, std::llround(bytes)));
    const auto inside = static_cast<double>(way.rounds->inside);
    const auto between = static_cast<double>(way.rounds->between_nodes);
    const double share = protocol ? nccl::payload_share(*protocol) : 1;
    const double move_us = way.rounds->activity.min_duration.seconds() * 1e6 / share;
    e.latency_us = protocol ? nccl::message_latency(prior_.machine, *protocol, inside, between)
                            : inside * prior_.hop_us + between * prior_.net_hop_us;
    e.time_us = e.latency_us + move_us;
    e.gbps = way.highest_gbps = bytes / (1000 * move_us);
  } else if (!protocol) {
    e = prior_.collective(kind, group.place, bytes);
    way.highest_gbps = prior_.collective(kind, group.place, kLargeBytes).gbps;
  } else if (kind == CollectiveKind::all_to_all) {
    e = nccl::all_to_all(prior_.machine, group.place, bytes, protocol);
    way.highest_gbps = nccl::all_to_all(prior_.machine, group.place, kLargeBytes, protocol).gbps;
  } else {
    const nccl::Channels channels = nccl::ring_channels(prior_.machine, group.place);
    const auto at = [&](double size) {
      return nccl::estimate(prior_.machine, group.place, channels, kind, algorithm, *protocol, size);
    };
    e = at(bytes);
    way.highest_gbps = at(kLargeBytes).gbps;
  }
  e.algorithm = algorithm;
  if (protocol) e.protocol = *protocol;
  return way;
}

Way Ways::choose(CollectiveKind kind, const Group& group, double bytes) const {
  const nccl::Estimate own = prior_.collective(kind, group.place, bytes);
  std::optional<Way> fastest;
  const Pin* pinned = nullptr;
  for (const Pin& pin : pins_) {
    if (pin.kind != kind) continue;
    if (pinned == nullptr) pinned = &pin;
    for (const Algorithm algorithm : algorithms(pin))
      for (const MaybeProtocol protocol : protocols(pin)) {
        if (!refusal(kind, group, algorithm, protocol).empty()) continue;
        Way one = way(kind, group, algorithm, protocol, bytes);
        if (!fastest || one.estimate.time_us < fastest->estimate.time_us) fastest = std::move(one);
      }
  }
  if (pinned == nullptr)
    return {own, prior_.collective(kind, group.place, kLargeBytes).gbps, true, false, std::nullopt};
  if (!fastest)
    throw InputError(
        Diagnostic{"", 0, 0, pinned->key,
                   fmt::format("{} of {} on {} is offered nothing of what is pinned for it", name_of(kind),
                               counted(group.place.ranks, "rank"), counted(group.place.nodes, "node")),
                   fmt::format("offered there: {}; of several entries for {} the fastest that is offered is taken",
                               offered(kind, group), name_of(kind))});
  fastest->pinned = true;
  fastest->own = fastest->estimate.algorithm == own.algorithm && fastest->estimate.protocol == own.protocol;
  return *fastest;
}

std::string Ways::offered(CollectiveKind kind, const Group& group) const {
  std::string names;
  for (int a = 0; a < nccl::kAlgorithms; ++a) {
    const auto algorithm = static_cast<Algorithm>(a);
    if (!refusal(Pin{kind, algorithm, {}, ""}, group, algorithm).empty()) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", nccl::name_of(algorithm));
  }
  return names;
}

// Whether all devices, those of one node, or one of each node are offered it.
void Ways::check(const Pin& pin) const {
  std::vector<int> all(static_cast<std::size_t>(cluster_.devices())), firsts;
  std::iota(all.begin(), all.end(), 0);
  if (all.size() < 2) return;
  for (int node = 0; node < cluster_.nodes(); ++node) firsts.push_back(cluster_.devices_of(node).front());
  const Group whole = group_of(cluster_, all);
  std::string why;
  if (pin.protocol && !prior_.nccl) why = "is NCCL's, and nothing is known of NCCL on this device";
  bool goes = false;
  for (const std::vector<int>& members : {all, cluster_.devices_of(0), firsts}) {
    if (members.size() < 2 || goes || !why.empty()) continue;
    const Group group = group_of(cluster_, members);
    for (const Algorithm a : algorithms(pin)) goes = goes || refusal(pin, group, a).empty();
  }
  if (goes) return;
  const bool algorithm = why.empty() && pin.algorithm;
  if (algorithm) why = refusal(pin, whole, *pin.algorithm);
  if (why.empty()) why = fmt::format("is no protocol of {}", name_of(pin.kind));
  throw InputError(
      Diagnostic{"", 0, 0, pin.key + (algorithm ? ".algorithm" : ".protocol"),
                 fmt::format("{} {}", algorithm ? nccl::name_of(*pin.algorithm) : nccl::name_of(*pin.protocol), why),
                 fmt::format("{} is offered on {}: {}", name_of(pin.kind), cluster_.name(), offered(pin.kind, whole))});
}

}  // namespace rehearse::collective
