// The ways a collective can go in a group, algorithm by algorithm and protocol by protocol, before measurements correct
// them: the library's own (prior.h, nccl_tuning.h) and those that go in rounds (rounds.h), whose bytes take what their
// rounds take one after the other and whose latency is that of as many messages. Of them what the library chooses
// itself, or what is pinned (pins.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/pins.h"
#include "sim/collective/prior.h"
#include "sim/collective/rounds.h"

namespace rehearse::collective {

struct Way {
  nccl::Estimate estimate;
  double highest_gbps = 0;         // bytes of the collective a second at very large sizes
  bool own = true;                 // what the library chooses itself at this size
  bool pinned = false;             // a pin speaks of the collective
  std::optional<InRounds> rounds;  // of one that goes in rounds
};

class Ways {
 public:
  // The cluster must outlive it. Throws InputError for pins that nothing in the cluster offers.
  Ways(const cluster::Cluster& cluster, const Prior& prior, Pins pins);
  // Throws InputError if the group is offered nothing of what is pinned.
  Way choose(program::CollectiveKind kind, const Group& group, double bytes) const;

 private:
  // Without a protocol where the collectives are no library's.
  using MaybeProtocol = std::optional<nccl::Protocol>;
  std::string refusal(program::CollectiveKind kind, const Group& group, nccl::Algorithm algorithm,
                      MaybeProtocol protocol) const;
  // Of a pin, whichever protocol it leaves open: why not the last of them, "" if one goes.
  std::string refusal(const Pin& pin, const Group& group, nccl::Algorithm algorithm) const;
  Way way(program::CollectiveKind kind, const Group& group, nccl::Algorithm algorithm, MaybeProtocol protocol,
          double bytes) const;
  std::vector<MaybeProtocol> protocols(const Pin& pin) const;
  std::string offered(program::CollectiveKind kind, const Group& group) const;
  void check(const Pin& pin) const;

  const cluster::Cluster& cluster_;
  Prior prior_;
  Pins pins_;
};

}  // namespace rehearse::collective
