// A search against every plan of its space simulated: the same best plans, whatever the threads and the objective, and
// a limit of plans keeps its word. Small spaces, of every kind of key; bounds on random plans: the fuzz target `plan`.
#include "sim/search/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <csignal>
#include <fstream>
#include <map>
#include <thread>

#include "sim/base/interrupt.h"
#include "sim/plan/schedule/schedule.h"
#include "sim/run/fit.h"
#include "sim/run/run.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

const std::string kSearchRoot = REHEARSE_SOURCE_DIR;

std::string scenario_of_text(const std::string& text) {
  const std::string path = test::temporary_path("search.yaml");
  std::ofstream(path) << "rehearse: 1\n" << text;
  return path;
}

search::Request request_of(const std::string& file, std::vector<std::string> fixed = {}) {
  search::Request request;
  request.file = file;
  request.assignments = std::move(fixed);
  request.run.data_root = kSearchRoot;
  return request;
}

struct Simulated {
  double step = 0;
  std::int64_t bytes = 0;
};

// Every plan of the space that can be and fits, by its assignments.
std::map<std::vector<std::string>, Simulated> all_of(const search::Outcome& found, const std::string& file,
                                                     const std::vector<std::string>& fixed) {
  std::map<std::vector<std::string>, Simulated> all;
  run::Options options;
  options.data_root = kSearchRoot;
  options.record = false;
  for (const search::Plan& plan : found.plans) {
    const std::vector<std::string> chosen = found.space.assignments(plan.choice);
    std::vector<std::string> assignments = fixed;
    assignments.insert(assignments.end(), chosen.begin(), chosen.end());
    try {
      const plan::Scenario scenario = plan::read_scenario(file, assignments, kSearchRoot);
      const result::Result r = run::simulate_scenario(scenario, options);
      if (r.memory_fits) all[chosen] = {Time::from_ps(r.step_time_ps).seconds(), run::largest_peak(r.stages)};
    } catch (const InputError&) {
      EXPECT_EQ(plan.status, search::Status::forbidden) << fmt::format("{}", fmt::join(chosen, " "));
    }
  }
  return all;
}

void expect_best(const std::string& text, const std::vector<std::string>& fixed) {
  const std::string file = scenario_of_text(text);
  search::Request request = request_of(file, fixed);
  request.top = 4;
  const search::Outcome found = search::search(request);
  EXPECT_TRUE(found.proven);
  std::map<std::vector<std::string>, Simulated> all = all_of(found, file, fixed);
  ASSERT_GE(all.size(), 8u) << "a small space shows little";
  ASSERT_EQ(found.best.size(), std::min<std::size_t>(request.top, all.size()));
  EXPECT_LT(found.counts.simulated, static_cast<std::int64_t>(all.size())) << "no plan was settled by its bound";
  std::vector<double> steps;
  for (const auto& [chosen, simulated] : all) steps.push_back(simulated.step);
  std::sort(steps.begin(), steps.end());
  for (std::size_t i = 0; i < found.best.size(); ++i) {
    const search::Plan& plan = found.plans[found.best[i]];
    EXPECT_EQ(plan.step.seconds(), steps[i]) << i;
    EXPECT_EQ(plan.step.seconds(), all.at(found.space.assignments(plan.choice)).step) << i;
    EXPECT_EQ(found.answers[i].step_time_ps, plan.step.ps());
  }
  // Of all others, what was said of them holds.
  for (const search::Plan& plan : found.plans) {
    const auto simulated = all.find(found.space.assignments(plan.choice));
    if (plan.status == search::Status::too_large) {
      EXPECT_EQ(simulated, all.end());
    }
    if (plan.status != search::Status::floored && plan.status != search::Status::bounded) continue;
    if (simulated == all.end()) continue;  // too large, which nobody had to know
    EXPECT_LE(plan.least.seconds(), simulated->second.step);
    EXPECT_LE(plan.least_bytes, simulated->second.bytes);
  }
}

