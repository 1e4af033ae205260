// See sections.h. What a graph cannot hold: work whose sizes, or whose order, the host decides while it runs.
#include <fmt/format.h>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

// As Megatron-Core refuses it (core/transformer/transformer_config.py, core/transformer/cuda_graphs.py): recomputed
// layers, and offloading, in graphs; tables of packed sequences, which are no tensors; a host that waits for how many
// rows experts get.
void check_graphs(const Sections& sections, const Scenario& s) {
  const Plan& plan = s.plan;
  if (plan.cuda_graphs == CudaGraphs::none) return;
  const Node own = sections.at("plan.cuda_graphs");
  const bool by_layer = plan.cuda_graphs == CudaGraphs::layer;
  if (!s.framework.cuda_graphs)
    return own.error(fmt::format("framework {} launches no graphs", s.framework.name), "cuda_graphs: none");
  if (!s.model.is_transformer() || s.model.is_vision())
    own.error("graphs are captured of transformers that read tokens", "cuda_graphs: none");
  if (s.model.family == model::Family::moe && s.model.capacity_factor == 0)
    own.error("without a capacity the host waits in each layer for how many rows experts get, which no graph can",
              "model.capacity_factor, or cuda_graphs: none");
  if (by_layer && (plan.recompute == Recompute::full || plan.recompute == Recompute::ops))
    own.error(fmt::format("layers that are recomputed (recompute: {}) are captured with the whole step alone",
                          plan.recompute == Recompute::full ? "full" : "ops"),
              "cuda_graphs: step, or recompute: selective or none");
  if (plan.offload_optimizer || plan.offloads_activations() || plan.offload_parameters)
    own.error("what is copied to and from the host's memory is not captured",
              "no plan.offload_*, or cuda_graphs: none");
  if (s.training.packs())
    own.error("packed sequences have lengths that change with each micro-batch", "no training.documents");
  if (plan.zero == 3)
    own.error("ZeRO-3 gathers parameters into buffers that are freed after each layer", "zero: 2 or less");
}

}  // namespace rehearse::plan::detail
