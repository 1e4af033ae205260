// See plain_runs.h.
#include "tests/numerics/plain_runs.h"

#include <fmt/ranges.h>

#include <cstddef>

#include "sim/plan/context_rows.h"

namespace rehearse::numerics {

std::vector<std::vector<std::int64_t>> token_shards(const plan::Scenario& scenario) {
  const plan::Plan& p = scenario.plan;
  const std::int64_t parts = p.sequence_parallel ? p.tensor : 1;
  std::vector<std::vector<std::int64_t>> shards;
  for (int c = 0; c < static_cast<int>(p.context); ++c) {
    std::vector<std::int64_t> held;
    for (const plan::TokenRun& run : plan::context_tokens(p, scenario.training.seq_len, c))
      for (std::int64_t i = 0; i < run.count; ++i) held.push_back(run.first + i);
    const auto each = static_cast<std::ptrdiff_t>(held.size()) / parts;
    for (std::int64_t part = 0; part < parts; ++part)
      shards.emplace_back(held.begin() + part * each, held.begin() + (part + 1) * each);
  }
  return shards;
}

GptShape plain_shape(const plan::Scenario& scenario) {
  const model::Model& m = scenario.model;
  const plan::Training& t = scenario.training;
  GptShape shape{m.layers,     m.hidden, m.heads,       m.kv_heads,        m.head_dim,
                 m.ffn_hidden, m.vocab,  m.max_seq_len, m.tied_embeddings, m.bias};
  shape.qkv_bias = m.qkv_bias, shape.norm_bias = m.norm_bias;
  shape.mlp_bias = m.mlp_bias, shape.head_bias = m.head_bias;
  shape.embedding_norm = m.embedding_norm, shape.alibi = m.position == model::Position::alibi;
  shape.parallel_norms = static_cast<int>(m.parallel_block);
  shape.squared_relu = m.activation == model::ActivationKind::squared_relu;
  shape.swiglu_oai = m.activation == model::ActivationKind::swiglu_oai;
  shape.rms_norms = m.norm == model::NormKind::rmsnorm, shape.head_norms = m.qk_norm;
  shape.window = m.sliding_window, shape.full_every = m.full_attention_every;
  shape.nope_every = m.nope_every, shape.chunk = m.attention_chunk, shape.sinks = m.attention_sinks;
  shape.experts = m.experts, shape.experts_per_token = m.experts_per_token, shape.experts_every = m.experts_every;
  shape.expert_ffn_hidden = m.expert_ffn_hidden, shape.shared_ffn_hidden = m.shared_experts * m.shared_ffn_hidden;
  shape.expert_groups = m.expert_groups, shape.groups_per_token = m.groups_per_token;
  shape.sigmoid = m.router == model::Router::sigmoid, shape.weigh_inputs = m.weigh_expert_inputs;
  shape.ungated = m.experts > 0 && !m.gated(), shape.expert_latent = m.expert_latent;
  shape.aux_loss = m.aux_loss, shape.capacity_factor = m.capacity_factor;
  if (m.capacity_factor > 0) shape.shards = token_shards(scenario);
  if (m.latent_attention()) {
    shape.q_rank = m.q_lora_rank, shape.kv_rank = m.kv_lora_rank;
    shape.nope = m.qk_nope_head_dim, shape.rope = m.qk_rope_head_dim, shape.value_dim = m.v_head_dim;
  } else if (m.position == model::Position::rope) {
    shape.rope = m.rotated();
  }
  if (t.lora()) {
    shape.lora_rank = t.lora_rank, shape.lora_scale = t.lora_alpha / static_cast<double>(t.lora_rank);
    shape.lora_qkv = t.lora_qkv, shape.lora_proj = t.lora_proj;
    shape.lora_up = t.lora_fc1, shape.lora_down = t.lora_fc2;
  }
  shape.mtp_depth = m.mtp_depth, shape.mtp_weight = m.mtp_loss_weight;
  return shape;
}

std::string shards_text(const GptShape& shape) {
  std::string text;
  for (const auto& shard : shape.shards) text += fmt::format(" [{}]", fmt::join(shard, " "));
  return text;
}

void expect_plain_gpt_losses(const plan::Scenario& scenario, const TokenFile& tokens) {
  const GptShape shape = plain_shape(scenario);
  expect_losses_of<PlainGpt<double>>(shape, scenario, sequence_of, tokens, shards_text(shape));
}

}  // namespace rehearse::numerics