constexpr const char* kGpt =
    "model: {family: gpt, layers: 4, hidden: 512, heads: 8, vocab: 2048, max_seq_len: 256}\n"
    "framework: rehearse\ncluster: {topology: dgx-a100, gpus: 16}\n"
    "training: {global_batch: 32, seq_len: 256, precision: bf16}\n";

TEST(Search, FindsWhatSimulatingEveryPlanFinds) {
  expect_best(kGpt, {"plan.context=1", "plan.schedule=1f1b", "plan.recompute=none", "plan.chunks=1",
                     "plan.sequence_parallel=false", "plan.micro_batch=1"});
}

TEST(Search, SchedulesAndChunksToo) {
  expect_best(kGpt, {"plan.context=1", "plan.tensor=2", "plan.zero=1", "plan.sequence_parallel=true",
                     "plan.micro_batch=1", "plan.recompute=none"});
}

TEST(Search, ProductsBesideTheirCollectivesToo) {
  expect_best(kGpt, {"plan.context=1", "plan.schedule=1f1b", "plan.recompute=none", "plan.chunks=1",
                     "plan.sequence_parallel=true", "plan.async_tensor_parallel=true", "plan.micro_batch=1"});
}

TEST(Search, ExpertsToo) {
  expect_best(
      "model: {family: moe, layers: 2, hidden: 256, heads: 4, expert_ffn_hidden: 512, vocab: 1024, experts: 8, "
      "experts_per_token: 2, max_seq_len: 128}\nframework: rehearse\n"
      "cluster: {topology: dgx-a100, gpus: 8}\n"
      "training: {global_batch: 16, seq_len: 128, precision: bf16}\n",
      {"plan.schedule=1f1b", "plan.recompute=none", "plan.chunks=1", "plan.sequence_parallel=false",
       "plan.micro_batch=1", "plan.pipeline=1"});
}

constexpr const char* kTwoKinds =
    "model: {family: gpt, layers: 6, hidden: 512, heads: 8, vocab: 2048, max_seq_len: 256}\n"
    "framework: rehearse\n"
    "cluster: {nodes: [{topology: dgx-h100, count: 1}, {topology: dgx-a100, count: 1}]}\n"
    "training: {global_batch: 32, seq_len: 256, precision: bf16}\n";

// Stages on different hardware, or replicas; layers by what these take, or as many each.
TEST(Search, ClustersOfTwoKindsToo) {
  const std::vector<std::string> fixed = {"plan.context=1",    "plan.schedule=1f1b", "plan.recompute=none",
                                          "plan.chunks=1",     "plan.zero=1",        "plan.sequence_parallel=false",
                                          "plan.micro_batch=1"};
  expect_best(kTwoKinds, fixed);
  const search::Outcome found = search::search(request_of(scenario_of_text(kTwoKinds), fixed));
  ASSERT_NE(found.space.find("plan.rank_order"), nullptr);
  ASSERT_NE(found.space.find("plan.layers_per_stage"), nullptr);
  int by_time = 0, replicas_apart = 0;
  for (const search::Plan& plan : found.plans)
    for (const std::string& chosen : found.space.assignments(plan.choice)) {
      by_time += chosen == "plan.layers_per_stage=by_time" ? 1 : 0;
      replicas_apart += chosen == "plan.rank_order=[tensor, context, expert, pipeline, data]" ? 1 : 0;
    }
  EXPECT_GT(by_time, 0);
  EXPECT_GT(replicas_apart, 0);
}

