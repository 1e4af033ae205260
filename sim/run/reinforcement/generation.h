// The phase of reinforcement learning in which responses are generated: replicas of the model, each over
// reinforcement.generation.tensor devices of one node or more, under profile `rehearse` with a decode step launched as
// one graph (not that of experts without a capacity), in 16 bits where training is in fewer. Prefill and decode steps
// are Programs of forwards (forward_pass.h), the latter at numbers of sequences that are powers of two and two lengths
// of what is cached, with a sliding window between them at what fills it, too; between these rollout.h interpolates.
//
// On a host whose ranks share its cores it is what execute/reinforcement/generation.h performs: all replicas' steps at
// the same time, each a Program of as many sequences as there are at most, whether or not all have begun and none has
// ended; and the thread that asks for a step wakes those that perform it and is woken when they have.
//
// Cache: 2 x layers x kv_heads x head_dim x bytes an element, of each token; a rank of a tensor group has its heads'
// part, at least one head's (Shazeer 2019, arXiv 1911.02150, on heads in common). It has what
// reinforcement.generation.memory leaves beside weights, activations and what the framework holds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/run/reinforcement/rollout.h"
#include "sim/run/run.h"

namespace rehearse::run {

struct GenerationRun {
  std::vector<ReplicaRun> replicas;
  std::int64_t weight_bytes = 0, other_bytes = 0;  // of a device: beside the cache
  std::int64_t cache_bytes = 0, bytes_per_token = 0;
  double low = 1, high = 1;
  std::array<double, 4> coverage{};

  const ReplicaRun& slowest() const;
  double mean_seconds() const;
};

// Of a device.
std::int64_t cache_bytes_per_token(const model::Model& model, std::int64_t tensor, std::int64_t element_bytes);

// `responses`: their lengths; equal runs of them go to the replicas. Throws InputError where a device has no room for
// the longest sequence, and as simulate_scenario does.
GenerationRun simulate_generation(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                  const std::vector<std::int64_t>& responses, const Options& options);

}  // namespace rehearse::run
