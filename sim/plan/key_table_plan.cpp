// The keys of the scenario's `plan:` mapping; see key_table.cpp.
#include <fmt/format.h>

#include "sim/plan/keys.h"
#include "sim/plan/schedule/schedule.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

constexpr double kMostRanks = kMaxRanks;

std::string yes(bool b) {
  return b ? "true" : "false";
}

std::string bytes_text(Bytes bytes) {
  std::int64_t count = bytes.count();
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; unit + 1 < std::size(kUnits) && count % 1024 == 0; count /= 1024) ++unit;
  return fmt::format("{}{}", count, kUnits[unit]);
}

std::string_view schedules_meaning() {
  static const std::string text = [] {
    std::string all;
    for (const std::string_view name : schedule_names())
      all += fmt::format("{}`{}` ({})", all.empty() ? "" : ", ", name, find_schedule(name)->summary());
    return "order of forwards and backwards on a stage: " + all;
  }();
  return text;
}

constexpr const char* kByTime = "by_time";

Field layers_per_stage_field() {
  return Field::of<Plan>(
      [](const Plan& p) -> Value {
        if (p.layers_by_time) return std::string(kByTime);
        return p.layers_per_stage;
      },
      [](Plan& p, const Value& value) {
        p.layers_by_time = std::holds_alternative<std::string>(value);
        if (!p.layers_by_time) p.layers_per_stage = std::get<std::vector<std::int64_t>>(value);
      });
}

Field zero_group() {
  return Field::of<Plan>(
      [](const Plan& p) -> Value {
        if (p.zero_group > 0) return p.zero_group;
        return std::string(p.zero_group == Plan::kNodeShards ? "node" : "all");
      },
      [](Plan& p, const Value& value) {
        if (const auto* ranks = std::get_if<std::int64_t>(&value))
          p.zero_group = *ranks;
        else
          p.zero_group = std::get<std::string>(value) == "node" ? Plan::kNodeShards : Plan::kAllShard;
      });
}

}  // namespace

