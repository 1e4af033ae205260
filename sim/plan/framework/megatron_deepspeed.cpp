#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

// BigScience's fork of Megatron-DeepSpeed of 2022 and DeepSpeed's pipeline engine, as BLOOM was trained with.
FrameworkProfile megatron_deepspeed_profile() {
  FrameworkProfile p = megatron_2021_profile();
  p.name = "megatron-deepspeed";
  p.summary = "Megatron-DeepSpeed of 2022 (BLOOM): Megatron's kernels, nothing overlapped, launches block";
  p.sources = {
      "kernels as megatron-2021: attention unfused with fused scale-mask-softmax, JIT bias-GELU and bias-dropout-add "
      "(bigscience-workshop/Megatron-DeepSpeed megatron/model/transformer.py, fused_softmax.py)",
      "tensor-parallel backward all-reduce not overlapped: bigscience-workshop/Megatron-DeepSpeed@8387ae17 "
      "megatron/mpu/mappings.py, _reduce is a blocking all_reduce",
      "pipeline: blocking send and recv of whole tensors on each tensor rank: microsoft/DeepSpeed v0.6.5 "
      "deepspeed/runtime/pipe/p2p.py",
      "gradients reduced once after the last backward, parameters gathered after the update, neither overlapped: "
      "microsoft/DeepSpeed v0.6.5 deepspeed/runtime/engine.py, pipe/engine.py, bf16_optimizer.py",
      "blocking_gap: CUDA_LAUNCH_BLOCKING=1 was set (bigscience-workshop/bigscience@9e64ede "
      "train/tr11-176B-ml/tr11-176B-ml.slurm; their comparison: 6.4% slower on 80 GPUs, alike on 160). An op of the "
      "Program is about two kernels there, each with some 8 us until PyTorch launches the next and 12 us for the round "
      "trip of a launch: 40 us is a judgement",
      "not modelled: gradients added to an fp32 copy each micro-batch (bf16 runs), ALiBi, DeepSpeed's own work around "
      "activation checkpoints",
      "broadcasts_first_weights: as deepspeed",
  };
  p.overlap_tensor_backward = false;
  p.split_point_to_point = false;
  p.blocking_gap = Time::from_us(40);
  p.broadcasts_first_weights = true;
  p.first_weights_bucket = Bytes(0);
  return p;
}

}  // namespace rehearse::plan