// Where stages have unlike memory, a plan fits if each has room on its own devices.
TEST(Search, StagesOfTwoKindsFitOnTheirOwn) {
  const std::string file = scenario_of_text(
      "model: {family: gpt, layers: 8, hidden: 4096, heads: 32, vocab: 2048, max_seq_len: 256}\n"
      "framework: rehearse\n"
      "cluster: {nodes: [{topology: dgx-a100, count: 1}, {topology: dgx-a100-40g, count: 1}], headroom: 35GiB}\n"
      "training: {global_batch: 32, seq_len: 256, precision: bf16}\n");
  const std::vector<std::string> fixed = {
      "plan.context=1",     "plan.schedule=1f1b",           "plan.recompute=none",          "plan.chunks=1",
      "plan.micro_batch=1", "plan.sequence_parallel=false", "plan.offload_optimizer=false", "plan.tensor=2"};
  search::Request request = request_of(file, fixed);
  request.top = 64;  // all of them
  const search::Outcome found = search::search(request);
  const auto all = all_of(found, file, fixed);
  EXPECT_EQ(found.best.size(), all.size());
  for (const std::size_t plan : found.best)
    EXPECT_TRUE(all.contains(found.space.assignments(found.plans[plan].choice)));
  const auto small = std::count_if(found.plans.begin(), found.plans.end(), [&](const search::Plan& plan) {
    return plan.status == search::Status::too_large && plan.least_bytes <= found.room_bytes;
  });
  EXPECT_GT(small, 0) << "no plan is too large for the smaller devices alone";
}

TEST(Search, ASlowNodeToo) {
  expect_best(kGpt + std::string("noise: {slow_ranks: [{ranks: [8, 9, 10, 11, 12, 13, 14, 15], factor: 1.7}]}\n"),
              {"plan.context=1", "plan.schedule=1f1b", "plan.recompute=none", "plan.chunks=1", "plan.zero=0",
               "plan.sequence_parallel=false", "plan.micro_batch=1"});
}

// Of plans whose stages, or replicas, lie on two kinds the bound is near: it knows what each stage runs on.
TEST(Search, BoundsOfMixedPlansSayMuch) {
  const std::string file = scenario_of_text(kTwoKinds);
  for (const char* order : {"[tensor, context, expert, data, pipeline]", "[tensor, context, expert, pipeline, data]"})
    for (const char* layers : {"auto", "by_time"}) {
      const search::Outcome found = search::search(
          request_of(file, {"plan.tensor=4", "plan.context=1", "plan.pipeline=2", "plan.chunks=1", "plan.micro_batch=1",
                            "plan.zero=0", "plan.recompute=none", "plan.sequence_parallel=false", "plan.schedule=1f1b",
                            std::string("plan.rank_order=") + order, std::string("plan.layers_per_stage=") + layers}));
      ASSERT_EQ(found.best.size(), 1u);
      const search::Plan& plan = found.plans[found.best.front()];
      EXPECT_LE(plan.least, plan.step) << order << " " << layers;
      EXPECT_GT(plan.least.seconds(), 0.8 * plan.step.seconds()) << order << " " << layers << ": the bound says little";
    }
}

TEST(Search, ModelsThatAreNoTransformersToo) {
  expect_best(
      "model: {family: mlp, widths: [512, 1024, 1024, 512, 64]}\nframework: rehearse\n"
      "cluster: {topology: dgx-a100, gpus: 8}\n"
      "training: {global_batch: 64, precision: bf16, clip: 0}\n",
      {"plan.schedule=1f1b"});
}

TEST(Search, ThreadsChangeNothing) {
  const std::string file = scenario_of_text(kGpt);
  search::Request request = request_of(file, {"plan.context=1", "plan.schedule=1f1b", "plan.chunks=1"});
  request.most_simulated = 3;
  const search::Outcome one = search::search(request);
  request.threads = 3;
  const search::Outcome three = search::search(request);
  EXPECT_EQ(one.counts.simulated, 3);
  EXPECT_FALSE(one.proven);
  EXPECT_GT(one.counts.open, 0);
  EXPECT_GT(one.open_from, 0);
  EXPECT_EQ(one.best, three.best);
  ASSERT_EQ(one.plans.size(), three.plans.size());
  for (std::size_t i = 0; i < one.plans.size(); ++i) {
    EXPECT_EQ(one.plans[i].status, three.plans[i].status);
    EXPECT_EQ(one.plans[i].least, three.plans[i].least);
    EXPECT_EQ(one.plans[i].step, three.plans[i].step);
  }
}

