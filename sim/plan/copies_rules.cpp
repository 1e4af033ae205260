// See sections.h.
#include <fmt/format.h>

#include "sim/plan/schedule/schedule.h"
#include "sim/plan/sections.h"
#include "sim/plan/table_shards.h"

namespace rehearse::plan::detail {

// Stages have two copies of the parameters, whose gradients are summed as they are before the optimizer; each copy
// reads every other micro-batch.
void check_copies(const Sections& sections, const Scenario& s) {
  const Plan& plan = s.plan;
  const PipelineSchedule& own = schedule_of(plan.schedule, plan.pipeline);
  if (!own.bidirectional()) return;
  const auto refuse = [&](const Node& given, const std::string& why, const std::string& instead) {
    given.error(fmt::format("schedule {} {}", own.name(), why), instead);
  };
  if (plan.compresses_gradients())
    refuse(sections.plan.get("gradient_compression"), "sums the gradients of its two copies as they are",
           "gradient_compression: none");
  if (plan.offload_optimizer)
    refuse(sections.plan.get("offload_optimizer"),
           "sums the gradients of its two copies on the devices, before the optimizer", "offload_optimizer: false");
  if (plan.steps_apart())
    refuse(sections.plan.get("local_steps"),
           fmt::format("sums the gradients of its two copies every step, but local_steps = {}", plan.local_steps),
           "local_steps: 1");
  if (plan.served())
    refuse(sections.plan.get("servers"), "sums the gradients of its two copies by itself", "servers: 0");
  if (plan.layers_by_time)
    refuse(sections.plan.get("layers_per_stage"), "has two parts of the model on every stage, which by_time is not for",
           "auto, or a list");
  if (s.data.takes_time())
    refuse(sections.root.get("data"), "reads every other micro-batch at either end, which loaders do not give",
           "leave section data out");
  if (s.training.eight_bits() && s.training.fp8_recipe == Fp8Recipe::delayed)
    refuse(sections.training.get("fp8_recipe"),
           "has two copies of a weight, whose largest values so far (delayed scaling) differ",
           "fp8_recipe: tensorwise, blockwise, mxfp8 or rowwise");
  if (shards_tables(s))
    refuse(sections.plan.get("schedule"), "has all parameters on two stages, which tables of sparse features are not",
           "schedule: 1f1b");
}

}  // namespace rehearse::plan::detail
