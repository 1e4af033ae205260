// What an encoder with a decoder cannot be: each problem at its place, with the rule.
#include <gtest/gtest.h>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using Texts = std::vector<std::string>;

TEST(EncoderDecoderRules, WhatAnEncoderWithADecoderCannotBe) {
  const std::string t5 =
      "rehearse: 1\nmodel: {family: t5, encoder_layers: 4, hidden: 96, heads: 12, vocab: 100, max_seq_len: 64}\n";
  const auto only = [&](const std::string& rest) {
    const Texts found = problems(t5 + rest);
    EXPECT_EQ(found.size(), 1U) << testing::PrintToString(found);
    return found.empty() ? std::string() : found.front();
  };
  EXPECT_TRUE(only("cluster: {gpus: 2}\nplan: {context: 2, context_kind: all_to_all}\n")
                  .starts_with("4:17 plan.context: context = 2: the bias"));
  EXPECT_TRUE(only("cluster: {gpus: 2}\nplan: {pipeline: 2, schedule: zero_bubble}\n")
                  .starts_with("4:31 plan.schedule: schedule zero_bubble: a decoder's stages"));
  EXPECT_TRUE(
      only("plan: {recompute: ops}\n").starts_with("3:19 plan.recompute: ops recomputation knows no attention"));
  EXPECT_TRUE(only("training: {precision: fp8}\n").starts_with("3:23 training.precision: blocks that attend"));
  EXPECT_TRUE(only("cluster: {gpus: 4}\nplan: {tensor: 4, sequence_parallel: true}\n")
                  .starts_with("4:38 plan.sequence_parallel: sequence_parallel needs the decoder's "));
  EXPECT_TRUE(problems(t5 + "cluster: {gpus: 2}\nplan: {pipeline: 2, schedule: gpipe}\n").empty());
}

TEST(EncoderDecoderRules, WhatItsModelCannotBe) {
  const auto first = [](const std::string& more) {
    const Texts found = problems(
        "rehearse: 1\nmodel: {family: t5, encoder_layers: 4, hidden: 96, heads: 12, vocab: 100, max_seq_len: 64, " +
        more + "}\n");
    return found.empty() ? std::string() : found.front();
  };
  EXPECT_NE(first("attention: flash").find("T5 adds a bias to the scores"), std::string::npos);
  EXPECT_NE(first("relative_buckets: 6").find("6 buckets are not divisible by 4"), std::string::npos);
  EXPECT_NE(first("relative_distance: 16").find("expected relative_distance above that"), std::string::npos);
  EXPECT_NE(first("layers: 4").find("layers"), std::string::npos);
  EXPECT_NE(first("position: rope").find("tells places by distances or by a table"), std::string::npos);
  EXPECT_NE(first("position: learned, relative_buckets: 32").find("has no meaning with learned positions"),
            std::string::npos);
  EXPECT_NE(first("position: learned, decoder_seq_len: 65")
                .find("the decoder's 65 tokens are above max_seq_len = 64 of the model's learned positions"),
            std::string::npos);
  EXPECT_NE(first("position: learned, attention: flash").find("attend to another sequence"), std::string::npos);
  EXPECT_EQ(first("position: learned, decoder_seq_len: 64, norm: layernorm, bias: true"), "");
}

}  // namespace
}  // namespace rehearse::plan