// Without time nothing is known of any plan, and nothing is said of it; with enough of it all is as without a limit.
TEST(Search, ALimitOfTimeIsOfReadingPlansToo) {
  const std::string file = scenario_of_text(kGpt);
  search::Request request = request_of(file, {"plan.context=1", "plan.schedule=1f1b", "plan.chunks=1"});
  request.most_time = std::chrono::seconds(0);
  const search::Outcome none = search::search(request);
  EXPECT_TRUE(none.best.empty());
  EXPECT_FALSE(none.proven);
  EXPECT_TRUE(none.limited_by_time);
  EXPECT_EQ(none.counts.open, static_cast<std::int64_t>(none.plans.size()));
  EXPECT_EQ(none.counts.forbidden + none.counts.too_large + none.counts.bounded + none.counts.simulated, 0);
  EXPECT_EQ(none.open_from, 0);
  request.most_time = std::nullopt;
  const search::Outcome whole = search::search(request);
  request.most_time = std::chrono::hours(24);
  const search::Outcome timed = search::search(request);
  EXPECT_TRUE(timed.proven);
  EXPECT_FALSE(timed.limited_by_time);
  EXPECT_EQ(timed.best.front(), whole.best.front());
  EXPECT_EQ(timed.answers.size(), whole.answers.size());
  EXPECT_EQ(timed.counts.choices, whole.counts.choices);
  EXPECT_EQ(timed.counts.forbidden, whole.counts.forbidden);
}

// What runs when the time is over ends: of the same plans, some are left as they were.
TEST(Search, WorkEndsWithItsTime) {
  const std::string file = scenario_of_text(kGpt);
  const plan::Scenario scenario = plan::read_scenario(file, {}, kSearchRoot);
  run::Options options;
  options.data_root = kSearchRoot;
  {
    const TimeLimit limit(std::chrono::steady_clock::now());
    EXPECT_THROW(run::simulate_scenario(scenario, options), OutOfTime);
    {
      const TimeLimit later(std::chrono::steady_clock::now() + std::chrono::hours(24));
      EXPECT_NO_THROW(check_interrupt()) << "the innermost holds";
    }
    EXPECT_THROW(check_interrupt(), OutOfTime);
  }
  EXPECT_NO_THROW(run::simulate_scenario(scenario, options));
}

// Processes that share a search, as threads here: what each finds the others are told.
class SharedSearches {
 public:
  explicit SharedSearches(int parts) : said_(static_cast<std::size_t>(parts)), all_here_(parts) {}
  search::Outcome search(search::Request request, int part) {
    request.shared.part = part;
    request.shared.parts = static_cast<int>(said_.size());
    request.shared.trade = [this, part](std::string text) {
      said_[static_cast<std::size_t>(part)] = std::move(text);
      all_here_.arrive_and_wait();
      std::vector<std::string> all = said_;
      all_here_.arrive_and_wait();
      return all;
    };
    return search::search(request);
  }

 private:
  std::vector<std::string> said_;
  std::barrier<> all_here_;
};

