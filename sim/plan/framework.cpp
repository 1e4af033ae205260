// The framework profiles: what each named framework launches, read by lowering and cost. Each fact names where it is
// documented; numbers chosen by judgement within a documented range say so. A profile describes the defaults of a
// release line, not a particular run: a run that turned an option on says so in its scenario.
#include "sim/plan/framework.h"

#include <algorithm>

namespace rehearse::plan {

namespace {

// Our own Performer (execute/): one fused kernel for each op of the Program, gradients accumulated in the matmul.
FrameworkProfile rehearse_profile() {
  FrameworkProfile p;
  p.name = "rehearse";
  p.summary = "one fused kernel an operation, flash attention, everything overlapped";
  p.sources = {
      "the Program's own ops: fused weight-gradient accumulation and residual gradient, flash attention, no dropout",
      "launch_cost: an empty asynchronous kernel call takes the host about 3 us (334,000 calls a second, "
      "cs.virginia.edu/~mwb7w/cuda_support/kernel_overhead.html); 1 us more for dispatch and events is a judgement",
      "memory_reserve: CUDA context 0.3 GB or more with lazy loading (pytorch/pytorch#107667), 0.5 to 0.7 GB for an "
      "NCCL "
      "communicator on A100 (NVIDIA/nccl#964); 1 GiB in all is a judgement",
      "fragmentation: none beyond what placing the buffers in one arena costs, which is counted",
  };
  p.allocator = Allocator::arena;
  p.measured_host = true;
  p.launch_cost = Time::from_us(4);
  p.memory_reserve = Bytes(std::int64_t{1} << 30);
  return p;
}

// Megatron-LM releases 2.x of 2021 and 2022, as used for arXiv 2104.04473 (SC'21) and arXiv 2205.05198.
FrameworkProfile megatron_2021_profile() {
  FrameworkProfile p;
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
      "are lowered with sends beside compute instead: optimistic for these releases",
      "Megatron-LM megatron/mpu/layers.py, LinearWithGradAccumulationAndAsyncCommunication (tensor-parallel backward "
      "collective beside the weight-gradient matmul). Weight gradients reach main_grad by a separate add, the "
      "behaviour "
      "before gradient_accumulation_fusion became the default during 2022",
      "Megatron-LM megatron/mpu/random.py CheckpointFunction (backward reruns the whole checkpointed layer), "
      "megatron/model/gpt_model.py (vocab_parallel_cross_entropy of output.float()), megatron/optimizer/clip_grads.py "
      "(gradient norm read with .item())",
      "Megatron-LM megatron/arguments.py: --make-vocab-size-divisible-by 128 (times tensor)",
      "launch_cost: 5 to 25 us of host time for a PyTorch op before its kernel "
      "(jiahuanglin.xyz/all_lessons/gpu_kernel_serving/18_pytorch_to_kernel.html); 8 us is a judgement in that range",
      "memory_reserve: CUDA context above 1 GB before CUDA 11.7 (pytorch/pytorch#107667) and 0.5 to 0.7 GB for an NCCL "
      "communicator on A100 (NVIDIA/nccl#964); 2 GiB in all is a judgement, as is 5% of allocator fragmentation",
  };
  p.unfused_attention = true;
  p.dropout = 0.1;
  p.overlap_grad_reduce = p.overlap_param_gather = false;
  p.bucket = Bytes(std::int64_t{1} << 50);
  p.fused_weight_gradient = false;
  p.fused_residual_gradient = false;
  p.batched_point_to_point = true;
  p.recompute_stops_early = false;
  p.fp32_logits = true;
  p.host_sync_on_norm = true;
  p.vocab_multiple = 128;
  p.launch_cost = Time::from_us(8);
  p.memory_reserve = Bytes(std::int64_t{2} << 30);
  p.fragmentation = 0.05;
  return p;
}

// PyTorch 2.x, eager, under autocast, in DistributedDataParallel with its defaults; what a user's own loop does.
FrameworkProfile torch_ddp_profile() {
  FrameworkProfile p;
  p.name = "torch-ddp";
  p.summary = "PyTorch 2.x eager: autocast, DistributedDataParallel, foreach AdamW";
  p.sources = {
      "pytorch.org/docs/stable/amp.html, op reference: linear and matmul run in the lower type; layer_norm, "
      "cross_entropy, softmax in fp32; adds promote, so the residual stream is fp32. Weights are cast once a forward "
      "(cache_enabled), activations at each product. Not modelled: the optimizer does not write the lower copies (2 "
      "bytes a parameter of 92 too many), norms' own weights stay fp32",
      "torch/nn/functional.py: scaled_dot_product_attention is one flash kernel; linear adds its bias in the product "
      "(cublasLt epilogue); gelu is a kernel; dropout, add and silu * up are kernels of their own",
      "torch.nn.functional.cross_entropy: log_softmax writes its result, nll_loss backward a tensor of zeros with one "
      "element a row, log_softmax backward reads both: sim/program/work.cpp counts them",
      "torch/optim/adamw.py, _multi_tensor_adamw (foreach, the default on CUDA): eight passes, 80 bytes a parameter "
      "where a fused kernel takes 28; torch/nn/utils/clip_grad.py: the norm reads, the scaling reads and writes",
      "pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html: bucket_cap_mb 25, "
      "gradient_as_bucket_view False (gradients copied into buckets and back), reduction beside backward; the first "
      "bucket of 1 MiB is left out",
      "autograd: weight gradients are added to .grad by a kernel of their own, as are gradients that meet (residuals)",
      "torch/utils/checkpoint.py: early stop of recomputation, on by default for use_reentrant=False",
      "launch_cost: 5 to 25 us of host time for a PyTorch op before its kernel "
      "(jiahuanglin.xyz/all_lessons/gpu_kernel_serving/18_pytorch_to_kernel.html); 8 us is a judgement in that range",
      "memory_reserve: CUDA context 0.3 GB or more with lazy loading (pytorch/pytorch#107667), 0.5 to 0.7 GB for an "
      "NCCL communicator on A100 (NVIDIA/nccl#964); 1 GiB in all is a judgement, as is 5% of allocator fragmentation",
  };
  p.fused_weight_gradient = false;
  p.fused_residual_gradient = false;
  p.fp32_logits = true;
  p.autocast = true;
  p.fused_elementwise = false;
  p.fused_optimizer = false;
  p.copies_buckets = true;
  p.data_parallel_only = true;
  p.launch_cost = Time::from_us(8);
  p.memory_reserve = Bytes(std::int64_t{1} << 30);
  p.fragmentation = 0.05;
  return p;
}

const std::vector<FrameworkProfile>& profiles() {
  static const std::vector<FrameworkProfile> all = {rehearse_profile(), megatron_2021_profile(), torch_ddp_profile()};
  return all;
}

}  // namespace

const FrameworkProfile* find_framework(std::string_view name) {
  const auto found = std::find_if(profiles().begin(), profiles().end(), [&](const auto& p) { return p.name == name; });
  return found == profiles().end() ? nullptr : &*found;
}

std::vector<std::string> framework_names() {
  std::vector<std::string> names;
  for (const FrameworkProfile& profile : profiles()) names.push_back(profile.name);
  return names;
}

}  // namespace rehearse::plan
