// What folding looks at: the ranks and process groups of a simulation, the activities of the groups' plans and the
// resources of the cluster, with the facts of each as its first colour, and who is whose neighbour.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/engine/engine.h"
#include "sim/engine/ids.h"
#include "sim/engine/job_code.h"
#include "sim/engine/noise.h"

namespace rehearse::engine {

using Colours = std::vector<std::int32_t>;

// Of ranks and groups of all jobs, one after the other, the activities of the groups' plans, and the cluster's
// resources.
struct FoldColours {
  Colours ranks, groups, activities, resources;
};

// What is refined; colours are by facts at first.
struct FoldGraph : FoldColours {
  std::vector<std::size_t> first_group;     // by rank, in rank_groups; one more at the end, as in the others
  std::vector<std::int32_t> rank_groups;    // of each of the rank's sequences with calls
  std::vector<std::size_t> first_member;    // by group, in members
  std::vector<std::int32_t> members;        // ranks; of a channel sender and receiver
  std::vector<char> channel;                // by group
  std::vector<std::size_t> first_activity;  // by group
  std::vector<std::size_t> first_use;       // by activity, in uses
  std::vector<collective::Use> uses;
  struct Plan {
    std::int32_t group, size;
    std::size_t first_activity;
    std::int32_t activities;  // without messages of steps
  };
  std::vector<Plan> plans;
};

FoldGraph fold_graph(const IdVector<JobId, JobCode>& codes, const cluster::Cluster& cluster, const Options& options,
                     const LinkFaults& faults);

}  // namespace rehearse::engine
