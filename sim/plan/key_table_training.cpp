// The keys of the scenario's `training:` mapping; see key_table.cpp.
#include <algorithm>

#include "sim/plan/keys.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

std::string gradient_type(const FrameworkProfile& profile) {
  return profile.fp32_gradients ? "fp32" : "the precision";
}

std::string reduced_type(const FrameworkProfile& profile) {
  return profile.fp32_reduction ? gradient_type(profile) : "the precision";
}

std::string first_weights_of(const FrameworkProfile& profile) {
  return profile.broadcasts_first_weights ? "broadcast" : "seeded";
}

}  // namespace

std::vector<Key> training_keys() {
  return {
      {.path = "training.global_batch",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "data x micro_batch",
       .min = 1,
       .max = double{kMaxGlobalBatch},
       .meaning =
           "sequences per optimizer step over all replicas (images of a cnn, rows of an mlp); a multiple of data "
           "x micro_batch",
       .example = "1536",
       .related = "plan.micro_batch cluster.gpus plan.tensor plan.pipeline",
       .field = &Training::global_batch,
       .in_result = true},
      {.path = "training.seq_len",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "`max_seq_len`, all layers' window if less; cnn/mlp: 1",
       .min = 1,
       .max = double{kMaxSeqLen},
       .meaning = "tokens a sequence; at most `max_seq_len` where positions are learned",
       .example = "2048",
       .related = "model.max_seq_len model.position",
       .field = &Training::seq_len,
       .in_result = true},
      {.path = "training.documents",
       .type = KeyType::choice,
       .fallback = "none",
       .values = {"none", "fixed", "uniform", "lognormal", "table"},
       .meaning = "of gpt, llama and moe: sequences are packed of documents of drawn lengths, the last one cut, whose "
                  "tokens attend to their own document alone and whose positions begin again (Megatron-LM's "
                  "`--reset-attention-mask` and `--reset-position-ids`): of `document_length` tokens each (`fixed`), "
                  "`uniform` or `lognormal` with that mean, or one of `document_lengths` (`table`); `none`: a sequence "
                  "is one document",
       .example = "lognormal",
       .related = "training.document_length training.document_sigma training.document_lengths training.seed "
                  "training.seq_len plan.context_kind",
       .field = &Training::documents},
      {.path = "training.document_length",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "required with documents, but for `table`",
       .min = 1,
       .max = double{kMaxSeqLen},
       .meaning = "tokens of a document, the mean where lengths differ; what goes beyond a sequence's end is cut off",
       .example = "1024",
       .related = "training.documents training.document_sigma training.seq_len",
       .field = &Training::document_length},
      {.path = "training.document_sigma",
       .type = KeyType::number,
       .fallback = "1",
       .min = 0,
       .max = 10,
       .meaning = "of `documents: lognormal`: standard deviation of the length's natural logarithm",
       .example = "0.5",
       .related = "training.documents training.document_length",
       .field = &Training::document_sigma},
      {.path = "training.document_lengths",
       .type = KeyType::integers,
       .origin = Default::derived,
       .fallback = "required with `documents: table`",
       .min = 1,
       .max = double{kMaxSeqLen},
       .item = "tokens",
       .meaning = "of `documents: table`: lengths in tokens, of which each document has one, all as likely",
       .example = "[128, 512, 4096]",
       .related = "training.documents",
       .field = &Training::document_lengths},
      {.path = "training.precision",
       .type = KeyType::choice,
       .fallback = "bf16",
       .values = {"fp32", "bf16", "fp16", "fp8", "nvfp4"},
       .meaning = "of the matmuls: `fp32`, `bf16`, `fp16`; `fp8` and `nvfp4` (4 bits): of linear layers "
                  "in transformer blocks, the rest is bf16",
       .example = "fp16",
       .related = "training.grad_dtype training.reduce_dtype training.fp8_recipe",
       .field = &Training::precision,
       .in_result = true},
      {.path = "training.fp8_recipe",
       .type = KeyType::choice,
       .fallback = "delayed",
       .values = {"delayed", "tensorwise", "blockwise", "mxfp8", "rowwise"},
       .meaning =
           "scales of 8-bit operands, in the words of Megatron-Core's `--fp8-recipe`: `delayed` (of a tensor, from "
           "earlier steps), `tensorwise` (of a tensor, its own), `blockwise` (of 128 elements; weights 128 x 128), "
           "`mxfp8` (of 32 elements); and of torchao's: `rowwise` (of a row of either operand, along which a product "
           "sums)",
       .example = "mxfp8",
       .related = "training.precision training.fp8_transposes",
       .field = &Training::fp8_recipe},
      {.path = "training.fp8_bf16_layers",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1e6,
       .meaning = "of fp8 and nvfp4: blocks at either end of the model that stay bf16 (Megatron-Core's "
                  "`--first-last-layers-bf16`)",
       .example = "1",
       .related = "training.precision training.fp8_recipe",
       .field = &Training::fp8_bf16_layers},
      {.path = "training.fp8_transposes",
       .type = KeyType::boolean,
       .fallback = "true",
       .meaning = "of fp8 with scales of tensors: products want both operands along the dimension that is summed over, "
                  "so each is transposed too (Hopper); `false`: any layout (Blackwell)",
       .example = "false",
       .related = "training.precision training.fp8_recipe",
       .field = &Training::fp8_transposes},
      {.path = "training.fp8_params",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning =
           "of fp8: weights of 8-bit products are held in 8 bits alone, cast from the optimizer's fp32 copy, and are "
           "gathered so (Megatron-Core's `--fp8-param-gather`, torchtitan's `enable_fsdp_float8_all_gather`)",
       .example = "true",
       .related = "training.precision training.fp8_recipe plan.zero",
       .field = &Training::fp8_params},
      {.path = "training.fp8_dispatch",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning = "of fp8 with scales of blocks: rows of tokens go to experts on other ranks in 8 bits with their "
                  "scales, as the product there reads them, and so do the gradients of what comes back, which itself "
                  "is 16 bits (arXiv 2412.19437, section 3.3.3; DeepEP's dispatch of FP8 and scales)",
       .example = "true",
       .related = "training.precision training.fp8_recipe plan.expert plan.expert_dispatch",
       .field = &Training::fp8_dispatch},
      {.path = "training.fp8_activation_input",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning = "of fp8 with scales of blocks: what goes into routed experts' activations is kept for backward in 8 "
                  "bits with scales (arXiv 2412.19437, section 3.3.2; Megatron-Core's "
                  "`activation_func_fp8_input_store`, which has no scales)",
       .example = "true",
       .related = "training.precision training.fp8_recipe plan.recompute_expert_activation",
       .field = &Training::fp8_activation_input},
      {.path = "training.e5m6_attention_output",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning = "of fp8 `blockwise`: what attention gives is kept for backward in 12 bits with scales alone, for "
                  "attention's own and the projection's (E5M6 of arXiv 2412.19437, section 3.3.2); simulated, not "
                  "performed",
       .example = "true",
       .related = "training.precision training.fp8_recipe plan.context",
       .field = &Training::e5m6_attention_output},
      {.path = "training.grad_dtype",
       .type = KeyType::choice,
       .origin = Default::framework,
       .values = {"fp32", "bf16", "fp16"},
       .meaning = "gradients as stored: `fp32` or the precision",
       .example = "fp32",
       .related = "training.precision training.reduce_dtype framework",
       .field = &Training::grad_dtype,
       .framework = gradient_type,
       .in_result = true},
      {.path = "training.reduce_dtype",
       .type = KeyType::choice,
       .origin = Default::framework,
       .values = {"fp32", "bf16", "fp16"},
       .meaning = "gradients as sent: `fp32` or the precision",
       .example = "fp32",
       .related = "training.precision training.grad_dtype framework",
       .field = &Training::reduce_dtype,
       .framework = reduced_type,
       .in_result = true},
      {.path = "training.optimizer",
       .type = KeyType::choice,
       .fallback = "adamw",
       .values = {"adamw", "sgd", "adafactor", "muon", "lamb"},
       .meaning = "`adamw`, `sgd`, `adafactor` (arXiv 1804.04235: second moments as means of rows and columns), "
                  "`muon` (momentum made orthogonal, of the matrices of blocks; adamw of all else), or `lamb` (arXiv "
                  "1904.00962: adamw's step of each tensor, scaled by the ratio of its norm to the step's)",
       .example = "sgd",
       .related = "training.lr training.betas training.eps training.momentum training.weight_decay training.moments",
       .field = &Training::optimizer,
       .in_result = true},
      {.path = "training.sparse_optimizer",
       .type = KeyType::choice,
       .fallback = "none",
       .values = {"none", "sgd", "adagrad"},
       .meaning = "of the tables of sparse features (a layer `tables`): `none`: `optimizer`, with gradients of whole "
                  "tables; `sgd` or `adagrad` (a sum of squares for each row): a step on the rows that were looked up "
                  "alone, in backward, without gradients and moments of tables",
       .example = "adagrad",
       .related = "training.optimizer plan.embedding_tables",
       .field = &Training::sparse_optimizer},
      {.path = "training.moments",
       .type = KeyType::choice,
       .fallback = "fp32",
       .values = {"fp32", "bf16", "int8"},
       .meaning = "the optimizer's averages as stored (adamw: of gradients and of their squares; sgd: the momentum): "
                  "`fp32`, `bf16` as DeepSeek-V3 has them (arXiv 2412.19437, section 3.3.2; Megatron-Core's "
                  "`--exp-avg-dtype` and `--exp-avg-sq-dtype`), or `int8` in blocks of 256 as bitsandbytes' 8-bit "
                  "optimizers have them (arXiv 2110.02861); updates are computed in fp32",
       .example = "bf16",
       .related = "training.optimizer training.precision plan.zero",
       .field = &Training::moments},
      {.path = "training.lora_rank",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 65536,
       .meaning =
           "of gpt, llama and moe: above 0, low-rank adaptation (LoRA, arXiv 2106.09685): beside each product of "
           "`lora_targets` stands an adapter of two matrices of that rank, which alone are trained; every "
           "other parameter is frozen, without gradients and optimizer states",
       .example = "16",
       .related = "training.lora_alpha training.lora_targets training.optimizer plan.zero",
       .field = &Training::lora_rank},
      {.path = "training.lora_alpha",
       .type = KeyType::number,
       .origin = Default::derived,
       .fallback = "`lora_rank`",
       .min = 1e-3,
       .max = 1e6,
       .meaning = "what an adapter gives is multiplied by `lora_alpha` / `lora_rank`: by default 1, as "
                  "in Megatron-Bridge (`dim` 32, `alpha` 32) and Hugging Face's peft (`r` 8, `lora_alpha` 8)",
       .example = "32",
       .related = "training.lora_rank training.lr",
       .field = &Training::lora_alpha},
      {.path = "training.lora_targets",
       .type = KeyType::choices,
       .fallback = "[attention, mlp]",
       .values = {"attention", "mlp", "attention_qkv", "attention_dense", "mlp_fc1", "mlp_fc2"},
       .item = "target",
       .meaning = "which products of blocks have adapters, in NeMo's words: `attention_qkv` (queries, keys and values, "
                  "which are one product), `attention_dense` (the projection), `attention` (both), `mlp_fc1` (gate and "
                  "up-projection), `mlp_fc2` (the way back), `mlp` (both); all by default, as in Megatron-Bridge "
                  "(`target_modules`)",
       .example = "[attention_qkv]",
       .related = "training.lora_rank",
       .field = Field::of<Training>(
           [](const Training& t) {
             std::vector<std::string> targets;
             const auto add = [&](const std::string& layer, const char* first, const char* second, bool one, bool two) {
               if (one && two) return targets.push_back(layer);
               if (one || two) targets.push_back(layer + (one ? first : second));
             };
             add("attention", "_qkv", "_dense", t.lora_qkv, t.lora_proj);
             add("mlp", "_fc1", "_fc2", t.lora_fc1, t.lora_fc2);
             return targets;
           },
           [](Training& t, const Value& value) {
             const auto& targets = std::get<std::vector<std::string>>(value);
             const auto listed = [&](const char* layer, const char* product) {
               return std::any_of(targets.begin(), targets.end(), [&](const std::string& target) {
                 return target == layer || target == std::string(layer) + product;
               });
             };
             t.lora_qkv = listed("attention", "_qkv"), t.lora_proj = listed("attention", "_dense");
             t.lora_fc1 = listed("mlp", "_fc1"), t.lora_fc2 = listed("mlp", "_fc2");
           })},
      {.path = "training.lr",
       .type = KeyType::number,
       .fallback = "3e-4",
       .min = 0,
       .max = 1e6,
       .meaning = "learning rate, after the warm-up",
       .example = "1e-3",
       .related = "training.lr_schedule training.warmup_steps",
       .field = &Training::lr},
      {.path = "training.lr_schedule",
       .type = KeyType::choice,
       .fallback = "constant",
       .values = {"constant", "cosine"},
       .meaning = "learning rate over the steps: `constant`, or `cosine`: after the warm-up half a wave from `lr` to a "
                  "tenth of it at the last step",
       .example = "cosine",
       .related = "training.lr training.warmup_steps",
       .field = &Training::lr_schedule},
      {.path = "training.warmup_steps",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1e9,
       .meaning = "steps in which the learning rate rises to `lr`",
       .example = "100",
       .related = "training.lr training.lr_schedule",
       .field = &Training::warmup_steps},
      {.path = "training.betas",
       .type = KeyType::numbers,
       .fallback = "[0.9, 0.95]",
       .min = 0,
       .max = 1,
       .below_max = true,
       .length = 2,
       .meaning = "of adamw and lamb: decay of the two moments",
       .example = "[0.9, 0.999]",
       .related = "training.optimizer training.eps",
       .field = Field::of<Training>(
           [](const Training& t) {
             return std::vector<double>{t.beta1, t.beta2};
           },
           [](Training& t, const Value& value) {
             const auto& betas = std::get<std::vector<double>>(value);
             t.beta1 = betas[0], t.beta2 = betas[1];
           })},
      {.path = "training.eps",
       .type = KeyType::number,
       .fallback = "1e-8",
       .min = 0,
       .max = 1,
       .meaning = "of adamw, lamb and adagrad: added to the denominator",
       .example = "1e-8",
       .related = "training.optimizer training.betas",
       .field = &Training::eps},
      {.path = "training.momentum",
       .type = KeyType::number,
       .fallback = "0",
       .min = 0,
       .max = 1,
       .below_max = true,
       .meaning = "of sgd, and of muon, which has 0.95 by default",
       .example = "0.9",
       .related = "training.optimizer",
       .field = &Training::momentum},
      {.path = "training.weight_decay",
       .type = KeyType::number,
       .fallback = "0.1",
       .min = 0,
       .max = 1e6,
       .meaning = "share of a weight that an update takes off, times the learning rate",
       .example = "0.01",
       .related = "training.optimizer",
       .field = &Training::weight_decay},
      {.path = "training.clip",
       .type = KeyType::number,
       .fallback = "1.0",
       .min = 0,
       .max = 1e12,
       .meaning = "global gradient norm; 0 turns clipping off, and (but for fp16, which looks for overflows there) its "
                  "all-reduce",
       .example = "0",
       .related = "training.optimizer",
       .field = &Training::clip},
      {.path = "training.ignored_token",
       .type = KeyType::integer,
       .fallback = "-1",
       .min = -1,
       .max = 1 << 24,
       .meaning =
           "of gpt, llama and moe: targets of this token, as padding or prompts, count neither in the loss nor in "
           "gradients; the mean is over all others of the whole batch, however many of them a rank or a "
           "micro-batch has (Megatron-LM's `--calculate-per-token-loss`); -1: all count",
       .example = "0",
       .related = "training.seq_len",
       .field = &Training::ignored_token},
      {.path = "training.loss_scale",
       .type = KeyType::number,
       .fallback = "65536",
       .min = 1,
       .max = 1e12,
       .meaning = "of fp16, at first: the loss is multiplied by it before backward, gradients are divided by it; an "
                  "overflow skips the step and halves it",
       .example = "1024",
       .related = "training.precision training.loss_scale_interval",
       .field = &Training::loss_scale},
      {.path = "training.loss_scale_interval",
       .type = KeyType::integer,
       .fallback = "2000",
       .min = 1,
       .max = 1e9,
       .meaning = "of fp16: steps without overflow after which the loss scale doubles",
       .example = "100",
       .related = "training.loss_scale",
       .field = &Training::loss_scale_interval},
      {.path = "training.seed",
       .type = KeyType::integer,
       .fallback = "1",
       .min = 0,
       .meaning = "of the first weights, the data's order and dropout, when the plan is performed",
       .example = "42",
       .related = "model.dropout",
       .field = &Training::seed},
      {.path = "training.deterministic",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning =
           "every run gives the same bits, as PyTorch's `use_deterministic_algorithms` and Megatron-LM's "
           "`--deterministic-mode` ask for: attention's backward adds up gradients of queries in an order of its "
           "own, Megatron's loss is no fused one and its collectives go by rings; what is performed here always "
           "does on a CPU",
       .example = "true",
       .related = "training.fill_uninitialized model.attention cluster.collectives",
       .field = &Training::deterministic},
      {.path = "training.fill_uninitialized",
       .type = KeyType::boolean,
       .origin = Default::derived,
       .fallback = "`deterministic`, where the framework does",
       .meaning =
           "of `deterministic`: tensors are filled when they are allocated, before a kernel writes them (PyTorch's "
           "`torch.utils.deterministic.fill_uninitialized_memory`, on unless it is turned off, as Megatron-LM "
           "does since September 2026)",
       .example = "true",
       .related = "training.deterministic framework",
       .field = &Training::fill_uninitialized},
      {.path = "training.first_weights",
       .type = KeyType::choice,
       .origin = Default::framework,
       .values = {"seeded", "broadcast"},
       .meaning = "where ranks have their first weights from: `seeded`: each draws its own, by the seed, so that all "
                  "have the same (Megatron-LM); `broadcast`: before the first step rank 0 sends what it has drawn to "
                  "the ranks that hold the same (DistributedDataParallel, Horovod, DeepSpeed, FSDP's "
                  "`sync_module_states`), which takes time once",
       .example = "broadcast",
       .related = "training.seed framework plan.zero plan.zero_group failures.restart",
       .field = &Training::first_weights,
       .framework = first_weights_of,
       .in_result = true},
      {.path = "training.base_batch",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "none",
       .min = 1,
       .max = double{kMaxGlobalBatch},
       .meaning = "`global_batch` of a run that is known to train well: results then say by which factor the learning "
                  "rate should differ from that run's; nothing else depends on it",
       .example = "256",
       .related = "training.base_lr training.global_batch training.lr",
       .field = &Training::base_batch},
      {.path = "training.base_lr",
       .type = KeyType::number,
       .origin = Default::derived,
       .fallback = "none",
       .min = 0,
       .max = 1e6,
       .meaning = "learning rate of that run; needs `base_batch`",
       .example = "0.1",
       .related = "training.base_batch training.lr",
       .field = &Training::base_lr},
  };
}

}  // namespace rehearse::plan::detail
