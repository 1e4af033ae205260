// The experts that a rank's tokens choose, micro-batch by micro-batch (sim/model/recorded_choices.h): kept, and taken
// from what was kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "kernels/device.h"
#include "sim/model/recorded_choices.h"
#include "sim/plan/context_rows.h"
#include "sim/plan/rank_grid.h"
#include "sim/plan/scenario.h"
#include "sim/program/op.h"

namespace rehearse::execute {

// The positions of a rank's tokens in their sequences, as routers have them, by the number of the example since the run
// began: at each of them there is a token of every sequence of the micro-batch, one after the other, which begins with
// that example.
using PositionsOf = std::function<std::vector<plan::TokenRun>(std::int64_t example)>;
PositionsOf routed_positions(const plan::Scenario& scenario, const plan::RankGrid& grid, int rank);

class RoutingLog {
 public:
  // Null for a rank whose tokens another one of its tensor group has too, and notes.
  static std::unique_ptr<RoutingLog> of(const plan::Scenario& scenario, const plan::RankGrid& grid, int rank);

  // `chosen` of a gate in step `step` of the training, from 0; `first_sequence` of the micro-batch (kernel_call.h). A
  // gate that is computed again in backward chooses as before.
  void add(const program::Router& gate, std::int64_t step, std::int64_t first_sequence, kernels::In chosen);
  std::vector<model::RoutedChoices> all() const;

 private:
  RoutingLog(const plan::Scenario& scenario, model::RoutedChoices place, PositionsOf positions)
      : micro_batches_(scenario.training.micro_batches(scenario.plan)),
        micro_batch_(scenario.plan.micro_batch),
        global_batch_(scenario.training.global_batch),
        place_(std::move(place)),
        positions_(std::move(positions)) {}

  std::int64_t micro_batches_, micro_batch_, global_batch_;  // a replica's, and sequences of one, and of a step
  model::RoutedChoices place_;
  PositionsOf positions_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, model::RoutedChoices> tokens_;
};

// Gives a rank's gates the choices of a record (model.routing: recorded).
class RoutingReplay {
 public:
  RoutingReplay(std::shared_ptr<const model::RecordedChoices> choices, const plan::Scenario& scenario,
                const plan::RankGrid& grid, int rank)
      : choices_(std::move(choices)),
        step_(scenario.model.routing_step),
        sequences_(scenario.plan.micro_batch),
        global_batch_(scenario.training.global_batch),
        positions_(routed_positions(scenario, grid, rank)) {}

  // The gate's op: `chosen` as RoutingLog::add has it, and as weights the scores of these, scaled to add to 1. logits:
  // [tokens, experts].
  void gate(const program::Router& gate, std::int64_t step, std::int64_t first_sequence, kernels::In logits,
            float* weights, std::int32_t* chosen) const;
  // The choices alone.
  void choose(const program::Router& gate, std::int64_t step, std::int64_t first_sequence, std::int32_t* chosen) const;

 private:
  std::shared_ptr<const model::RecordedChoices> choices_;
  std::int64_t step_;  // of the record, for every step; 0: each its own
  std::int64_t sequences_, global_batch_;
  PositionsOf positions_;
};

// What a run of steps [first, end) takes its choices from: null where the scenario's record, if it has one, has none.
// Throws InputError: the record is of another model or batch, or lacks a step.
std::shared_ptr<const model::RecordedChoices> recorded_choices(const plan::Scenario& scenario, std::int64_t first,
                                                               std::int64_t end);

}  // namespace rehearse::execute
