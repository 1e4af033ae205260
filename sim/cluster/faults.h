// What is wrong with a cluster, and who else is on it: links that are missing, slower or longer than they should be,
// flows of other jobs, and which devices the ranks run on. Read from a topology file (or the scenario's keys of the
// same names) and applied to any cluster of accelerators.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/document.h"
#include "sim/cluster/cluster.h"

namespace rehearse::cluster {

struct Fault {
  std::string pattern;  // of resource names; * and ? stand for any characters and any one
  bool missing = false;
  double share = 1;                    // of its bandwidth that is left
  std::optional<Bandwidth> bandwidth;  // or what is left
  Time latency;                        // added
  std::string file, path;              // where it was written
  int line = 0, column = 0;
  mutable bool used = false;  // matched something
};

struct BackgroundFlow {
  int from = 0, to = 0;  // devices
  Bandwidth rate;
};

struct Conditions {
  std::vector<Fault> faults;
  std::vector<int> placement;  // device of each rank; empty: rank r on device r
  int other_jobs = -1;         // the highest device of any job; -1: there is one job
  std::vector<BackgroundFlow> background;
  bool none() const { return faults.empty() && placement.empty() && background.empty() && other_jobs < 0; }
};

// Devices are numbered node by node. `first_device`: of each node, and at the end how many there can be. `job`: whose
// placement, 0 the scenario's own, of `ranks` ranks, k the k-th of `jobs`.
Conditions read_conditions(const Node& root, int ranks, const std::vector<int>& first_device, int job = 0);

bool matches(const std::string& pattern, const std::string& name);

// Changes the bandwidths of resources that faults name (not `missing`, which is the builder's).
void degrade(std::vector<Resource>& resources, const std::vector<Fault>& faults);
// Takes a flow's rate from what it crosses; a twentieth of each capacity is always left (a judgement: flows share, none
// starves).
void take(std::vector<Resource>& resources, const Route& route, Bandwidth rate);
// Reports faults that matched nothing.
void report_unused(const std::vector<Fault>& faults, Diagnostics& diagnostics);

// A cluster whose ranks run on the devices of a placement, with resources of its own; made from one of all its devices.
std::unique_ptr<Cluster> make_adjusted(std::unique_ptr<Cluster> whole, const Conditions& conditions, int ranks);

}  // namespace rehearse::cluster
