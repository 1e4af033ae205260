// Topology files: reads topologies/NAME.yaml or a path, applies overrides, and builds the cluster for a number of
// devices.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/cluster/cluster.h"

namespace rehearse::cluster {

using Overrides = std::vector<std::pair<std::string, std::string>>;  // key path -> YAML value

// Throws InputError (unknown topology with the nearest name, bad file, more devices than it can hold). `open_cores`: of
// a host whose file leaves them open (auto); 0: those this process may use. `job`: of the jobs that the override `jobs`
// lists next to the one of `devices`, the k-th: the same machine, with its ranks; resources are the same for all.
std::unique_ptr<Cluster> build_cluster(const std::string& topology, int devices, const Overrides& overrides,
                                       int threads_per_rank, const std::string& data_root, int open_cores = 0,
                                       int job = 0);
std::vector<std::string> topology_names(const std::string& data_root);

}  // namespace rehearse::cluster
