// A scenario simulated with made-up kernel times, so that a closed form says what must come out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/cluster/topology.h"
#include "sim/collective/collective.h"
#include "sim/cost/cost.h"
#include "sim/engine/engine.h"
#include "tests/support/lowered.h"

namespace rehearse {

// Each kernel takes what `time_of` says, whatever runs beside it.
class GivenCosts : public cost::CostModel {
 public:
  explicit GivenCosts(std::function<Time(const program::Op&)> time_of) : time_of_(std::move(time_of)) {}
  const cost::Device& device() const override { return device_; }
  cost::Estimate kernel(const program::Role&, const program::Op& op, const cost::Interference&) const override {
    return {time_of_(op), cost::Coverage::exact, 1, 1};
  }

 private:
  std::function<Time(const program::Op&)> time_of_;
  cost::Device device_;
};

inline bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Forward of a block takes `forward`, its backward `backward`, and nothing else any time.
inline GivenCosts block_costs(Time forward, Time backward) {
  return GivenCosts([=](const program::Op& op) {
    if (op.phase == program::Phase::forward && ends_with(op.name, "mlp.up.forward")) return forward;
    if (ends_with(op.name, "mlp.up.backward_weight")) return backward;
    return Time();
  });
}

struct Machine {
  std::string topology = "dgx-a100";
  cluster::Overrides overrides;
};

enum class Communication { free, plain };

inline engine::Outcome simulated(const plan::Scenario& scenario, const cost::CostModel& costs, Communication kind,
                                 const Machine& machine = {}, int steps = 1, Time launch_cost = {}) {
  const plan::RankGrid grid = scenario.grid();
  const auto cluster =
      cluster::build_cluster(machine.topology, grid.ranks(), machine.overrides, 0, REHEARSE_SOURCE_DIR);
  const auto collectives =
      kind == Communication::free ? collective::make_free_model() : collective::make_plain_model(*cluster, Time());
  engine::Options options;
  options.steps = steps;
  options.launch_cost = launch_cost;
  return engine::simulate(lower::lower(scenario), grid, *cluster, *collectives, costs, options);
}

inline double share(const engine::Outcome& outcome, result::Share share) {
  return static_cast<double>(outcome.breakdown_ps[static_cast<std::size_t>(share)]) /
         static_cast<double>(outcome.step_time.ps());
}

}  // namespace rehearse
