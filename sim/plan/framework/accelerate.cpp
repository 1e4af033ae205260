#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

// Hugging Face Accelerate of 2024 and 2025 as `accelerate launch` starts it: FSDP1 for what is sharded,
// DistributedDataParallel for whole replicas (replicas_as), each with Accelerate's defaults.
FrameworkProfile accelerate_profile() {
  FrameworkProfile p = torch_fsdp_profile();
  p.name = "accelerate";
  p.summary = "Hugging Face Accelerate: FSDP1 without backward prefetch, 16-bit reductions; DDP for replicas";
  p.sources = {
      "huggingface/accelerate@00595017 src/accelerate/utils/dataclasses.py, FullyShardedDataParallelPlugin: "
      "backward_prefetch NO_PREFETCH, forward_prefetch False, FULL_SHARD; set_mixed_precision gives parameters, "
      "reductions and buffers one 16-bit type (torch-fsdp leaves reductions to the user: fp32 here)",
      "shard_gather after_reduce: without prefetch a unit's gather is issued when backward gets to it, behind the "
      "reduction of the unit before it on NCCL's one stream, as llm-foundry's BACKWARD_POST; in forward the host runs "
      "ahead (pytorch docs/source/notes/fsdp.rst, implicit forward prefetching)",
      "a unit a layer: TRANSFORMER_BASED_WRAP, which `accelerate config` and the example files choose; the library's "
      "own default is one unit for the whole model (dataclasses.py, FSDP_AUTO_WRAP_POLICY NO_WRAP)",
      "accelerator.py, prepare_model: forward under autocast, its outputs cast to fp32 (convert_outputs_to_fp32), so "
      "the loss reads fp32 logits; shards are upcast to fp32 (pull request 2674) and cast before each gather. FSDP "
      "hands layers 16-bit parameters, so autocast casts nothing for products",
      "whole replicas (zero 0): prepare_model wraps in DistributedDataParallel with its defaults: all as torch-ddp",
      "optimizer: the user's, torch.optim.AdamW (foreach). Not modelled: no_sync during gradient accumulation "
      "(concept_guides/gradient_synchronization: with FSDP unsharded gradients are kept and reduced once a step; here "
      "each micro-batch reduces), DeepSpeed and Megatron-LM behind Accelerate, FSDP2 (fsdp_version 2: torch-fsdp2 with "
      "training.reduce_dtype bf16)",
      "attention, launch_cost, memory_reserve and fragmentation as torch-fsdp",
      "broadcasts_first_weights: FSDP with sync_module_states, which fsdp_cpu_ram_efficient_loading, on by default, "
      "turns on (accelerate/utils/dataclasses.py, FullyShardedDataParallelPlugin); 250 MiB a message "
      "(torch/distributed/fsdp/_init_utils.py, PARAM_BROADCAST_BUCKET_SIZE)",
  };
  p.replicas_as = "torch-ddp";
  p.fp32_reduction = false;
  p.fp32_logits = true;
  p.shard_gather = ShardGather::after_reduce;
  p.broadcasts_first_weights = true;
  return p;
}

}  // namespace rehearse::plan
