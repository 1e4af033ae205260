// See sections.h.
#include <fmt/format.h>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

void check_local_steps(const Node& section, const Scenario& s) {
  const Plan& plan = s.plan;
  const Training& training = s.training;
  if (!plan.steps_apart()) return;
  const Node key = section.get("local_steps");
  if (plan.workers() < 2)
    key.error(fmt::format("{} data-parallel replica{} make{} one worker, which has nobody to become one with",
                          plan.data, plan.data == 1 ? "" : "s", plan.data == 1 ? "s" : ""),
              plan.data == 1 ? "more ranks, or local_steps: 0" : "a smaller local_group, or local_steps: 0");
  if (plan.compresses_gradients())
    key.error("what workers send one another is no gradients, and gradients within a worker are not compressed yet",
              "plan.gradient_compression: [none]");
  if (plan.expert > 1)
    key.error(
        "experts are spread over data-parallel ranks, which trade rows in every step: no worker has a whole model",
        "plan.expert: 1");
  if (plan.embedding_tables == EmbeddingTables::sharded || training.sparse_optimizer != SparseOptimizer::none)
    key.error("tables that one rank has, or that backward updates, are no worker's own",
              "plan.embedding_tables: replicated and training.sparse_optimizer: none");
  if (s.model.sync_batch_norm)
    key.error("batch normalisation over all ranks' examples meets in every layer of every step",
              "model.sync_batch_norm: false");
  if (training.narrow() || training.precision == Precision::fp16)
    key.error("scales of 8 and 4 bits, and of fp16's losses, are of all ranks together in every step",
              "training.precision: bf16 or fp32");
  if (plan.offload_optimizer || plan.offload_parameters)
    key.error("parameters that lie in the host's memory are not averaged yet", "plan.offload_optimizer: false");
  if (plan.cuda_graphs == CudaGraphs::step)
    key.error("a graph of a whole step is the same in every step", "plan.cuda_graphs: layer or none");
}

}  // namespace rehearse::plan::detail
