// Plans with parameter servers, performed, against the arithmetic written out for one process: linear regression whose
// oracle goes through what each server did, as the run recorded it, in double precision: a worker's gradient is of the
// parameters that it pulled from each server, and each server steps by itself. It shares with lowering, kernels and the
// Performer only the first values and the examples. And against what must be the same: data parallelism, and two runs
// in one order.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sim/run/parameter_servers.h"
#include "tests/numerics/linear_regression.h"
#include "tests/numerics/plan_runs.h"

namespace rehearse::servers_test {
namespace {

using account::ServerAct;
using account::ServerEvent;
using numerics::kLinear;
using Values = std::vector<double>;

constexpr int kSteps = 20;
constexpr double kNear = 1e-5;  // of losses and parameters, absolute; they are of order 1
constexpr std::size_t kParameters = numerics::kLinearParameters;

// Of the model's parameters the weights come first: with two servers or more they are the first one's, and the biases,
// which are first here, the second's.
std::size_t server_of(std::size_t parameter, std::int64_t servers) {
  return servers > 1 && parameter < numerics::kLinearOutputs ? 1 : 0;
}

class Plain {
 public:
  Values losses, parameters;

  Plain(const plan::Scenario& s, const std::vector<ServerEvent>& events) : s_(s), regression_(s) {
    losses.resize(kSteps);
    parameters = regression_.first();
    m_.resize(kParameters), v_.resize(kParameters);
    updates_.resize(static_cast<std::size_t>(s.plan.servers));
    // Events of servers that depend on one another: as far as each gets.
    std::vector<std::vector<ServerEvent>> of(static_cast<std::size_t>(s.plan.servers));
    for (const ServerEvent& e : events) of[static_cast<std::size_t>(e.server)].push_back(e);
    std::vector<std::size_t> at(of.size());
    for (bool any = true; any;) {
      any = false;
      for (std::size_t server = 0; server < of.size(); ++server)
        while (at[server] < of[server].size() && does(of[server][at[server]])) ++at[server], any = true;
    }
    for (std::size_t server = 0; server < of.size(); ++server)
      EXPECT_EQ(at[server], of[server].size()) << "server " << server << " stands still";
  }

 private:
  using Iteration = std::pair<std::int32_t, std::int64_t>;  // of a worker

  // False if the worker cannot have its gradient yet.
  bool does(const ServerEvent& e) {
    const auto server = static_cast<std::size_t>(e.server);
    const Iteration which{e.worker, e.iteration};
    if (e.act == ServerAct::pull) {
      Values& pulled = pulled_.try_emplace(which, Values(kParameters)).first->second;
      for (std::size_t i = 0; i < kParameters; ++i)
        if (server_of(i, s_.plan.servers) == server) pulled[i] = parameters[i];
      ++pulls_[which];
      return true;
    }
    if (pulls_[which] < s_.plan.servers) return false;
    if (!gradients_.contains(which)) gradients_[which] = gradient_of(which);
    if (s_.plan.consistency != plan::Consistency::synchronous) {
      step(server, gradients_[which]);
      return true;
    }
    auto& sum = sums_.try_emplace({e.server, e.iteration}, Values(kParameters)).first->second;
    const auto counted = static_cast<double>(s_.plan.counted());
    for (std::size_t i = 0; i < kParameters; ++i) sum[i] += gradients_[which][i] / counted;
    if (++gathered_[{e.server, e.iteration}] == s_.plan.counted()) step(server, sum);
    return true;
  }

  // The mean over the worker's own examples; its part of the loss.
  Values gradient_of(const Iteration& which) {
    const std::int64_t batch = s_.training.global_batch, each = batch / s_.plan.counted();
    Values gradient(kParameters);
    for (std::int64_t i = 0; i < each; ++i)
      losses[static_cast<std::size_t>(which.second)] +=
          regression_.add_gradient(pulled_.at(which), which.second * batch + which.first * each + i,
                                   1 / static_cast<double>(each), gradient) /
          static_cast<double>(batch);
    return gradient;
  }