TEST(Search, ProcessesThatShareTheSpaceChangeNothing) {
  const std::string file = scenario_of_text(kGpt);
  search::Request request = request_of(file, {"plan.context=1", "plan.chunks=1", "plan.recompute=none"});
  request.top = 3;
  for (const std::int64_t most : {0, 3}) {
    request.most_simulated = most;
    const search::Outcome alone = search::search(request);
    constexpr int kParts = 3;
    SharedSearches shared(kParts);
    std::vector<search::Outcome> found(kParts);
    std::vector<std::thread> processes;
    for (int part = 0; part < kParts; ++part)
      processes.emplace_back([&, part] { found[static_cast<std::size_t>(part)] = shared.search(request, part); });
    for (std::thread& process : processes) process.join();
    const search::Outcome& first = found.front();
    EXPECT_EQ(alone.best, first.best);
    EXPECT_EQ(alone.best, found.back().best) << "all took the same way";
    EXPECT_TRUE(found.back().answers.empty()) << "only the first answers";
    EXPECT_EQ(alone.proven, first.proven);
    EXPECT_EQ(alone.reasons, first.reasons);
    EXPECT_EQ(alone.counts.simulated, first.counts.simulated);
    EXPECT_EQ(alone.counts.lowered, first.counts.lowered);
    EXPECT_EQ(alone.counts.open, first.counts.open);
    EXPECT_EQ(alone.open_from, first.open_from);
    ASSERT_EQ(alone.answers.size(), first.answers.size());
    for (std::size_t i = 0; i < alone.answers.size(); ++i)
      EXPECT_EQ(alone.answers[i].step_time_ps, first.answers[i].step_time_ps);
    for (std::size_t i = 0; i < alone.plans.size(); ++i) {
      EXPECT_EQ(alone.plans[i].status, first.plans[i].status);
      EXPECT_EQ(alone.plans[i].least, first.plans[i].least);
      EXPECT_EQ(alone.plans[i].objective, first.plans[i].objective);
    }
  }
}

TEST(Search, OtherObjectivesHaveOtherBests) {
  const std::string file = scenario_of_text(kGpt);
  const std::vector<std::string> fixed{"plan.context=1", "plan.schedule=1f1b", "plan.chunks=1", "plan.micro_batch=1"};
  search::Request request = request_of(file, fixed);
  request.objective = search::Objective::memory;
  request.top = 1;
  const search::Outcome least = search::search(request);
  EXPECT_TRUE(least.proven);
  std::int64_t bytes = INT64_MAX;
  for (const auto& [chosen, simulated] : all_of(least, file, fixed)) bytes = std::min(bytes, simulated.bytes);
  EXPECT_EQ(least.plans[least.best.front()].least_bytes, bytes);

  request.objective = search::Objective::cost;
  request.ranges = {{"cluster.gpus", {"1", "8", "16"}}};
  request.assignments.push_back("plan.zero=0");
  const search::Outcome cheap = search::search(request);
  ASSERT_EQ(cheap.best.size(), 1u);
  EXPECT_EQ(cheap.plans[cheap.best.front()].gpus, 1) << "nothing is sent on one GPU";
}

// The least energy of all plans, and no bound above what simulation says.
TEST(Search, TheLeastEnergyIsFoundWithoutSimulatingAll) {
  const std::string file = scenario_of_text(kGpt);
  const std::vector<std::string> fixed{"plan.context=1", "plan.schedule=1f1b", "plan.chunks=1"};
  search::Request request = request_of(file, fixed);
  request.objective = search::Objective::energy;
  request.top = 1;
  const search::Outcome found = search::search(request);
  EXPECT_TRUE(found.proven);
  run::Options options;
  options.data_root = kSearchRoot;
  options.record = false;
  double least = INFINITY;
  std::int64_t fit = 0;
  for (const search::Plan& plan : found.plans) {
    if (plan.status == search::Status::forbidden || plan.status == search::Status::too_large) continue;
    std::vector<std::string> assignments = fixed;
    const std::vector<std::string> chosen = found.space.assignments(plan.choice);
    assignments.insert(assignments.end(), chosen.begin(), chosen.end());
    const plan::Scenario scenario = plan::read_scenario(file, assignments, kSearchRoot);
    const result::Result r = run::simulate_scenario(scenario, options);
    if (!r.memory_fits) continue;
    ++fit;
    const double joules = r.energy.joules() / static_cast<double>(scenario.training.global_batch);
    least = std::min(least, joules);
    EXPECT_LE(plan.objective, joules * (1 + 1e-12)) << fmt::format("{}", fmt::join(chosen, " "));
    EXPECT_GT(plan.objective, 0.3 * joules) << "a bound that settles nothing";
  }
  EXPECT_NEAR(found.plans[found.best.front()].objective, least, 1e-12 * least);
  EXPECT_LT(found.counts.simulated, fit / 2);
}

