// See fabric_routes.h.
#include "sim/cluster/fabric_routes.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/random.h"
#include "sim/cluster/cluster.h"

namespace rehearse::cluster {

FabricRoutes::FabricRoutes(Fabric fabric, Routing routing, std::uint64_t seed)
    : fabric_(std::move(fabric)), routing_(routing), seed_(seed), known_(fabric_.switches.size()) {
  REHEARSE_CHECK(fabric_.switches.size() < INT16_MAX * 64U, "{} switches", fabric_.switches.size());
  first_.assign(fabric_.switches.size() + 1, 0);
  for (const FabricLink& link : fabric_.links)
    if (!link.missing) ++first_[static_cast<std::size_t>(link.a) + 1], ++first_[static_cast<std::size_t>(link.b) + 1];
  for (std::size_t s = 1; s < first_.size(); ++s) first_[s] += first_[s - 1];
  out_.resize(static_cast<std::size_t>(first_.back()));
  std::vector<int> next = first_;
  for (std::size_t l = 0; l < fabric_.links.size(); ++l) {
    const FabricLink& link = fabric_.links[l];
    if (link.missing) continue;
    out_[static_cast<std::size_t>(next[static_cast<std::size_t>(link.a)]++)] = static_cast<int>(2 * l);
    out_[static_cast<std::size_t>(next[static_cast<std::size_t>(link.b)]++)] = static_cast<int>(2 * l + 1);
  }
}

const FabricRoutes::Distances& FabricRoutes::distances_to(int to) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Distances>& known = known_[static_cast<std::size_t>(to)];
  if (known) return *known;
  known = std::make_unique<Distances>(fabric_.switches.size(), std::int16_t{-1});
  (*known)[static_cast<std::size_t>(to)] = 0;
  std::vector<int> reached{to};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const auto s = static_cast<std::size_t>(reached[i]);
    for (int o = first_[s]; o < first_[s + 1]; ++o) {
      const int directed = out_[static_cast<std::size_t>(o)];
      const FabricLink& link = fabric_.links[static_cast<std::size_t>(directed / 2)];
      const int peer = directed % 2 == 0 ? link.b : link.a;
      if ((*known)[static_cast<std::size_t>(peer)] >= 0) continue;
      (*known)[static_cast<std::size_t>(peer)] = static_cast<std::int16_t>((*known)[s] + 1);
      reached.push_back(peer);
    }
  }
  return *known;
}

int FabricRoutes::torus_distance(int from, int to) const {
  int sum = 0;
  for (const int size : fabric_.torus) {
    const int apart = std::abs(from % size - to % size);
    sum += fabric_.wraps ? std::min(apart, size - apart) : apart;
    from /= size, to /= size;
  }
  return sum;
}

int FabricRoutes::distance(int from, int to) const {
  if (from < 0 || to < 0) return -1;
  if (from == to) return 0;
  return fabric_.torus.empty() ? distances_to(to)[static_cast<std::size_t>(from)] : torus_distance(from, to);
}

void FabricRoutes::candidates(int at, int to, std::vector<int>& out) const {
  out.clear();
  const Distances* known = fabric_.torus.empty() ? &distances_to(to) : nullptr;
  const auto far = [&](int s) {
    return known != nullptr ? (*known)[static_cast<std::size_t>(s)] : torus_distance(s, to);
  };
  const int wanted = far(at) - 1;
  for (int o = first_[static_cast<std::size_t>(at)]; o < first_[static_cast<std::size_t>(at) + 1]; ++o) {
    const int directed = out_[static_cast<std::size_t>(o)];
    const FabricLink& link = fabric_.links[static_cast<std::size_t>(directed / 2)];
    if (far(directed % 2 == 0 ? link.b : link.a) == wanted) out.push_back(directed);
  }
}

FabricWay FabricRoutes::way(int from, int to, const Flow& flow) const {
  REHEARSE_CHECK(distance(from, to) >= 0, "no way from switch {} to {}", from, to);
  return routing_ == Routing::adaptive ? spread(from, to) : one_way(from, to, flow);
}

FabricWay FabricRoutes::one_way(int from, int to, const Flow& flow) const {
  FabricWay way;
  std::vector<int> on;
  std::uint64_t hash =
      mix_key(mix_key(mix_key(seed_, static_cast<std::uint64_t>(flow.from)), static_cast<std::uint64_t>(flow.to)),
              static_cast<std::uint64_t>(flow.channel));
  std::uint64_t terminal = static_cast<std::uint64_t>(flow.terminal), hop = 0;
  for (int at = from; at != to; ++hop) {
    candidates(at, to, on);
    const auto k = static_cast<std::uint64_t>(on.size());
    std::uint64_t chosen = 0;
    if (routing_ == Routing::ecmp) {
      chosen = mix_key(hash, hop) % k;
    } else if (fabric_.torus.empty()) {
      chosen = terminal % k;
      terminal /= k;
    }
    const int directed = on[static_cast<std::size_t>(chosen)];
    const FabricLink& link = fabric_.links[static_cast<std::size_t>(directed / 2)];
    way.links.push_back(directed);
    way.latency += link.latency;
    at = directed % 2 == 0 ? link.b : link.a;
  }
  return way;
}

// Level by level of the distance that is left; each switch passes on what it has got in equal parts.
FabricWay FabricRoutes::spread(int from, int to) const {
  struct At {
    std::int64_t part = 0;
    Time latency;
  };
  FabricWay way;
  std::map<int, At> level{{from, {Route::kWhole << 20, Time()}}};
  std::vector<int> on;
  while (level.begin()->first != to) {
    std::map<int, At> next;
    for (const auto& [at, here] : level) {
      candidates(at, to, on);
      const std::int64_t each = here.part / static_cast<std::int64_t>(on.size());
      for (const int directed : on) {
        const FabricLink& link = fabric_.links[static_cast<std::size_t>(directed / 2)];
        way.links.push_back(directed);
        way.shares.push_back(static_cast<std::int32_t>((each + (1 << 20) - 1) >> 20));
        At& there = next[directed % 2 == 0 ? link.b : link.a];
        there.part += each;
        there.latency = std::max(there.latency, here.latency + link.latency);
      }
    }
    level = std::move(next);
  }
  way.latency = level.begin()->second.latency;
  return way;
}

}  // namespace rehearse::cluster
