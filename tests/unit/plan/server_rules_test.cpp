// What plan.servers and the keys beside it do not go with.
#include <gtest/gtest.h>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

std::string text_of(const std::string& plan, const std::string& training, const std::string& model, int gpus) {
  return "rehearse: 1\n" + (model.empty() ? kSmallModel : model) +
         "cluster: {topology: dgx-a100, gpus: " + std::to_string(gpus) + "}\nplan: {" + plan +
         "}\ntraining: " + training + "\n";
}

std::vector<std::string> served_plan(const std::string& plan,
                                     const std::string& training = "{global_batch: 16, clip: 0}",
                                     const std::string& model = "", int gpus = 16) {
  return problems(text_of("servers: 2, " + plan, training, model, gpus));
}

TEST(ServerRules, PlansThatAre) {
  for (const char* plan : {"", "consistency: asynchronous", "consistency: bounded, staleness: 0",
                           "server_devices: workers", "backup_workers: 8, micro_batch: 2"})
    EXPECT_EQ(served_plan(plan), std::vector<std::string>{}) << plan;
}

TEST(ServerRules, WhatCannotBeIsSaidInWords) {
  const auto only = [](const std::vector<std::string>& found, const std::string& problem) {
    ASSERT_EQ(found.size(), 1U) << problem;
    EXPECT_NE(found[0].find(problem), std::string::npos) << found[0];
  };
  only(served_plan("tensor: 2"), "plan.tensor = 2 splits it over 2 ranks");
  only(served_plan("pipeline: 2"), "plan.pipeline = 2 splits it over 2 ranks");
  only(served_plan("context: 2"), "plan.context = 2 splits it over 2 ranks");
  only(served_plan("zero: 1"), "of which plan.zero = 1 shards the ranks' own");
  only(served_plan("expert: 4", "{global_batch: 16, clip: 0}", "model: {preset: moe-tiny}\n"),
       "plan.expert = 4 splits it");
  only(served_plan("local_steps: 4"), "with plan.local_steps = 4 workers step by themselves");
  only(served_plan("gradient_compression: [int8]"), "gradients for servers are not compressed yet");
  only(served_plan("", "{global_batch: 16}"), "training.clip = 1 is of the norm of all gradients");
  only(served_plan("", "{global_batch: 16, clip: 0, precision: fp16}"), "are of all ranks together");
  only(served_plan("", "{global_batch: 16, clip: 0, first_weights: broadcast}"),
       "pull their parameters from the servers");
  only(served_plan("", "{global_batch: 16, clip: 0, optimizer: lamb}"), "servers step by sgd or adamw so far");
  only(served_plan("backup_workers: 16"), "16 of 16 data-parallel ranks are spare");
  only(served_plan("backup_workers: 1, consistency: bounded"), "leave nobody behind to spare");
  only(served_plan("backup_workers: 1"),
       "data * micro_batch = 15 * 1 = 15 (data = gpus / (tensor * pipeline) - backup");
  only(served_plan("server_devices: workers", "{global_batch: 1, clip: 0}", "", 1), "2 servers beside 1 workers");
  only(served_plan("consistency: asynchron"), "did you mean 'asynchronous'?");
  const auto without = [](const std::string& plan) {
    return problems(text_of(plan, "{global_batch: 16, clip: 0}", "", 16));
  };
  only(without("consistency: bounded"), "who waits for whom differs with parameter servers alone");
  only(without("backup_workers: 2"), "collectives wait for every rank");
  only(without("mode_overhead: 0.1"), "is of workers of parameter servers");
}

TEST(ServerRules, ABatchIsOfTheWorkersThatCount) {
  const Scenario s = read(text_of("servers: 1, backup_workers: 4, micro_batch: 2", "{clip: 0}", "", 16));
  EXPECT_EQ(s.training.global_batch, 24);
  EXPECT_EQ(s.training.micro_batches(s.plan), 1);
  EXPECT_EQ(s.plan.workers(), 12);
  EXPECT_EQ(s.grid().ranks(), 16);
}

}  // namespace
}  // namespace rehearse::plan
