// Parameter servers and workers that are processes: in one order the same bits as threads, whose arithmetic
// servers_test.cpp holds against one written out; whatever they do freely is the replay of what they recorded; waits
// end and say for whom.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/base/diagnostics.h"
#include "sim/run/parameter_servers.h"
#include "tests/numerics/linear_regression.h"
#include "tests/numerics/served_runs.h"

namespace rehearse::served {
namespace {

using account::ServerAct;
using account::ServerEvent;
using numerics::kLinear;

constexpr int kSteps = 20;

execute::Options options_of(const std::vector<ServerEvent>* order, unsigned restless) {
  execute::Options options;
  options.steps = kSteps;
  options.keep_parameters = true;
  options.server_order = order;
  options.before_op = [restless](int rank, std::int64_t step, const program::Op& op) {
    const unsigned drawn = static_cast<unsigned>(rank * 7 + step * 13) * 2654435761U + restless;
    if (restless > 0 && op.name == "linear0.forward" && drawn % 5 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(drawn % 3000));
  };
  return options;
}

execute::Outcome by_threads(const plan::Scenario& scenario, const execute::Options& options) {
  return execute::perform(scenario, lower::lower(scenario), options);
}

struct Served {
  std::string name;
  Assignments plan;
};
std::ostream& operator<<(std::ostream& out, const Served& s) {
  return out << s.name;
}

class ServerProcesses : public testing::TestWithParam<Served> {
 protected:
  void SetUp() override {
    if (!processes_can_be()) GTEST_SKIP() << "built without Gloo, or for the thread sanitizer";
  }
};

TEST_P(ServerProcesses, RecordAnOrderWhoseReplayByThreadsIsTheSameBits) {
  const plan::Scenario scenario = scenario_from(kLinear, GetParam().plan);
  const ProcessRuns free = by_processes(scenario, options_of(nullptr, 3));
  ASSERT_TRUE(free.outcome) << free.failure();
  EXPECT_EQ(free.outcome->processes, scenario.cluster.gpus + scenario.plan.servers);
  EXPECT_LT(free.outcome->result.loss.back(), free.outcome->result.loss.front());
  const std::vector<ServerEvent>& order = free.outcome->server_events;
  const auto applied =
      std::count_if(order.begin(), order.end(), [](const ServerEvent& e) { return e.act == ServerAct::apply; });
  EXPECT_EQ(applied, kSteps * scenario.plan.counted() * scenario.plan.servers);
  const execute::Outcome replay = by_threads(scenario, options_of(&order, 77));
  EXPECT_EQ(replay.result.loss, free.outcome->result.loss);
  EXPECT_EQ(replay.parameters, free.outcome->parameters);
  // And processes keep an order too.
  const ProcessRuns again = by_processes(scenario, options_of(&order, 5));
  ASSERT_TRUE(again.outcome) << again.failure();
  EXPECT_EQ(again.outcome->result.loss, free.outcome->result.loss);
  EXPECT_EQ(again.outcome->parameters, free.outcome->parameters);
  const result::ParameterServers& p = free.outcome->result.servers;
  ASSERT_TRUE(p.known);
  EXPECT_EQ(p.iterations_per_s.size(), static_cast<std::size_t>(scenario.plan.data));
  EXPECT_GE(p.updates + p.dropped, kSteps - 1);
  if (scenario.plan.consistency == plan::Consistency::bounded) {
    EXPECT_LE(p.most_ahead, scenario.plan.staleness);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, ServerProcesses,
    testing::Values(
        Served{"asynchronous", {"plan.servers=1", "plan.consistency=asynchronous", "training.lr=0.03"}},
        Served{"two_servers_momentum",
               {"plan.servers=2", "plan.consistency=asynchronous", "training.lr=0.02", "training.momentum=0.5"}},
        Served{"more_servers_than_parameters", {"plan.servers=3", "plan.consistency=asynchronous", "training.lr=0.03"}},
        Served{"adamw",
               {"plan.servers=2", "plan.consistency=asynchronous", "training.optimizer=adamw", "training.lr=0.02"}},
        Served{"bound_1", {"plan.servers=2", "plan.consistency=bounded", "plan.staleness=1", "training.lr=0.03"}},
        Served{"synchronous", {"plan.servers=2", "plan.consistency=synchronous"}},
        Served{"one_spare", {"plan.servers=2", "plan.backup_workers=1", "training.global_batch=6"}}),
    [](const auto& test) { return test.param.name; });

TEST(ServerProcessesPerformed, ATransformerIn16BitsIsThatOfThreads) {
  if (!processes_can_be()) GTEST_SKIP() << "built without Gloo, or for the thread sanitizer";
  const plan::Scenario scenario =
      scenario_from(kGpt, {"training.precision=bf16", "training.clip=0", "cluster.gpus=4", "plan.servers=3",
                           "cluster.topology=dgx-a100", "plan.consistency=asynchronous", "training.lr=3e-4"});
  run::Options simulated;
  simulated.data_root = REHEARSE_SOURCE_DIR;
  execute::Options options;
  options.steps = 6;
  options.keep_parameters = true;
  const std::vector<ServerEvent> order = run::simulated_server_order(scenario, simulated, options.steps);
  options.server_order = &order;
  const execute::Outcome threads = by_threads(scenario, options);
  const ProcessRuns processes = by_processes(scenario, options);
  ASSERT_TRUE(processes.outcome) << processes.failure();
  EXPECT_EQ(processes.outcome->result.loss, threads.result.loss);
  EXPECT_EQ(processes.outcome->parameters, threads.parameters);
  EXPECT_EQ(processes.outcome->server_events, order);
}

TEST(ServerProcessesPerformed, WaitsEndAndSayForWhom) {
  if (!processes_can_be()) GTEST_SKIP() << "built without Gloo, or for the thread sanitizer";
  const auto failure = [](const Assignments& plan) {
    execute::Options options = options_of(nullptr, 0);
    options.timeout = std::chrono::milliseconds(600);
    options.before_op = [](int rank, std::int64_t step, const program::Op& op) {
      if (rank == 2 && step == 3 && op.name == "linear0.forward")
        std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    };
    return by_processes(scenario_from(kLinear, plan), options).failure();
  };
  const std::string bounded = failure({"plan.servers=1", "plan.consistency=bounded", "plan.staleness=1"});
  EXPECT_NE(bounded.find("waited 0.6 s for rank 2: server 0 has not their gradients of iteration 3"), std::string::npos)
      << bounded;
  EXPECT_NE(bounded.find("rank 2 (stage0) was in 'linear0.forward'"), std::string::npos) << bounded;
  const std::string together = failure({"plan.servers=2"});
  EXPECT_NE(together.find("for rank 2: server"), std::string::npos) << together;
  const std::string last = failure({"plan.servers=1", "plan.consistency=asynchronous"});
  EXPECT_NE(last.find("server 0 waited 0.6 s for rank 2, the last"), std::string::npos) << last;
}

// An order that is not this plan's, or not of so many steps.
TEST(ServerProcessesPerformed, OrdersOfOtherRunsAreRefused) {
  const plan::Scenario scenario = scenario_from(kLinear, {"plan.servers=1", "plan.consistency=asynchronous"});
  const auto refusal = [&](std::vector<ServerEvent> order) -> std::string {
    execute::Options options = options_of(&order, 0);
    options.steps = 1;
    try {
      by_threads(scenario, options);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  std::vector<ServerEvent> whole;
  for (int w = 0; w < 4; ++w) whole.push_back({0, w, 0, ServerAct::pull}), whole.push_back({0, w, 0, ServerAct::apply});
  EXPECT_EQ(refusal(whole), "");
  std::vector<ServerEvent> more = whole, less = whole, foreign = whole;
  more.push_back(more.front());
  EXPECT_NE(refusal(more).find("has the pull of worker 0, iteration 0, twice"), std::string::npos) << refusal(more);
  less.pop_back();
  EXPECT_NE(refusal(less).find("has no apply of worker 3, iteration 0"), std::string::npos) << refusal(less);
  foreign.push_back({1, 0, 0, ServerAct::pull});
  EXPECT_NE(refusal(foreign).find("the plan has 1 servers and 4 workers"), std::string::npos) << refusal(foreign);
}

}  // namespace
}  // namespace rehearse::served
