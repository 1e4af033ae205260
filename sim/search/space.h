// The plans that a search chooses among: every combination of some keys' values, each plan once. Values that would say
// the same plan twice are left out (a schedule where there is one stage, ZeRO where nothing is replicated, sequence
// parallelism without a tensor group, ...), and so are those that no rule of a scenario could allow (sizes that do not
// divide the GPUs, more stages than layers). What else a scenario forbids comes to light when a plan is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"

namespace rehearse::search {

struct SpaceKey {
  std::string key;                  // "plan.tensor"
  std::vector<std::string> values;  // as --set takes them
};

// By key the number of its value.
using Choice = std::vector<std::uint16_t>;

struct Space {
  std::vector<SpaceKey> keys;

  // "plan.tensor=8", one a key.
  std::vector<std::string> assignments(const Choice& choice) const;
  const SpaceKey* find(const std::string& key) const;
};

// What is free by default, with values from the scenario's model, batch and cluster:
//   plan.tensor, pipeline, context   divisors of the GPUs: tensor of the heads, at most 64; stages at most the layers;
//                                    context of sequences of which 1,024 tokens a rank are left
//   plan.expert                      of models with experts: divisors of their number
//   plan.chunks, schedule            chunks that divide the layers, at most 16; the schedules that the framework has
//   plan.micro_batch                 powers of two that divide the batch of a replica, at most 64
//   plan.zero                        0 to 3
//   plan.recompute                   none, full; selective where attention keeps its scores
//   plan.sequence_parallel           off, on
//   plan.rank_order                  where devices or ranks are unlike: stages outermost, or replicas
//   plan.layers_per_stage            there: auto, by_time
//   plan.offload_optimizer           off, on; where all GPUs together have less than twice what parameters, gradients
//                                    and optimizer states need
// `fixed` keys (assigned by the user) have their one value; `ranges` those that are listed, also of other keys.
// `memory`: of a device. Throws InputError for ranges that cannot be read.
Space space_of(const plan::Scenario& scenario, const std::vector<std::string>& fixed,
               const std::vector<SpaceKey>& ranges, Bytes memory);

// Every choice once, in the order of the keys' values, the last key's fastest.
std::vector<Choice> choices(const Space& space, const plan::Scenario& scenario);

// Whether plans with the same layers may differ in this key: of stages, schedule, sharding and replicas.
bool is_separate_from_layers(const std::string& key);

// Whether `other` has to change along with `key` for there to be a plan.
bool follows(const std::string& key, const std::string& other);

}  // namespace rehearse::search