TEST(Search, EachChoiceIsAnotherPlanOnce) {
  const std::string file = scenario_of_text(kGpt);
  const search::Outcome found = search::search([&] {
    search::Request request = request_of(file);
    request.most_simulated = 1;
    return request;
  }());
  std::vector<search::Choice> all;
  for (const search::Plan& plan : found.plans) all.push_back(plan.choice);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
  for (const search::Plan& plan : found.plans) {
    const auto value = [&](const char* key) {
      for (std::size_t k = 0; k < found.space.keys.size(); ++k)
        if (found.space.keys[k].key == key) return found.space.keys[k].values[plan.choice[k]];
      return std::string();
    };
    EXPECT_FALSE(value("plan.tensor") == "1" && value("plan.sequence_parallel") == "true");
    EXPECT_FALSE(value("plan.pipeline") == "1" && value("plan.chunks") != "1");
    EXPECT_FALSE(value("plan.schedule") == "interleaved" && value("plan.chunks") == "1");
  }
}

// Stages whose ranks are on one node, on two, and on two again: each message takes its own time, however long others of
// the same op take.
TEST(Search, BoundsHoldOfMessagesOverUnlikeLinks) {
  for (const char* schedule : {"sequential", "1f1b", "gpipe"}) {
    const std::string file = scenario_of_text(fmt::format(
        "framework: rehearse\nmodel: {{family: llama, layers: 8, hidden: 8, heads: 1, vocab: 396, max_seq_len: 128, "
        "ffn_hidden: 32}}\ncluster: {{topology: dragonfly-a100, gpus: 12}}\n"
        "plan: {{tensor: 1, context: 1, pipeline: 4, chunks: 1, micro_batch: 2, zero: 3, recompute: none, schedule: "
        "{}}}\n"
        "training: {{global_batch: 30, precision: fp32, seq_len: 16, optimizer: sgd}}\n",
        schedule));
    const search::Outcome found =
        search::search(request_of(file, {"plan.tensor=1", "plan.context=1", "plan.pipeline=4", "plan.chunks=1",
                                         "plan.micro_batch=2", "plan.zero=3", "plan.recompute=none",
                                         "plan.sequence_parallel=false", fmt::format("plan.schedule={}", schedule)}));
    ASSERT_EQ(found.best.size(), 1u);
    const search::Plan& plan = found.plans[found.best.front()];
    EXPECT_LE(plan.least, plan.step) << schedule;
    EXPECT_GT(plan.least.seconds(), 0.95 * plan.step.seconds()) << schedule << ": the bound says little";
  }
}

// A signal after some plans were simulated: the best of these, and a bound that holds of all the others.
TEST(Search, WhatASignalEndsKeepsWhatWasFound) {
  const std::string file = scenario_of_text(kGpt);
  const search::Outcome whole = search::search(request_of(file, {"plan.context=1", "plan.schedule=1f1b"}));
  search::Request request = request_of(file, {"plan.context=1", "plan.schedule=1f1b"});
  int told = 0;
  request.progress = [&](std::string_view what, double) {
    if (what.ends_with(" plans simulated") && what != "0 plans simulated" && ++told == 1)
      detail::first_signal = SIGTERM;
  };
  const search::Outcome left = search::search(request);
  detail::first_signal = 0;
  EXPECT_EQ(left.interrupted, SIGTERM);
  ASSERT_FALSE(left.best.empty());
  EXPECT_TRUE(left.answers.empty());
  EXPECT_LT(left.counts.simulated, whole.counts.simulated);
  EXPECT_FALSE(left.proven);
  EXPECT_GT(left.counts.open, 0);
  EXPECT_LE(std::min(left.open_from, left.plans[left.best.front()].objective),
            whole.plans[whole.best.front()].objective);
  for (const search::Plan& plan : left.plans) {
    if (plan.status != search::Status::simulated) continue;
    EXPECT_GE(plan.objective, left.plans[left.best.front()].objective);
  }

  request.progress = [](std::string_view what, double) {
    if (what == "settling plans") detail::first_signal = SIGINT;
  };
  EXPECT_THROW(search::search(request), Interrupted) << "nothing was simulated";
  detail::first_signal = 0;
}

