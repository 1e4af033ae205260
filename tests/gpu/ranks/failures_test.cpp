// How a run on GPUs ends that cannot go on: soon, with one text that names the rank, the op and who waited for whom;
// and nothing of NCCL left.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

#include "execute/late_ranks.h"
#include "execute/processes/process_world.h"
#include "tests/gpu/ranks/gpu_run.h"
#include "tests/support/lowered.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

const std::string kScenario =
    "rehearse: 1\n"
    "model: {family: mlp, widths: [8, 8, 8, 4]}\n"
    "cluster: {gpus: 4}\n"
    "plan: {pipeline: 2, micro_batch: 1}\n"
    "training: {global_batch: 8, precision: fp32}\n";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string failure(GpuRun& run, const execute::Options& options, const std::vector<std::string>& assignments = {}) {
  try {
    run.perform(scenario_from(kScenario, assignments), options);
  } catch (const execute::RankFailure& error) {
    EXPECT_EQ(fake_nccl_alive(), 0) << "communicators are left";
    return error.what();
  }
  return "";
}

TEST(GpuFailures, ARankThatThrowsIsNamedAndTheOthersStop) {
  GpuRun run;
  execute::Options options;
  options.before_op = [](int rank, std::int64_t step, const program::Op& op) {
    if (rank != 2 || step != 1 || op.name != "linear2.backward_weight") return;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    throw std::runtime_error("out of ideas");
  };
  const std::string text = failure(run, options);
  EXPECT_TRUE(has(text, "rank 2 (stage1) in 'linear2.backward_weight' (slot ")) << text;
  EXPECT_TRUE(has(text, "failed: out of ideas")) << text;
  EXPECT_TRUE(has(text, "waited for rank")) << text;
}

TEST(GpuFailures, ARankThatDoesNotComeIsNamedAfterTheTimeout) {
  GpuRun run;
  execute::Options options;
  options.timeout = std::chrono::milliseconds(2000);
  options.before_op = [](int rank, std::int64_t step, const program::Op& op) {
    if (rank == 3 && step == 0 && op.name == "loss.forward") std::this_thread::sleep_for(std::chrono::seconds(6));
  };
  const std::string text = failure(run, options);
  EXPECT_TRUE(has(text, "waited 2 s for rank 3")) << text;
}

TEST(GpuFailures, AnErrorOfAKernelIsThatRanks) {
  GpuRun run;
  run.late_of = [](int rank, LateOptions all) {
    if (rank == 1) all.fails_at_kernel = 40;
    return all;
  };
  const std::string text = failure(run, {});
  EXPECT_TRUE(text.starts_with("rank 1 (stage0)")) << text;
  EXPECT_TRUE(has(text, "failed: an illegal memory access was encountered")) << text;
}

TEST(GpuFailures, AnErrorThatNcclReportsIsTold) {
  GpuRun run;
  execute::Options options;
  options.steps = 100'000;
  options.on_step = [](int step, const execute::StepLoss&) {
    if (step == 3) break_fake_nccl(0, ncclRemoteError);
  };
  const std::string text = failure(run, options, {"plan.pipeline=1", "cluster.gpus=2"});
  break_fake_nccl(0, ncclSuccess);
  EXPECT_TRUE(has(text, "rank 0 (stage0)")) << text;
  EXPECT_TRUE(has(text, "NCCL: remote process exited or there was a network error")) << text;
}

TEST(GpuFailures, AGraphThatWaitsForOthersHasADeadlineToo) {
  GpuRun run;
  run.rank.graphs = execute::Graphs::on;
  run.late_of = [](int rank, LateOptions all) {
    all.stuck_after_launches = rank == 1 ? 3 : -1;
    return all;
  };
  execute::Options options;
  options.steps = 100;
  options.timeout = std::chrono::milliseconds(2000);
  const std::string text = failure(run, options, {"plan.pipeline=1", "cluster.gpus=2"});
  EXPECT_TRUE(has(text, "waited 2 s for a step of CUDA graphs")) << text;
}

