// Transfers whose start-up takes longer or shorter than it does, for what-ifs. How a plan takes its levers:
//
// - latency: all of `startup` (latencies, kernels' fixed times, the ramp of pipelining through small sizes) times the
//   factor; the algorithm stays the one chosen, as NCCL's choice rests on constants of its own.
// - bandwidth of links: not here but through the cluster's capacities (cluster/scaled.h) into the model of the
//   collective. A measured table takes the model's ratio: a time T at some size becomes T * model'(size) / model(size),
//   in which the model's bandwidth term goes with the links and its latencies stay (measurements.h).
// - memory bandwidth: on one host, transfers between ranks are copies by its cores, and go with the memory.
#pragma once

#include <memory>

#include "sim/collective/collective.h"

namespace rehearse::collective {

struct TransferScale {
  double latency = 1;  // factor of times
  double memory = 1;   // factor of the rate at which cores copy
};

std::unique_ptr<CollectiveModel> scaled(std::unique_ptr<CollectiveModel> original, const TransferScale& scale);

}  // namespace rehearse::collective
