// Kinds of Hugging Face's models: what each has of its own, which are refused and why, and which keys are slips.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/unit/plan/hf_files.h"

namespace rehearse::plan {
namespace {

class HfKinds : public HfTest {};

// A key of other versions or programs is no slip of one that may be missing.
TEST_F(HfKinds, KeysThatMayBeMissingAreMeantBySlipsAlone) {
  const Model m = file("gemma-2-27b");  // has sliding_window_size, and no sliding_window_pattern
  expect_sound();
  EXPECT_EQ(m.sliding_window, 4096);
  EXPECT_EQ(m.full_attention_every, 2);
  const Model other = changed("llama-2-7b", "\"num_key_value_heads\": 32", "\"num_key_value_groups\": 8");
  expect_sound();
  EXPECT_TRUE(says(other, "Not known here, and not taken: num_key_value_groups"));
  changed("llama-2-7b", "\"num_key_value_heads\": 32", "\"num_key_values_head\": 8");
  EXPECT_NE(problem().find("did you mean 'num_key_value_heads'?"), std::string::npos);
}

TEST_F(HfKinds, SmolLm3AndGlm4AreLlamasWithTheirOwnParts) {
  const Model smol = file("smollm3-3b");
  expect_sound();
  EXPECT_EQ(smol.nope_every, 4);
  EXPECT_TRUE(smol.tied_embeddings);
  changed("smollm3-3b", "    1,\n    0,\n    1", "    0,\n    1,\n    1");
  EXPECT_NE(problem().find("expected every 4th layer alone to differ (model.nope_every)"), std::string::npos)
      << problem();
  const Model glm = file("glm-4-9b");
  expect_sound();
  EXPECT_TRUE(glm.post_norms);
  EXPECT_TRUE(glm.qkv_bias);
  EXPECT_EQ(glm.rotary_dim, 64);
}

TEST_F(HfKinds, OfModelsForImagesTheTextIsRead) {
  const Model gemma = file("gemma-3-4b");
  expect_sound();
  EXPECT_EQ(gemma.heads, 8);
  EXPECT_EQ(gemma.vocab, 262208);
  EXPECT_EQ(gemma.sliding_window, 1024);
  EXPECT_TRUE(says(gemma, "what is beside text_config: images"));
  EXPECT_TRUE(says(file("mistral-small-3.1"), "what is beside text_config: images"));
  text("{\"model_type\": \"mistral3\", \"hidden_size\": 4}");
  EXPECT_NE(problem().find("without its text_config"), std::string::npos) << problem();
}

// Each with what is missing, and no other kind that only looks like it.
TEST_F(HfKinds, KindsThatAreNotThereSayWhy) {
  const auto of = [&](const std::string& kind) {
    text("{\"model_type\": \"" + kind + "\"}");
    return problem();
  };
  for (const auto& [kind, why] : {std::pair{"olmo2", "norms behind the branches"},
                                  {"qwen3_next", "gated delta rules"},
                                  {"modernbert", "an encoder with rotated positions"},
                                  {"mamba", "selective scans of the first Mamba"}}) {
    EXPECT_NE(of(kind).find(why), std::string::npos) << of(kind);
    EXPECT_EQ(of(kind).find("did you mean"), std::string::npos) << of(kind);
  }
  for (const char* kind : {"gemma9", "qwen4", "rwkv"})
    EXPECT_EQ(of(kind).find("did you mean"), std::string::npos) << of(kind);
  EXPECT_NE(of("mistrall").find("did you mean 'mistral'?"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::plan
