#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

// Hugging Face's nanotron of 2025.
FrameworkProfile nanotron_profile() {
  FrameworkProfile p;
  p.context_parallel = false;
  p.name = "nanotron";
  p.summary = "nanotron of 2025: eager PyTorch, FlashAttention-2, fp32 gradients, parameters gathered after the step";
  p.sources = {
      "huggingface/nanotron@c2528430 src/nanotron/models/llama.py: flash_attn_varlen_func, SwiGLU and residual adds "
      "eager, Triton RMSNorm, logits cast to fp32",
      "optim/gradient_accumulator.py: gradients added to fp32 ones by a kernel a parameter each micro-batch, reduced "
      "in "
      "fp32 in buckets of 25 MB at the last one; optim/zero.py: parameters gathered after the step, nothing beside it",
      "parallel/tensor_parallel/functional.py: gathers and reductions of backward beside the products",
      "parallel/pipeline_parallel/p2p.py: the receiver reads a message's shape on the host before it receives it",
      "trainer.py: a barrier, a device synchronisation and the gradient norm read each step",
      "launch_cost, memory_reserve and fragmentation as megatron-2021. Not modelled: reductions in lists (a copy a "
      "rank "
      "and bucket), which the host of hundreds of ranks is busy with",
  };
  p.attention = model::AttentionKind::flash2;
  p.step_low = kUncheckedLow, p.step_high = kUncheckedHigh;
  p.fused_weight_gradient = false;
  p.fused_residual_gradient = false;
  p.fused_elementwise = false;
  p.copies_buckets = true;
  p.overlap_param_gather = false;
  p.fp32_logits = true;
  p.host_sync_on_norm = true;
  p.batched_point_to_point = true;
  p.split_point_to_point = false;
  p.launch_cost = Time::from_us(8);
  p.memory_reserve = Bytes(std::int64_t{2} << 30);
  p.fragmentation = 0.05;
  return p;
}

}  // namespace rehearse::plan
