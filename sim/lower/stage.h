// What every lowering strategy of one stage shares: the scenario's sizes as this rank sees them, the groups that exist,
// the parameter store, and the role under construction.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "sim/lower/role_builder.h"
#include "sim/plan/expert_loads.h"
#include "sim/plan/scenario.h"

namespace rehearse::lower {

// Ids of the program's groups; -1 where a group would have one member (nothing is sent then).
struct Groups {
  // data: ranks with the same weights; with ZeRO those that shard together, and replica those that hold the same shard.
  program::GroupId tensor = -1, context = -1, data = -1, replica = -1, embedding = -1;
  // Ranks of a tensor group that have the same key-value head, where these are fewer than its ranks and several.
  program::GroupId key_head = -1;
  // Stages of an encoder, or of its decoder: they have the same biases of scores.
  program::GroupId encoder_bias = -1, decoder_bias = -1;
  // With two copies of the parameters (plan.schedule dualpipe), by stage: it and the one that has the same.
  std::vector<program::GroupId> copies;
  // The first stages of both: they have the same table of positions.
  program::GroupId positions = -1;
  // Ranks that hold different experts, and those that hold the same. routing: ranks whose tokens make a micro-batch, as
  // routers have them.
  program::GroupId expert = -1, expert_data = -1, routing = -1;
  program::GroupId targets = -1;  // ranks whose targets that count add up: all, with training.ignored_token
  program::GroupId norm = -1;     // ranks whose gradient squares add up to the global norm
  // Without sharding, where the sum of experts' squares is over more ranks than that of the others.
  program::GroupId expert_norm = -1;
  // Data-parallel ranks that share the sums of batch normalisation: all of a stage, with model.sync_batch_norm.
  program::GroupId batch_norm = -1;
  // Ranks that have tables of sparse features of their own, and trade what they look up: the data-parallel ones.
  program::GroupId tables = -1;
  program::GroupId lamb = -1;  // ranks that have parts of a tensor, whose norms LAMB needs
  // The same for Adafactor's sums; of experts' tensors.
  program::GroupId adafactor = -1, adafactor_experts = -1;
  // Of 8-bit products with delayed scaling: ranks that share largest values, all with the same layers.
  program::GroupId amax = -1;
};

// Facts derived from the scenario once, the same for every stage.
struct Context {
  const plan::Scenario& scenario;
  Groups groups;
  std::int64_t tensor = 1, stages = 1, chunks = 1;
  std::int64_t shards = 1;         // members of groups.data
  std::int64_t expert_shards = 1;  // of groups.expert_data
  std::int64_t expert_tensor = 1;  // ranks each expert is split over
  std::int64_t micro_batches = 1;
  std::int64_t batch = 1, seq = 1;  // sequences of a micro-batch, tokens of a sequence
  std::int64_t tokens = 1;          // of a micro-batch that this rank has: batch * seq / context
  std::int64_t local_tokens = 1;    // rows of the activations between layers: tokens, or tokens / tensor
  std::int64_t vocab = 0;           // padded
  std::int64_t document = 0;        // program::Attention::document
  bool sequence_parallel = false;
  bool causal = true;           // whether a token sees none behind it
  DType compute = DType::f32;   // parameters and activations
  DType residual = DType::f32;  // what is added between layers: compute, or f32 under autocast
  DType gradient = DType::f32, reduce = DType::f32;
  DType moments = DType::f32;  // of the optimizer; u8: codes of blocks
  bool master = false;         // fp32 copy of the parameters kept by the optimizer
  // Of experts without a capacity. Where their ranks have unlike rows, each place in the expert group is a role of its
  // own, and what it trades has parts: by elements of a row and layer an index into Program::parts; -1: equal.
  const plan::ExpertLoads* loads = nullptr;
  std::size_t expert_place = 0;
  std::map<std::int64_t, std::vector<std::int32_t>> parts = {};
  // Which of the loads that micro-batches have in turn (ExpertLoads::patterns) this is of. The first one's context has
  // those of the others: same ops and buffers, other sizes of views.
  std::int64_t load = 0;
  const std::vector<Context>* other_loads = nullptr;
  // With groups.tables each data-parallel rank is a role of its own: its place, all ranks' first tables
  // (plan::first_tables), and in Program::parts what one of them sends the owners.
  std::size_t table_place = 0;
  std::vector<std::size_t> first_table = {};
  struct TableParts {
    std::int32_t ids = -1, vectors = -1;
  } table_parts = {};
  // Where expert groups have loads of their own (ExpertLoads::groups), which one this is of.
  std::int64_t expert_group = 0;

