// Collectives that go in rounds: in each, members exchange messages, and go on when theirs have come. Direct (each to
// each), halving-doubling (Rabenseifner 2004; ranks beyond a power of two hand theirs to a partner first), hierarchical
// (reduce-scatter in the node, ring over the nodes of each rail, all-gather in the node) and PAT as Bruck's exchange
// (Bruck et al. 1997). What crosses which resource follows from the messages; so do the steps (steps.h).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/collective/wire.h"
#include "sim/program/op.h"

namespace rehearse::collective {

struct Round {
  struct Message {
    std::size_t from = 0, to = 0;  // places in Group::members
    std::int64_t bytes = 0;
  };
  std::vector<Message> messages;
  std::int64_t repeat = 1;  // the same again and again, as round a ring
};

// Whether the collective goes in rounds by this algorithm, and why not in this group, for people; "" if it does.
std::string rounds_refusal(const Group& group, program::CollectiveKind kind, nccl::Algorithm algorithm);
std::vector<Round> rounds_of(const Group& group, program::CollectiveKind kind, nccl::Algorithm algorithm,
                             std::int64_t bytes);

// All rounds as one activity, whose min_duration is that of the rounds one after the other, each as long as its busiest
// resource; and how many of them go between nodes, and not.
struct InRounds {
  Activity activity;
  std::int64_t inside = 0, between_nodes = 0;
};
InRounds in_rounds(const cluster::Cluster& cluster, const Group& group, const std::vector<Round>& rounds);

}  // namespace rehearse::collective
