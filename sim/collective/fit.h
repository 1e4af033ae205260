// Constants of a system's collectives from measured times of some sizes, to predict the others.
//
//   T = floor + copy * B / n + latency[a, p] * hops(a, p) + B * wire / bandwidth[a, p]
//
// B is the full size on n ranks, wire the bytes on an edge a byte of B (wire.h), hops the serial steps of algorithm a
// in units of one inside a node (a step between nodes counts as many as NCCL's own constants of the protocol say). Each
// system has one floor (launch and first synchronisation) and one copy (its own share, which every rank moves through
// its memory), each algorithm and protocol of it one latency and one bandwidth: nothing belongs to a size or to a
// number of ranks. An algorithm here is a collective's: ring all-gather and ring all-reduce run different kernels.
// Which protocol runs at a size is the fastest by the fitted constants, as NCCL chooses by its own.
//
// Fitted by non-negative least squares of relative errors, in turn with the assignment of sizes to protocols, from
// NCCL's thresholds on until nothing moves; the round with the smallest error counts. Deterministic.
// Left out: what changes within a protocol (fewer channels for small sizes), and everything between ranks of other
// jobs.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/collective/nccl_tuning.h"

namespace rehearse::collective {

struct Observation {
  program::CollectiveKind kind{};
  nccl::Placement place;
  double bytes = 0, time_us = 0;
};

class FittedSystem {
 public:
  struct Prediction {
    double time_us = 0, low = 0, high = 0;  // low to high: 10th to 90th percentile of the fitted sizes' own errors
    nccl::Algorithm algorithm{};
    nccl::Protocol protocol{};
  };
  struct Constants {
    double latency_us = 0, us_per_byte = 0;
  };
  using Choice = std::tuple<nccl::Algorithm, program::CollectiveKind, nccl::Protocol>;

  // `in_switch`: the node's switch can add up (NVLS). At least one observation.
  FittedSystem(const std::vector<Observation>& observations, bool in_switch);
  // A collective that was not among the observations cannot be asked for.
  Prediction predict(program::CollectiveKind kind, const nccl::Placement& place, double bytes) const;
  bool knows(program::CollectiveKind kind, const nccl::Placement& place) const;

  double floor_us() const { return floor_us_; }
  double copy_us_per_byte() const { return copy_; }
  const std::map<Choice, Constants>& constants() const { return constants_; }

 private:
  std::vector<Choice> offered(program::CollectiveKind kind, const nccl::Placement& place) const;
  double time(const Choice& choice, const nccl::Placement& place, double bytes) const;
  std::pair<Choice, double> fastest(program::CollectiveKind kind, const nccl::Placement& place, double bytes) const;
  void solve(const std::vector<Observation>& observations, const std::vector<Choice>& assigned);

  bool in_switch_;
  double floor_us_ = 0, copy_ = 0, low_ = 1, high_ = 1;
  std::map<Choice, Constants> constants_;
};

}  // namespace rehearse::collective