// Plans that lower bounds hide: with a limit of time some are simulated before all bounds are known, and the answer of
// a search that comes to its end is the same.
TEST(Search, WithALimitOfTimePlansAreSimulatedAhead) {
  const std::string file = scenario_of_text(kTwoKinds);
  search::Request request = request_of(file, {"plan.context=1", "plan.chunks=1", "plan.micro_batch=1"});
  const auto batches_before_the_first = [&] {
    int batches = 0;
    request.progress = [&](std::string_view what, double) { batches += what == "0 plans simulated" ? 1 : 0; };
    const search::Outcome found = search::search(request);
    EXPECT_TRUE(found.proven);
    return std::pair(batches, found.plans[found.best.front()].step);
  };
  const auto [late, best] = batches_before_the_first();
  request.most_time = std::chrono::hours(24);
  const auto [soon, same] = batches_before_the_first();
  EXPECT_GE(late, 4) << "bounds hide little here";
  EXPECT_LE(soon, 2);
  EXPECT_EQ(best, same);
}

TEST(Search, SchedulesThatHardlyFitToo) {
  expect_best(kGpt, {"plan.context=1", "plan.tensor=2", "plan.sequence_parallel=true", "plan.zero=1",
                     "plan.micro_batch=1", "cluster.headroom=84.777GB"});
}

TEST(Search, WhatVariesIsRefused) {
  const std::string file = scenario_of_text(kGpt + std::string("noise: {kernels: 0.05}\n"));
  EXPECT_THROW(search::search(request_of(file)), InputError);
}

// FSDP's shards are its fp32 parameters: a bound that counts 16 bits beside them proves that nothing fits.
TEST(Search, FindsShardsInFp32ThatJustFit) {
  const std::string file = scenario_of_text(
      "framework: torch-fsdp2\n"
      "model: {family: llama, layers: 160, hidden: 2048, heads: 16, ffn_hidden: 8192, vocab: 4096, "
      "max_seq_len: 32}\n"
      "cluster: {topology: dgx-a100, gpus: 8}\n"
      "training: {global_batch: 8, seq_len: 32, precision: bf16}\n");
  std::vector<std::string> fixed = {
      "plan.tensor=1",      "plan.pipeline=1", "plan.context=1",      "plan.micro_batch=1",
      "plan.schedule=1f1b", "plan.chunks=1",   "plan.recompute=none", "plan.sequence_parallel=false"};
  run::Options options;
  options.data_root = kSearchRoot;
  options.record = false;
  std::vector<std::string> sharded = fixed;
  sharded.push_back("plan.zero=3");
  const plan::Scenario scenario = plan::read_scenario(file, sharded, kSearchRoot);
  const std::int64_t peak = run::largest_peak(run::simulate_scenario(scenario, options).stages);
  constexpr std::int64_t kA100 = std::int64_t{80} << 30;
  ASSERT_LT(peak, kA100);
  fixed.push_back(fmt::format("cluster.headroom={}B", kA100 - peak - 1'000'000));
  const search::Outcome found = search::search(request_of(file, fixed));
  ASSERT_FALSE(found.best.empty()) << "nothing fits";
  const std::vector<std::string> best = found.space.assignments(found.plans[found.best.front()].choice);
  EXPECT_NE(std::find(best.begin(), best.end(), "plan.zero=3"), best.end()) << fmt::format("{}", fmt::join(best, " "));
}

}  // namespace
}  // namespace rehearse
