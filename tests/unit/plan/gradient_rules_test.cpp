// Which chains of plan.gradient_compression there are, and what they do not go with.
#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

std::vector<std::string> of_chain(const std::string& plan, const std::string& rest = "",
                                  const std::string& model = "") {
  return problems("rehearse: 1\n" + (model.empty() ? kSmallModel : model) +
                  "cluster: {topology: dgx-a100, gpus: 8}\nplan: {gradient_compression: " + plan + "}\n" + rest);
}

const std::string kBatch = "training: {global_batch: 8}\n";

TEST(GradientRules, ChainsThatAre) {
  for (const char* chain : {"[none]", "[int8]", "[sign, error_feedback]", "[top_k], gradient_share: 0.001",
                            "[random_k, int4, stochastic, error_feedback]", "[int2, stochastic], gradient_chunk: 0"})
    EXPECT_EQ(of_chain(chain, kBatch), std::vector<std::string>{}) << chain;
}

TEST(GradientRules, WhatCannotBeIsSaidInWords) {
  const auto only = [](const std::vector<std::string>& found, const std::string& problem) {
    ASSERT_EQ(found.size(), 1U) << problem;
    EXPECT_NE(found[0].find(problem), std::string::npos) << found[0];
  };
  only(of_chain("[top_k, random_k]", kBatch), "both say which gradients are sent");
  only(of_chain("[int8, sign]", kBatch), "as which numbers gradients are sent");
  only(of_chain("[error_feedback]", kBatch), "nothing makes the gradients smaller");
  only(of_chain("[top_k, stochastic]", kBatch), "stochastic is how codes of int8, int4 and int2 are rounded");
  only(of_chain("[none, int8]", kBatch), "none is the whole chain");
  only(of_chain("[int8], gradient_chunk: 100", kBatch), "100 is no multiple of 8");
  only(of_chain("[int8], zero: 1", kBatch), "with plan.zero = 1 each gets the sum of its shard");
  only(of_chain("[int8], tensor: 2", kBatch), "ranks of a tensor or expert group hold the same parameters");
  only(of_chain("[int8], pipeline: 2", kBatch), "first and last stage hold the same table");
  for (const char* tied : {"true", "false"})
    only(of_chain("[int8], pipeline: 2", kBatch,
                  std::string("model: {preset: t5-tiny, tied_embeddings: ") + tied + "}\n"),
         "stages of encoder and decoder hold the same tables");
  only(of_chain("[int8]", "training: {global_batch: 8, precision: fp16}\n"), "steps whose gradients overflow");
  only(of_chain("[int8], offload_optimizer: true", kBatch), "gradients that the host adds up or steps by");
  only(of_chain("[int9]", kBatch), "did you mean 'int8'?");
}

TEST(GradientRules, AShareIsOfEachBucketAndAtLeastOneGradient) {
  Plan plan;
  plan.gradient_compression = {"top_k"};
  EXPECT_EQ(plan.gradient_code(10'000).kept, 100);
  EXPECT_EQ(plan.gradient_code(10).kept, 1);
  plan.gradient_compression = {"int4"};
  plan.gradient_chunk = 0;
  EXPECT_EQ(plan.gradient_code(1001).bytes(), 504 + 8) << "filled up to 4 bytes; a scale and a zero point";
}

}  // namespace
}  // namespace rehearse::plan
