// FLOPs that a model needs (MFU counts them) against those that its program does (HFU): never more, whatever the model,
// the framework and the plan; the same where nothing is done twice, fewer where something is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/account/program_facts.h"
#include "sim/plan/model_presets.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

struct Flops {
  double needed = 0, done = 0;
};

Flops flops_of(const std::string& model, const std::vector<std::string>& assignments) {
  const plan::Scenario s =
      scenario_from("rehearse: 1\nmodel: " + model + "\ncluster: {topology: dgx-a100, gpus: 1}\n", assignments);
  return {model::model_flops(s.model, s.training.global_batch, s.training.seq_len, s.training.adapters()),
          account::hardware_flops(lower::lower(s), s.grid())};
}

// Sums of exact integers up to 2^53 and, of the largest models, of doubles in another order.
constexpr double kRounding = 1e-12;

void expect_equal(const Flops& f) {
  EXPECT_NEAR(f.done / f.needed, 1, kRounding);
}
void expect_more(const Flops& f) {
  EXPECT_GT(f.done / f.needed, 1 + kRounding);
}

bool is_transformer(const std::string& preset) {
  return scenario_from("rehearse: 1\nmodel: " + preset + "\n").model.is_transformer();
}

// Sinks multiply nothing, and are not there for scores that are kept.
std::vector<std::string> unfused(const std::string& preset) {
  std::vector<std::string> keys = {"model.attention=unfused"};
  if (scenario_from("rehearse: 1\nmodel: " + preset + "\n").model.attention_sinks)
    keys.emplace_back("model.attention_sinks=false");
  return keys;
}

TEST(Flops, OfEveryPresetAreDoneOnceWithoutRecomputation) {
  for (const std::string& preset : plan::preset_names(REHEARSE_SOURCE_DIR)) {
    SCOPED_TRACE(preset);
    std::vector<std::string> plan = {"framework=rehearse"};
    if (is_transformer(preset)) {
      const model::Model m = scenario_from("rehearse: 1\nmodel: " + preset + "\n").model;
      // A mixer's chunks multiply more than its recurrence, and some of it again in backward.
      if (m.has_mixers()) {
        expect_more(flops_of(preset, plan));
        continue;
      }
      // Flash attention computes the scores again in its backward: it is recomputation. T5's biased scores have none.
      if (!m.has_decoder()) expect_more(flops_of(preset, {"framework=rehearse", "model.attention=flash"}));
      for (const std::string& key : unfused(preset)) plan.push_back(key);
      // Unfused, scores that a window or a chunk hides are computed all the same.
      if (m.sliding_window > 0) plan.push_back(fmt::format("training.seq_len={}", m.sliding_window));
      if (m.attention_chunk > 0) plan.push_back(fmt::format("training.seq_len={}", m.attention_chunk));
    }
    expect_equal(flops_of(preset, plan));
  }
}

TEST(Flops, OfEveryPresetAreMoreWithRecomputation) {
  for (const std::string& preset : plan::preset_names(REHEARSE_SOURCE_DIR)) {
    SCOPED_TRACE(preset);
    std::vector<std::string> plan = {"framework=rehearse", "plan.recompute=full"};
    if (is_transformer(preset))
      for (const std::string& key : unfused(preset)) plan.push_back(key);
    expect_more(flops_of(preset, plan));
    if (!is_transformer(preset)) continue;
    plan[1] = "plan.recompute=selective";
    expect_more(flops_of(preset, plan));
  }
}

TEST(Flops, OfAdaptersAreDoneOnceOfExpertsAndLatentAttentionToo) {
  const std::string latent =
      "{family: moe, layers: 3, dense_layers: 1, hidden: 24, heads: 6, kv_lora_rank: 10, q_lora_rank: 14, "
      "qk_nope_head_dim: 6, qk_rope_head_dim: 4, v_head_dim: 7, ffn_hidden: 40, vocab: 61, max_seq_len: 16, experts: "
      "6, "
      "experts_per_token: 2, expert_ffn_hidden: 20, shared_experts: 1, attention: unfused}";
  for (const std::string& model : {std::string("{preset: mixtral-8x7b, attention: unfused}"), latent,
                                   std::string("{preset: llama3-8b, attention: unfused}")})
    for (const char* targets :
         {"[attention, mlp]", "[attention]", "[attention_dense]", "[mlp]", "[mlp_fc1]", "[mlp_fc2]"})
      for (const char* dense : {"1", "0"}) {
        SCOPED_TRACE(model + targets + dense);
        std::vector<std::string> all = {"framework=rehearse", "training.lora_rank=8",
                                        fmt::format("training.lora_targets={}", targets)};
        if (model == latent) all.push_back(fmt::format("model.dense_layers={}", dense));
        expect_equal(flops_of(model, all));
      }
}

