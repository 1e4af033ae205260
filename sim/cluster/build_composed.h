// From what a composed topology file says to a cluster of so many ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sim/cluster/faults.h"
#include "sim/cluster/read_composed.h"

namespace rehearse::cluster {

// The first device of each node there can be, and last how many there are.
std::vector<int> first_devices(const ComposedFile& file);

// `conditions` as read for this file. Throws InputError where a fault names no link or cuts nodes off.
std::unique_ptr<Cluster> build_composed(ComposedFile file, const Conditions& conditions, std::string name,
                                        std::string device, int ranks);

}  // namespace rehearse::cluster
