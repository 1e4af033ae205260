#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

// NVIDIA's own BERT in PyTorch (DeepLearningExamples, PyTorch/LanguageModeling/BERT, its last releases of 2021 to
// 2023).
FrameworkProfile nvidia_bert_profile() {
  FrameworkProfile p;
  p.name = "nvidia-bert";
  p.summary = "NVIDIA DeepLearningExamples BERT: TorchScript, 16-bit gradients, one reduction a step";
  p.sources = {
      "PyTorch/LanguageModeling/BERT/run_pretraining.py, prepare_model_and_optimizer: with "
      "--allreduce_post_accumulation_fp16, which scripts/run_pretraining.sh gives, the model is in fp16 (half()) and "
      "not under autocast, so gradients are kept, added up and reduced in fp16; FusedLAMBAMP keeps fp32 copies",
      "the same: DistributedDataParallel with bucket_cap_mb of the device's whole memory and gradient_as_bucket_view, "
      "under no_sync but for the last micro-batch: one all-reduce a step, behind backward, without copies",
      "the same: torch.jit.script of the model, whose fuser makes one kernel of bias, dropout and residual; autograd "
      "adds gradients by kernels of their own; modeling.py, LinearActivation: gelu in its tanh form is a kernel",
      "modeling.py, BertSelfAttention: unfused, [sequence, batch, width]; dropout 0.1 (bert_configs/large.json). "
      "Scores "
      "are divided and masked between product and softmax (fused_scores false: one kernel, which TorchScript makes of "
      "the "
      "two, and one in backward); the context is copied to the order of tokens (packed_heads false); queries, keys and "
      "values are a linear layer each, whose inputs' gradients are added (packed_products false; the products are "
      "costed "
      "as one)",
      "run_pretraining.py: vocabulary padded to a multiple of 8; data without the device's waiting (SyncFreeStats)",
      "lamb_amp_opt/fused_lamb: training.optimizer: lamb, which the published runs are given: two stages with norms "
      "between, 42 bytes a parameter and the gradients' norm",
      "launch_cost: 5 to 25 us of host time for a PyTorch op before its kernel "
      "(jiahuanglin.xyz/all_lessons/gpu_kernel_serving/18_pytorch_to_kernel.html); 8 us is a judgement in that range",
      "memory_reserve: CUDA context above 1 GB before CUDA 11.7 (pytorch/pytorch#107667) and 0.5 to 0.7 GB for an NCCL "
      "communicator on A100 (NVIDIA/nccl#964); 2 GiB in all is a judgement, as is 5% of allocator fragmentation",
      "broadcasts_first_weights: run_pretraining.py, prepare_model_and_optimizer: flat_dist_call of all parameters in "
      "one tensor, after amp.initialize",
  };
  p.attention = model::AttentionKind::unfused;
  p.dropout = 0.1;
  p.fp32_gradients = p.fp32_reduction = false;
  p.overlap_grad_reduce = p.overlap_param_gather = false;
  p.bucket = FrameworkProfile::kOneBucket;
  p.fused_weight_gradient = false;
  p.fused_residual_gradient = false;
  p.packed_heads = p.packed_products = p.fused_scores = false;
  p.data_parallel_only = true;
  p.vocab_multiple = 8;
  p.launch_cost = Time::from_us(8);
  p.memory_reserve = Bytes(std::int64_t{2} << 30);
  p.fragmentation = 0.05;
  p.broadcasts_first_weights = p.first_weights_cast = true;
  p.first_weights_bucket = FrameworkProfile::kOneBucket;
  return p;
}

}  // namespace rehearse::plan
