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
      "eager, Triton RMSNorm, logits cast to fp32 (unrolled_casts as torch-ddp)",
      "models/llama.py, CausalSelfAttention: copies of queries, keys and values between their product and attention, "
      "and "
      "of what it gives (sim/lower/model/eager_passes.h)",
      "splits_gate: models/llama.py, GLUActivation, torch.split; its derivative is a cat of both gradients (pytorch "
      "torch/csrc/autograd/FunctionsManual.cpp, split_backward)",
      "layers_by_cost: models/base.py, build_model",
      "parallel/tensor_parallel/functional.py, sharded_cross_entropy: each pass over the fp32 logits a kernel, "
      "whatever the tensor size; the first gives the logits less their maximum in a tensor of its own",
      "optim/gradient_accumulator.py: gradients added to fp32 ones by a kernel a parameter each micro-batch, reduced "
      "in "
      "fp32 in buckets of 25 MB at the last one; optim/zero.py: parameters gathered after the step, nothing beside it",
      "parallel/tensor_parallel/functional.py: gathers and reductions of backward during the products",
      "parallel/pipeline_parallel/p2p.py: the receiver reads a message's shape on the host before it receives it",
      "trainer.py: a barrier, a device synchronisation and the gradient norm read each step",
      "gather_into list, gather_launches: optim/zero.py, _all_gather_params, and distributed.py, all_gather_coalesced: "
      "parameters are cut into a tensor a parameter and rank, joined to one a rank, gathered as a list (which torch "
      "copies out of a flat buffer, pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, allgather) and copied "
      "back one by one. A slice and a copy in Python take 1.5 launches, a judgement. One gather there, one a bucket "
      "here",
      "reduce_launches: optim/gradient_accumulator.py, get_fp32_accum_hook, and distributed.py, "
      "reduce_scatter_coalesced: a bucket is cut into a tensor a rank, joined and reduced as a list, which torch "
      "copies "
      "together one by one. 1.5 launches a rank, a judgement; none with plan.zero 0 (all_reduce_coalesced)",
      "bucket: DistributedDataParallel's 25 MiB of 16-bit gradients are 50 MiB of the fp32 ones that are sent "
      "(trainer.py, ddp_bucket_cap_mb 25)",
      "holds_sent: torch's collectives record the stream they read a tensor on (ProcessGroupNCCL.cpp, recordStream; "
      "TORCH_NCCL_AVOID_RECORD_STREAMS is not set), and the caching allocator gives its memory to nobody before that "
      "stream has come there (CUDACachingAllocator.cpp, process_events). That the host is ahead by the 1,000 "
      "launches that CUDA's queue takes, and no micro-batch further, is a judgement",
      "launch_cost, memory_reserve and fragmentation as megatron-2021",
      "first weights: an all-reduce, the mean, of each parameter over the data-parallel ranks, which all have drawn by "
      "one seed; not modelled",
  };
  p.attention = model::AttentionKind::flash2;
  p.fused_weight_gradient = false;
  p.fused_residual_gradient = false;
  p.fused_elementwise = p.fused_loss = false;
  p.vocab_parallel_loss = p.loss_keeps_logits = true;
  p.layers_by_cost = true;
  p.packed_heads = false;
  p.splits_gate = true;
  p.copies_buckets = true;
  p.gather_into = GatherInto::list;
  p.gather_launches = p.reduce_launches = 1.5;
  p.bucket = Bytes(std::int64_t{50} << 20);
  p.overlap_param_gather = false;
  p.fp32_logits = p.unrolled_casts = true;
  p.host_sync_on_norm = true;
  p.holds_sent = true;
  p.batched_point_to_point = true;
  p.split_point_to_point = false;
  p.launch_cost = Time::from_us(8);
  p.memory_reserve = Bytes(std::int64_t{2} << 30);
  p.fragmentation = 0.05;
  p.fills_new_tensors = true;
  return p;
}

}  // namespace rehearse::plan
