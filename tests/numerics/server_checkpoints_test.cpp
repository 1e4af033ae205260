// Checkpoints of plans with parameter servers: a run that failed goes on as if it had not (synchronous, or in one
// order: bit for bit); asynchronous workers meet at a checkpoint's step; another number of servers, ranks without
// servers, and processes go on from it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "execute/checkpoint/folder.h"
#include "sim/base/diagnostics.h"
#include "sim/run/parameter_servers.h"
#include "tests/numerics/linear_regression.h"
#include "tests/numerics/served_runs.h"

namespace rehearse::served {
namespace {

using account::ServerAct;
using account::ServerEvent;
using numerics::kLinear;

constexpr int kSteps = 12, kEvery = 4;

struct Folder {
  std::string path = test::temporary_path("served-checkpoints");
  ~Folder() { std::filesystem::remove_all(path); }
};

execute::Options options_of(const Folder* folder, bool resume = false, int fails_at = -1) {
  execute::Options options;
  options.steps = kSteps;
  options.keep_parameters = true;
  if (folder != nullptr) {
    options.checkpoint.folder = folder->path;
    options.checkpoint.every = kEvery;
    options.checkpoint.resume = resume;
  }
  options.before_op = [fails_at](int rank, std::int64_t step, const program::Op& op) {
    if (rank == 1 && step == fails_at && op.name == "linear0.forward") throw std::runtime_error("as asked");
  };
  return options;
}

execute::Outcome by_threads(const plan::Scenario& scenario, const execute::Options& options) {
  return execute::perform(scenario, lower::lower(scenario), options);
}

// Fails in step 9, behind the checkpoint of step 8; what is left of the folder is gone on from.
execute::Outcome failed_and_resumed(const plan::Scenario& scenario, const Folder& folder, bool background = false) {
  execute::Options options = options_of(&folder, false, 9);
  options.checkpoint.background = background;
  EXPECT_THROW(by_threads(scenario, options), execute::RankFailure);
  // The manifest may not have been written when the run ended.
  EXPECT_GE(execute::checkpoints_in(folder.path).size(), 1U);
  return by_threads(scenario, options_of(&folder, true));
}

const Assignments kAdamW = {"plan.servers=2", "training.optimizer=adamw", "training.lr=0.02",
                            "training.lr_schedule=cosine", "training.warmup_steps=2"};

Assignments with(Assignments plan, const Assignments& more) {
  plan.insert(plan.end(), more.begin(), more.end());
  return plan;
}

TEST(ServerCheckpoints, SynchronousRunsGoOnBitForBit) {
  for (const bool background : {false, true})
    for (const Assignments& plan :
         {kAdamW, Assignments{"plan.servers=1", "training.momentum=0.5"}, with(kAdamW, {"plan.servers=3"})}) {
      const plan::Scenario scenario = scenario_from(kLinear, plan);
      const Folder folder;
      const execute::Outcome whole = by_threads(scenario, options_of(nullptr));
      const execute::Outcome resumed = failed_and_resumed(scenario, folder, background);
      EXPECT_GE(resumed.first_step, kEvery);
      EXPECT_EQ(resumed.result.loss, whole.result.loss);
      EXPECT_EQ(resumed.parameters, whole.parameters);
      EXPECT_EQ(resumed.checkpoints.written, (kSteps - resumed.first_step) / kEvery);
      EXPECT_GT(resumed.checkpoints.bytes, 0);
    }
}

// A checkpoint is of a moment: whatever servers did before it, all of it is in, and nothing of what comes after.
TEST(ServerCheckpoints, AsynchronousWorkersMeetAtIt) {
  for (const char* consistency : {"asynchronous", "bounded"}) {
    const plan::Scenario scenario =
        scenario_from(kLinear, {"plan.servers=2", std::string("plan.consistency=") + consistency, "plan.staleness=3",
                                "training.lr=0.02", "training.momentum=0.5"});
    const Folder folder, again;
    const execute::Outcome whole = by_threads(scenario, options_of(&folder));
    for (int server = 0; server < 2; ++server)
      for (std::int64_t due = kEvery; due < kSteps; due += kEvery) {
        std::int64_t before = 0;
        for (const ServerEvent& e : whole.server_events) {
          if (e.server != server) continue;
          if (e.iteration >= due) break;
          ++before;
        }
        EXPECT_EQ(before, 2 * 4 * due) << "of server " << server;
      }
    // The rest, in the order in which the uninterrupted run did it, from its checkpoint of step 8.
    std::filesystem::remove_all(folder.path + "/" + execute::checkpoint_name(kSteps));
    execute::Options options = options_of(&folder, true);
    options.server_order = &whole.server_events;
    const execute::Outcome rest = by_threads(scenario, options);
    EXPECT_EQ(rest.first_step, 8);
    EXPECT_EQ(rest.result.loss, whole.result.loss) << consistency;
    EXPECT_EQ(rest.parameters, whole.parameters) << consistency;
    EXPECT_EQ(rest.server_events.size(), whole.server_events.size() / 3);
  }
}

TEST(ServerCheckpoints, OrdersThatPassACheckpointAreRefused) {
  const plan::Scenario scenario =
      scenario_from(kLinear, {"plan.servers=1", "plan.consistency=asynchronous", "cluster.topology=dgx-a100",
                              "noise.rank_step.uniform=[0.5, 1.5]"});
  run::Options simulated;
  simulated.data_root = REHEARSE_SOURCE_DIR;
  const auto order = run::simulated_server_order(scenario, simulated, kSteps);
  const Folder folder;
  execute::Options options = options_of(&folder);
  options.server_order = &order;
  try {
    by_threads(scenario, options);
    FAIL() << "an order whose workers do not meet at step 4";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("a checkpoint is due at step 4"), std::string::npos) << error.what();
  }
}

TEST(ServerCheckpoints, OtherNumbersOfServersAndRanksWithoutGoOn) {
  const plan::Scenario two = scenario_from(kLinear, kAdamW);
  const execute::Outcome whole = by_threads(two, options_of(nullptr));
  for (const Assignments& other : {Assignments{"plan.servers=3"}, Assignments{"plan.servers=1", "cluster.gpus=2"},
                                   Assignments{"plan.servers=0"}}) {
    const Folder folder;
    EXPECT_THROW(by_threads(two, options_of(&folder, false, 9)), execute::RankFailure);
    const execute::Outcome rest = by_threads(scenario_from(kLinear, with(kAdamW, other)), options_of(&folder, true));
    ASSERT_EQ(rest.result.loss.size(), whole.result.loss.size());
    for (std::size_t s = 0; s < whole.result.loss.size(); ++s)
      EXPECT_NEAR(rest.result.loss[s], whole.result.loss[s], 1e-5) << other.front() << " step " << s;
    EXPECT_LT(distance(whole.parameters, rest.parameters), 1e-5) << other.front();
  }
  // And servers from ranks that had none.
  const Folder folder;
  EXPECT_THROW(by_threads(scenario_from(kLinear, with(kAdamW, {"plan.servers=0"})), options_of(&folder, false, 9)),
               execute::RankFailure);
  const execute::Outcome rest = by_threads(two, options_of(&folder, true));
  EXPECT_LT(distance(whole.parameters, rest.parameters), 1e-5);
}

TEST(ServerCheckpoints, ProcessesGoOnBitForBit) {
  if (!processes_can_be()) GTEST_SKIP() << "built without Gloo, or for the thread sanitizer";
  const plan::Scenario scenario = scenario_from(kLinear, kAdamW);
  const execute::Outcome whole = by_threads(scenario, options_of(nullptr));
  const Folder folder;
  const ProcessRuns failed = by_processes(scenario, options_of(&folder, false, 9));
  EXPECT_FALSE(failed.outcome);
  EXPECT_NE(failed.failure().find("as asked"), std::string::npos) << failed.failure();
  const ProcessRuns resumed = by_processes(scenario, options_of(&folder, true));
  ASSERT_TRUE(resumed.outcome) << resumed.failure();
  EXPECT_GE(resumed.outcome->first_step, kEvery);
  EXPECT_EQ(resumed.outcome->result.loss, whole.result.loss);
  EXPECT_EQ(resumed.outcome->parameters, whole.parameters);
  EXPECT_EQ(resumed.outcome->checkpoints.written, (kSteps - resumed.outcome->first_step) / kEvery);
}

}  // namespace
}  // namespace rehearse::served
