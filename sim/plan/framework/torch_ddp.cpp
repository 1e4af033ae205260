#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

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
      "norm_reads_once false: aten/src/ATen/native/cuda/layer_norm_kernel.cu, vectorized_layer_norm_kernel_impl, reads "
      "a row for its statistics and again to write the result. Counted so LayerNorm takes 0.96 to 1.11 of what was "
      "measured on A100 and 0.93 to 1.24 on H100 (widths of 1,024 to 16,384 in fp32), counted as one read 0.65 to 0.75 "
      "and 0.65 to 0.84 (linkedin/Liger-Kernel@ead96b61 benchmark/data/all_benchmark_data.csv, layer_norm, forward, "
      "huggingface)",
      "torch/optim/adamw.py, _multi_tensor_adamw (foreach, the default on CUDA): eight passes, 80 bytes a parameter "
      "where a fused kernel takes 28; torch/nn/utils/clip_grad.py: the norm reads, the scaling reads and writes",
      "pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html: bucket_cap_mb 25, "
      "gradient_as_bucket_view False (gradients copied into buckets and back), reduction during backward; the first "
      "bucket of 1 MiB is left out",
      "map_layout channels_first: tensors of images are contiguous unless memory_format=torch.channels_last is asked "
      "for "
      "(pytorch.org/tutorials/intermediate/memory_format_tutorial.html)",
      "keeps_norm_channels_last: cuDNN's persistent mode where channels are last, and the ordinary one else "
      "(aten/src/ATen/native/cudnn/BatchNorm.cpp, getCudnnBatchNormMode); keeps as mxnet",
      "autograd: weight gradients are cast to fp32 (the derivative of the weight's cast) and added to .grad, a "
      "kernel each, as are gradients that meet (residuals); the first of a step becomes .grad (takes_first_gradient: "
      "torch/csrc/autograd/functions/accumulate_grad.h; zero_grad sets it to None since 2.0). A table's is a tensor of "
      "its own, filled with zeros. Not modelled: the kernels that cast gradients of biases",
      "unrolled_casts: aten/src/ATen/native/cuda/Copy.cu, direct_copy_kernel_cuda takes tensors of two types one "
      "element at a time; to bf16 there is a vectorized kernel",
      "joins_heads: queries, keys and values are split from one product (GPT-2's c_attn), whose derivative is a cat",
      "rope_in_halves: huggingface/transformers src/transformers/models/llama/modeling_llama.py, apply_rotary_pos_emb; "
      "packed_products false: q_proj, k_proj, v_proj, gate_proj and up_proj there, costed as two products all the same",
      "torch/utils/checkpoint.py: early stop of recomputation, on by default for use_reentrant=False",
      "launch_cost: 5 to 25 us of host time for a PyTorch op before its kernel "
      "(jiahuanglin.xyz/all_lessons/gpu_kernel_serving/18_pytorch_to_kernel.html); 8 us is a judgement in that range",
      "memory_reserve: CUDA context 0.3 GB or more with lazy loading (pytorch/pytorch#107667), 0.5 to 0.7 GB for an "
      "NCCL communicator on A100 (NVIDIA/nccl#964); 1 GiB in all is a judgement, as is 5% of allocator fragmentation",
      "broadcasts_first_weights: torch/nn/parallel/distributed.py, __init__: _sync_module_states sends rank 0's "
      "parameters, put together to 250 MiB (broadcast_bucket_size), in their own type, which under autocast is fp32",
  };
  p.fused_weight_gradient = false;
  p.takes_first_gradient = p.unrolled_casts = p.joins_heads = p.rope_in_halves = true;
  p.packed_products = false;
  p.fused_residual_gradient = false;
  p.map_layout = model::MapLayout::channels_first;
  p.keeps_norm_channels_last = true;
  p.fp32_logits = true;
  p.autocast = true;
  p.fused_elementwise = p.fused_loss = p.norm_reads_once = false;
  p.fused_optimizer = false;
  p.copies_buckets = true;
  p.data_parallel_only = true;
  p.launch_cost = Time::from_us(8);
  p.memory_reserve = Bytes(std::int64_t{1} << 30);
  p.fragmentation = 0.05;
  p.broadcasts_first_weights = true;
  p.fills_new_tensors = true;
  return p;
}

}  // namespace rehearse::plan
