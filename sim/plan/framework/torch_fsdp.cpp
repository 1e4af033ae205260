#include "sim/plan/framework/profiles.h"

namespace rehearse::plan {

namespace {

// What PyTorch's eager kernels and FSDP of either kind have in common.
FrameworkProfile eager_sharded() {
  FrameworkProfile p;
  p.fused_weight_gradient = false;
  p.unrolled_casts = true;
  p.fused_residual_gradient = false;
  p.fused_elementwise = p.fused_loss = p.norm_reads_once = false;
  p.fused_optimizer = false;
  p.overlap_tensor_backward = false;  // DTensor's, see torch-fsdp2
  p.flattens_gradients = p.casts_gradients = p.divides_gradients = true;
  p.map_layout = model::MapLayout::channels_first;
  p.keeps_norm_channels_last = true;
  p.host_sync_on_norm = true;
  p.reduces_replicas_always = true;
  p.fp32_shards = true;
  p.launch_cost = Time::from_us(8);
  p.memory_reserve = Bytes(std::int64_t{1} << 30);
  p.fragmentation = 0.05;
  return p;
}

constexpr const char* kEager =
    "eager kernels: adds, GELU, SiLU and its product, bias gradients are kernels of their own; gradients that meet are "
    "added "
    "by a kernel (autograd); parameters are handed to layers in 16 bits, so that nothing is cast between layers; "
    "norm_reads_once, unrolled_casts, map_layout and keeps_norm_channels_last as torch-ddp";
constexpr const char* kReplicas =
    "hybrid sharding: each unit's shard is all-reduced after its reduce-scatter in every backward (pytorch "
    "torch/distributed/fsdp/_runtime_utils.py, _reduce_grad; fully_shard/_fsdp_collectives.py, foreach_reduce)";
constexpr const char* kShards =
    "fp32_shards: parameters and what the optimizer reads are the fp32 shards; mixed precision casts them to 16 bits "
    "before a gather, into memory that is given back after it (pytorch torch/distributed/fsdp/_flat_param.py, "
    "_use_low_precision_shard, _free_low_precision_sharded_param; fully_shard/_fsdp_param.py, all_gather_inputs). Not "
    "modelled so: offload, weights held in 8 bits, one rank alone: 16 bits beside an fp32 copy";
constexpr const char* kHost =
    "launch_cost, memory_reserve and fragmentation as torch-ddp. Not modelled: the root unit that stays gathered, the "
    "limiter's wait of the host";
constexpr const char* kFlat =
    "gradients: autograd joins those of a unit's parameters into that of the flat one (the views that "
    "_flat_param.py makes are split in forward, concatenated in backward), _post_backward_hook casts it to "
    "reduce_dtype and divides it before the reduction (torch/distributed/fsdp/_runtime_utils.py, _reduce_grad, "
    "_div_if_needed): three passes";

}  // namespace

// PyTorch's FullyShardedDataParallel (FSDP1) with its defaults of 2.1 and later.
FrameworkProfile torch_fsdp_profile() {
  FrameworkProfile p = eager_sharded();
  p.name = "torch-fsdp";
  p.summary = "PyTorch FSDP1, eager, 16-bit parameters: a unit a layer, the next one gathered during compute";
  p.sources = {
      "pytorch torch/distributed/fsdp/_runtime_utils.py: backward_prefetch BACKWARD_PRE (the default), a gather ahead "
      "in "
      "forward too, as the host runs ahead",
      kEager,
      "joins_heads, rope_in_halves, packed_products: as torch-ddp",
      "attention: scaled_dot_product_attention's flash backend, FlashAttention-2 from 2.2 on",
      kFlat,
      kReplicas,
      kShards,
      kHost};
  p.attention = model::AttentionKind::sdpa_flash;
  p.joins_heads = p.rope_in_halves = true;
  p.packed_products = false;
  p.fills_new_tensors = true;
  p.alternates_in_one_round = true;
  return p;
}

// PyTorch's fully_shard (FSDP2) as torchtitan runs it without torch.compile.
FrameworkProfile torch_fsdp2_profile() {
  FrameworkProfile p = torch_fsdp_profile();
  p.name = "torch-fsdp2";
  p.summary = "PyTorch FSDP2 (torchtitan), eager: a unit a layer, the next one gathered during compute";
  p.sources = {
      "pytorch/torchtitan@ba246978 torchtitan/parallelisms/parallelize_llama.py: fully_shard a block, reduction in "
      "fp32; "
      "torchtitan/models/llama: logits cast to fp32 for the loss",
      kEager,
      "attention: scaled_dot_product_attention's flash backend, FlashAttention-2",
      "AdamW in passes over lists of tensors: optimizer.fused is off by default (torchtitan/config_manager.py, "
      "optimizer.py: foreach)",
      "overlap_tensor_backward false: redistribute is an operation of its own in autograd, behind both gradients of "
      "the "
      "product it follows, and the next operation waits for it (pytorch torch/distributed/tensor/_redistribute.py, "
      "parallel/style.py); what overlaps them is enable_async_tensor_parallel, off by default "
      "(discuss.pytorch.org/t/209487)",
      "RMSNorm as a chain of kernels in fp32: norm_type rmsnorm in train_configs/llama3_8b.toml (@0011fb90), "
      "torchtitan/models/norms.py; rotary embedding in complex fp32, keys and values copied to all heads, products of "
      "queries, keys, values, gate and up one by one: torchtitan/models/llama/model.py. These are costed as one "
      "product all the same",
      "pytorch torch/distributed/_composable/fsdp/_fsdp_collectives.py: gathers go into a flat buffer and are copied "
      "out "
      "(split_with_sizes_copy), gradients are joined and cast in one pass (chunk_cat) and averaged by the reduction",
      "copies_sequence_shards: tensors are [batch, sequence, width] and shards of the sequence; collectives join and "
      "cut along the first dimension, and a cat puts what was gathered, and what is to be scattered, in order (pytorch "
      "torch/distributed/_functional_collectives.py, all_gather_tensor, reduce_scatter_tensor; measured in "
      "pytorch/torchtitan#437)",
      "keeps_gathered_input: autograd keeps what a linear layer read, which is whole; gathers are operations of their "
      "own, run again in recomputation as all others",
      "ring_in_fp32: _SDPAMerger and convert_to_f32 (pytorch release 2.6 torch/distributed/tensor/experimental/"
      "_attention.py; torchtitan's context_parallel takes its defaults), with keys and values of all heads, as the "
      "model "
      "copies them before; all ranks have as much of the causal mask (enable_load_balance). Not modelled: that these "
      "travel with all heads, their gradients in fp32, and are gathered at once (rotate_method), which their kernels "
      "hide",
      "the loss of a split vocabulary in tensors of its own (pytorch torch/distributed/tensor/parallel/loss.py: "
      "_log_softmax, _nll_loss_and_log_softmax_backward)",
      "8-bit products: torchao/float8/float8_linear.py (pytorch/ao 0.7), whose matmul_with_hp_or_float8_args keeps "
      "16-bit operands for backward and casts them again there",
      "expert_parallel: routed experts are FSDP units of their own, sharded over the ranks that have the same ones "
      "(edp_mesh), the router and shared experts with their block over all (pytorch/torchtitan@05a6cb38 "
      "torchtitan/models/llama4/infra/parallelize.py, apply_fsdp); rows traded by all_to_all_single after their "
      "counts, for which the host waits, put in the experts' order by a kernel, products torch._grouped_mm of all "
      "experts at "
      "once (@03a13843 torchtitan/distributed/expert_parallel.py, ExpertParallel; models/common/moe/utils.py, "
      "_permute). Not modelled: sums of a token's rows in fp32, the zeros that rows are put into",
      kReplicas,
      kShards,
      kHost};
  p.expert_parallel = true;
  p.gather_into = GatherInto::flat;
  p.flattens_gradients = p.divides_gradients = false;
  p.fused_norm = p.fused_rope = p.packed_products = p.joins_heads = p.rope_in_halves = false;
  p.fp32_logits = true;
  p.fp8_casts_again = true;
  p.copies_sequence_shards = p.keeps_gathered_input = p.ring_in_fp32 = true;
  return p;
}

// The same with torch.compile of each block, as of 2024.
FrameworkProfile torch_fsdp2_compile_2024_profile() {
  FrameworkProfile p = torch_fsdp2_profile();
  p.name = "torch-fsdp2-compile-2024";
  p.summary = "PyTorch FSDP2 (torchtitan) of 2024 with torch.compile of each block, and not of the loss";
  p.sources = {
      "pytorch/torchtitan@ba246978 torchtitan/parallelisms/parallelize_llama.py, apply_compile: each block is one "
      "graph, whose kernels between products Inductor fuses; embedding, head and loss stay eager (that of the loss was "
      "turned off, pytorch/torchtitan#755)",
      "Inductor adds gradients that meet in the kernel that comes next; products stay cuBLAS's, one a "
      "weight",
      "rotary embedding stays eager: Inductor generates no code for complex numbers and calls PyTorch's kernels "
      "(pytorch torch/_inductor/lowering.py, which warns of it)",
      "map_layout channels_last: Inductor puts the maps of convolutions so (pytorch torch/_inductor/graph.py, "
      "decide_layout_opt), and generates batch normalisation itself",
      "the rest as torch-fsdp2. Not modelled: casts to 8 bits are fused with what is before them",
  };
  p.map_layout = model::MapLayout::channels_last;
  p.keeps_norm_channels_last = false;
  p.fused_norm = p.packed_products = true;
  p.fused_elementwise = p.fused_residual_gradient = true;
  p.fills_new_tensors = false;
  return p;
}

// The same since April 2025.
FrameworkProfile torch_fsdp2_compile_profile() {
  FrameworkProfile p = torch_fsdp2_compile_2024_profile();
  p.name = "torch-fsdp2-compile";
  p.summary = "PyTorch FSDP2 (torchtitan) with torch.compile of each block and of the loss";
  p.sources = {
      "fused_loss: the loss is compiled too (pytorch/torchtitan#1033, build_cross_entropy_loss): no tensor of fp32 "
      "logits "
      "but what the kernels of log_softmax hold on the chip",
      "the rest as torch-fsdp2-compile-2024",
  };
  p.fused_loss = true;
  p.fp32_logits = false;
  return p;
}

// MosaicML's llm-foundry (MPT models) under Composer: FSDP1, a unit a block, eager.
FrameworkProfile llm_foundry_profile() {
  FrameworkProfile p = eager_sharded();
  p.name = "llm-foundry";
  p.summary = "llm-foundry of 2023 on Composer: FSDP1 with BACKWARD_POST, Triton attention, eager kernels";
  p.sources = {
      "mosaicml/llm-foundry@b2a43a147 scripts/train/benchmarking: attn_impl triton (flash_attn_triton.py of the "
      "triton-pre-mlir fork); from January 2024 some rows flash (FlashAttention-2), which their scenarios say",
      "mosaicml/composer@2deccf2c8 composer/trainer/dist_strategy.py: backward_prefetch BACKWARD_POST, "
      "forward_prefetch "
      "False, limit_all_gathers True; mosaic_fsdp_utils.py: DEFAULT mixed precision reduces in fp32, PURE in 16 bits "
      "(training.reduce_dtype)",
      "shard_gather after_reduce: one process group has one internal NCCL stream, so a gather issued after a reduction "
      "waits for it (ProcessGroupNCCL). A judgement: the hook behind a unit's backward issues the next gather before "
      "the unit's own reduction (pytorch torch/distributed/fsdp/_runtime_utils.py, _post_backward_hook calls "
      "_post_backward_reshard, which prefetches, then _reduce_grad), as BACKWARD_PRE's order is; with that, runs that "
      "communicate much are predicted 9 to 16% too fast (docs/validation.md)",
      kEager,
      "decoupled AdamW in a loop of eager kernels (composer/optim/decoupled_weight_decay.py)",
      "joins_heads: llmfoundry/models/layers/attention.py, qkv.chunk(3, dim=2)",
      "fused_loss: loss_fn fused_crossentropy, flash_attn's kernels of it (mosaicml/llm-foundry@5e85bd62d "
      "llmfoundry/models/mpt/modeling_mpt.py)",
      "loss_metrics: LanguageCrossEntropy and LanguagePerplexity of every micro-batch's logits, each a "
      "torch.nn.CrossEntropyLoss under autocast (composer/metrics/nlp.py; composer/trainer/trainer.py, "
      "_eval_train_metrics; mosaicml/llm-foundry llmfoundry/models/mpt/modeling_mpt.py, train_metrics)",
      kFlat,
      kReplicas,
      kShards,
      kHost};
  p.attention = model::AttentionKind::flash_triton;
  p.joins_heads = true;
  p.fused_loss = true;
  p.loss_metrics = 2;
  p.shard_gather = ShardGather::after_reduce;
  p.fills_new_tensors = true;
  return p;
}

// The same as of its first tables, on PyTorch 1.13.
FrameworkProfile llm_foundry_torch1_profile() {
  FrameworkProfile p = llm_foundry_profile();
  p.name = "llm-foundry-torch1";
  p.summary = "llm-foundry of spring 2023 on PyTorch 1.13: recomputes whole layers, reduces in 16 bits";
  p.sources = {
      "recompute_stops_early: PyTorch's checkpoint stops at the last tensor that backward needs since 2.1 "
      "(pytorch/pytorch#90105, #96866 of March 2023); before, with and without use_reentrant, it ran the whole layer "
      "again",
      "fp32_reduction: mixed precision PURE reduces in the training precision (mosaicml/composer@2deccf2c8 "
      "composer/trainer/mosaic_fsdp_utils.py)",
      "the rest as llm-foundry",
  };
  p.recompute_stops_early = false;
  p.fp32_reduction = false;
  p.fills_new_tensors = false;
  return p;
}

}  // namespace rehearse::plan
