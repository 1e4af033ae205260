// How often a rank's tokens chose each expert, micro-batch by micro-batch (sim/model/recorded_routing.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "kernels/device.h"
#include "sim/model/recorded_routing.h"
#include "sim/plan/rank_grid.h"
#include "sim/plan/scenario.h"
#include "sim/program/op.h"

namespace rehearse::execute {

class RoutingLog {
 public:
  // Null for a rank whose tokens another one of its tensor group has too, and notes.
  static std::unique_ptr<RoutingLog> of(const plan::Scenario& scenario, const plan::RankGrid& grid, int rank);

  // `chosen` of a gate in step `step` of the training, from 0; `first_sequence` of the micro-batch (kernel_call.h). A
  // gate that is computed again in backward chooses as before.
  void add(const program::Router& gate, std::int64_t step, std::int64_t first_sequence, kernels::In chosen);
  std::vector<model::RoutedTokens> all() const;

 private:
  RoutingLog(std::int64_t micro_batches, std::int64_t micro_batch, model::RoutedTokens place)
      : micro_batches_(micro_batches), micro_batch_(micro_batch), place_(std::move(place)) {}

  std::int64_t micro_batches_, micro_batch_;  // a replica's, and sequences of one
  model::RoutedTokens place_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::vector<std::int64_t>> rows_;
};

}  // namespace rehearse::execute
