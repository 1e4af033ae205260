#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

// Megatron-Core 0.8 and later with Transformer Engine, by the defaults of Megatron-LM's training script; NeMo on top of
// it turns overlaps on, which its scenarios say.
FrameworkProfile megatron_core_profile() {
  FrameworkProfile p;
  p.name = "megatron-core";
  p.summary = "Megatron-Core with Transformer Engine: fused kernels, cuDNN attention, fp32 gradients, library defaults";
  p.sources = {
      "NVIDIA/Megatron-LM core_v0.8.0 megatron/core/model_parallel_config.py and "
      "distributed/distributed_data_parallel_config.py: overlap of gradient reduction and of parameter gathers off "
      "unless asked for; megatron/training/arguments.py: gradients accumulated and reduced in fp32 with bf16",
      "buckets: the greater of 40 million and 1 million a replica parameters, where gradient reduction is overlapped, "
      "for the first chunk of the first stage; one for each other chunk, and one a chunk at the end of the step where "
      "it is not overlapped (core/distributed/distributed_data_parallel.py)",
      "pipeline transfers: batch_isend_irecv, then torch.cuda.synchronize (core/pipeline_parallel/"
      "p2p_communication.py); interleaved ones during compute",
      "attention: Transformer Engine takes cuDNN's on Hopper and Blackwell; on older devices FlashAttention-2, which "
      "is the fastest known there",
      "weight gradients accumulate in the matmul (gradient_accumulation_fusion); backward of residual adds is a kernel "
      "of its own; the tensor-parallel backward gather and reduction run during the products (CUDA_DEVICE_MAX_"
      "CONNECTIONS=1)",
      "loss in fp32 (cross_entropy_loss_fusion False, core/model_parallel_config.py), each pass a kernel whatever the "
      "tensor size (core/tensor_parallel/cross_entropy.py); gradient norm read with .item() "
      "(core/optimizer/optimizer.py); "
      "vocabulary padded to 128 times tensor",
      "experts: rows traded by all-to-all (core/transformer/moe/token_dispatcher.py), products of "
      "TEGroupedLinear: one of cuBLAS for each expert (Transformer Engine 2 pytorch/module/grouped_linear.py)",
      "orders_forwarded_once: DeepEP's and HybridEP's dispatch takes tokens as they are; where they arrive they are "
      "permuted by experts, and unpermuted before they go back (core/transformer/moe/token_dispatcher.py, "
      "_DeepepManager: fused_dispatch, get_permuted_hidden_states_by_experts, get_restored_hidden_states_by_experts, "
      "fused_combine)",
      "weighs_in_experts: since core_v0.12.0 the token dispatcher brings the router's probabilities to the "
      "experts, which multiply their activation by them (core/transformer/moe/experts.py, permuted_probs; core/fusions/"
      "fused_bias_swiglu.py, weighted_bias_swiglu_impl); plans of earlier releases say plan.weigh_in_experts: false",
      "fp8_product_launches: cublasLtMatmulAlgoGetHeuristic before every product (Transformer Engine 2 "
      "common/gemm/cublaslt_gemm.cu), taken as long as a launch, a judgement; fp8_scale_launches: a kernel for either "
      "operand puts the scales of mxfp8's blocks in the order that tensor cores read "
      "(pytorch/csrc/extensions/gemm.cpp, "
      "swizzle_scales_for_gemm); fp8_cast_launches: a kernel for each expert's rows and, taken as another launch, a "
      "judgement, the tensors that hold its copies and scales",
      "fused_latent_rope: until core_v0.12.0 transformer_config.py refuses apply_rope_fusion with "
      "multi_latent_attention, later it is experimental (core/fusions/fused_mla_yarn_rope_apply.py) and the training "
      "script leaves it out (NVIDIA/Megatron-LM#1411)",
      "fused_scaled_rope: apply_rope_fusion is given up where yarn scales "
      "(core/models/common/embeddings/rope_utils.py, "
      "mscale != 1); gpt-oss has no mscale of its own, so 1 + 0.1 ln 32 (NVIDIA-NeMo/Megatron-Bridge@0e4d6ed6 "
      "src/megatron/bridge/models/gpt_oss/gpt_oss_bridge.py, yarn_mscale None; yarn_rotary_pos_embedding.py)",
      "clamps_apart: core/fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl with clamp_value",
      "CUDA graphs: each layer's forward and backward (--cuda-graph-impl), or all of a step but the optimizer "
      "(full_iteration); core/transformer/cuda_graphs.py",
      "training.deterministic: fused cross entropy refused and NCCL_ALGO asked for (megatron/training/arguments.py), "
      "Ring unless it is said (megatron/training/determinism.py); Transformer Engine's results are at::empty's, which "
      "PyTorch fills then (aten/src/ATen/native/cuda, fill_empty_deterministic_)",
      "launch_cost, memory_reserve and fragmentation as megatron-2021. Not modelled: the NaN check before each "
      "bucket's reduction",
      "first weights as megatron-2021 (megatron/training/training.py, get_model)",
  };
  p.attention = model::AttentionKind::cudnn;
  p.fused_residual_gradient = p.fused_latent_rope = p.fused_scaled_rope = false;
  p.clamps_apart = true;
  p.overlap_grad_reduce = p.overlap_param_gather = false;
  p.bucket = Bytes(std::int64_t{160'000'000});  // of fp32 gradients
  p.bucket_per_replica = Bytes(std::int64_t{4'000'000});
  p.buckets_first_chunk = true;
  p.batched_point_to_point = true;
  p.split_point_to_point = false;
  p.recompute_stops_early = false;
  p.fp32_logits = p.unrolled_casts = true;
  p.fused_loss = false;
  p.vocab_parallel_loss = true;
  p.host_sync_on_norm = true;
  p.vocab_multiple = 128;
  p.expert_parallel = p.launches_each_expert = p.orders_forwarded_once = p.cuda_graphs = true;
  p.weighs_in_experts = true;
  p.fp8_product_launches = p.fp8_scale_launches = p.fp8_cast_launches = 2;
  p.launch_cost = Time::from_us(8);
  p.memory_reserve = Bytes(std::int64_t{2} << 30);
  p.fragmentation = 0.05;
  p.fills_new_tensors = p.extension_products = p.unfuses_deterministic_loss = p.deterministic_rings = true;
  p.first_weights_cast = true;
  p.first_weights_bucket = Bytes(0);
  return p;
}

