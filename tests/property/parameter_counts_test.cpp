// The number of parameters that is printed is that of the weights that one rank of a lowered program holds.
#include <gtest/gtest.h>

#include <string>

#include "sim/model/model.h"
#include "sim/run/goodput.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

std::int64_t parameters_held(const plan::Scenario& scenario) {
  const program::Program program = lower::lower(scenario);
  std::int64_t sum = 0;
  for (const program::Buffer& b : program.roles.front().buffers)
    if (b.cls == program::BufferClass::parameter && b.lifetime == program::Lifetime::persistent && !b.is_view())
      sum += b.elements();
  return sum;
}

class ParameterCounts : public testing::TestWithParam<const char*> {};

TEST_P(ParameterCounts, AreThoseOfTheWeightsHeld) {
  const std::string model =
      std::string("vocab: 100, max_seq_len: 32, hidden: 48, heads: 6, head_dim: 10, ") + GetParam();
  const plan::Scenario scenario =
      scenario_from("rehearse: 1\nmodel: {" + model + "}\ncluster: {topology: local, gpus: 1}\n" +
                    "plan: {micro_batch: 1}\ntraining: {global_batch: 1, seq_len: 32, precision: fp32}\n");
  EXPECT_EQ(model::parameter_count(scenario.model), parameters_held(scenario));
}

INSTANTIATE_TEST_SUITE_P(
    Models, ParameterCounts,
    testing::Values(
        "family: gpt, layers: 3", "family: gpt, layers: 2, tied_embeddings: false", "family: bert, layers: 2",
        "family: llama, layers: 2, kv_heads: 2, ffn_hidden: 80, qk_norm: true, post_norms: true",
        "family: llama, layers: 2, ffn_hidden: 80, bias: true, attention_sinks: true",
        "family: llama, layers: 2, ffn_hidden: 80, kv_lora_rank: 16, q_lora_rank: 12, qk_nope_head_dim: 6, "
        "qk_rope_head_dim: 4, v_head_dim: 8",
        "family: moe, layers: 3, ffn_hidden: 80, dense_layers: 1, experts: 4, experts_per_token: 2, "
        "expert_ffn_hidden: 24, shared_experts: 1",
        "family: moe, layers: 2, experts: 4, experts_per_token: 2, expert_ffn_hidden: 24, bias: true, "
        "attention_sinks: true",
        "family: moe, layers: 2, mtp_depth: 1, experts: 4, experts_per_token: 2, expert_ffn_hidden: 24",
        "family: moe, layers: 2, experts: 4, experts_per_token: 2, expert_ffn_hidden: 24, activation: gelu",
        "family: moe, layers: 2, experts: 4, experts_per_token: 2, expert_ffn_hidden: 24, activation: squared_relu, "
        "shared_experts: 1, expert_latent: 20",
        "family: moe, layers: 4, layer_pattern: \"ME*E\", mtp_depth: 2, mtp_pattern: \"*E\", experts: 4, "
        "experts_per_token: 2, expert_ffn_hidden: 24, activation: squared_relu, expert_latent: 20, bias: true, "
        "mamba_heads: 8, mamba_groups: 4",
        "family: llama, layers: 6, layer_pattern: \"M-M*M-\", kv_heads: 2, ffn_hidden: 80, mamba_heads: 8, "
        "mamba_head_dim: 5, mamba_groups: 4, mamba_state: 6",
        "family: llama, layers: 4, layer_pattern: \"M-*-\", ffn_hidden: 80, bias: true, qk_norm: true, "
        "attention_sinks: true, mamba_heads: 8, mamba_groups: 4",
        "family: moe, layers: 5, layer_pattern: \"ME*ME\", experts: 4, experts_per_token: 2, expert_ffn_hidden: 24, "
        "bias: true, attention_sinks: true, mamba_heads: 8, mamba_groups: 4"));

// What a checkpoint is said to hold, against what one rank of the lowered program does: values and moments.
void expect_held(const std::string& model, const std::string& training) {
  SCOPED_TRACE(model + " " + training);
  const plan::Scenario scenario =
      scenario_from("rehearse: 1\nmodel: {" + model + "}\ncluster: {topology: local, gpus: 1}\n" +
                    "plan: {micro_batch: 1}\ntraining: {global_batch: 1, precision: fp32, " + training + "}\n");
  const program::Program program = lower::lower(scenario);
  double held = 0;
  for (const program::Buffer& b : program.roles.front().buffers)
    if ((b.cls == program::BufferClass::parameter || b.cls == program::BufferClass::optimizer) &&
        b.lifetime == program::Lifetime::persistent && !b.is_view())
      held += static_cast<double>(b.bytes());
  EXPECT_NEAR(run::checkpoint_bytes(scenario) / held, 1, 0.01);
}

TEST(CheckpointBytes, AreThoseOfTheValuesAndMomentsHeld) {
  const std::string text = "layers: 2, max_seq_len: 64, hidden: 128, heads: 4, ";
  const std::string decoders[] = {"family: gpt, vocab: 9000, " + text,
                                  "family: gpt, vocab: 900, position_rows: 20000, " + text,
                                  "family: llama, vocab: 9000, tied_embeddings: false, ffn_hidden: 512, " + text};
  for (const std::string& model : decoders) expect_held(model, "seq_len: 64, optimizer: muon");
  for (const char* moments : {"fp32", "bf16", "int8"}) {
    const std::string training = std::string("optimizer: adamw, moments: ") + moments;
    for (const std::string& model : decoders) expect_held(model, "seq_len: 64, " + training);
    expect_held("family: bert, vocab: 9000, " + text, "seq_len: 64, " + training);
    expect_held(
        "family: custom, tokens: 64, layer_list: [{layer: embedding, vocab: 9000, width: 128, positions: true}, "
        "{layer: average_pool}, {layer: linear, width: 1000}]",
        training);
  }
}

}  // namespace
}  // namespace rehearse
