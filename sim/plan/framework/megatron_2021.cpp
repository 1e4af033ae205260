#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

// Megatron-LM releases 2.x of 2021 and 2022, as used for arXiv 2104.04473 (SC'21) and arXiv 2205.05198.
FrameworkProfile megatron_2021_profile() {
  FrameworkProfile p;
  p.context_parallel = false;
  p.name = "megatron-2021";
  p.summary = "Megatron-LM 2.x: unfused attention, dropout, reductions not overlapped";
  p.sources = {
      "arXiv 2104.04473 section 4.1 (scatter/gather of pipeline tensors), 4.2 (fused scale-mask-softmax, bias-gelu, "
      "bias-dropout-add; attention itself unfused)",
      "arXiv 2205.05198 section 4 (sequence parallelism, selective recomputation; dropout 0.1 in its activation "
      "counts)",
      "Megatron-LM megatron/model/distributed.py (fp32 main_grad in one contiguous buffer, all-reduced at once after "
      "the "
      "last backward, no overlap), "
      "megatron/optimizer (parameters gathered after the update, no overlap)",
      "Megatron-LM megatron/p2p_communication.py (batch_isend_irecv, then torch.cuda.synchronize). Interleaved "
      "schedules "
      "are lowered with sends during compute instead: optimistic for these releases",
      "Megatron-LM megatron/mpu/layers.py, LinearWithGradAccumulationAndAsyncCommunication (tensor-parallel backward "
      "collective during the weight-gradient matmul). Weight gradients reach main_grad by a separate add, the "
      "behaviour "
      "before gradient_accumulation_fusion became the default during 2022",
      "Megatron-LM megatron/mpu/random.py CheckpointFunction (backward reruns the whole checkpointed layer), "
      "megatron/model/gpt_model.py (vocab_parallel_cross_entropy of output.float(), each pass a kernel: "
      "megatron/mpu/cross_entropy.py), megatron/optimizer/clip_grads.py "
      "(gradient norm read with .item())",
      "unrolled_casts: output.float(), by PyTorch's kernel, as torch-ddp",
      "Megatron-LM megatron/arguments.py: --make-vocab-size-divisible-by 128 (times tensor)",
      "launch_cost: 5 to 25 us of host time for a PyTorch op before its kernel "
      "(jiahuanglin.xyz/all_lessons/gpu_kernel_serving/18_pytorch_to_kernel.html); 8 us is a judgement in that range",
      "memory_reserve: CUDA context above 1 GB before CUDA 11.7 (pytorch/pytorch#107667) and 0.5 to 0.7 GB for an NCCL "
      "communicator on A100 (NVIDIA/nccl#964); 2 GiB in all is a judgement, as is 5% of allocator fragmentation",
      "first weights: every rank draws its own by the same seed; with --data-parallel-random-init it does not, and "
      "model.broadcast_params() sends each parameter by itself, in the training's precision "
      "(megatron/training.py, get_model)",
  };
  p.attention = model::AttentionKind::unfused;
  p.dropout = 0.1;
  p.overlap_grad_reduce = p.overlap_param_gather = false;
  p.bucket = FrameworkProfile::kOneBucket;
  p.fused_weight_gradient = false;
  p.fused_residual_gradient = false;
  p.batched_point_to_point = true;
  p.recompute_stops_early = false;
  p.fp32_logits = p.unrolled_casts = true;
  p.fused_loss = false;
  p.vocab_parallel_loss = true;
  p.host_sync_on_norm = true;
  p.vocab_multiple = 128;
  p.launch_cost = Time::from_us(8);
  p.memory_reserve = Bytes(std::int64_t{2} << 30);
  p.fragmentation = 0.05;
  p.first_weights_cast = true;
  p.first_weights_bucket = Bytes(0);
  return p;
}

// Megatron-LM 3.0 of 2022, which brought what arXiv 2205.05198 measures.
FrameworkProfile megatron_2022_profile() {
  FrameworkProfile p = megatron_2021_profile();
  p.name = "megatron-2022";
  p.summary = "Megatron-LM 3.0 of 2022: as megatron-2021, weight gradients accumulated in the matmul";
  p.sources = {
      "fused_weight_gradient: apex's fused_weight_gradient_mlp_cuda, there before March 2022 (NVIDIA/apex#1317) and on "
      "unless --no-gradient-accumulation-fusion asks otherwise; the function that has sequence parallelism is the one "
      "that has it (Megatron-LM v3.0 megatron/core/tensor_parallel/layers.py, "
      "LinearWithGradAccumulationAndAsyncCommunication)",
      "the rest as megatron-2021",
  };
  p.fused_weight_gradient = true;
  return p;
}

}  // namespace rehearse::plan
