// plan.layers_per_stage: by_time. Of all ways to give stages (and chunks) layers, at least one each (where ranks share
// Muon's matrices as many as these need, sim/plan/muon_shards.h), in the model's order, one whose slowest stage takes
// least. A stage takes for a micro-batch what its layers' forward, recomputation and backward take on its own ranks'
// devices, the first also the embedding, the last also the head: the kernels on the compute stream, and what these wait
// for collectives of tensor, context and expert groups, in each body by itself. Left out: messages between stages, and
// what moves beside kernels slows them. Of layers of which only some are recomputed, those are taken to be recomputed
// that are in the even split.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"

namespace rehearse::run {

struct Machine;

// On a stage's devices, picoseconds: each layer of the model, what lies before the first and behind the last.
struct LayerTimes {
  std::vector<std::int64_t> layers;
  std::int64_t first = 0, last = 0;
};

// Layers of each part of the model, `stage_of` saying on which stage it is; `of_stage` of each stage. The slowest stage
// is as fast as can be: always where a stage has one part, and with several where all layers take a stage alike; else
// no layer could move to another part and make it faster. Of equally good ones the stages, then the parts, are most
// even. Each part has at least `least` layers, of which there must be enough; the last one, if that is said,
// `least_of_last`.
std::vector<std::int64_t> layers_by_time(const std::vector<LayerTimes>& of_stage, const std::vector<int>& stage_of,
                                         std::int64_t least = 1, std::int64_t least_of_last = -1);
// What each stage takes then.
std::vector<std::int64_t> stage_times(const std::vector<LayerTimes>& of_stage, const std::vector<int>& stage_of,
                                      const std::vector<std::int64_t>& layers);

struct ChosenLayers {
  plan::Scenario scenario;  // with them
  std::string text;         // what was chosen, and what the stages take, in a sentence
};
// Nothing if the scenario leaves nothing to choose. Throws InputError where a kernel cannot be costed.
std::optional<ChosenLayers> choose_layers(const plan::Scenario& scenario, const Machine& machine);

}  // namespace rehearse::run
