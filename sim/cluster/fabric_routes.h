// Shortest ways between the switches of a fabric, and the choice among equally short ones:
//
// fixed     what static forwarding tables do. In a torus the lowest dimension first; elsewhere by the receiving NIC:
// with k
//           links that lead on, number (t / p) mod k, where t counts NICs switch by switch and p is the product of the
//           k's so far (D-mod-K; Zahavi 2012, "Fat-tree routing and node ordering providing contention free traffic").
// ecmp      by a hash of the flow: number h mod k, h = mix(mix(mix(mix(seed, from), to), channel), hop), with the
// devices'
//           numbers, the number of switches passed, and mix_key of sim/base/random.h.
// adaptive  evenly over all of them, so that each carries a part.
//
// Distances to a switch are found, breadth first, when first asked for, and kept: two bytes a switch for each switch
// that NICs receive from. In an intact torus they follow from the coordinates.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/cluster/fabric.h"

namespace rehearse::cluster {

enum class Routing : unsigned char { fixed, ecmp, adaptive };

struct Flow {
  int from = 0, to = 0, channel = 0;
  int terminal = 0;  // of the receiving NIC: its number among all, switch by switch
};

struct FabricWay {
  std::vector<int> links;            // directed: 2 l from a to b, 2 l + 1 back
  std::vector<std::int32_t> shares;  // adaptive: of Route::kWhole; else empty
  Time latency;                      // of the links; adaptive: of the longest way
};

class FabricRoutes {
 public:
  FabricRoutes(Fabric fabric, Routing routing, std::uint64_t seed);
  const Fabric& fabric() const { return fabric_; }
  int distance(int from, int to) const;  // links; -1: no way
  FabricWay way(int from, int to, const Flow& flow) const;

 private:
  using Distances = std::vector<std::int16_t>;
  const Distances& distances_to(int to) const;
  int torus_distance(int from, int to) const;
  // Directed links out of `at` that lead on towards `to`.
  void candidates(int at, int to, std::vector<int>& out) const;
  FabricWay one_way(int from, int to, const Flow& flow) const;
  FabricWay spread(int from, int to) const;

  Fabric fabric_;
  Routing routing_;
  std::uint64_t seed_;
  std::vector<int> first_, out_;  // of switch s: directed links out_[first_[s]] .. out_[first_[s + 1] - 1]
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Distances>> known_;
};

}  // namespace rehearse::cluster
