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

void check_varying_loads(const Node& model, const Scenario& s) {
  const bool table = s.model.routing == model::Routing::table, recorded = s.model.recorded_routing != nullptr;
  const bool told =
      recorded || (table ? s.model.routing_table_batches > 1 : s.model.routing_per == model::RoutingPer::micro_batch);
  if (s.model.family != model::Family::moe || !told) return;
  const Node key = model.get(recorded ? "routing_file" : table ? "routing_table" : "routing_per");
  if (!recorded && !table && s.model.routing != model::Routing::zipf)
    return key.error("micro_batch: only loads that are drawn differ between micro-batches", "routing: zipf");
  if (s.purpose == Purpose::perform || !ExpertLoads(s).vary()) return;
  const std::string same = recorded ? "another routing" : table ? "one row of shares a layer" : "routing_per: layer";
  if (s.plan.overlap_expert_exchange)
    key.error(
        "loads that differ between micro-batches have a body for each, and plan.overlap_expert_exchange makes "
        "one body of two micro-batches",
        same + ", or plan.overlap_expert_exchange: false");
  if (s.training.narrow())
    key.error(
        "loads that differ between micro-batches have buffers of the largest, and 8-bit and 4-bit copies have "
        "those of their own rows",
        same + ", or training.precision: bf16");
}

// all_gather as Megatron-Core has it (core/transformer/transformer_config.py): a capacity, and shared experts or
// another micro-batch beside the exchange, go with all-to-all alone.
void check_expert_dispatch(const Node& own, const Scenario& scenario) {
  const Plan& plan = scenario.plan;
  const model::Model& m = scenario.model;
  if (plan.expert_dispatch == ExpertDispatch::all_to_all) return;
  if (plan.expert == 1) own.error("experts are not spread over ranks", "plan.expert above 1");
  if (plan.expert_dispatch == ExpertDispatch::forwarding) {
    if (scenario.purpose == Purpose::perform)
      own.error("forwarding is simulated, but not performed", "expert_dispatch: all_to_all");
    return;
  }
  if (m.capacity_factor > 0)
    own.error(fmt::format("capacity_factor = {:g}: rows that are gathered are taken by experts as they come",
                          m.capacity_factor),
              "model.capacity_factor: 0, or expert_dispatch: all_to_all");
  if (plan.overlap_shared_experts)
    own.error("overlap_shared_experts fills the time of all-to-alls", "expert_dispatch: all_to_all");
  if (plan.overlap_expert_exchange)
    own.error("overlap_expert_exchange fills the time of all-to-alls", "expert_dispatch: all_to_all");
}

// As Megatron-Core has it (core/transformer/transformer_config.py).
void check_overlapped_shared_experts(const Node& own, const Scenario& s) {
  if (!s.plan.overlap_shared_experts) return;
  if (s.model.shared_experts == 0) own.error("the model has no shared experts (model.shared_experts)", "false");
  if (s.plan.expert == 1) own.error("experts are not spread over ranks", "plan.expert above 1");
  if (s.plan.overlap_expert_exchange)
    own.error("overlap_expert_exchange fills the exchanges with another micro-batch", "one of the two");
}

}  // namespace rehearse::plan::detail
