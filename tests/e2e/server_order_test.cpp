// Orders of what parameter servers do, written by a simulation or by a run and performed again; what a mode costs, as
// the shipped pair of scenarios has it; and what is said of servers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

Outcome perform_stale(std::vector<std::string> more) {
  std::vector<std::string> words = {"execute", "regression-stale", "--set", "training.lr=0.1", "--steps", "50"};
  words.insert(words.end(), more.begin(), more.end());
  return run(words);
}

TEST(ServerOrder, ASimulationsFileIsPerformedAsTheSimulationItself) {
  const Folder folder;
  const Outcome simulated =
      run({"simulate", "regression-stale", "--set", "training.lr=0.1", "--steps", "50", "-o", folder / "simulated"});
  ASSERT_EQ(simulated.status, 0) << simulated.err;
  const Outcome ordered = perform_stale({"--order", folder / "simulated/servers.csv", "-o", folder / "run", "--json"});
  ASSERT_EQ(ordered.status, 0) << ordered.err;
  const Outcome anew = perform_stale({"--as-simulated", "--json"});
  ASSERT_EQ(anew.status, 0) << anew.err;
  EXPECT_EQ(Json::parse(ordered.out)["loss"], Json::parse(anew.out)["loss"]);
  EXPECT_EQ(read(folder / "simulated/servers.csv"), read(folder / "run/servers.csv"));
}

TEST(ServerOrder, ARunsFileGivesTheRunAgain) {
  const Folder folder;
  const Outcome free = perform_stale({"-o", folder / "free", "--json"});
  ASSERT_EQ(free.status, 0) << free.err;
  const Outcome again = perform_stale({"--order", folder / "free/servers.csv", "--json"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(Json::parse(free.out)["loss"], Json::parse(again.out)["loss"]);
}

TEST(ServerOrder, AFileThatIsNoOrderOfThePlanIsRefusedByName) {
  const Folder folder;
  const auto refused = [&](const std::string& text, const std::string& message) {
    const Outcome r = perform_stale({"--order", folder.write("order.csv", text)});
    EXPECT_EQ(r.status, 2) << r.err;
    EXPECT_TRUE(has(r.err, "order.csv")) << r.err;
    EXPECT_TRUE(has(r.err, message)) << r.err;
  };
  refused("step,rank\n", "expected the columns server,place,act,worker,iteration");
  refused("server,place,act,worker,iteration\n0,0,push,1,0\n", "order.csv:2:5: error: act: expected pull or apply");
  refused("server,place,act,worker,iteration\n0,1,pull,1,0\n", "order.csv:2:3: error: place: expected 0");
  refused("server,place,act,worker,iteration\n0,0,pull,1,0\n", "server 0 has no pull of worker 0, iteration 0");
  refused("server,place,act,worker,iteration\n7,0,pull,1,0\n", "the plan has 1 servers and 4 workers");
  const Outcome none = run({"execute", "gpt-tiny-ddp", "--order", folder / "order.csv"});
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(has(none.err, "says what parameter servers do, and plan.servers = 0")) << none.err;
}

TEST(ServerOrder, TheNoteSaysWhatNoiseDecides) {
  const Outcome ordered = run({"execute", "cifar-4-workers-async", "--steps", "2", "--as-simulated"});
  ASSERT_EQ(ordered.status, 0) << ordered.err;
  EXPECT_TRUE(has(ordered.err, "the order in which servers take gradients is performed")) << ordered.err;
  const Outcome free = run({"execute", "cifar-4-workers-async", "--steps", "2"});
  EXPECT_TRUE(has(free.err, "nothing of them is performed")) << free.err;
}

TEST(ServerOrder, PrometheusHasTheStalenessOfARun) {
  const Folder folder;
  const Outcome r = perform_stale({"--as-simulated", "--metrics", folder / "metrics.prom", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const std::string text = read(folder / "metrics.prom");
  EXPECT_TRUE(has(text, "# TYPE rehearse_staleness_updates histogram")) << text;
  const Json counts = Json::parse(r.out)["parameter_servers"]["staleness"];
  std::int64_t all = 0;
  for (const Json& count : counts) all += count.get<std::int64_t>();
  EXPECT_TRUE(has(text, "le=\"+Inf\"} " + std::to_string(all))) << text;
}

TEST(ServerOrder, SpareWorkersAreNoRecomputation) {
  const Outcome r =
      run({"simulate", "cifar-4-workers-async", "--set", "cluster.gpus=5", "--set", "plan.backup_workers=1", "--set",
           "plan.consistency=synchronous", "--set", "plan.micro_batch=65536", "--set", "training.global_batch=262144"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "20.0% of their")) << r.out;
  EXPECT_TRUE(has(r.out, "given up (backup workers)")) << r.out;
  EXPECT_FALSE(has(r.out, "FLOPs recomputation")) << r.out;
}

// 1.12 x 1.1 / 1.05 in the mean, 95% from 1.146 to 1.201: see the scenarios. Of 1,000 pairs the mean lies within 0.0012
// (3 standard errors), and an end of the range within 0.003 (the quantile's own scatter).
TEST(ServerOrder, WhatWaitingCostsIsTheShippedPairs) {
  const Folder folder;
  for (const char* mode : {"synchronous", "asynchronous"}) {
    const Outcome r = run({"simulate", std::string("servers-4-") + mode, "--steps", "51", "--samples", "1000", "-o",
                           folder / mode, "--json"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(Json::parse(r.out)["samples"]["step_times_s"].size(), 1000u);
  }
  const Outcome both = run({"compare", folder / "asynchronous", folder / "synchronous", "-o", folder / "both"});
  ASSERT_EQ(both.status, 0) << both.err;
  EXPECT_TRUE(has(both.out, "Over 1,000 pairs of samples")) << both.out;
  const Json ratio = Json::parse(read(folder / "both/compare.json"))["samples_ratio"];
  EXPECT_EQ(ratio["pairs"], 1000);
  EXPECT_NEAR(ratio["mean"].get<double>(), 1.1733, 0.0025);
  EXPECT_NEAR(ratio["p2_5"].get<double>(), 1.146, 0.004);
  EXPECT_NEAR(ratio["p97_5"].get<double>(), 1.201, 0.004);
}

}  // namespace
}  // namespace rehearse::e2e