// NeMo 2 and Megatron-Bridge, by their recipes.
FrameworkProfile nemo_profile() {
  FrameworkProfile p = megatron_core_profile();
  p.name = "nemo";
  p.summary = "NeMo 2 and Megatron-Bridge: Megatron-Core with overlapped reductions and gathers, and a fused loss";
  p.sources = {
      "overlap_grad_reduce and overlap_param_gather True: NVIDIA/NeMo@0189a3b3 "
      "nemo/collections/llm/recipes/llama3_70b.py",
      "fused_loss: cross_entropy_loss_fusion True in NeMo's model configurations (nemo/collections/llm/gpt/model) and "
      "in "
      "Megatron-Bridge's",
      "the rest as megatron-core",
  };
  p.overlap_grad_reduce = p.overlap_param_gather = true;
  p.fused_loss = true;
  p.unrolled_casts = false;  // that of the logits is in the compiled loss
  return p;
}

// NeMo-Megatron's launcher, release 23.04 (PyTorch 2.0, no Transformer Engine).
FrameworkProfile nemo_2023_profile() {
  FrameworkProfile p = megatron_2021_profile();
  p.name = "nemo-2023";
  p.summary = "NeMo-Megatron 23.04: Megatron's kernels of 2021 with weight gradients accumulated in the matmul";
  p.sources = {
      "NVIDIA/NeMo-Framework-Launcher 23.04 launcher_scripts/conf/training/gpt3: transformer_engine False, no flash "
      "attention, activations_checkpoint_granularity selective (the unfused attention core), masked_softmax_fusion, "
      "gradient_accumulation_fusion True, overlap_grad_sync False",
      "the rest as megatron-2021",
  };
  p.fused_weight_gradient = true;
  return p;
}

}  // namespace rehearse::plan