std::vector<Key> plan_keys() {
  std::vector<Key> keys = {
      {.path = "plan.tensor",
       .type = KeyType::integer,
       .fallback = "1",
       .min = 1,
       .max = kMostRanks,
       .meaning = "ranks a layer's matrices are split over; divides heads and the feed-forward width, and key-value "
                  "heads or is "
                  "a multiple of them",
       .example = "8",
       .related = "plan.sequence_parallel plan.pipeline cluster.gpus",
       .field = &Plan::tensor,
       .in_result = true},
      {.path = "plan.pipeline",
       .type = KeyType::integer,
       .fallback = "1",
       .min = 1,
       .max = kMostRanks,
       .meaning = "stages, each a run of layers",
       .example = "8",
       .related = "plan.schedule plan.chunks plan.layers_per_stage plan.micro_batch",
       .field = &Plan::pipeline,
       .in_result = true},
      {.path = "plan.schedule",
       .type = KeyType::choice,
       .fallback = "1f1b",
       .values = schedule_names(),
       .meaning = schedules_meaning(),
       .example = "gpipe",
       .related = "plan.pipeline plan.chunks plan.micro_batch training.global_batch",
       .field = &Plan::schedule,
       .in_result = true},
      {.path = "plan.chunks",
       .type = KeyType::integer,
       .fallback = "1",
       .min = 1,
       .max = kMostRanks,
       .meaning =
           "model chunks a stage, for `schedule: interleaved`; `zero_bubble_v` and `dualpipe_v` have 2 (`dualpipe` "
           "has one of each copy)",
       .example = "2",
       .related = "plan.schedule plan.pipeline",
       .field = &Plan::chunks,
       .in_result = true},
      {.path = "plan.layers_per_stage",
       .type = KeyType::integers,
       .fallback = "auto",
       .values = {kByTime},
       .min = 0,
       .max = kMostRanks,
       .or_auto = true,
       .item = "number of layers",
       .meaning =
           "one number a stage (with `chunks`, one a stage and chunk in the model's order). `auto` splits evenly "
           "and gives a remainder one each to the stages from the second on; with `framework: nanotron` by the "
           "multiplications of layers and head. `by_time` makes the slowest stage as fast as can be, by what layers, "
           "embedding and head take on each stage's devices. Counts transformer layers, of which the first and the "
           "last stage may have none with `mtp_depth`; of a "
           "cnn each convolution (with its pooling) and each linear layer, of an mlp each linear layer",
       .example = "[11, 13, 12, 12]",
       .related = "plan.pipeline plan.chunks",
       .field = layers_per_stage_field(),
       .in_result = true},
      {.path = "plan.embedding_as_layer",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning =
           "of several stages where `layers_per_stage` is `auto`: count embedding and head as a layer each, so that "
           "the first stage (or chunk) and the last have a layer less than the others (Megatron-Core's "
           "`account_for_embedding_in_pipeline_split` and `account_for_loss_in_pipeline_split`)",
       .example = "true",
       .related = "plan.layers_per_stage plan.pipeline plan.chunks",
       .field = &Plan::embedding_as_layer},
      {.path = "plan.micro_batch",
       .type = KeyType::integer,
       .fallback = "1",
       .min = 1,
       .max = double{kMaxMicroBatch},
       .meaning = "sequences per forward of one replica",
       .example = "2",
       .related = "training.global_batch plan.recompute",
       .field = &Plan::micro_batch,
       .in_result = true},
      {.path = "plan.zero",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 3,
       .meaning = "over the data axis: 0 replicated, 1 optimizer state sharded, 2 gradients too, 3 parameters too "
                  "(FSDP full shard)",
       .example = "1",
       .related = "plan.zero_group plan.bucket plan.overlap_grad_reduce plan.overlap_param_gather",
       .field = &Plan::zero,
       .in_result = true},
      {.path = "plan.zero_group",
       .type = KeyType::choice_or_integer,
       .fallback = "all",
       .values = {"all", "node"},
       .min = 2,
       .max = kMostRanks,
       .meaning = "which ranks with the same weights shard together, with `zero` above 0: `all`, those of a `node`, or "
                  "groups of so many (hybrid sharding: sharded in a group, replicated over the groups, as PyTorch's "
                  "HYBRID_SHARD)",
       .example = "node",
       .related = "plan.zero plan.rank_order",
       .field = zero_group()},
      {.path = "plan.recompute",
       .type = KeyType::choice,
       .fallback = "none",
       .values = {"none", "selective", "full", "ops"},
       .meaning = "what backward computes again instead of keeping: `none`, `selective` (the attention core; nothing "
                  "to do with flash attention, which keeps none of it), `full` (the whole layer), `ops` (the layer but "
                  "for the results of attention, of every second product and of reductions over the tensor group: "
                  "torchtitan's selective activation checkpointing `op`)",
       .example = "full",
       .related = "plan.recompute_layers plan.recompute_every model.attention plan.micro_batch",
       .field = &Plan::recompute,
       .in_result = true},
      {.path = "plan.recompute_layers",
       .type = KeyType::integer,
       .fallback = "auto",
       .min = 1,
       .max = kMostRanks,
       .or_auto = true,
       .meaning = "with `recompute` (without it nothing): so many layers of each stage, with `chunks` of each chunk, "
                  "from its first on, as "
                  "Megatron's `--recompute-method block --recompute-num-layers`; `auto`: all",
       .example = "4",
       .related = "plan.recompute plan.recompute_every plan.layers_per_stage",
       .field = &Plan::recompute_layers},
      {.path = "plan.recompute_every",
       .type = KeyType::integer,
       .fallback = "1",
       .min = 1,
       .max = kMostRanks,
       .meaning = "with `recompute` (without it nothing): of these layers every n-th, 2: the second, fourth, ... "
                  "of each stage, as "
                  "torchtitan's `selective_ac_option` 2",
       .example = "2",
       .related = "plan.recompute plan.recompute_layers",
       .field = &Plan::recompute_every},
      {.path = "plan.recompute_latent",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning = "latent attention: backward makes queries, keys and values again from the latents, which alone are "
                  "kept: Megatron-Core's `--recompute-modules mla_up_proj`, DeepSeek-V3's own training",
       .example = "true",
       .related = "model.kv_lora_rank plan.recompute",
       .field = &Plan::recompute_latent},
      {.path = "plan.recompute_norms",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning = "of gpt, llama and moe: backward makes what the norms before a layer's branches give again, and "
                  "their 8-bit copies, and nothing of them is kept: DeepSeek-V3's own training, and before experts and "
                  "latent attention Megatron-Core's `--recompute-modules layernorm`",
       .example = "true",
       .related = "plan.recompute plan.recompute_latent plan.recompute_expert_activation",
       .field = &Plan::recompute_norms},
      {.path = "plan.recompute_expert_activation",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning = "backward makes the routed experts' activations again from what goes into them: Megatron-Core's "
                  "`--recompute-modules moe_act`, DeepSeek-V3's own training",
       .example = "true",
       .related = "model.experts plan.recompute training.fp8_activation_input",
       .field = &Plan::recompute_expert_activation},
      {.path = "plan.sequence_parallel",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning = "shard activations between the tensor-parallel regions over the sequence (needs `tensor` above 1 to "
                  "matter)",
       .example = "true",
       .related = "plan.tensor training.seq_len",
       .field = &Plan::sequence_parallel,
       .in_result = true},
      {.path = "plan.bucket",
       .type = KeyType::bytes,
       .origin = Default::framework,
       .meaning = "gradient bytes that are reduced together; `1B` sends every gradient on its own. ZeRO-3 has one "
                  "bucket a layer, megatron-2021 one in all, megatron-core one a chunk but for the first chunk of the "
                  "first stage where reductions are overlapped: 160 MB there, or 4 MB a replica; ZeRO-2 has one a "
                  "layer there. "
                  "deepspeed has 500 million elements",
       .example = "25MiB",
       .related = "plan.overlap_grad_reduce plan.zero framework",
       .field = &Plan::bucket,
       .framework = [](const FrameworkProfile& p) -> std::string { return bytes_text(p.bucket); }},
      {.path = "plan.overlap_grad_reduce",
       .type = KeyType::boolean,
       .origin = Default::framework,
       .meaning = "reduce gradients during the last backward; ZeRO 2 and 3 always do",
       .example = "true",
       .related = "plan.bucket plan.zero framework",
       .field = &Plan::overlap_grad_reduce,
       .framework = [](const FrameworkProfile& p) -> std::string { return yes(p.overlap_grad_reduce); },
       .in_result = true},
      {.path = "plan.overlap_param_gather",
       .type = KeyType::boolean,
       .origin = Default::framework,
       .meaning = "ZeRO 1 and 2: gather the updated parameters during the next forward; ZeRO 3 always gathers a layer "
                  "ahead",
       .example = "true",
       .related = "plan.zero framework",
       .field = &Plan::overlap_param_gather,
       .framework = [](const FrameworkProfile& p) -> std::string { return yes(p.overlap_param_gather); },
       .in_result = true},
      {.path = "plan.overlap_tensor_backward",
       .type = KeyType::boolean,
       .origin = Default::framework,
       .meaning = "tensor parallelism: reduce the gradient of a layer's input during the product for its weights' "
                  "gradient (Megatron's async all-reduce; Transformer Engine's bulk overlap)",
       .example = "false",
       .related = "plan.tensor plan.sequence_parallel framework",
       .field = &Plan::overlap_tensor_backward,
       .framework = [](const FrameworkProfile& p) -> std::string { return yes(p.overlap_tensor_backward); },
       .in_result = true},
      {.path = "plan.async_tensor_parallel",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning =
           "sequence parallelism: products go on with one rank's rows while another's are gathered or scattered "
           "(Megatron's `--tp-comm-overlap`, torchtitan's `enable_async_tensor_parallel`); with "
           "`overlap_tensor_backward` the gradient of a column-parallel layer's input is scattered whole, during "
           "the product for its weights' gradient",
       .example = "true",
       .related = "plan.tensor plan.sequence_parallel plan.overlap_tensor_backward",
       .field = &Plan::async_tensor_parallel},
      {.path = "plan.fused_weight_gradient",
       .type = KeyType::boolean,
       .origin = Default::framework,
       .meaning = "the product for a weight's gradient adds to the gradients of the step so far (Megatron's "
                  "`gradient_accumulation_fusion`); `false`: it gives a tensor of its own in the products' type, which "
                  "another kernel adds",
       .example = "false",
       .related = "training.grad_dtype framework",
       .field = &Plan::fused_weight_gradient,
       .framework = [](const FrameworkProfile& p) -> std::string { return yes(p.fused_weight_gradient); }},
      {.path = "plan.fused_latent_rope",
       .type = KeyType::boolean,
       .origin = Default::framework,
       .meaning =
           "latent attention: one kernel rotates queries and keys and puts each head's together (Megatron-Core's "
           "`apply_rope_fusion`, which is experimental there for such heads); `false`: a chain of kernels in the "
           "training precision",
       .example = "true",
       .related = "model.kv_lora_rank model.qk_rope_head_dim framework",
       .field = &Plan::fused_latent_rope,
       .framework = [](const FrameworkProfile& p) -> std::string { return yes(p.fused_latent_rope); }},
      {.path = "plan.cuda_graphs",
       .type = KeyType::choice,
       .fallback = "none",
       .values = {"none", "layer", "step"},
       .meaning = "what the host launches as one graph of captured kernels: `layer`: each layer's forward, and its "
                  "backward (Megatron-Core's `--cuda-graph-impl`); `step`: all forwards and backwards of a step, "
                  "without the optimizer (`full_iteration`)",
       .example = "layer",
       .related = "framework plan.recompute",
       .field = &Plan::cuda_graphs},
      {.path = "plan.fused_epilogues",
       .type = KeyType::choice,
       .fallback = "none",
       .values = {"none", "bias_gradient", "gelu", "all"},
       .meaning =
           "what matrix products do besides, in one kernel, as cuBLASLt's epilogues do: `bias_gradient` (a weight's "
           "gradient and its bias's), `gelu` (GELU behind the first product of a feed-forward layer, its slope "
           "behind the second's backward), `all`. Where the library of a GPU has no such kernel, and on CPUs, the "
           "parts are done one after the other in the same operation",
       .example = "all",
       .related = "model.bias model.activation",
       .field = &Plan::fused_epilogues},
      {.path = "plan.reuse_distance",
       .type = KeyType::integer,
       .origin = Default::framework,
       .min = 0,
       .max = 1e15,
       .meaning = "ZeRO 3 with `recompute: full`: elements of other weights between two uses of a weight from which on "
                  "it is not kept but gathered again (DeepSpeed's stage3_max_reuse_distance). 0: a layer keeps what it "
                  "gathered to compute again",
       .example = "3000000000",
       .related = "plan.zero plan.recompute framework",
       .field = &Plan::reuse_distance,
       .framework = [](const FrameworkProfile& p) -> std::string { return std::to_string(p.reuse_distance); },
       .in_result = true},
      {.path = "plan.offload_optimizer",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning = "keep the optimizer's states (the fp32 copy of the parameters and the averages) in the memory of the "
                  "node's host, whose cores do the optimizer's step: gradients are copied there, updated parameters "
                  "back (DeepSpeed's ZeRO-Offload, `offload_optimizer`; Megatron-Core's `--optimizer-cpu-offload`; "
                  "part of FSDP's CPUOffloadPolicy). With `zero` 2 and 3 gradients stay there too",
       .example = "true",
       .related = "plan.zero plan.offload_activations training.optimizer",
       .field = &Plan::offload_optimizer},
      {.path = "plan.offload_parameters",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning = "with `zero: 3` and `offload_optimizer`: keep the shards of parameters in the memory of the node's "
                  "host too, and copy a layer's shard to the device whenever it is gathered (DeepSpeed's "
                  "`offload_param`; PyTorch's CPUOffloadPolicy is this and `offload_optimizer`)",
       .example = "true",
       .related = "plan.offload_optimizer plan.zero",
       .field = &Plan::offload_parameters},
      {.path = "plan.offload_activations",
       .type = KeyType::boolean,
       .fallback = "false",
       .meaning = "with `recompute: full`: keep the inputs of recomputed layers, which alone are kept for backward, in "
                  "the memory of the node's host: copied there after the layer's forward, and back a layer ahead in "
                  "backward (DeepSpeed's `cpu_checkpointing`)",
       .example = "true",
       .related = "plan.recompute plan.recompute_layers plan.offload_optimizer",
       .field = &Plan::offload_activations},
      {.path = "plan.offload_layers",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1e6,
       .meaning =
           "layers, from the first on, of which all that backward reads is kept in the memory of the node's host: "
           "copied there after the layer's forward, and back a layer ahead in backward (Megatron-Core's "
           "`--cpu-offloading-num-layers`)",
       .example = "20",
       .related = "plan.recompute plan.offload_activations",
       .field = &Plan::offload_layers},
  };
  const std::vector<Key>
      replicas = replica_keys(),
      spread = {
          {.path = "plan.embedding_tables",
           .type = KeyType::choice,
           .fallback = "replicated",
           .values = {"replicated", "sharded"},
           .meaning =
               "the tables of sparse features (a layer `tables`): `replicated` on every data-parallel rank, or "
               "`sharded`: each whole on one of them, which looks up for all and sends the vectors by all-to-all, "
               "gradients back likewise (table-wise, as DLRM)",
           .example = "sharded",
           .related = "model.layer_list training.sparse_optimizer",
           .field = &Plan::embedding_tables},
          {.path = "plan.rank_order",
           .type = KeyType::permutation,
           .fallback = "[tensor, context, expert, data, pipeline]",
           .values = {"tensor", "context", "expert", "data", "pipeline"},
           .item = "axis",
           .meaning = "how ranks are numbered, the fastest-varying axis first",
           .example = "[tensor, pipeline, context, expert, data]",
           .related = "plan.tensor plan.pipeline cluster.topology",
           .field = &Plan::rank_order,
           .in_result = true},
          {.path = "plan.context",
           .type = KeyType::integer,
           .fallback = "1",
           .min = 1,
           .max = kMostRanks,
           .meaning = "ranks a sequence is split over",
           .example = "2",
           .related = "plan.context_kind training.seq_len",
           .field = &Plan::context,
           .in_result = true},
          {.path = "plan.context_kind",
           .type = KeyType::choice,
           .fallback = "ring",
           .values = {"ring", "all_to_all", "all_gather"},
           .meaning =
               "how the ranks of a sequence exchange keys and values: `ring` (passed on from rank to rank during "
               "attention), `all_to_all` (Ulysses: each rank has all tokens of some heads; they must divide), "
               "`all_gather` (gathered before attention)",
           .example = "all_to_all",
           .related = "plan.context",
           .field = &Plan::context_kind},
          {.path = "plan.expert",
           .type = KeyType::integer,
           .fallback = "1",
           .min = 1,
           .max = kMostRanks,
           .meaning =
               "ranks experts are spread over: with `expert_tensor: 1` those of a tensor group, then with `context` "
               "those of a sequence, then data-parallel replicas; divides `model.experts`. Tokens go to their "
               "experts and back by all-to-all",
           .example = "8",
           .related = "plan.expert_tensor model.experts model.capacity_factor",
           .field = &Plan::expert},
          {.path = "plan.expert_tensor",
           .type = KeyType::integer,
           .fallback = "auto",
           .min = 1,
           .max = kMostRanks,
           .or_auto = true,
           .meaning =
               "ranks each expert is split over: `tensor`, or 1, where every rank of a tensor group has experts of "
               "its own (needs `sequence_parallel`); `auto`: `tensor`",
           .example = "1",
           .related = "plan.expert plan.tensor",
           .field = &Plan::expert_tensor},
          {.path = "plan.expert_dispatch",
           .type = KeyType::choice,
           .fallback = "all_to_all",
           .values = {"all_to_all", "all_gather", "forwarding"},
           .meaning =
               "how a token's rows come to experts on other ranks, and back: `all_to_all`: one for each choice; "
               "`all_gather`: every rank gets all ranks' rows and keeps what its experts take, results are "
               "reduce-scattered (Megatron-Core's `allgather`; without a capacity); "
               "`forwarding` (DeepEP, HybridEP): one to each node that has experts of it, which passes it on over "
               "NVLink to each rank that has; sums of a node's results go back (simulated, not performed)",
           .example = "forwarding",
           .related = "plan.expert model.expert_groups",
           .field = &Plan::expert_dispatch},
          {.path = "plan.overlap_expert_exchange",
           .type = KeyType::boolean,
           .fallback = "false",
           .meaning =
               "each forward runs beside the backward of another micro-batch, so that the rows that one trades with "
               "other ranks' experts move while the other computes (Megatron-Core's "
               "overlap_moe_expert_parallel_comm). Under `interleaved` a stage holds one micro-batch more, under "
               "`1f1b` up to twice as many",
           .example = "true",
           .related = "plan.expert plan.schedule",
           .field = &Plan::overlap_expert_exchange},
          {.path = "plan.fused_experts",
           .type = KeyType::boolean,
           .fallback = "false",
           .meaning = "routed experts in mxfp8: one kernel for the products of all experts, with SwiGLU, or its "
                      "gradient, and the casts of what that gives inside (Transformer Engine's fused grouped MLP, "
                      "Megatron-Bridge's `cutedsl_fused_grouped_mlp`); `false`: kernels of their own",
           .example = "true",
           .related = "model.experts training.fp8_recipe framework",
           .field = &Plan::fused_experts},
          {.path = "plan.weigh_in_experts",
           .type = KeyType::boolean,
           .origin = Default::framework,
           .meaning = "the router's weights go to the experts with the rows and are multiplied with their activations "
                      "(Megatron-Core since 0.12, `weighted_bias_swiglu_impl`; with `forwarding`, whose sums of a "
                      "node's results are weighted already); `false`: with the rows that come back, which are kept "
                      "for backward",
           .example = "false",
           .related = "model.experts_per_token plan.expert_dispatch",
           .field = &Plan::weigh_in_experts,
           .framework = [](const FrameworkProfile&p) -> std::string { return yes(p.weighs_in_experts); }},
          {.path = "plan.overlap_shared_experts",
           .type = KeyType::boolean,
           .fallback = "false",
           .meaning = "shared experts compute while rows go to the routed experts and come back, forward and backward "
                      "(Megatron-Core's `--moe-shared-expert-overlap`); else after the routed ones have",
           .example = "true",
           .related = "model.shared_experts plan.expert plan.overlap_expert_exchange",
           .field = &Plan::overlap_shared_experts},
      };
  keys.insert(keys.end(), replicas.begin(), replicas.end());
  keys.insert(keys.end(), spread.begin(), spread.end());
  return keys;
}

}  // namespace rehearse::plan::detail
