// How training examples come to the ranks in a simulation (section `data`): what each rank's loader takes for a
// micro-batch, and so what a step takes at least.
//
// A replica has one loader, which reads for all ranks that train on the same samples. A worker reads its micro-batch,
// which takes read = micro_batch x sample_bytes / storage_bandwidth with the storage to itself, then decodes it, decode
// = micro_batch x sample_time. So `workers` give a micro-batch each (read + decode) / workers, and `readers` replicas
// that share a storage one each in readers x read: the longer of the two is between micro-batches. Both are reached
// with constant times: workers fall into a rhythm in which reads do not meet, or the storage is always busy. Without
// workers the replicas' processes, which the step keeps together, read at once: readers x read + decode.
//
// Leaves out: caches, latency and requests of the storage, the network on the way to it, workers that have fewer cores
// than they are, and that times differ from sample to sample.
#pragma once

#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/engine/engine.h"
#include "sim/plan/scenario.h"
#include "sim/result/result.h"

namespace rehearse::run {

struct InputPipeline {
  std::vector<engine::Loader> loaders;  // by rank; empty: loading takes no time
  result::Input facts;                  // of the slowest rank's
};

// Throws InputError where it cannot be simulated: times that are beyond any run.
InputPipeline input_pipeline(const plan::Scenario& scenario, const cluster::Cluster& cluster);

}  // namespace rehearse::run
