// How moments are stored and with which plans an optimizer goes: what is accepted, and what is refused with its reason.
#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

std::string with_model(const std::string& rest) {
  return "rehearse: 1\n" + kSmallModel + rest;
}

TEST(OptimizerRules, MomentsAreFp32Bf16OrInt8) {
  EXPECT_EQ(problems(with_model("training: {moments: bf16}\n")), std::vector<std::string>{});
  EXPECT_EQ(problems(with_model("training: {moments: int8}\n"), {}, Purpose::perform), std::vector<std::string>{});
  EXPECT_EQ(problems(with_model("training: {moments: bf16, precision: fp32, optimizer: sgd}\n"), {}, Purpose::perform),
            std::vector<std::string>{});
  EXPECT_EQ(problems(with_model("training: {moments: bf6}\n")),
            (std::vector<std::string>{
                "3:21 training.moments: expected one of fp32, bf16, int8, found 'bf6' (did you mean 'bf16'?)"}));
  const std::vector<std::string> half = problems(with_model("training: {moments: fp16}\n"));
  ASSERT_EQ(half.size(), 1U);
  EXPECT_TRUE(half[0].starts_with("3:21 training.moments: expected one of fp32, bf16, int8, found 'fp16'")) << half[0];
}

TEST(OptimizerRules, MuonUpdatesWholeMatrices) {
  EXPECT_EQ(problems(with_model("training: {optimizer: muon}\n"), {}, Purpose::perform), std::vector<std::string>{});
  EXPECT_DOUBLE_EQ(read(with_model("training: {optimizer: muon}\n")).training.momentum, 0.95);
  EXPECT_DOUBLE_EQ(read(with_model("training: {optimizer: muon, momentum: 0.9}\n")).training.momentum, 0.9);
  EXPECT_DOUBLE_EQ(read(with_model("training: {optimizer: sgd}\n")).training.momentum, 0);
  const auto only = [](const std::string& rest, const std::string& problem) {
    const std::vector<std::string> found = problems(with_model(rest));
    ASSERT_EQ(found.size(), 1U) << rest;
    EXPECT_NE(found[0].find(problem), std::string::npos) << found[0];
  };
  const auto sharded = [](const std::string& plan) {
    return problems(with_model("cluster: {topology: dgx-a100, gpus: 16}\nplan: {" + plan +
                               "}\ntraining: {optimizer: muon, global_batch: 16}\n"));
  };
  EXPECT_EQ(sharded("zero: 2, tensor: 2"), std::vector<std::string>{}) << "8 ranks share 12 layers' matrices";
  EXPECT_EQ(sharded("zero: 1, zero_group: 4"), std::vector<std::string>{});
  EXPECT_EQ(sharded("zero: 1"),
            (std::vector<std::string>{
                "5:23 training.optimizer: muon: plan.zero = 1 shares whole matrices among 16 ranks, and a stage has 12 "
                "of a shape (plan.zero_group: 12 or less, plan.zero: 0 or 3, or optimizer: adamw)"}));
  EXPECT_EQ(sharded("pipeline: 2, layers_per_stage: by_time"), std::vector<std::string>{}) << "nothing is shared";
  EXPECT_EQ(sharded("zero: 1, zero_group: 4, pipeline: 2, layers_per_stage: by_time"), std::vector<std::string>{});
  const std::vector<std::string> many = sharded("zero: 1, pipeline: 2, layers_per_stage: by_time");
  ASSERT_EQ(many.size(), 1U);
  EXPECT_NE(many[0].find("among 8 ranks, and a stage has 6 of a shape"), std::string::npos) << many[0];
  EXPECT_EQ(sharded("zero: 3"), std::vector<std::string>{}) << "whole layers go to ranks, some of which have none";
  EXPECT_EQ(problems(with_model("training: {optimizer: muon, lora_rank: 4}\n"), {}, Purpose::perform),
            std::vector<std::string>{});
  only("training: {optimizer: muon, precision: fp8, fp8_params: true}\n", "fp8_params) are updated by buckets");
  only("training: {optimizer: muon, moments: bf16}\n", "training.moments: muon keeps its momentum");
  only("plan: {offload_optimizer: true}\ntraining: {optimizer: muon}\n", "Muon has no step on the host yet");
}

TEST(OptimizerRules, AdafactorAddsUpMeansOfParts) {
  EXPECT_EQ(problems(with_model("training: {optimizer: adafactor}\n"), {}, Purpose::perform),
            std::vector<std::string>{});
  const auto only = [](const std::string& rest, const std::string& problem) {
    const std::vector<std::string> found = problems(with_model(rest));
    ASSERT_EQ(found.size(), 1U) << rest;
    EXPECT_NE(found[0].find(problem), std::string::npos) << found[0];
  };
  EXPECT_EQ(problems(with_model("cluster: {topology: dgx-a100, gpus: 8}\nplan: {zero: 3, tensor: 2}\ntraining: "
                                "{optimizer: adafactor}\n")),
            std::vector<std::string>{});
  only("training: {optimizer: adafactor, precision: fp8, fp8_params: true}\n", "fp8_params) are updated by buckets");
  only("training: {optimizer: adafactor, moments: int8}\n", "training.moments: adafactor keeps means of rows and");
  const std::vector<std::string> unknown = problems(with_model("training: {optimizer: adafacto}\n"));
  ASSERT_EQ(unknown.size(), 1U);
  EXPECT_NE(unknown[0].find("did you mean 'adafactor'?"), std::string::npos) << unknown[0];
}

TEST(OptimizerRules, LambAddsUpNormsOfTensors) {
  EXPECT_EQ(problems(with_model("cluster: {topology: dgx-a100, gpus: 8}\nplan: {zero: 3, tensor: 2}\ntraining: "
                                "{optimizer: lamb}\n")),
            std::vector<std::string>{});
  const auto only = [](const std::string& rest, const std::string& problem) {
    const std::vector<std::string> found = problems(with_model(rest));
    ASSERT_EQ(found.size(), 1U) << rest;
    EXPECT_NE(found[0].find(problem), std::string::npos) << found[0];
  };
  only("training: {optimizer: lamb, moments: bf16}\n", "training.moments: lamb keeps its moments in fp32");
  EXPECT_EQ(problems(with_model("training: {optimizer: lamb, lora_rank: 4}\n"), {}, Purpose::perform),
            std::vector<std::string>{});
  only("plan: {offload_optimizer: true}\ntraining: {optimizer: lamb}\n", "LAMB has no step on the host yet");
}

}  // namespace
}  // namespace rehearse::plan