// A padded vocabulary is done and not needed.
TEST(Flops, OfEveryFrameworkAreNeverFewerThanNeeded) {
  for (const std::string& framework : plan::framework_names())
    for (const char* preset : {"gpt2-small", "llama-tiny", "cnn-cifar", "mlp-mnist"}) {
      SCOPED_TRACE(framework + ", " + preset);
      const Flops f = flops_of(preset, {"framework=" + framework});
      EXPECT_GE(f.done / f.needed, 1 - kRounding);
    }
  expect_more(flops_of("gpt2-small", {"framework=megatron-2021", "plan.recompute=none", "model.attention=unfused"}));
}

// Of a token and a head of P channels with N columns of state in chunks of Q: forward multiplies 2 P N with states and
// P Q within the chunk, and for a group N Q; backward twice as much, P Q more for the decays, and states and scores
// again. The recurrence is 2 P N forward and twice that backward.
TEST(Flops, OfAMixersChunksAreTheseMore) {
  const std::string model =
      "{family: llama, layers: 2, layer_pattern: MM, hidden: 24, vocab: 64, max_seq_len: 16, position: none, "
      "mamba_heads: 6, mamba_head_dim: 5, mamba_groups: 2, mamba_state: 7, mamba_chunk: 4}";
  const Flops f = flops_of(model, {"training.global_batch=12", "training.seq_len=16", "framework=rehearse"});
  const double tokens = 12 * 16, layers = 2, heads = 6, groups = 2, p = 5, n = 7, q = 4;
  const double more = 3 * (heads * p * q + groups * n * q) + heads * p * q + heads * p * n + groups * n * q;
  EXPECT_DOUBLE_EQ(f.done - f.needed, 2 * tokens * layers * more);
}

// Flash attention computes what a window leaves, and again in backward; unfused attention also what it masks.
TEST(Flops, OfAWindowAreTheSameWhateverTheSplit) {
  const std::string model =
      "{family: llama, layers: 4, hidden: 24, heads: 6, kv_heads: 2, ffn_hidden: 40, vocab: 64, max_seq_len: 16, "
      "sliding_window: 5, full_attention_every: 2, attention: ";
  const std::vector<std::string> whole = {"training.global_batch=12", "training.seq_len=16", "framework=rehearse"};
  const Flops one = flops_of(model + "flash}", whole), unfused = flops_of(model + "unfused}", whole);
  EXPECT_EQ(one.needed, unfused.needed);
  // A seventh product of attention of two layers of 16 and two of 5 keys, on 24 columns.
  EXPECT_DOUBLE_EQ(one.done - one.needed, 2.0 * 12 * 16 * (2 * 16 + 2 * 5) * 24);
  // Six of 11 masked keys a token, in two layers.
  EXPECT_DOUBLE_EQ(unfused.done - unfused.needed, 6 * 2.0 * 12 * 16 * 2 * 11 * 24);
  for (std::vector<std::string> plan :
       std::vector<std::vector<std::string>>{{"cluster.gpus=2", "plan.tensor=2"},
                                             {"cluster.gpus=4", "plan.zero=3"},
                                             {"cluster.gpus=4", "plan.pipeline=4"},
                                             {"cluster.gpus=2", "plan.context=2", "plan.context_kind=all_to_all"}}) {
    SCOPED_TRACE(testing::PrintToString(plan));
    plan.insert(plan.end(), whole.begin(), whole.end());
    const Flops f = flops_of(model + "flash}", plan);
    EXPECT_EQ(f.needed, one.needed);
    EXPECT_NEAR(f.done / one.done, 1, kRounding);
  }
}

