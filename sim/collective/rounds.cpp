// The rounds of each algorithm, and their sum; see rounds.h.
#include "sim/collective/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/check.h"

namespace rehearse::collective {
namespace {

using cluster::Cluster;
using nccl::Algorithm;
using program::CollectiveKind;
using Rounds = std::vector<Round>;

std::int64_t part(std::int64_t bytes, std::int64_t parts) {
  return std::max<std::int64_t>(1, (bytes + parts - 1) / parts);
}

// Each member sends to each other one at once; an all-reduce does so for the sums, and again for the results.
Rounds direct(std::size_t n, CollectiveKind kind, std::int64_t bytes) {
  Round round;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t d = 1; d < n; ++d)
      round.messages.push_back({i, (i + d) % n, part(bytes, static_cast<std::int64_t>(n))});
  round.repeat = kind == CollectiveKind::all_reduce ? 2 : 1;
  return {round};
}

// Bruck's all-gather: round k doubles what each has; a reduce-scatter is its reverse.
Rounds bruck(std::size_t n, CollectiveKind kind, std::int64_t bytes) {
  const bool reduces = kind == CollectiveKind::reduce_scatter;
  Rounds rounds;
  for (std::size_t d = 1; d < n; d *= 2) {
    Round round;
    const auto blocks = static_cast<std::int64_t>(std::min(d, n - d));
    for (std::size_t i = 0; i < n; ++i)
      round.messages.push_back(
          {i, (i + (reduces ? n - d : d)) % n, blocks * part(bytes, static_cast<std::int64_t>(n))});
    rounds.push_back(std::move(round));
  }
  if (reduces) std::reverse(rounds.begin(), rounds.end());
  return rounds;
}

std::size_t power_within(std::size_t n) {
  std::size_t power = 1;
  while (power * 2 <= n) power *= 2;
  return power;
}

Rounds halving_doubling(std::size_t n, CollectiveKind kind, std::int64_t bytes) {
  const std::size_t power = power_within(n);
  Rounds rounds;
  const auto extras = [&](bool in) {
    Round round;
    for (std::size_t i = power; i < n; ++i)
      round.messages.push_back(in ? Round::Message{i, i - power, bytes} : Round::Message{i - power, i, bytes});
    if (power < n) rounds.push_back(std::move(round));
  };
  const auto exchange = [&](std::size_t distance) {
    Round round;
    for (std::size_t i = 0; i < power; ++i)
      round.messages.push_back({i, i ^ distance, part(bytes, static_cast<std::int64_t>(power / distance))});
    rounds.push_back(std::move(round));
  };
  if (kind != CollectiveKind::all_gather) {
    extras(true);
    for (std::size_t d = power / 2; d > 0; d /= 2) exchange(d);
  }
  if (kind != CollectiveKind::reduce_scatter) {
    for (std::size_t d = 1; d < power; d *= 2) exchange(d);
    extras(false);
  }
  return rounds;
}

Rounds hierarchical(const Group& group, std::int64_t bytes) {
  const std::size_t nodes = group.begins.size() - 1, local = group.begins[1];
  const auto g = static_cast<std::int64_t>(local), m = static_cast<std::int64_t>(nodes);
  Round inside{{}, g - 1}, across{{}, 2 * (m - 1)};
  for (std::size_t k = 0; k < nodes; ++k)
    for (std::size_t i = 0; i < local; ++i) {
      inside.messages.push_back({k * local + i, k * local + (i + 1) % local, part(bytes, g)});
      across.messages.push_back({k * local + i, (k + 1) % nodes * local + i, part(bytes, g * m)});
    }
  Rounds rounds{inside, std::move(across), inside};
  std::erase_if(rounds, [](const Round& r) { return r.repeat == 0; });
  return rounds;
}

}  // namespace

std::string rounds_refusal(const Group& group, CollectiveKind kind, Algorithm algorithm) {
  const bool gathers = kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter;
  const bool reduces = kind == CollectiveKind::all_reduce;
  switch (algorithm) {
    case Algorithm::direct:
      if (!has_root(kind)) return "";
      return kind == CollectiveKind::broadcast ? "does not do broadcast" : "does not do reduce";
    case Algorithm::halving_doubling:
      if (!gathers && !reduces) return "does all_reduce, all_gather and reduce_scatter only";
      return group.members.size() == power_within(group.members.size()) ? "" : "needs a power of two of ranks";
    case Algorithm::hierarchical:
      if (!reduces) return "does all_reduce only";
      return group.uniform ? "" : "needs as many ranks on each node";
    default:
      return fmt::format("{} does not go in rounds", nccl::name_of(algorithm));
  }
}

Rounds rounds_of(const Group& group, CollectiveKind kind, Algorithm algorithm, std::int64_t bytes) {
  const std::size_t n = group.members.size();
  switch (algorithm) {
    case Algorithm::direct:
      return direct(n, kind, bytes);
    case Algorithm::pat:
      return bruck(n, kind, bytes);
    case Algorithm::halving_doubling:
      return halving_doubling(n, kind, bytes);
    default:
      REHEARSE_CHECK(algorithm == Algorithm::hierarchical && group.uniform,
                     "a hierarchical all-reduce over nodes with different numbers of members");
      return hierarchical(group, bytes);
  }
}

InRounds in_rounds(const Cluster& cluster, const Group& group, const Rounds& rounds) {
  std::map<cluster::ResourceId, std::int64_t> total;
  InRounds sum;
  for (const Round& round : rounds) {
    std::map<cluster::ResourceId, std::int64_t> load;
    bool crosses = false;
    for (const Round::Message& m : round.messages) {
      const cluster::Route route = cluster.route(group.members[m.from], group.members[m.to]);
      crosses = crosses || route.crosses_nodes;
      for (std::size_t i = 0; i < route.resources.size(); ++i) load[route.resources[i]] += route.carried(i, m.bytes);
    }
    Time slowest = Time::from_ps(1);
    for (const auto& [resource, bytes] : load) {
      const Bandwidth capacity = cluster.resources()[static_cast<std::size_t>(resource)].capacity;
      slowest = std::max(slowest, transfer_time(Bytes(bytes), capacity));
      total[resource] += bytes * round.repeat;
    }
    sum.activity.min_duration += slowest * round.repeat;
    (crosses ? sum.between_nodes : sum.inside) += round.repeat;
  }
  for (const auto& [resource, bytes] : total) sum.activity.uses.push_back({resource, bytes});
  return sum;
}

}  // namespace rehearse::collective
