// Which algorithm and protocol a collective goes by in a group, and its time before measurements correct it: what the
// library chooses itself (prior.h, nccl_tuning.h), or what is pinned (pins.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/pins.h"
#include "sim/collective/prior.h"
#include "sim/collective/rounds.h"

namespace rehearse::collective {

// Bandwidth is taken to be at its highest where a collective is as large as this.
inline constexpr double kVeryLargeBytes = 4294967296.0;

struct AlgorithmChoice {
  nccl::Estimate estimate;
  double highest_gbps = 0;         // bytes of the collective a second at very large sizes
  bool own = true;                 // what the library chooses itself at this size
  bool pinned = false;             // a pin speaks of the collective
  std::optional<InRounds> rounds;  // of one that goes in rounds
};

class AlgorithmChooser {
 public:
  // The cluster must outlive it. Throws InputError for pins that nothing in the cluster offers.
  AlgorithmChooser(const cluster::Cluster& cluster, const Prior& prior, Pins pins);
  // Throws InputError if the group is offered nothing of what is pinned.
  AlgorithmChoice choose(program::CollectiveKind kind, const Group& group, double bytes) const;

 private:
  // Without a protocol where the library is not known to be NCCL.
  using MaybeProtocol = std::optional<Protocol>;
  // Of a pin, whichever protocol it leaves open: why not the last of them, "" if one is offered.
  std::string_view refusal(const Pin& pin, const Group& group, Algorithm algorithm) const;
  AlgorithmChoice by(program::CollectiveKind kind, const Group& group, Algorithm algorithm, MaybeProtocol protocol,
                     double bytes) const;
  std::vector<MaybeProtocol> protocols(const Pin& pin) const;
  bool goes_round_torus(program::CollectiveKind kind, const Group& group) const;
  std::string offered(program::CollectiveKind kind, const Group& group) const;
  void check(const Pin& pin) const;

  const cluster::Cluster& cluster_;
  Prior prior_;
  Pins pins_;
};

}  // namespace rehearse::collective
