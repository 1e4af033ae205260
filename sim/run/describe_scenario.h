// The resolved scenario as text for results and reports: what was asked, with every default filled in.
#pragma once

#include "sim/cluster/cluster.h"
#include "sim/cost/cost.h"
#include "sim/plan/scenario.h"
#include "sim/result/result.h"

namespace rehearse::run {

// Fills the result's scenario map, names and peak FLOP rate.
// Of a device, FLOPs a second in what the training's products are in.
double peak_of(const cost::Device& device, const plan::Training& training);

void describe_scenario(const plan::Scenario& scenario, const cluster::Cluster& cluster, const cost::Device& device,
                       result::Result& out);

}  // namespace rehearse::run