  const model::Model& model() const { return scenario.model; }
  const plan::Plan& plan() const { return scenario.plan; }
  const plan::FrameworkProfile& profile() const { return scenario.framework; }
  // Whether a branch's last product adds the branch's bias: where element-wise kernels are not fused, but not where the
  // group's products are summed up (Residual::forward).
  bool adds_bias_in_product() const { return !profile().fused_elementwise && groups.tensor < 0; }
  // Of a rank: of fewer key-value heads than ranks each has one, in common with the ranks beside it (AttentionBranch).
  bool shares_key_head() const { return tensor > 1 && model().kv_heads < tensor && model().kv_heads < model().heads; }
  std::int64_t key_ranks() const { return shares_key_head() ? tensor / model().kv_heads : 1; }
  std::int64_t kv_heads() const { return shares_key_head() ? 1 : model().kv_heads / tensor; }
  std::int64_t heads_of_key() const { return model().heads / tensor / kv_heads(); }
  std::int64_t qkv_width() const {
    const model::Model& m = model();
    return kv_heads() * (heads_of_key() * m.head_dim + m.head_dim + m.value_dim());
  }
  double loss_weight() const;  // 1 / loss terms of the global batch
  // The same of those of the batch that gradients are the mean of: with plan.local_steps of one group's.
  double gradient_weight() const { return loss_weight() * static_cast<double>(plan().workers()); }
  bool all_to_all() const { return plan().context > 1 && plan().context_kind == plan::ContextKind::all_to_all; }
  // Whether a transformer block's linear layers multiply in 8 or 4 bits.
  bool fp8(std::int64_t layer) const {
    const plan::Training& t = scenario.training;
    // Blocks behind the layers, of multi-token prediction, as Megatron-Core has them: as if in their midst.
    const bool behind = layer >= model().layers;
    return t.narrow() && (behind || (layer >= t.fp8_bf16_layers && layer < model().layers - t.fp8_bf16_layers));
  }
  // Whether a product of experts is a launch for each of them; `narrow`: in 8 bits.
  bool launches_each_expert(bool narrow) const {
    return profile().launches_each_expert && !(narrow && plan().fused_experts);
  }
  // Whether a block's product has an adapter (training.lora_targets): adapts(&model::Adapters::qkv).
  bool adapts(bool model::Adapters::*product) const {
    const model::Adapters adapters = scenario.training.adapters();
    return adapters.on() && adapters.*product;
  }
  // What follows batch normalisation, a sum and ReLU, is made in its kernels.
  bool fuses_batch_norm() const {
    return groups.batch_norm < 0 &&
           (compute == DType::f32 ? profile().fused_batch_norm_fp32 : profile().fused_batch_norm);
  }
  // Maps lie channel by channel in memory (model.map_layout).
  bool channels_first() const {
    const model::MapLayout layout = model().map_layout;
    return layout == model::MapLayout::channels_first ||
           (layout == model::MapLayout::channels_last_16bit && compute == DType::f32);
  }
  bool delayed_scaling() const {
    return scenario.training.eight_bits() && scenario.training.fp8_recipe == plan::Fp8Recipe::delayed;
  }
  // Of 8-bit and 4-bit products: scales of blocks or rows, within the copies.
  bool scales_in_copies() const {
    const plan::Training& t = scenario.training;
    return t.four_bits() || (t.eight_bits() && (t.fp8_block() > 0 || t.fp8_rows()));
  }
  bool scales_loss() const { return compute == DType::f16; }
  bool counts_targets() const { return scenario.training.ignored_token >= 0 && !plan().forward_only; }
  // Rows of the expert group's tokens for the experts of this rank, without a capacity.
  std::int64_t rows_for_own(std::int64_t layer) const {
    return loads->rows_at(layer, load, expert_group, expert_place);
  }
  // In the micro-batch that has most; the same for all loads.
  std::int64_t most_rows_for_own(std::int64_t layer) const {
    return loads->most_rows_at(layer, expert_group, expert_place);
  }
  bool loads_vary() const { return loads != nullptr && loads->vary(); }
};

// The same with the sizes of a decoder's tokens, of a model that has an encoder too.
Context decoder_context(const Context& encoder);
// Of such a model's layers, in the plan's stages: the stage of layer `layer`.
int stage_of_layer(const plan::Plan& plan, std::int64_t layer);

Context make_context(const plan::Scenario& scenario, program::Program& program);

DType dtype_of(plan::Precision precision);

}  // namespace rehearse::lower
