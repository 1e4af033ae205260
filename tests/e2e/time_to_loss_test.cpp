// When a run comes to a loss: said by execute, which may stop there, by compare and by report; steps of simulations;
// and the algorithms of collectives that are performed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

// A regression that learns: its loss falls from 0.116 to 0.03 in some 30 steps.
std::vector<std::string> learning(std::vector<std::string> more) {
  std::vector<std::string> words = {
      "execute", "regression-stale", "--set", "plan.servers=0", "--set", "plan.consistency=synchronous", "--steps",
      "400"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

double mean_of_ten(const Json& losses, std::size_t last) {
  double sum = 0;
  for (std::size_t s = last - 10; s < last; ++s) sum += losses[s].get<double>();
  return sum / 10;
}

TEST(TimeToLoss, ARunStopsThereAndSaysWhen) {
  const Folder folder;
  const Outcome r = run(learning({"--until-loss", "0.05", "-o", folder / "run", "--json"}));
  ASSERT_EQ(r.status, 0) << r.err;
  const Json result = Json::parse(r.out), reached = result["time_to_loss"];
  const Json& losses = result["loss"];
  ASSERT_TRUE(reached["reached"].get<bool>());
  const auto step = reached["step"].get<std::size_t>();
  EXPECT_LE(mean_of_ten(losses, step), 0.05);
  EXPECT_GT(mean_of_ten(losses, step - 1), 0.05) << "the first such step";
  EXPECT_LT(losses.size(), 400u) << "it stopped";
  EXPECT_LE(step, losses.size());
  EXPECT_EQ(result["steps"], losses.size());
  EXPECT_GT(reached["time_s"].get<double>(), 0);
  // The last step is recorded, as of any run.
  EXPECT_TRUE(has(read(folder / "run/ops.csv"), "\n0/" + std::to_string(losses.size() - 1) + "/"));
  const Outcome table = run(learning({"--until-loss", "0.05"}));
  EXPECT_TRUE(has(table.out, "Time to loss")) << table.out;
  EXPECT_TRUE(has(table.out, "reached with step " + std::to_string(step))) << table.out;
}

TEST(TimeToLoss, ALossThatIsNotReachedIsSaid) {
  const Outcome r = run({"execute", "gpt-tiny-ddp", "--steps", "12", "--until-loss", "-1", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json result = Json::parse(r.out);
  EXPECT_EQ(result["loss"].size(), 12u);
  EXPECT_FALSE(result["time_to_loss"]["reached"].get<bool>());
  EXPECT_FALSE(result["time_to_loss"].contains("step"));
}

TEST(TimeToLoss, WhatCannotStopIsRefused) {
  const auto refused = [](std::vector<std::string> words, const std::string& message) {
    words.insert(words.begin(), "execute");
    words.insert(words.end(), {"--until-loss", "1"});
    const Outcome r = run(words);
    EXPECT_EQ(r.status, 2) << r.err;
    EXPECT_TRUE(has(r.err, message)) << r.err;
  };
  refused({"gpt-tiny-ddp", "--ranks", "gloo"}, "ranks that are threads of one process");
  refused({"gpt-tiny-ddp", "--checkpoint", "saved"}, "is without --checkpoint");
  refused({"gpt-tiny-ddp", "--baseline"}, "is without --baseline");
  refused({"regression-stale"}, "is without parameter servers");
  refused({"gpt-tiny-grpo-local"}, "--until-loss");
}

TEST(TimeToLoss, CompareAndReportTakeTheUsersLoss) {
  const Folder folder;
  ASSERT_EQ(run(learning({"-o", folder / "a"})).status, 0);
  ASSERT_EQ(run(learning({"--set", "training.lr=0.02", "-o", folder / "b"})).status, 0);
  const Outcome both = run({"compare", folder / "a", folder / "b", "--target-loss", "0.05", "-o", folder / "both"});
  ASSERT_EQ(both.status, 0) << both.err;
  EXPECT_TRUE(has(both.out, "Time to a loss of 0.05")) << both.out;
  const Json json = Json::parse(read(folder / "both/compare.json"))["time_to_loss"];
  ASSERT_TRUE(json["first"]["reached"].get<bool>());
  EXPECT_TRUE(!json["second"]["reached"].get<bool>() || json["second"]["step"] > json["first"]["step"]);
  ASSERT_EQ(
      run({"report", folder / "a", folder / "b", "--target-loss", "0.05", "--static", "-o", folder / "p.html"}).status,
      0);
  const std::string page = read(folder / "p.html");
  EXPECT_TRUE(has(page, "Time to a loss of 0.05"));
  EXPECT_TRUE(has(page, "The loss that was asked for."));
  EXPECT_TRUE(has(page, "Loss against time, by the end of each step"));
  ASSERT_EQ(run({"simulate", "gpt-tiny-ddp", "--set", "cluster.topology=dgx-a100", "-o", folder / "s"}).status, 0);
  const Outcome none = run({"compare", folder / "s", folder / "a", "--target-loss", "1", "--force"});
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(has(none.err, "has no losses by step")) << none.err;
}

TEST(TimeToLoss, ASimulationWritesItsSteps) {
  const Folder folder;
  const Outcome r = run(
      {"simulate", "gpt-tiny-ddp", "--set", "cluster.topology=dgx-a100", "--steps", "4", "-o", folder / "s", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json result = Json::parse(r.out);
  const std::string steps = read(folder / "s/steps.csv");
  EXPECT_TRUE(has(steps, "step,rank,loss,end_s,step_s\n1,0,nan,0.")) << steps;
  EXPECT_EQ(std::count(steps.begin(), steps.end(), '\n'), 1 + 4 * result["ranks"].get<int>());
  ASSERT_EQ(run({"report", folder / "s", "--static"}).status, 0);
  EXPECT_TRUE(has(read(folder / "s/report.html"), "Time since the beginning"));
}

TEST(TimeToLoss, PerformedCollectivesHaveTheirAlgorithms) {
  const auto of = [](std::vector<std::string> more) {
    std::vector<std::string> words = {"execute", "gpt-tiny-ddp", "--steps", "3"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome r = run(words);
    EXPECT_EQ(r.status, 0) << r.err;
    return r.out;
  };
  const Json threads = Json::parse(of({"--json"}))["collectives"];
  ASSERT_FALSE(threads.empty());
  for (const Json& use : threads) {
    EXPECT_EQ(use["algorithm"], "local");
    EXPECT_EQ(use["fidelity"], "performed");
    EXPECT_GT(use["count"], 0);
  }
  const Json gloo = Json::parse(of({"--ranks", "gloo", "--json"}))["collectives"];
  bool ring = false;
  for (const Json& use : gloo) ring = ring || use["algorithm"] == "ring";
  EXPECT_TRUE(ring) << gloo;
  EXPECT_TRUE(has(of({}), "algorithm"));
}

}  // namespace
}  // namespace rehearse::e2e
