// See sections.h.
#include <fmt/format.h>

#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

// Megatron-LM's validate_args (megatron/training/arguments.py): no fused cross entropy, and NCCL_ALGO must be said; its
// own tests, and megatron/training/determinism.py where it is not, say Ring. What a scenario pins is left.
void choose_deterministic(Scenario& s) {
  if (!s.training.deterministic) return;
  if (s.framework.unfuses_deterministic_loss) s.framework.fused_loss = false;
  if (!s.framework.deterministic_rings || !s.cluster.collectives.empty()) return;
  for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter"}) {
    PinnedCollective& pinned = s.cluster.collectives.emplace_back();
    pinned.kind = kind, pinned.algorithm = "ring";
  }
}

void check_deterministic(const Sections& sections, const Scenario& s) {
  const Node fill = sections.training.get("fill_uninitialized"), own = sections.training.get("deterministic");
  if (s.training.fill_uninitialized && !s.training.deterministic)
    fill.error("needs deterministic: true, without which PyTorch fills nothing of what it allocates",
               "deterministic: true too, or leave it out");
  else if (s.training.fill_uninitialized && !s.framework.fills_new_tensors)
    fill.error(fmt::format("framework {} does not fill what it allocates: it is no PyTorch, or one before 2.1, or its "
                           "kernels are compiled",
                           s.framework.name),
               "false, or leave it out");
  if (!s.training.deterministic) return;
  const model::AttentionKind attention = s.model.attention;
  if (attention == model::AttentionKind::flash1 || attention == model::AttentionKind::flash_triton)
    own.error("how long the deterministic backward of FlashAttention 1, and of Triton's, takes is not known",
              "model.attention: flash2, sdpa_flash, flash3, cudnn or unfused");
  if (s.model.family == model::Family::cnn && s.framework.name != "rehearse")
    own.error("cuDNN's deterministic convolutions are not available yet", "leave it out");
}

}  // namespace rehearse::plan::detail
