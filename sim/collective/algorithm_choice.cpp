// See algorithm_choice.h.
#include "sim/collective/algorithm_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/collective/algorithms/algorithm.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

std::vector<Algorithm> algorithms_of(const Pin& pin) {
  if (pin.algorithm) return {*pin.algorithm};
  std::vector<Algorithm> library;
  for (int a = 0; a < kAlgorithms; ++a)
    if (const auto algorithm = static_cast<Algorithm>(a); !model_of(algorithm).timed_by_rounds(pin.kind))
      library.push_back(algorithm);
  return library;
}

std::string counted(int count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// NCCL chooses by its own times of what it is left, as without pins.
double chosen_by(const nccl::Estimate& e) {
  return e.library_us > 0 ? e.library_us : e.time_us;
}

}  // namespace

AlgorithmChooser::AlgorithmChooser(const cluster::Cluster& cluster, const Prior& prior, Pins pins)
    : cluster_(cluster), prior_(prior), pins_(std::move(pins)) {
  for (const Pin& pin : pins_) check(pin);
}

std::vector<AlgorithmChooser::MaybeProtocol> AlgorithmChooser::protocols(const Pin& pin) const {
  if (!prior_.nccl) return {std::nullopt};
  if (pin.protocol) return {pin.protocol};
  return {Protocol::ll, Protocol::ll128, Protocol::simple};
}

std::string_view AlgorithmChooser::refusal(const Pin& pin, const Group& group, Algorithm algorithm) const {
  std::string_view why;
  for (const MaybeProtocol protocol : protocols(pin)) {
    why = model_of(algorithm).refusal(prior_.machine, group.place, pin.kind, protocol);
    if (why.empty()) break;
  }
  return why;
}

// What goes in rounds takes for its bytes what the rounds take one after the other, and as latency that of as many
// messages.
AlgorithmChoice AlgorithmChooser::by(CollectiveKind kind, const Group& group, Algorithm algorithm,
                                     MaybeProtocol protocol, double bytes) const {
  AlgorithmChoice choice;
  nccl::Estimate& e = choice.estimate;
  const AlgorithmModel& model = model_of(algorithm);
  if (model.timed_by_rounds(kind)) {
    choice.rounds = in_rounds(cluster_, group, model.rounds(group, kind, std::llround(bytes)));
    const auto inside = static_cast<double>(choice.rounds->inside);
    const auto between = static_cast<double>(choice.rounds->between_nodes);
    const double share = protocol ? nccl::payload_share(*protocol) : 1;
    const double move_us = choice.rounds->activity.min_duration.seconds() * 1e6 / share;
    e.latency_us = protocol ? nccl::message_latency(prior_.machine, *protocol, inside, between)
                            : inside * prior_.hop_us + between * prior_.net_hop_us;
    e.time_us = e.latency_us + move_us;
    e.gbps = choice.highest_gbps = bytes / (1000 * move_us);
  } else if (!protocol) {
    e = prior_.collective(kind, group.place, bytes);
    choice.highest_gbps = prior_.collective(kind, group.place, kVeryLargeBytes).gbps;
  } else {
    const nccl::Channels channels = nccl::ring_channels(prior_.machine, group.place);
    const auto at = [&](double size) {
      return nccl::estimate(prior_.machine, group.place, channels, kind, algorithm, *protocol, size);
    };
    e = at(bytes);
    choice.highest_gbps = at(kVeryLargeBytes).gbps;
  }
  e.algorithm = algorithm;
  if (protocol) e.protocol = *protocol;
  return choice;
}

bool AlgorithmChooser::goes_round_torus(CollectiveKind kind, const Group& group) const {
  return prior_.torus && model_of(Algorithm::torus).refusal(prior_.machine, group.place, kind, std::nullopt).empty();
}

AlgorithmChoice AlgorithmChooser::choose(CollectiveKind kind, const Group& group, double bytes) const {
  const nccl::Estimate own = prior_.collective(kind, group.place, bytes);
  std::optional<AlgorithmChoice> fastest;
  const Pin* pinned = nullptr;
  for (const Pin& pin : pins_) {
    if (pin.kind != kind) continue;
    if (pinned == nullptr) pinned = &pin;
    for (const Algorithm algorithm : algorithms_of(pin))
      for (const MaybeProtocol protocol : protocols(pin)) {
        if (!model_of(algorithm).refusal(prior_.machine, group.place, kind, protocol).empty()) continue;
        AlgorithmChoice one = by(kind, group, algorithm, protocol, bytes);
        if (!fastest || chosen_by(one.estimate) < chosen_by(fastest->estimate)) fastest = std::move(one);
      }
  }
  if (pinned == nullptr && goes_round_torus(kind, group)) return by(kind, group, Algorithm::torus, std::nullopt, bytes);
  if (pinned == nullptr)
    return {own, prior_.collective(kind, group.place, kVeryLargeBytes).gbps, true, false, std::nullopt};
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

std::string AlgorithmChooser::offered(CollectiveKind kind, const Group& group) const {
  std::string names;
  for (int a = 0; a < kAlgorithms; ++a) {
    const auto algorithm = static_cast<Algorithm>(a);
    if (!refusal(Pin{kind, algorithm, {}, ""}, group, algorithm).empty()) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(algorithm));
  }
  return names;
}

// Whether all devices, those of one node, or one of each node are offered it.
void AlgorithmChooser::check(const Pin& pin) const {
  std::vector<int> all(static_cast<std::size_t>(cluster_.devices())), firsts;
  std::iota(all.begin(), all.end(), 0);
  if (all.size() < 2) return;
  for (int node = 0; node < cluster_.nodes(); ++node) firsts.push_back(cluster_.devices_of(node).front());
  const Group whole = group_of(cluster_, all);
  std::string why;
  if (pin.protocol && !prior_.nccl) why = kNeedsNccl;
  bool goes = false;
  for (const std::vector<int>& members : {all, cluster_.devices_of(0), firsts}) {
    if (members.size() < 2 || goes || !why.empty()) continue;
    const Group group = group_of(cluster_, members);
    for (const Algorithm a : algorithms_of(pin)) goes = goes || refusal(pin, group, a).empty();
  }
  if (goes) return;
  const bool algorithm = why.empty() && pin.algorithm;
  if (algorithm) why = refusal(pin, whole, *pin.algorithm);
  if (why.empty()) why = fmt::format("is no protocol of {}", name_of(pin.kind));
  throw InputError(
      Diagnostic{"", 0, 0, pin.key + (algorithm ? ".algorithm" : ".protocol"),
                 fmt::format("{} {}", algorithm ? name_of(*pin.algorithm) : name_of(*pin.protocol), why),
                 fmt::format("{} is offered on {}: {}", name_of(pin.kind), cluster_.name(), offered(pin.kind, whole))});
}

}  // namespace rehearse::collective
