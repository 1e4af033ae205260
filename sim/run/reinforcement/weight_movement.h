// How the weights of a model come from the ranks that train it to the replicas that generate: each device that
// generates gets the part of each layer that it needs and does not hold, from one of the ranks that hold it: of its own
// node if there is one, of these the one that has sent least so far. All move at once over the cluster's links
// (sim/engine/flows.h).
//
// Layers are alike to the byte within a stage's share, and split evenly over the tensor group, norms included; the
// embedding is with the first layer and the head with the last, and a table that is both is with the first. With ZeRO-3
// each rank of a data-parallel group holds its part of its tensor rank's part. Of routed experts that are spread over
// replicas each of these holds as many. Other spreads of experts (over context ranks, whole over tensor ranks, under
// ZeRO-3), and ZeRO-3 over context ranks, are not known here: reading the scenario refuses them.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/plan/scenario.h"

namespace rehearse::run {

struct WeightFlow {
  int from = 0, to = 0;
  std::int64_t bytes = 0;
};

// `first`: the device of the first replica's first rank; replicas lie behind one another. Weights in so many bytes an
// element. Throws InputError for more than 2^22 flows.
std::vector<WeightFlow> weight_flows(const plan::Scenario& training, const cluster::Cluster& cluster, int first,
                                     std::int64_t replicas, std::int64_t tensor, std::int64_t element_bytes);

}  // namespace rehearse::run