// Calls of communicators that block: the thread that issues may be inside NCCL for as long as others do not come. No
// rank returns from its call here, so nobody but a rank's own watch can tell.
void expect_calls_ended_by_the_watch(execute::Graphs graphs, int steps_before) {
  const std::vector<std::string> plan = {"plan.pipeline=1", "cluster.gpus=2"};
  GpuRun run;
  run.rank.graphs = graphs;
  execute::Options options;
  options.steps = 2;
  hang_fake_nccl(0);
  run.perform(scenario_from(kScenario, plan), options);
  const int calls_of_a_step = fake_nccl_calls(0) / 2;
  ASSERT_GT(calls_of_a_step, 0);
  hang_fake_nccl(steps_before * calls_of_a_step + 1);
  options.steps = 100;
  options.timeout = std::chrono::milliseconds(2000);
  const std::string text = failure(run, options, plan);
  EXPECT_TRUE(has(text, "waited 2 s for rank ")) << text;
  EXPECT_TRUE(has(text, "in 'all_reduce.bucket")) << text;
  EXPECT_EQ(fake_nccl_calls_aborted(), 2);
  hang_fake_nccl(0);
}
TEST(GpuFailures, ACallThatDoesNotReturnIsEndedByTheWatch) {
  expect_calls_ended_by_the_watch(execute::Graphs::off, 3);
}
TEST(GpuFailures, ACallThatIsRecordedForAGraphToo) {
  expect_calls_ended_by_the_watch(execute::Graphs::on, 2);
}

