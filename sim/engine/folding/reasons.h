// What folding makes of a simulation: the classes of ranks, and of those that do the same work and are not one class,
// what tells them apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/engine.h"

namespace rehearse::engine {

struct RankClass {
  int job = 0;             // 0: the one reported
  std::string role;        // of its program
  std::vector<int> ranks;  // the first stands for all
  std::string why;         // it is not one with the first class of its role; "": it is that
};

struct FoldReport {
  std::string nothing;                         // why nothing is folded; "": what is alike is
  std::vector<RankClass> classes;              // by job, role and first rank; none if nothing is folded
  std::int64_t ranks = 0;                      // of all jobs
  std::int64_t groups = 0, group_classes = 0;  // process groups and channels
  std::int64_t resources = 0, resource_classes = 0;
};

// Of what simulate() of engine.h would simulate.
FoldReport report_folding(const Job& reported, const cluster::Cluster& cluster, const Options& options,
                          const std::vector<Job>& beside);

}  // namespace rehearse::engine
