// The section `noise`: by its rows (key_table_noise.cpp), lists and mappings by hand; which ranks and links there are
// is known to the cluster's caller (sim/run).
#include <fmt/format.h>

#include "sim/plan/read_keys.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

constexpr std::size_t kMostEntries = 1000;
constexpr Time kShortestPeriod = Time::from_us(1);

// The mappings of a list; reports what is no list of 1 to kMostEntries.
std::vector<Node> entries(const Node& list, const char* what, const char* example) {
  std::vector<Node> found;
  if (!list || list.kind() == Node::Kind::null) return found;
  if (list.kind() != Node::Kind::sequence || list.size() < 1 || list.size() > kMostEntries) {
    list.error(fmt::format("expected a list of 1 to {} {}", kMostEntries, what), fmt::format("e.g. '{}'", example));
    return found;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    found.push_back(list.at(i));
    if (found.back().kind() == Node::Kind::mapping) continue;
    found.back().error("expected a mapping", fmt::format("e.g. '{}'", example));
    found.pop_back();
  }
  return found;
}

std::vector<std::int64_t> read_ranks(const Node& list) {
  std::vector<std::int64_t> ranks;
  if (!list || list.kind() == Node::Kind::null) return ranks;
  if (list.kind() != Node::Kind::sequence || list.size() < 1) {
    list.error("expected a list of ranks", "e.g. 'ranks: [3]'");
    return ranks;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto rank = list.at(i).as_integer();
    if (!rank)
      list.at(i).error("expected a rank, an integer");
    else if (*rank < 0 || *rank >= kMaxRanks)
      list.at(i).error(fmt::format("rank {} is out of range [0, {}]", *rank, kMaxRanks - 1));
    else
      ranks.push_back(*rank);
  }
  return ranks;
}

// Ends of a uniform distribution.
void read_uniform(const Node& list, RankStep& factor) {
  if (list.kind() != Node::Kind::sequence || list.size() != 2) {
    list.error("expected a list of two factors, the least and the largest", "e.g. 'uniform: [0.8, 1.2]'");
    return;
  }
  double ends[2] = {1, 1};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto value = list.at(i).as_number();
    if (!value || !(*value >= kLeastFactor && *value <= kMostSlow)) {
      list.at(i).error(fmt::format("expected a factor, a number from {} to {}", kLeastFactor, kMostSlow));
      return;
    }
    ends[i] = *value;
  }
  if (ends[0] > ends[1]) {
    list.error(fmt::format("the least factor, {}, is above the largest, {}", ends[0], ends[1]),
               fmt::format("uniform: [{}, {}]", ends[1], ends[0]));
    return;
  }
  factor = {ends[0], ends[1]};
}

RankStep read_rank_step(const Node& node) {
  RankStep factor;
  if (!node || node.kind() == Node::Kind::null) return factor;
  if (node.kind() != Node::Kind::mapping) {
    node.error("expected a mapping", "e.g. 'rank_step: {uniform: [0.8, 1.2]}'");
    return factor;
  }
  if (const Node list = node.get("uniform"))
    read_uniform(list, factor);
  else
    node.error("required key uniform is missing", "e.g. 'rank_step: {uniform: [0.8, 1.2]}'");
  node.finish();
  return factor;
}

SlowRanks read_slow_ranks(const Node& node) {
  SlowRanks slow;
  slow.ranks = read_ranks(node.get("ranks"));
  read_keys(node, "noise.slow_ranks[].", slow);
  if (!node.has("ranks") && !node.has("share"))
    node.error("names no ranks: needs ranks, share or both", "e.g. '{ranks: [3], factor: 1.2}'");
  node.finish();
  return slow;
}

LinkFault read_link_fault(const Node& node) {
  LinkFault fault;
  read_keys(node, "noise.links[].", fault);
  if (node.has("resources") && fault.resources.empty()) node.get("resources").error("expected a pattern of link names");
  if (const Node period = node.get("period"); period && period.kind() != Node::Kind::null) {
    fault.period = node.time("period", Time());
    if (fault.period > Time() && fault.period < kShortestPeriod)
      period.error(fmt::format("is out of range: a period is at least {}", format_time(kShortestPeriod)));
  }
  if (node.has("duty") && !node.has("period"))
    node.get("duty").error("is a share of period, which is not given", "period: 100ms");
  node.finish();
  return fault;
}

}  // namespace

Noise read_noise(const Node& node) {
  Noise noise;
  read_keys(node, "noise.", noise);
  noise.rank_step = read_rank_step(node.get("rank_step"));
  for (const Node& entry : entries(node.get("slow_ranks"), "slow ranks", "slow_ranks: [{ranks: [3], factor: 1.2}]"))
    noise.slow_ranks.push_back(read_slow_ranks(entry));
  for (const Node& entry :
       entries(node.get("links"), "link faults", "links: [{resources: 'node0/nic*', capacity: 0.5}]"))
    noise.links.push_back(read_link_fault(entry));
  node.finish();
  return noise;
}

void check_noise(const Node& node, Scenario& scenario) {
  const Node list = node.get("slow_ranks");
  for (std::size_t i = 0; i < list.size() && list.kind() == Node::Kind::sequence; ++i) {
    const Node ranks = list.at(i).get("ranks");
    for (std::size_t k = 0; k < ranks.size() && ranks.kind() == Node::Kind::sequence; ++k)
      if (const auto rank = ranks.at(k).as_integer(); rank && *rank >= scenario.cluster.gpus && *rank < kMaxRanks)
        ranks.at(k).error(fmt::format("there is no rank {}: cluster.gpus = {}, ranks are 0 to {}", *rank,
                                      scenario.cluster.gpus, scenario.cluster.gpus - 1));
  }
}

}  // namespace rehearse::plan::detail
