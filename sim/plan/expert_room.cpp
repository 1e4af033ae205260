// See sections.h.
#include <fmt/format.h>

#include "sim/plan/expert_loads.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

void check_room_for_experts(const Node& model, const Scenario& scenario) {
  const model::Model& m = scenario.model;
  const bool counted = m.family == model::Family::moe && m.capacity_factor == 0 && scenario.plan.expert > 1;
  if (!counted || m.buffer_factor == 0 || scenario.purpose == Purpose::perform) return;
  const LoadBalance balance = ExpertLoads(scenario).balance();
  if (balance.imbalance <= m.buffer_factor) return;
  model.get("buffer_factor")
      .error(fmt::format("buffer_factor = {:g}: in layer {} the experts of one rank get {:.4g} times the even rows",
                         m.buffer_factor, balance.worst_layer, balance.imbalance),
             "a larger one, or other loads (model.routing)");
}

}  // namespace rehearse::plan::detail
