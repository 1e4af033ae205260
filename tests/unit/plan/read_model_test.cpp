// Reading models: presets, mappings, presets with overrides, family defaults, and what is said about wrong ones.
#include "sim/plan/read_model.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "sim/plan/model_presets.h"

namespace rehearse::plan {
namespace {

using model::ActivationKind;
using model::AttentionKind;
using model::Model;
using model::NormKind;
using model::Position;

class ReadModelTest : public testing::Test {
 protected:
  Model read(const std::string& value, const std::string& framework = "rehearse") {
    const Document scenario = Document::from_text("s.yaml", "model: " + value, diagnostics_);
    return read_model(scenario.root().get("model"), *find_framework(framework), REHEARSE_SOURCE_DIR, diagnostics_);
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> out;
    for (const Diagnostic& diagnostic : diagnostics_.list()) out.push_back(diagnostic.text());
    return out;
  }
  Diagnostics diagnostics_;
};

using Texts = std::vector<std::string>;

TEST_F(ReadModelTest, EveryPresetReadsWithoutComplaint) {
  const auto names = preset_names(REHEARSE_SOURCE_DIR);
  EXPECT_GE(names.size(), 27U);
  for (const std::string& name : names) {
    EXPECT_EQ(read(name).name, name);
    EXPECT_EQ(texts(), Texts{}) << name;
  }
}

TEST_F(ReadModelTest, GptDefaultsAreThoseOfGpt2) {
  const Model model = read("{family: gpt, layers: 2, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(model.name, "gpt");
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.ffn_hidden, 256);
  EXPECT_EQ(model.activation, ActivationKind::gelu);
  EXPECT_EQ(model.norm, NormKind::layernorm);
  EXPECT_EQ(model.position, Position::learned);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_TRUE(model.bias);
  EXPECT_EQ(model.attention, AttentionKind::flash);
  EXPECT_EQ(model.dropout, 0);
}

TEST_F(ReadModelTest, LlamaDefaultsDifferAndItsFeedForwardWidthIsRequired) {
  const Model model = read("{family: llama, layers: 2, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}");
  EXPECT_EQ(texts(), Texts{"s.yaml:1:8: error: model.ffn_hidden: required key is missing, expected an integer"});
  EXPECT_EQ(model.activation, ActivationKind::swiglu);
  EXPECT_EQ(model.norm, NormKind::rmsnorm);
  EXPECT_EQ(model.position, Position::rope);
  EXPECT_FALSE(model.tied_embeddings);
  EXPECT_FALSE(model.bias);
}

TEST_F(ReadModelTest, APresetMayBeOverriddenKeyByKey) {
  const Model model = read("{preset: gpt3-175b, dropout: 0.1, attention: unfused, layers: 48}");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(model.name, "gpt3-175b");
  EXPECT_EQ(model.layers, 48);
  EXPECT_EQ(model.hidden, 12288);
  EXPECT_DOUBLE_EQ(model.dropout, 0.1);
  EXPECT_EQ(model.attention, AttentionKind::unfused);
}

TEST_F(ReadModelTest, AnOverrideThePresetCannotHaveIsUnknown) {
  read("{preset: gpt3-175b, layer: 48}");
  EXPECT_EQ(texts(), Texts{"s.yaml:1:28: error: model.layer: unknown key (did you mean 'layers'?)"});
}

TEST_F(ReadModelTest, TheFrameworkDecidesWhatATransformerLeavesOpen) {
  EXPECT_EQ(read("gpt3-175b", "megatron-2021").attention, AttentionKind::unfused);
  EXPECT_EQ(read("gpt3-175b", "megatron-2021").dropout, 0.1);
  EXPECT_EQ(read("{preset: gpt3-175b, dropout: 0, attention: flash}", "megatron-2021").dropout, 0);
  EXPECT_EQ(read("cnn-cifar", "megatron-2021").dropout, read("cnn-cifar").dropout) << "a preset's counts as given";
  EXPECT_EQ(read("{family: mlp, widths: [4, 2]}", "megatron-2021").dropout, 0) << "of mlp and cnn 0 unless given";
  EXPECT_EQ(texts(), Texts{});
}

TEST_F(ReadModelTest, AnUnknownPresetNamesTheNearest) {
  read("gpt3-175");
  ASSERT_EQ(texts().size(), 1U);
  EXPECT_EQ(diagnostics_.list()[0].hint, "did you mean 'gpt3-175b'?");
  EXPECT_EQ(diagnostics_.list()[0].column, 8);
  read("../models/gpt3-175b");
  EXPECT_EQ(texts().size(), 2U) << "a name is not a path";
}

TEST_F(ReadModelTest, ShapesThatCannotBeSayTheirNumbers) {
  read("{family: gpt, layers: 2, hidden: 64, heads: 5, vocab: 100, max_seq_len: 32}");
  read("{family: gpt, layers: 2, hidden: 64, heads: 8, kv_heads: 3, vocab: 100, max_seq_len: 32}");
  EXPECT_EQ(texts(),
            (Texts{"s.yaml:1:52: error: model.heads: hidden 64 is not divisible by 5 heads (give head_dim if the "
                   "heads do not divide the hidden size)",
                   "s.yaml:1:65: error: model.kv_heads: 8 heads are not divisible by 3 kv_heads"}));
}

TEST_F(ReadModelTest, AHeadSizeOfItsOwnNeedNotDivideTheHiddenSize) {
  const Model model = read("{family: gpt, layers: 2, hidden: 64, heads: 5, head_dim: 32, vocab: 100, max_seq_len: 32}");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(model.qkv_width(), 15 * 32);
}

TEST_F(ReadModelTest, ExpertsGoTogether) {
  const std::string least = "{family: moe, layers: 4, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32, ";
  const Model model = read(least + "experts: 8, experts_per_token: 2, expert_ffn_hidden: 48, shared_experts: 1}");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(model.shared_ffn_hidden, 48);
  EXPECT_EQ(model.activation, model::ActivationKind::swiglu);
  EXPECT_EQ(model.norm, model::NormKind::rmsnorm);
  read(least + "experts: 8, experts_per_token: 9, expert_ffn_hidden: 48, shared_experts: 1, bias: true}");
  read(least + "experts: 8, experts_per_token: 2, expert_ffn_hidden: 48, activation: geglu, dense_layers: 4}");
  const Texts found = texts();
  ASSERT_EQ(found.size(), 5U) << testing::PrintToString(found);
  EXPECT_NE(found[0].find("a token is sent to 9 of 8 experts"), std::string::npos) << found[0];
  EXPECT_NE(found[1].find("products of shared experts have no biases"), std::string::npos) << found[1];
  EXPECT_NE(found[2].find("the width of the dense layers"), std::string::npos) << found[2];
  EXPECT_NE(found[3].find("4 of 4 layers have no experts"), std::string::npos) << found[3];
  EXPECT_NE(found[4].find("gated by gelu are not available"), std::string::npos) << found[4];
}

TEST_F(ReadModelTest, LatentAttentionIsAWholeOrNone) {
  const std::string least =
      "{family: llama, layers: 4, hidden: 64, heads: 5, ffn_hidden: 96, vocab: 100, max_seq_len: 32";
  const std::string widths = ", qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 7";
  const Model model = read(least + ", kv_lora_rank: 16" + widths + "}");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(model.head_dim, 12);
  EXPECT_EQ(model.kv_heads, 5);
  EXPECT_EQ(model.qkv_width(), 5 * (12 + 12 + 7));
  EXPECT_EQ(model.attention_width(), 5 * 7);
  // h = 64; queries 64 x 60, keys and values 64 x 20 and 16 x 75, output 35 x 64, norms 2 x 64 + 16.
  EXPECT_EQ(model::layer_parameter_count(model), 64 * 60 + 64 * 20 + 16 * 75 + 35 * 64 + 144 + 3 * 64 * 96);
  read(least + ", kv_lora_rank: 16, qk_rope_head_dim: 4}");
  read(least + ", head_dim: 16" + widths + "}");
  read(least + ", head_dim: 16, q_lora_rank: 8}");
  read(least + ", kv_lora_rank: 16, kv_heads: 1, head_dim: 16, position: learned, bias: true" + widths + "}");
  read(least + ", kv_lora_rank: 16, qk_nope_head_dim: 8, qk_rope_head_dim: 3, v_head_dim: 7}");
  const Texts found = texts();
  const std::vector<std::string> expected = {
      "model.qk_nope_head_dim: required key is missing",
      "model.v_head_dim: required key is missing",
      "'qk_nope_head_dim' is of latent attention, which kv_lora_rank = 0 leaves out",
      "'qk_rope_head_dim' is of latent attention",
      "'v_head_dim' is of latent attention",
      "a latent of queries alone",
      "head_dim = 16, but queries and keys of latent attention have qk_nope_head_dim + qk_rope_head_dim = 12 columns",
      "kv_heads = 1: latent attention makes keys and values for each of its 5 heads",
      "latent attention tells places by its rotated columns",
      "products of latent attention have no biases",
      "rope turns pairs of features, but qk_rope_head_dim is 3"};
  ASSERT_EQ(found.size(), expected.size()) << testing::PrintToString(found);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NE(found[i].find(expected[i]), std::string::npos) << found[i];
}

// Qwen2 has biases of queries, keys and values alone, Falcon of norms alone; OPT a table of more positions than it has.
TEST_F(ReadModelTest, BiasesAndPositionsOfSomeModelsCountForThemselves) {
  const std::string least = "{family: gpt, layers: 3, hidden: 64, heads: 4, kv_heads: 2, vocab: 100, max_seq_len: 32";
  const std::int64_t plain = model::parameter_count(read(least + ", bias: false}"));
  EXPECT_EQ(model::parameter_count(read(least + ", bias: false, qkv_bias: true}")) - plain, 3 * (64 + 2 * 32));
  EXPECT_EQ(model::parameter_count(read(least + ", bias: false, norm_bias: true}")) - plain, (3 * 2 + 1) * 64);
  EXPECT_EQ(model::parameter_count(read(least + ", bias: false, norm_bias: true, norm: rmsnorm}")), plain);
  EXPECT_EQ(model::parameter_count(read(least + ", bias: false, position_rows: 34}")) - plain, 2 * 64);
  EXPECT_EQ(plain - model::parameter_count(read(least + ", bias: false, parallel_block: one_norm}")), 3 * 64);
  EXPECT_EQ(plain, model::parameter_count(read(least + ", bias: false, parallel_block: two_norms}")));
  EXPECT_EQ(read(least + ", position: rope, rotary_dim: 4}").rotated(), 4);
  EXPECT_EQ(read(least + ", position: rope}").rotated(), 16);
  EXPECT_EQ(texts(), Texts{});
  read(least + ", position: rope, rotary_dim: 18}");
  read(least + ", position: rope, rotary_dim: 5}");
  read(least + ", rotary_dim: 4}");
  ASSERT_EQ(texts().size(), 3U);
  EXPECT_EQ(diagnostics_.list()[0].message, "18 columns turn, but a head has 16");
  EXPECT_EQ(diagnostics_.list()[1].message, "rope turns pairs of features, but rotary_dim is 5");
  EXPECT_EQ(diagnostics_.list()[2].message, "has no meaning without rotated positions");
  diagnostics_ = Diagnostics();
  read(least + ", position_rows: 31}");
  read(least + ", position: rope, position_rows: 34}");
  EXPECT_EQ(texts(),
            (Texts{"s.yaml:1:112: error: model.position_rows: 31 rows do not hold max_seq_len = 32 positions",
                   "s.yaml:1:128: error: model.position_rows: has no meaning without a table of positions (position: "
                   "learned)"}));
}

// One wrong key brings one message: nothing is said about values that only stand in for it.
TEST_F(ReadModelTest, AMissingShapeIsReportedOnce) {
  read("{family: gpt, layers: 2, heads: 12, vocab: 100, max_seq_len: 32}");
  EXPECT_EQ(texts(), Texts{"s.yaml:1:8: error: model.hidden: required key is missing, expected an integer"});
}

TEST_F(ReadModelTest, WhatIsNoModelSaysSo) {
  read("[1, 2]");
  read("");
  ASSERT_EQ(texts().size(), 2U);
  EXPECT_EQ(diagnostics_.list()[0].message, "expected the name of a model preset or a mapping");
  EXPECT_EQ(diagnostics_.list()[1].message, "expected the name of a model preset or a mapping");
}

TEST_F(ReadModelTest, ConvolutionsAreCheckedAgainstTheMapTheyPool) {
  read(
      "{family: cnn, image: {channels: 3, size: 4}, convolutions: [{channels: 8, kernel: 2}, {channels: 8, pool: 4}], "
      "widths: [10, x]}");
  EXPECT_EQ(
      texts(),
      (Texts{"s.yaml:1:132: error: model.widths[1]: expected a width: an integer, 1 to 1,048,576",
             "s.yaml:1:90: error: model.convolutions[0].kernel: 2 is even; only an odd kernel can be padded to keep "
             "the size",
             "s.yaml:1:114: error: model.convolutions[1].pool: the window of 4 is larger than the 2x2 map it pools"}));
}

TEST_F(ReadModelTest, OneClassIsNothingToLearn) {
  read("{family: mlp, widths: [784, 1]}");
  read("{family: cnn, image: {channels: 3, size: 4}, convolutions: [{channels: 8}], widths: [1]}");
  read("{family: gpt, layers: 1, hidden: 8, heads: 2, vocab: 1, max_seq_len: 8}");
  const std::string told = "one class leaves nothing to learn: its cross-entropy is always 0";
  ASSERT_EQ(texts().size(), 3U);
  EXPECT_EQ(texts()[0], "s.yaml:1:30: error: model.widths: " + told + " (at least two, as in 'widths: [512, 2]')");
  for (const Diagnostic& d : diagnostics_.list()) EXPECT_EQ(d.message, told);
}

// The largest shapes the reader lets through keep the counts inside 64 bits.
TEST_F(ReadModelTest, LimitsKeepCountsInRange) {
  const Model model = read(
      "{family: llama, layers: 16384, hidden: 1048576, heads: 1048576, head_dim: 1, ffn_hidden: 8388608, "
      "vocab: 16777216, max_seq_len: 134217728, position: learned}");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_GT(model::parameter_count(model), 1LL << 57);
  read("{family: gpt, layers: 1, hidden: 1048576, heads: 1048576, head_dim: 1048576, vocab: 2, max_seq_len: 1}");
  EXPECT_EQ(texts().size(), 1U) << "queries, keys and values may not be wider than the limit";
}

}  // namespace
}  // namespace rehearse::plan
