// See sections.h.
#include <fmt/format.h>

#include "sim/plan/schedule/schedule.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

void check_offload(const Sections& sections, const Scenario& s) {
  const Plan& plan = s.plan;
  if (plan.offload_optimizer) {
    const Node key = sections.plan.get("offload_optimizer");
    if (s.framework.autocast)
      key.error(fmt::format("with framework {} forward reads the optimizer's fp32 copy of the parameters, which has to "
                            "be on the device",
                            s.framework.name),
                "leave it out, or another framework");
    if (s.training.optimizer == OptimizerKind::adafactor)
      key.error("Adafactor has no step on the host yet", "training.optimizer: adamw");
    if (s.training.optimizer == OptimizerKind::lamb)
      key.error("LAMB has no step on the host yet", "training.optimizer: adamw");
    if (s.training.optimizer == OptimizerKind::muon)
      key.error("Muon has no step on the host yet", "training.optimizer: adamw");
    if (s.training.moments == MomentsKind::int8)
      key.error("moments in 8 bits have no step on the host yet", "training.moments: fp32 or bf16");
    if (s.training.fp8_params)
      key.error("weights that are held in 8 bits alone are made of the optimizer's fp32 copy on the device",
                "training.fp8_params: false");
  }
  if (plan.offload_parameters) {
    const Node key = sections.plan.get("offload_parameters");
    if (plan.zero != 3 || plan.data * plan.context / plan.replicas == 1)
      key.error("it is of parameters that ranks gather layer by layer", "plan.zero: 3 with several ranks that shard");
    if (!plan.offload_optimizer)
      key.error("what updates parameters on the host is the optimizer's step there", "plan.offload_optimizer: true");
  }
  if (!plan.offload_activations) return;
  const Node key = sections.plan.get("offload_activations");
  if (plan.recompute != Recompute::full || !s.model.is_transformer())
    key.error("it is of the inputs of layers that are computed again in backward, which alone are kept then",
              s.model.is_transformer() ? "plan.recompute: full" : "leave it out");
  if (plan.pipeline > 1 && schedule_of(plan.schedule).parts_backward())
    key.error(fmt::format("schedule {} reads the inputs of layers again in a part of its own for weight gradients",
                          schedule_of(plan.schedule).name()),
              "schedule: 1f1b");
}

}  // namespace rehearse::plan::detail
