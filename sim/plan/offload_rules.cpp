// See sections.h.
#include <fmt/format.h>

#include "sim/plan/schedule/schedule.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {
namespace {

// Megatron-Core refuses all layers, stages and recomputation too (core/transformer/transformer_config.py).
void check_offload_layers(const Node& key, const Scenario& s) {
  const Plan& plan = s.plan;
  if (!s.model.is_transformer()) return key.error("it is of layers of transformers", "leave it out");
  if (plan.offload_layers >= s.model.layers)
    return key.error(fmt::format("{} of {} layers: the last one's activations are read at once", plan.offload_layers,
                                 s.model.layers),
                     fmt::format("{} at most", s.model.layers - 1));
  if (plan.pipeline > 1)
    key.error("stages keep the activations of several micro-batches at a time", "plan.pipeline: 1");
  if (plan.recompute != Recompute::none || plan.recompute_norms || plan.recompute_latent ||
      plan.recompute_expert_activation)
    key.error("layers that are recomputed keep little", "plan.recompute: none, or offload_activations");
  if (s.model.family == model::Family::moe)
    key.error("experts' activations differ from one micro-batch to the next, and stay", "leave it out");
}

}  // namespace

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
  if (plan.offload_layers > 0) check_offload_layers(sections.plan.get("offload_layers"), s);
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