// The run is done and its numbers are there; a peer that does not part holds nobody.
TEST(GpuFailures, PartingHasADeadlineToo) {
  static constexpr std::chrono::seconds kParting{10};
  static std::atomic<bool> waits = true;  // the first that parts
  waits = true;
  execute::nccl::Api api = fake_nccl();
  api.comm_finalize = [](ncclComm_t) {
    if (waits.exchange(false)) std::this_thread::sleep_for(kParting);
    return ncclSuccess;
  };
  const auto connector = execute::make_nccl_connector(api);
  execute::GpuMaker::Parts parts;
  parts.gpu = [](int) { return std::make_unique<LateGpu>(LateOptions{}); };
  parts.connect = execute::connect_over(*connector);
  execute::GpuMaker maker(std::move(parts));
  execute::Options options;
  options.steps = 3;
  options.timeout = std::chrono::milliseconds(1000);
  options.maker = &maker;
  const plan::Scenario scenario = scenario_from(kScenario, {"plan.pipeline=1", "cluster.gpus=2"});
  const auto begin = execute::Clock::now();
  {
    const auto world = execute::make_local_world(2, options.timeout);
    EXPECT_EQ(execute::perform(scenario, lower::lower(scenario), options, *world)->result.loss.size(), 3U);
  }
  EXPECT_LT(execute::Clock::now() - begin, kParting);
  while (fake_nccl_alive() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

TEST(GpuFailures, WhatDoesNotFitIsSaidWithByHowMuch) {
  GpuRun run;
  run.late.total_bytes = 2000;
  run.late.context_bytes = 500;
  try {
    run.perform(scenario_from(kScenario, {"cluster.gpus=1", "plan.pipeline=1"}), {});
    ADD_FAILURE() << "it fitted";
  } catch (const execute::DoesNotFit& error) {
    EXPECT_TRUE(has(error.what(), "rank 0 does not fit on its GPU: its tensors need ")) << error.what();
  }
  const plan::Scenario scenario = scenario_from(kScenario);
  const program::Program program = lower::lower(scenario);
  execute::GpuMaker::Parts parts;
  parts.devices = {{"Tiny", 1000, 4096}};
  parts.device = [](int) { return 0; };
  execute::GpuMaker maker(std::move(parts));
  try {
    maker.check(execute::make_timelines(program, scenario.grid()), scenario.grid(), std::vector<int>{0, 1, 2, 3});
    ADD_FAILURE() << "it fitted";
  } catch (const execute::DoesNotFit& error) {
    EXPECT_TRUE(has(error.what(), "does not fit on GPU 0 (Tiny): 4 ranks of it need ")) << error.what();
    EXPECT_TRUE(has(error.what(), " too much")) << error.what();
  }
}

TEST(GpuFailures, GraphsThatCannotBeAreRefused) {
  const plan::Scenario scenario = scenario_from(kScenario, {"framework=megatron-2021"});
  const program::Program program = lower::lower(scenario);
  execute::GpuMaker::Parts parts;
  parts.options.graphs = execute::Graphs::on;
  execute::GpuMaker maker(std::move(parts));
  EXPECT_THROW(maker.check(execute::make_timelines(program, scenario.grid()), scenario.grid(), {}), InputError);
}

// A process a rank, as threads here, which control one another over plain sockets and share nothing else.
struct Processes {
  std::optional<execute::Outcome> outcome;
  std::vector<std::string> failures;
};
Processes perform_as_processes(const plan::Scenario& scenario, execute::Options options) {
  const std::string folder = test::temporary_path("gpus");
  const program::Program program = lower::lower(scenario);
  const int ranks = scenario.grid().ranks();
  Processes all;
  all.failures.resize(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank, mine = options]() mutable {
      try {
        execute::ProcessOptions o;
        o.rank = rank;
        o.ranks = ranks;
        o.folder = folder;
        o.timeout = mine.timeout;
        o.control_only = true;
        const auto world = execute::make_process_world(o);
        const auto connector = execute::make_nccl_connector(fake_nccl());
        execute::GpuMaker::Parts parts;
        parts.gpu = [](int r) {
          LateOptions late;
          late.seed = static_cast<unsigned>(r);
          return std::make_unique<LateGpu>(late);
        };
        parts.connect = execute::connect_over(*connector);
        execute::GpuMaker maker(std::move(parts));
        mine.maker = &maker;
        auto outcome = execute::perform(scenario, program, mine, *world);
        if (outcome) all.outcome = std::move(outcome);
      } catch (const std::exception& error) {
        all.failures[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(std::filesystem::exists(folder + "/rehearse-ranks")) << "files are left";
  std::filesystem::remove_all(folder);
  return all;
}

TEST(GpuProcesses, TrainAndReportOverPlainSockets) {
  const plan::Scenario scenario = scenario_from(kScenario);
  execute::Options options;
  options.steps = 5;
  options.record = true;
  options.keep_parameters = true;
  const execute::Outcome cpu = execute::perform(scenario, lower::lower(scenario), options);
  const Processes gpus = perform_as_processes(scenario, options);
  ASSERT_TRUE(gpus.outcome) << gpus.failures.front();
  for (std::size_t step = 0; step < cpu.result.loss.size(); ++step)
    EXPECT_NEAR(gpus.outcome->result.loss[step] / cpu.result.loss[step], 1, 1e-5);
  EXPECT_EQ(gpus.outcome->parameters.size(), cpu.parameters.size());
  EXPECT_EQ(gpus.outcome->processes, 4);
  // The same ops as a CPU run has, one rank a stage; and times that are of this run.
  const result::Result& r = gpus.outcome->result;
  EXPECT_EQ(r.records.size(), cpu.result.records.size());
  for (const auto& record : r.records) {
    EXPECT_GE(record.start_ps, 0);
    EXPECT_GE(record.duration_ps, 0);
    EXPECT_LE(record.waited_ps, record.duration_ps);
  }
  std::int64_t sum = 0;
  for (const std::int64_t share : r.breakdown_ps) sum += share;
  EXPECT_EQ(sum, r.step_time_ps);
  EXPECT_GT(r.step_time_ps, 0);
}

TEST(GpuProcesses, ARankThatThrowsEndsAllAndOneTells) {
  execute::Options options;
  options.steps = 1000;
  options.before_op = [](int rank, std::int64_t step, const program::Op& op) {
    if (rank == 3 && step == 2 && op.name == "loss.forward") throw std::runtime_error("out of ideas");
  };
  const Processes gpus = perform_as_processes(scenario_from(kScenario), options);
  std::string text;
  for (const std::string& failure : gpus.failures) {
    EXPECT_TRUE(text.empty() || failure.empty()) << "told twice:\n" << text << "\n" << failure;
    text += failure;
  }
  EXPECT_TRUE(text.starts_with("rank 3 (stage1) in 'loss.forward' (slot ")) << text;
  EXPECT_TRUE(has(text, "failed: out of ideas")) << text;
}

}  // namespace
}  // namespace rehearse
