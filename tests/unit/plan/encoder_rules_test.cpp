// What an encoder cannot be: each problem at its place, with the rule.
#include <gtest/gtest.h>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using Texts = std::vector<std::string>;

TEST(EncoderRules, WhatAnEncoderCannotBe) {
  const std::string bert =
      "rehearse: 1\nmodel: {family: bert, layers: 4, hidden: 96, heads: 12, vocab: 100, max_seq_len: 64}\n";
  const auto only = [&](const std::string& rest) {
    const Texts found = problems(bert + rest);
    EXPECT_EQ(found.size(), 1U) << testing::PrintToString(found);
    return found.empty() ? std::string() : found.front();
  };
  EXPECT_TRUE(only("cluster: {gpus: 2}\nplan: {context: 2}\n").starts_with("4:17 plan.context: context = 2: contexts"));
  EXPECT_TRUE(only("cluster: {gpus: 2}\nplan: {tensor: 2, sequence_parallel: true}\n")
                  .starts_with("4:38 plan.sequence_parallel: an encoder's heads read rows of whole sequences"));
  EXPECT_TRUE(only("plan: {recompute: ops}\n").starts_with("3:19 plan.recompute: ops recomputation knows no blocks"));
  for (const char* precision : {"fp8", "nvfp4"})
    EXPECT_TRUE(only(std::string("training: {precision: ") + precision + "}\n")
                    .starts_with("3:23 training.precision: blocks with their norms"));
  EXPECT_EQ(problems("rehearse: 1\nmodel: {preset: bert-base, max_predictions: 16}\ntraining: {seq_len: 16}\n"),
            (Texts{"2:45 model.max_predictions: 16 tokens of a sequence of 16 are predicted, the first of which stands "
                   "for its class (at most 15)"}));
  EXPECT_TRUE(problems(bert + "cluster: {gpus: 2}\nplan: {tensor: 2}\n").empty());
}

}  // namespace
}  // namespace rehearse::plan