  void step(std::size_t server, const Values& gradient) {
    const plan::Training& t = s_.training;
    const auto update = static_cast<double>(++updates_[server]);
    for (std::size_t i = 0; i < kParameters; ++i) {
      if (server_of(i, s_.plan.servers) != server) continue;
      numerics::plain_step(t, update, gradient[i], parameters[i], m_[i], v_[i]);
    }
  }

  const plan::Scenario& s_;
  numerics::LinearRegression regression_;
  Values m_, v_;
  std::vector<std::int64_t> updates_;
  std::map<Iteration, Values> pulled_, gradients_;
  std::map<Iteration, std::int64_t> pulls_, gathered_;
  std::map<std::pair<std::int32_t, std::int64_t>, Values> sums_;
};

struct Served {
  std::string name;
  Assignments plan;
};
std::ostream& operator<<(std::ostream& out, const Served& s) {
  return out << s.name;
}

// Workers that are slow now and then, so that orders are of all kinds.
execute::Outcome performed_in(const plan::Scenario& scenario, const std::vector<ServerEvent>* order = nullptr,
                              unsigned restless = 0) {
  const program::Program program = lower::lower(scenario);
  EXPECT_EQ(violations(program, scenario.grid()), "");
  execute::Options options;
  options.steps = kSteps;
  options.keep_parameters = true;
  options.server_order = order;
  options.before_op = [restless](int rank, std::int64_t step, const program::Op& op) {
    const unsigned drawn = static_cast<unsigned>(rank * 7 + step * 13) * 2654435761U + restless;
    if (restless > 0 && op.name == "linear0.forward" && drawn % 5 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(drawn % 3000));
  };
  return execute::perform(scenario, program, options);
}

class ParameterServers : public testing::TestWithParam<Served> {};

TEST_P(ParameterServers, ApplyAsTheArithmeticWrittenOut) {
  const plan::Scenario scenario = scenario_from(kLinear, GetParam().plan);
  const execute::Outcome outcome = performed_in(scenario, nullptr, 3);
  const Plain plain(scenario, outcome.server_events);
  ASSERT_EQ(outcome.result.loss.size(), plain.losses.size());
  double last = 0;  // of the five last, since which of them went how depends on the order
  for (std::size_t s = plain.losses.size() - 5; s < plain.losses.size(); ++s) last += plain.losses[s] / 5;
  EXPECT_LT(last, plain.losses.front()) << "too little is learnt for the curve to say much";
  for (std::size_t s = 0; s < plain.losses.size(); ++s)
    ASSERT_NEAR(outcome.result.loss[s], plain.losses[s], kNear) << "step " << s;
  for (std::size_t i = 0; i < kParameters; ++i) {
    const float value =
        i < 2 ? outcome.parameters.at("linear0.bias")[i] : outcome.parameters.at("linear0.weight")[i - 2];
    EXPECT_NEAR(static_cast<double>(value), plain.parameters[i], kNear) << i;
  }
  const result::ParameterServers& p = outcome.result.servers;
  ASSERT_TRUE(p.known);
  EXPECT_EQ(p.workers, 4);
  // Within the window: of the worker that ends first all but its first iteration.
  EXPECT_GE(p.updates + p.dropped, kSteps - 1);
  EXPECT_LE(p.updates + p.dropped, (kSteps - 1) * scenario.plan.data);
  if (scenario.plan.backup_workers == 0) {
    EXPECT_EQ(p.dropped, 0);
  }
  if (scenario.plan.consistency == plan::Consistency::bounded) {
    EXPECT_LE(p.most_ahead, scenario.plan.staleness);
  }
}

// In the order of a simulation, whatever threads do: the same bits.
TEST_P(ParameterServers, InASimulatedOrderAreTheSameBits) {
  Assignments plan = GetParam().plan;
  plan.insert(plan.end(), {"cluster.topology=dgx-a100", "cluster.gpus=4", "noise.rank_step.uniform=[0.5, 1.5]"});
  const plan::Scenario scenario = scenario_from(kLinear, plan);
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  const std::vector<ServerEvent> order = run::simulated_server_order(scenario, options, kSteps);
  const execute::Outcome first = performed_in(scenario, &order, 1), second = performed_in(scenario, &order, 12345);
  EXPECT_EQ(first.result.loss, second.result.loss);
  EXPECT_EQ(first.parameters, second.parameters);
  if (scenario.plan.consistency != plan::Consistency::synchronous) {
    EXPECT_EQ(first.server_events, order);
  }
  // And it is the order that was simulated.
  const Plain plain(scenario, order);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_NEAR(static_cast<double>(first.parameters.at("linear0.bias")[i]), plain.parameters[i], kNear);
}

const Assignments kAdamW = {"training.optimizer=adamw", "training.lr=0.02", "training.betas=[0.9, 0.99]",
                            "training.weight_decay=0.1"};

Assignments with(Assignments plan, const Assignments& more) {
  plan.insert(plan.end(), more.begin(), more.end());
  return plan;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, ParameterServers,
    testing::Values(
        Served{"asynchronous", {"plan.servers=1", "plan.consistency=asynchronous", "training.lr=0.03"}},
        Served{"two_servers_momentum",
               {"plan.servers=2", "plan.consistency=asynchronous", "training.lr=0.02", "training.momentum=0.5"}},
        Served{"more_servers_than_parameters", {"plan.servers=3", "plan.consistency=asynchronous", "training.lr=0.03"}},
        Served{"adamw", with(kAdamW, {"plan.servers=2", "plan.consistency=asynchronous"})},
        Served{"micro_batches",
               {"plan.servers=2", "plan.consistency=asynchronous", "plan.micro_batch=1", "training.lr=0.03"}},
        Served{"bound_0", {"plan.servers=1", "plan.consistency=bounded", "plan.staleness=0", "training.lr=0.03"}},
        Served{"bound_2", {"plan.servers=2", "plan.consistency=bounded", "plan.staleness=2", "training.lr=0.03"}},
        Served{"synchronous", {"plan.servers=2", "plan.consistency=synchronous"}},
        Served{"synchronous_adamw", with(kAdamW, {"plan.servers=1"})},
        Served{"one_spare", {"plan.servers=2", "plan.backup_workers=1", "training.global_batch=6"}}),
    [](const auto& test) { return test.param.name; });

// A spare worker gives up its first iteration before it has a loss: the step's loss is that of the others.
TEST(ParameterServersPerformed, ASpareWorkerGivesUpItsFirstIteration) {
  const plan::Scenario scenario = scenario_from(
      kLinear, {"plan.servers=1", "plan.consistency=synchronous", "plan.backup_workers=1", "training.global_batch=6"});
  const program::Program program = lower::lower(scenario);
  execute::Options options;
  options.steps = 2;
  options.before_op = [](int rank, std::int64_t step, const program::Op& op) {
    if (rank == 3 && step == 0 && op.name == "linear0.forward")
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
  };
  const execute::Outcome outcome = execute::perform(scenario, program, options);
  ASSERT_EQ(outcome.result.loss.size(), 2U);
  for (const account::ServerEvent& e : outcome.server_events)
    EXPECT_FALSE(e.worker == 3 && e.iteration == 0 && e.act == account::ServerAct::apply);
  for (const double loss : outcome.result.loss) EXPECT_GT(loss, 0);
}

// Synchronous servers are data parallelism by other means.
TEST(ParameterServersPerformed, TogetherAreDataParallel) {
  const execute::Outcome served = perform(kLinear, {"plan.servers=2"}), reduced = perform(kLinear, {});
  ASSERT_EQ(served.result.loss.size(), reduced.result.loss.size());
  for (std::size_t s = 0; s < reduced.result.loss.size(); ++s)
    EXPECT_NEAR(served.result.loss[s], reduced.result.loss[s], 1e-6) << s;
  EXPECT_LT(distance(reduced.parameters, served.parameters), 1e-6);
}

// A transformer in 16 bits: servers keep fp32, workers what they pull.
TEST(ParameterServersPerformed, TransformersLearn) {
  for (const char* precision : {"fp32", "bf16"}) {
    const Assignments same = {std::string("training.precision=") + precision, "training.clip=0", "cluster.gpus=4"};
    const execute::Outcome served =
        perform(kGpt, with(same, {"plan.servers=3", "plan.consistency=asynchronous", "training.lr=3e-4"}), 30);
    EXPECT_LT(served.result.loss.back(), served.result.loss.front() - 0.05) << precision;
    const execute::Outcome together = perform(kGpt, with(same, {"plan.servers=3"}), 6),
                           reduced = perform(kGpt, same, 6);
    for (std::size_t s = 0; s < 6; ++s)
      EXPECT_NEAR(together.result.loss[s], reduced.result.loss[s], precision[0] == 'f' ? 1e-4 : 2e-3) << precision << s;
  }
}

// Whoever stands still is named by who waits for it.
TEST(ParameterServersPerformed, WaitsEndAndSayForWhom) {
  const auto failure = [](const Assignments& plan, const std::vector<ServerEvent>* order) -> std::string {
    const plan::Scenario scenario = scenario_from(kLinear, plan);
    const program::Program program = lower::lower(scenario);
    execute::Options options;
    options.steps = kSteps;
    options.timeout = std::chrono::milliseconds(300);
    options.server_order = order;
    options.before_op = [](int rank, std::int64_t step, const program::Op& op) {
      if (rank == 2 && step == 3 && op.name == "linear0.forward")
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    };
    try {
      execute::perform(scenario, program, options);
    } catch (const execute::RankFailure& error) {
      return error.what();
    }
    return "";
  };
  const std::string bounded = failure({"plan.servers=1", "plan.consistency=bounded", "plan.staleness=1"}, nullptr);
  EXPECT_NE(bounded.find("waited 0.3 s for rank 2"), std::string::npos) << bounded;
  const std::string together = failure({"plan.servers=2"}, nullptr);
  EXPECT_NE(together.find("for rank 2"), std::string::npos) << together;
  const Assignments free = {"plan.servers=1", "plan.consistency=asynchronous"};
  EXPECT_EQ(failure(free, nullptr), "") << "nobody waits for it";
  Assignments simulated = free;
  simulated.push_back("cluster.topology=dgx-a100");
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  const auto order = run::simulated_server_order(scenario_from(kLinear, simulated), options, kSteps);
  const std::string ordered = failure(free, &order);
  EXPECT_NE(ordered.find("which is to do first the gradient of rank 2, iteration 3"), std::string::npos) << ordered;
}

// Before anything begins: what servers keep, values and two moments in fp32, is among what must fit.
TEST(Servers, AreCountedBeforeARunIsSaidToFit) {
  const plan::Scenario scenario =
      scenario_from(kLinear, {"model.widths=[60000, 60000, 60000]", "training.optimizer=adamw", "cluster.gpus=2",
                              "training.global_batch=4", "plan.servers=2"});
  const program::Program program = lower::lower(scenario);
  const std::int64_t elements = 2 * (60000LL * 60000 + 60000), servers = 3 * 4 * elements;
  const std::int64_t worker = execute::make_timelines(program, scenario.grid()).front().memory.arena_bytes;
  try {
    execute::check_run(scenario, program, {}, std::vector<int>{0, 1});
    FAIL() << "it is said to fit";
  } catch (const execute::DoesNotFit& error) {
    EXPECT_NE(std::string(error.what())
                  .find("2 ranks and 2 parameter servers, " + format_bytes(Bytes(servers)) + ", need " +
                        format_bytes(Bytes(2 * worker + servers)) + " of"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace rehearse::servers_test