// One more or fewer ranks do not change what is needed; splits do it once between them.
TEST(Flops, DoNotDependOnTheSplit) {
  const char* const models[] = {
      "{family: gpt, layers: 4, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 64, max_seq_len: 16, "
      "attention: unfused}",
      "{family: llama, layers: 4, hidden: 24, heads: 6, kv_heads: 2, ffn_hidden: 40, vocab: 64, max_seq_len: 16, "
      "attention: unfused}",
      "{family: cnn, image: {channels: 3, size: 9}, convolutions: [{channels: 5, kernel: 3, pool: 2}, {channels: 7, "
      "kernel: 5, pool: 1}], widths: [12, 4]}",
      "{family: cnn, image: {channels: 3, size: 9}, convolutions: [{channels: 5, kernel: 3, pool: 2}], widths: [8, 12, "
      "4]}",
      "{family: cnn, image: {channels: 3, size: 16}, residual_block: bottleneck, residual_layers: [1, 1], "
      "residual_groups: 4, residual_group_width: 2, squeeze_width: 3, widths: [4]}",
      "{family: bert, layers: 4, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 64, max_seq_len: 16, "
      "attention: unfused, max_predictions: 5}",
      "{family: t5, encoder_layers: 2, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 64, max_seq_len: 16, "
      "decoder_seq_len: 9}",
      "{family: mlp, widths: [10, 14, 9, 8, 3]}",
      "{family: mlp, widths: [10, 14, 9, 8, 3], loss: mse}",
  };
  const std::vector<std::vector<std::string>> plans = {
      {"plan.micro_batch=12"},
      {"plan.micro_batch=3"},
      {"cluster.gpus=4"},
      {"cluster.gpus=4", "plan.zero=1"},
      {"cluster.gpus=4", "plan.zero=3"},
      {"cluster.gpus=2", "plan.pipeline=2"},
      {"cluster.gpus=4", "plan.pipeline=4", "plan.schedule=gpipe"},
      {"cluster.gpus=4", "plan.pipeline=2", "plan.zero=1"},
  };
  for (const char* model : models)
    for (std::vector<std::string> plan : plans) {
      SCOPED_TRACE(testing::PrintToString(plan) + model);
      plan.insert(plan.end(), {"training.global_batch=12", "framework=rehearse"});
      const Flops f = flops_of(model, plan);
      expect_equal(f);
      plan.emplace_back("plan.recompute=full");
      const Flops twice = flops_of(model, plan);
      EXPECT_EQ(twice.needed, f.needed);
      expect_more(twice);
    }
}

// Frozen weights have no gradients, and nothing below the first adapter has: what is needed is done, and no more.
TEST(Flops, OfAdaptersAreDoneOnceWhateverTheyAreBeside) {
  const char* const models[] = {
      "{family: gpt, layers: 4, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 64, max_seq_len: 16, "
      "attention: unfused}",
      "{family: gpt, layers: 4, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 64, max_seq_len: 16, "
      "attention: unfused, parallel_block: one_norm}",
      "{family: llama, layers: 4, hidden: 24, heads: 6, kv_heads: 2, ffn_hidden: 40, vocab: 64, max_seq_len: 16, "
      "attention: unfused, parallel_block: two_norms}",
      "{family: llama, layers: 4, hidden: 24, heads: 6, kv_heads: 2, ffn_hidden: 40, vocab: 64, max_seq_len: 16, "
      "attention: unfused}"};
  const std::vector<std::vector<std::string>> plans = {{"plan.micro_batch=12"},
                                                       {"cluster.gpus=4", "plan.zero=3"},
                                                       {"cluster.gpus=2", "plan.pipeline=2"},
                                                       {"cluster.gpus=4", "plan.pipeline=4", "plan.schedule=gpipe"}};
  for (const char* model : models)
    for (const char* targets : {"[attention]", "[mlp]", "[attention, mlp]", "[attention_qkv]", "[attention_dense]",
                                "[mlp_fc1]", "[mlp_fc2]", "[attention_dense, mlp_fc2]"})
      for (std::vector<std::string> plan : plans) {
        SCOPED_TRACE(testing::PrintToString(plan) + targets + model);
        plan.insert(plan.end(), {"training.global_batch=12", "framework=rehearse"});
        const Flops whole = flops_of(model, plan);
        plan.insert(plan.end(), {"training.lora_rank=3", std::string("training.lora_targets=") + targets});
        const Flops adapted = flops_of(model, plan);
        expect_equal(adapted);
        EXPECT_LT(adapted.needed, 0.9 * whole.needed);
        plan.emplace_back("plan.recompute=full");
        const Flops twice = flops_of(model, plan);
        EXPECT_EQ(twice.needed, adapted.needed);
        expect_more(twice);
      }
}

// Its only layer is the last one, of whose output backward needs nothing: there is nothing to compute again.
TEST(Flops, OfALinearRegressionAreForwardAndTheWeightsGradient) {
  const Flops f = flops_of("{family: mlp, widths: [10, 1], loss: mse}", {"training.global_batch=8"});
  EXPECT_EQ(f.needed, 2 * 8 * 2 * 10);
  EXPECT_EQ(f.done, f.needed);
}

}  // namespace
}  // namespace rehearse
