// What plan.local_steps does not go with, and which ranks make a worker.
#include <algorithm>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

std::vector<std::string> of_plan(const std::string& plan, const std::string& training = "{global_batch: 16}",
                                 const std::string& model = "", int gpus = 16) {
  return problems("rehearse: 1\n" + (model.empty() ? kSmallModel : model) + "cluster: {topology: dgx-a100, gpus: " +
                  std::to_string(gpus) + "}\nplan: {local_steps: 8, " + plan + "}\ntraining: " + training + "\n");
}

TEST(LocalStepRules, PlansThatAre) {
  for (const char* plan : {"", "local_group: node", "local_group: 4", "outer_optimizer: nesterov, outer_lr: 1",
                           "tensor: 2, pipeline: 2", "context: 2", "tensor: 2, local_group: 4"})
    EXPECT_EQ(of_plan(plan), std::vector<std::string>{}) << plan;
}

TEST(LocalStepRules, WhatCannotBeIsSaidInWords) {
  const auto only = [](const std::vector<std::string>& found, const std::string& problem) {
    ASSERT_EQ(found.size(), 1U) << problem;
    EXPECT_NE(found[0].find(problem), std::string::npos) << found[0];
  };
  only(of_plan("zero: 1"), "with plan.zero = 1 a rank has no optimizer states");
  only(of_plan("gradient_compression: [int8]"), "what workers send one another is no gradients");
  only(of_plan("local_group: 3"), "16 ranks have the same weights");
  only(of_plan("local_group: 16"), "make one worker");
  only(of_plan("", "{global_batch: 16}", "", 1), "1 data-parallel replica makes one worker");
  only(of_plan("local_group: node", "{global_batch: 8}", "", 8), "make one worker");
  only(of_plan("offload_optimizer: true"), "in the host's memory are not averaged yet");
  const std::vector<std::string> graphs = of_plan("cuda_graphs: step");  // which the profile has a word on too
  EXPECT_TRUE(std::any_of(graphs.begin(), graphs.end(), [](const std::string& problem) {
    return problem.find("a graph of a whole step is the same in every step") != std::string::npos;
  }));
  only(of_plan("", "{global_batch: 16, precision: fp16}"), "scales of 8 and 4 bits, and of fp16's losses");
  only(of_plan("", "{global_batch: 16, precision: fp8}"), "scales of 8 and 4 bits, and of fp16's losses");
  only(of_plan("expert: 4", "{global_batch: 16}", "model: {preset: moe-tiny}\n"), "no worker has a whole model");
  only(of_plan("outer_optimizer: nestrov"), "did you mean 'nesterov'?");
}

TEST(LocalStepRules, AWorkerIsAReplicaOrThoseOfANodeOrANumberOfRanks) {
  const auto workers = [](const std::string& plan) {
    return read("rehearse: 1\n" + kSmallModel + "cluster: {topology: dgx-a100, gpus: 16}\nplan: {local_steps: 8, " +
                plan + "}\ntraining: {global_batch: 16}\n")
        .plan.workers();
  };
  EXPECT_EQ(workers(""), 16);
  EXPECT_EQ(workers("tensor: 2, pipeline: 2"), 4);
  EXPECT_EQ(workers("context: 4"), 4);
  EXPECT_EQ(workers("local_group: node"), 2);
  EXPECT_EQ(workers("tensor: 2, local_group: node"), 2);
  EXPECT_EQ(workers("local_group: 4"), 4);
  EXPECT_EQ(workers("local_group: 1"), 16);
}

}  // namespace
}  // namespace rehearse::plan
