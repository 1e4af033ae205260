// Collectives in rounds: in each, members exchange messages, and go on when theirs have come. Which messages is the
// algorithm's to say (algorithms/); what crosses which resource follows from them, and so do the steps (steps.h).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/collective/wire.h"

namespace rehearse::collective {

struct Round {
  struct Message {
    std::size_t from = 0, to = 0;  // places in Group::members
    std::int64_t bytes = 0;
  };
  std::vector<Message> messages;
  std::int64_t repeat = 1;  // the same again and again, as round a ring
};

// One of `parts` equal parts of the bytes, rounded up, at least 1.
std::int64_t part_of(std::int64_t bytes, std::int64_t parts);

// All rounds as one activity, whose min_duration is that of the rounds one after the other, each as long as its busiest
// resource; and how many of them go between nodes, and not.
struct InRounds {
  Activity activity;
  std::int64_t inside = 0, between_nodes = 0;
};
InRounds in_rounds(const cluster::Cluster& cluster, const Group& group, const std::vector<Round>& rounds);

}  // namespace rehearse::collective
