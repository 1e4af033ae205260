// rehearse queue as a user runs it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "program.h"
#include "tests/support/temporary.h"

namespace rehearse::e2e {
namespace {

std::string queue_file(const std::string& text) {
  const std::string path = test::temporary_path("queue.yaml");
  std::ofstream(path) << "rehearse_queue: 1\ncluster: {topology: dgx-a100, hosts: 2}\n" << text;
  return path;
}

TEST(QueueCommand, StepsOfAScenarioAreItsOwnSimulation) {
  const std::string file = queue_file(
      "jobs:\n  - {scenario: llama2-7b-8xa100, gpus: 8, steps: 100, count: 4, population: {rounds: 3, bandwidth: "
      "10GB/s}}\n");
  const auto j = nlohmann::json::parse(run({"queue", file, "--json"}).out);
  EXPECT_EQ(j["schema"], "rehearse.queue/1");
  const double step = nlohmann::json::parse(run({"simulate", "llama2-7b-8xa100", "--json"}).out)["step_time_s"];
  EXPECT_EQ(j["entries"][0]["step_time_s"], step);
  EXPECT_EQ(j["jobs"].size(), 12u);
  const double copy = j["entries"][0]["copy_s"];
  EXPECT_NEAR(copy, 6.738e9 * 14 / 10e9, 0.01) << "weights in bf16 and fp32 and two moments";
  EXPECT_NEAR(j["makespan_s"].get<double>(), 6 * 100 * step + 2 * copy, 1e-3)
      << "four jobs of 8 GPUs on 16, one of them copies";
}

TEST(QueueCommand, NamesTheNumberOfGpusThatIsDoneFirst) {
  const Outcome r = run({"queue", "halving-27", "--gpus", "8,16,64"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_LE(widest(r.out), 80u) << r.out;
  EXPECT_TRUE(has(r.out, "All are done first with 64 GPUs a job")) << r.out;
  const Outcome shared = run({"queue", "shared-cluster"});
  EXPECT_LE(widest(shared.out), 80u) << shared.out;
  for (const char* part : {"Utilisation", "too few", "nightly"}) EXPECT_TRUE(has(shared.out, part)) << shared.out;
}

TEST(QueueCommand, WhatIsWrongIsSaidWithItsPlace) {
  const auto refused = [](const std::string& text, const std::string& words, std::vector<std::string> more = {}) {
    std::vector<std::string> all{"queue", queue_file(text)};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome r = run(all);
    EXPECT_EQ(r.status, 2) << r.out;
    EXPECT_TRUE(has(r.err, words)) << r.err;
  };
  refused("jobs: [{gpus: 8, tmie: 3h}]\n", "did you mean 'time'?");
  refused("jobs: [{gpus: 24, time: 3h}]\n", "needs 24 GPUs; the cluster has 16");
  refused("jobs: [{gpus: 12, time: 3h}]\n", "jobs of more than a host take whole hosts of 8");
  refused("jobs: [{gpus: 8, time: 3h, scenario: llama2-7b-8xa100, steps: 1}]\n", "is given twice");
  refused("jobs: [{gpus: 8, time: 3h, population: {rounds: 2, bandwidth: 1GB/s}}]\n", "needs `bytes`");
  refused("gang: {slice: 1min}\njobs: [{gpus: 8, time: 3h}]\n", "is of the policy gang");
  refused("policy: gang\ngang: {slice: 1ns}\njobs: [{gpus: 16, time: 3h, count: 2}]\n", "take more than 5000000 turns");
  refused("policy: fiffo\njobs: [{gpus: 8, time: 3h}]\n", "did you mean 'fifo'?");
  refused("jobs: []\n", "expected a list of jobs");
  refused("jobs: [{gpus: 1, time: 1h, count: 100000, halving: {}}]\n", "at most 100000 are simulated");
  refused("jobs: [{gpus: 8, time: 3h}]\n", "no job of the file has a scenario", {"--gpus", "1,2"});
  refused("jobs: [{gpus: 1, steps: 5, scenario: gpt3-175b-1024xa100, set: {plan: {tensor: 1}}}]\n",
          "expected one value");
}

}  // namespace
}  // namespace rehearse::e2e
