// Constants of a system's collectives from measured times of some sizes, to predict the others.
//
//   T = copy * B / n + least[a, p] + latency[a, p] * (L(a, p) - L0[a, p]) + M(a, p, B) / bandwidth[a, p]
//
// B is the full size on n ranks; L and M are the latency and the time the bytes take in NCCL's own model of the machine
// (nccl_tuning.h), which knows how many steps a collective has, what crosses an edge, and where a protocol's bandwidth
// ends; L0 is the least L among the fitted times. A system has for each algorithm and protocol a least latency, a
// factor of what NCCL's model adds to it for more hops, and a factor of NCCL's time of the bytes, the same for every
// collective, size and number of ranks. Where all fitted times have one L, the two of latency are one. And, where
// several numbers of ranks were measured to tell it from the bandwidth, one copy: a rank's own share, which it moves
// through its memory.
//
// Which algorithm and protocol runs at a size is NCCL's own choice, or the fastest by the fitted constants, whichever
// explains the fitted sizes better. The constants are non-negative least squares of relative errors; the fastest in
// turn with the assignment of sizes, from NCCL's thresholds on until nothing moves; the round with the smallest error
// counts. Deterministic.
// Left out: what changes within a protocol (fewer channels for small sizes), and everything between ranks of other
// jobs.
#pragma once

#include <map>
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
    Algorithm algorithm{};
    Protocol protocol{};
  };
  struct Constants {
    double least_us = 0;      // latency where NCCL's is reference_us
    double reference_us = 0;  // the least of NCCL's latencies among the fitted times
    double latency = 1;       // what NCCL's latency beyond that is multiplied by
    double per_byte = 1;      // what the time that NCCL gives the bytes is multiplied by
    bool hops_show = false;   // several latencies were fitted, so least_us and latency are two constants
  };
  using Choice = std::pair<Algorithm, Protocol>;

  // At least one observation.
  FittedSystem(const std::vector<Observation>& observations, const nccl::Machine& machine);
  // A collective that was not among the observations cannot be asked for.
  Prediction predict(program::CollectiveKind kind, const nccl::Placement& place, double bytes) const;
  bool knows(program::CollectiveKind kind, const nccl::Placement& place) const;

  bool as_nccl_chooses() const { return as_nccl_chooses_; }
  double copy_us_per_byte() const { return copy_; }
  const std::map<Choice, Constants>& constants() const { return constants_; }

 private:
  std::vector<Choice> offered(program::CollectiveKind kind, const nccl::Placement& place) const;
  nccl::Estimate model(const Choice& choice, program::CollectiveKind kind, const nccl::Placement& place,
                       double bytes) const;
  double time(const Choice& choice, program::CollectiveKind kind, const nccl::Placement& place, double bytes) const;
  std::pair<Choice, double> chosen(program::CollectiveKind kind, const nccl::Placement& place, double bytes) const;
  std::vector<Choice> first_guess(const std::vector<Observation>& observations) const;
  void solve(const std::vector<Observation>& observations, const std::vector<Choice>& assigned);
  double settle(const std::vector<Observation>& observations);

  nccl::Machine machine_;
  bool as_nccl_chooses_ = false;
  double copy_ = 0, low_ = 1, high_ = 1;
  std::map<Choice, Constants> constants_;
};

}  // namespace rehearse::collective
