// Constants of a system's collectives from measured times of some sizes, to predict the others.
//
//   T = copy * B / n + latency[a, p] * L(a, p) + M(a, p, B) / bandwidth[a, p]
//
// B is the full size on n ranks; L and M are the latency and the time the bytes take in NCCL's own model of the machine
// (nccl_tuning.h), which knows how many steps a collective has, what crosses an edge, and where a protocol's bandwidth
// ends. A system has one latency and one bandwidth for each algorithm and protocol, as factors of NCCL's, the same for
// every collective, size and number of ranks; and, where several numbers of ranks were measured to tell it from the
// bandwidth, one copy: a rank's own share, which it moves through its memory.
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
  // What NCCL's latency and the time it gives the bytes are multiplied by.
  struct Constants {
    double latency = 1, per_byte = 1;
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
