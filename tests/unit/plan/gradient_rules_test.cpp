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
                            "[random_k, int4, stochastic, error_feedback]", "[int2, stochastic], gradient_chunk: 0",
                            "[power_sgd, error_feedback], gradient_rank: 4, gradient_start_step: 1000"})
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
  only(of_chain("[power_sgd, int8]", kBatch), "power_sgd sends factors of matrices, in fp32");
  only(of_chain("[power_sgd], zero: 1", kBatch), "with plan.zero = 1 each gets the sum of its shard");
  only(of_chain("[power_sgd]", "training: {global_batch: 8, reduce_dtype: bf16}\n"), "power_sgd sends factors in fp32");
  only(of_chain("[int8], gradient_start_step: 5", kBatch), "is when power_sgd begins");
  only(of_chain("[int8], gradient_warmup_steps: 5", kBatch), "is of the share of gradients that is sent");
  const std::string sgd = "training: {global_batch: 8, optimizer: sgd, momentum: 0.9, clip: 0}\n";
  EXPECT_EQ(of_chain("[top_k, momentum_correction], gradient_warmup_steps: 5", sgd), std::vector<std::string>{});
  only(of_chain("[int8, momentum_correction]", sgd), "momentum_correction is how what top_k does not send is kept");
  only(of_chain("[top_k, momentum_correction]", "training: {global_batch: 8, clip: 0}\n"),
       "momentum_correction is of SGD's momentum");
  only(
      of_chain("[top_k, momentum_correction]", "training: {global_batch: 8, optimizer: sgd, momentum: 0.9, clip: 1}\n"),
      "ranks clip by the norm of all their gradients");
  only(of_chain("[int9]", kBatch), "did you mean 'int8'?");
}

TEST(GradientRules, AShareIsOfEachBucketAndAtLeastOneGradient) {
  Plan plan;
  plan.gradient_compression = {"top_k"};
  EXPECT_EQ(plan.gradient_code(10'000).kept, 100);
  EXPECT_EQ(plan.gradient_code(10).kept, 1);
  EXPECT_TRUE(plan.warmup_shares().empty());
  plan.gradient_warmup_steps = 1, plan.gradient_share = 0.001;
  EXPECT_EQ(plan.warmup_shares(), (std::vector<double>{0.25, 0.0625, 0.015625, 0.00390625}));
  EXPECT_EQ(plan.rank_of_matrix(1000, 1000), 1);
  plan.gradient_rank = 4;
  EXPECT_EQ(plan.rank_of_matrix(1000, 1000), 4);
  EXPECT_EQ(plan.rank_of_matrix(1000, 2), 0) << "two columns at most, and 2 x 2,004 is above 2,000";
  EXPECT_EQ(plan.rank_of_matrix(1000, 1), 0);
  EXPECT_EQ(plan.rank_of_matrix(16, 16), 0) << "2 x 4 x 32 is all of 256";
  plan.gradient_compression = {"int4"};
  plan.gradient_chunk = 0;
  EXPECT_EQ(plan.gradient_code(1001).bytes(), 504 + 8) << "filled up to 4 bytes; a scale and a zero point";
}

}  // namespace
}  // namespace rehearse::plan
