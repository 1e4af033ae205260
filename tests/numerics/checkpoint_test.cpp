// A run that goes on from a checkpoint is the run that was never interrupted: every loss and parameter in every bit
// under the plan that wrote it, whatever the plan; to 1e-4 under another. What is damaged, cut, of another run or of a
// later version is refused with its name and the reason.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "execute/checkpoint/folder.h"
#include "execute/processes/process_world.h"
#include "execute/transport/gloo/gloo_wire.h"
#include "sim/base/diagnostics.h"
#include "tests/numerics/plan_runs.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;

class CheckpointFolder {
 public:
  ~CheckpointFolder() { fs::remove_all(path); }
  const std::string path = test::temporary_path("checkpoints");
  std::string file(std::int64_t step, const std::string& name) const {
    return path + "/" + execute::checkpoint_name(step) + "/" + name;
  }
};

plan::Scenario scenario_of(const std::string& text, const Assignments& assignments) {
  plan::Scenario scenario = scenario_from(text, assignments);
  scenario.purpose = plan::Purpose::perform;
  return scenario;
}

execute::Options options_of(int steps, const std::string& folder = "", bool resume = false) {
  execute::Options options;
  options.steps = steps;
  options.keep_parameters = true;
  options.checkpoint.folder = folder;
  options.checkpoint.every = 3;
  options.checkpoint.resume = resume;
  return options;
}

execute::Outcome perform_with(const plan::Scenario& scenario, const execute::Options& options) {
  return execute::perform(scenario, lower::lower(scenario), options);
}

std::string manifest_of(const execute::CheckpointOptions& options, int steps_done) {
  return options.folder + "/" + execute::checkpoint_name(steps_done / options.every * options.every) + "/manifest.json";
}

void fail_once_there(const std::string& manifest) {
  for (int look = 0; look < 1000 && !fs::exists(manifest); ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  throw std::runtime_error("as asked");
}

// Fails in a step, once the checkpoint before it is there; so schedules of the learning rate are those of a whole run.
void perform_until_failure(const plan::Scenario& scenario, execute::Options options, int fails_in) {
  const std::string manifest = manifest_of(options.checkpoint, fails_in);
  options.before_op = [=](int rank, std::int64_t step, const program::Op&) {
    if (rank == 0 && step == fails_in) fail_once_there(manifest);
  };
  EXPECT_THROW(perform_with(scenario, options), execute::RankFailure);
}

void expect_same_bits(const execute::Outcome& expected, const execute::Outcome& actual) {
  EXPECT_EQ(actual.result.loss, expected.result.loss);
  EXPECT_EQ(actual.parameters, expected.parameters);
  EXPECT_EQ(actual.loss_scales, expected.loss_scales);
}

class Resumed : public testing::TestWithParam<Case> {};

TEST_P(Resumed, IsTheUninterruptedRunInEveryBit) {
  const plan::Scenario scenario = scenario_of(GetParam().text, GetParam().plan);
  const CheckpointFolder folder;
  const execute::Outcome whole = perform_with(scenario, options_of(8));
  perform_until_failure(scenario, options_of(8, folder.path), 7);
  EXPECT_EQ(execute::checkpoints_in(folder.path), (std::vector<std::int64_t>{3, 6}));
  const execute::Outcome rest = perform_with(scenario, options_of(8, folder.path, true));
  EXPECT_EQ(rest.first_step, 6);
  expect_same_bits(whole, rest);
  EXPECT_EQ(execute::checkpoints_in(folder.path), (std::vector<std::int64_t>{3, 6, 8})) << "one at the end too";
}

const std::string kDropout = [] {
  std::string text = kGpt;
  return text.replace(text.find("max_seq_len: 16"), 15, "max_seq_len: 16, dropout: 0.1");
}();

INSTANTIATE_TEST_SUITE_P(
    Plans, Resumed,
    testing::Values(
        Case{"one_rank_dropout", kDropout, {"cluster.gpus=1"}}, Case{"data", kGpt, grid(2, 1, 1, 0)},
        Case{"zero3_bf16", kGpt, grid(4, 1, 1, 3, {"training.precision=bf16"})},
        Case{"tensor_pipeline_zero1", kLlama,
             grid(8, 2, 2, 1, {"plan.sequence_parallel=true", "plan.schedule=1f1b", "plan.micro_batch=1"})},
        Case{"fp16_8bit_moments", kGpt, grid(2, 1, 1, 2, {"training.precision=fp16", "training.moments=int8"})},
        Case{"optimizer_on_host", kGpt, grid(2, 1, 1, 2, {"plan.offload_optimizer=true"})},
        Case{"adafactor", kGpt, grid(2, 1, 1, 0, {"training.optimizer=adafactor"})},
        Case{"local_steps_within_a_round", kGpt,
             grid(4, 1, 1, 0, {"plan.local_steps=4", "plan.outer_optimizer=nesterov", "plan.micro_batch=3"})}),
    name_of_case);

// From one grid to another, and from there to a third.
TEST(Resharded, LossesAreThoseOfTheUninterruptedRun) {
  const std::vector<Assignments> plans = {grid(4, 2, 1, 1, {"plan.micro_batch=2"}),
                                          grid(4, 1, 2, 0, {"plan.micro_batch=3"}), grid(3, 1, 1, 3),
                                          grid(2, 2, 1, 0, {"plan.sequence_parallel=true"}), grid(1, 1, 1, 0)};
  const CheckpointFolder folder;
  const execute::Outcome whole = perform(kLlama, grid(1, 1, 1, 0), 17);
  execute::Outcome last;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const plan::Scenario scenario = scenario_of(kLlama, plans[i]);
    const execute::Options options = options_of(17, folder.path, i > 0);
    if (i + 1 < plans.size())
      perform_until_failure(scenario, options, 3 * (static_cast<int>(i) + 1) + 1);
    else
      last = perform_with(scenario, options);
  }
  EXPECT_EQ(last.first_step, 12);
  ASSERT_EQ(last.result.loss.size(), whole.result.loss.size());
  for (std::size_t step = 0; step < 17; ++step)
    EXPECT_NEAR(last.result.loss[step] / whole.result.loss[step], 1, 1e-4) << "step " << step;
  EXPECT_LT(distance(whole.parameters, last.parameters), kParameterTolerance);
}

// Of 8 queries' heads and 2 of keys: each of these on two ranks, on none but one, and on four.
TEST(Resharded, KeyHeadsOnSeveralRanksToo) {
  const std::vector<Assignments> plans = {
      grid(8, 4, 1, 2, {"model.kv_heads=2"}), grid(2, 2, 1, 0, {"model.kv_heads=2"}),
      grid(8, 8, 1, 0, {"model.kv_heads=2"}), grid(1, 1, 1, 0, {"model.kv_heads=2"})};
  const CheckpointFolder folder;
  const execute::Outcome whole = perform(kLlama, plans.back(), 14);
  execute::Outcome last;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const plan::Scenario scenario = scenario_of(kLlama, plans[i]);
    const execute::Options options = options_of(14, folder.path, i > 0);
    if (i + 1 < plans.size())
      perform_until_failure(scenario, options, 3 * (static_cast<int>(i) + 1) + 1);
    else
      last = perform_with(scenario, options);
  }
  EXPECT_EQ(last.first_step, 9);
  for (std::size_t step = 0; step < 14; ++step)
    EXPECT_NEAR(last.result.loss[step] / whole.result.loss[step], 1, 1e-4) << "step " << step;
  EXPECT_LT(distance(whole.parameters, last.parameters), kParameterTolerance);
}

TEST(Resharded, MixedPrecisionAndTheOptimizersPlaceMayChange) {
  const CheckpointFolder folder;
  const execute::Outcome whole = perform(kGpt, grid(1, 1, 1, 0, {"training.precision=bf16"}), 8);
  perform_until_failure(scenario_of(kGpt, grid(4, 2, 1, 3, {"training.precision=bf16"})), options_of(8, folder.path),
                        4);
  const auto scenario = scenario_of(kGpt, grid(2, 1, 2, 1, {"training.precision=bf16", "plan.offload_optimizer=true"}));
  const execute::Outcome rest = perform_with(scenario, options_of(8, folder.path, true));
  EXPECT_EQ(rest.first_step, 3);
  for (std::size_t step = 0; step < 8; ++step)  // u / 46 of bf16: precision_test.cpp
    EXPECT_NEAR(rest.result.loss[step] / whole.result.loss[step], 1, 1e-4) << "step " << step;
}

// FSDP's shards are the parameters in fp32 themselves; elsewhere these stand beside 16 bits. Steps so short that what
// 16 bits would round shows.
TEST(Resharded, ShardsInFp32AreTheFp32CopyOfOtherPlans) {
  const Assignments common = {"training.precision=bf16", "training.lr=1e-7", "model.attention=flash2"};
  Assignments sharded = common;
  sharded.push_back("framework=torch-fsdp");
  const CheckpointFolder folder;
  const execute::Outcome first = perform_with(scenario_of(kGpt, grid(1, 1, 1, 0, common)), options_of(3, folder.path));
  const execute::Outcome second =
      perform_with(scenario_of(kGpt, grid(4, 1, 1, 3, sharded)), options_of(6, folder.path, true));
  const execute::Outcome third =
      perform_with(scenario_of(kGpt, grid(2, 1, 1, 1, common)), options_of(7, folder.path, true));
  EXPECT_EQ(second.first_step, 3);
  EXPECT_EQ(third.first_step, 6);
  EXPECT_LT(distance(first.parameters, second.parameters), 1e-5);
  EXPECT_LT(distance(second.parameters, third.parameters), 1e-5);
}

TEST(Resharded, CodesOf8BitMomentsAreRefusedByName) {
  const CheckpointFolder folder;
  perform_with(scenario_of(kGpt, grid(2, 1, 1, 2, {"training.moments=int8"})), options_of(3, folder.path));
  try {
    perform_with(scenario_of(kGpt, grid(4, 1, 1, 2, {"training.moments=int8"})), options_of(6, folder.path, true));
    FAIL() << "went on";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("(u8) cannot be cut anew for this plan"), std::string::npos)
        << error.what();
  }
}

TEST(Resharded, WorkersOfLocalStepsAreRefused) {
  const Assignments apart = {"plan.local_steps=4", "plan.micro_batch=3"};
  for (const bool to_them : {false, true}) {
    const CheckpointFolder folder;
    perform_with(scenario_of(kGpt, grid(4, 1, 1, 0, to_them ? Assignments{} : apart)), options_of(3, folder.path));
    try {
      perform_with(scenario_of(kGpt, grid(4, 1, 1, 0, to_them ? apart : Assignments{})),
                   options_of(6, folder.path, true));
      FAIL() << "went on";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("parameters and optimizer states of its own"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Checkpoints, WrittenInTheBackgroundAreTheSame) {
  const plan::Scenario scenario = scenario_of(kGpt, grid(4, 1, 2, 1, {"plan.micro_batch=1"}));
  const CheckpointFolder at_once, meanwhile;
  perform_with(scenario, options_of(7, at_once.path));
  execute::Options options = options_of(7, meanwhile.path);
  options.checkpoint.background = true;
  options.checkpoint.every = 1;
  const execute::Outcome written = perform_with(scenario, options);
  EXPECT_EQ(written.checkpoints.written, 7);
  for (const std::int64_t step : {3, 6, 7})
    EXPECT_EQ(execute::read_manifest(at_once.path + "/" + execute::checkpoint_name(step)).files.at(3).digest,
              execute::read_manifest(meanwhile.path + "/" + execute::checkpoint_name(step)).files.at(3).digest);
}

TEST(Checkpoints, OnlyTheLastAreKeptAndWhatIsNotOursStays) {
  const plan::Scenario scenario = scenario_of(kGpt, grid(2, 1, 1, 0));
  const CheckpointFolder folder;
  execute::Options options = options_of(9, folder.path);
  options.checkpoint.keep = 2;
  options.on_step = [&](int step, const execute::StepLoss&) {
    if (step == 3) std::ofstream(folder.file(3, "notes.txt")) << "mine";
  };
  perform_with(scenario, options);
  EXPECT_EQ(execute::checkpoints_in(folder.path), (std::vector<std::int64_t>{6, 9}));
  EXPECT_TRUE(fs::exists(folder.file(3, "notes.txt")));
  EXPECT_FALSE(fs::exists(folder.file(3, "rank-0000.state")));
}

// What is said when the run goes on after `change` of a checkpoint of step 3.
std::string refusal(const std::function<void(const CheckpointFolder&)>& change, const Assignments& more = {},
                    int steps = 6, bool resume = true) {
  Assignments plan = grid(2, 1, 1, 0);
  const CheckpointFolder folder;
  perform_with(scenario_of(kGpt, plan), options_of(3, folder.path));
  change(folder);
  plan.insert(plan.end(), more.begin(), more.end());
  try {
    perform_with(scenario_of(kGpt, plan), options_of(steps, folder.path, resume));
  } catch (const InputError& error) {
    return error.what();
  }
  return "went on";
}

void overwrite(const std::string& path, std::int64_t at, char with) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at, at < 0 ? std::ios::end : std::ios::beg);
  file.put(with);
  ASSERT_TRUE(file.good()) << path;
}

TEST(Checkpoints, WhatIsNotWholeIsRefusedByName) {
  const auto refused = [](const char* file, const char* why, const std::function<void(const std::string&)>& change) {
    const std::string text = refusal([&](const CheckpointFolder& folder) { change(folder.file(3, file)); });
    EXPECT_NE(text.find(std::string("step-0000000003/") + file), std::string::npos) << text;
    EXPECT_NE(text.find(why), std::string::npos) << text;
  };
  const char *state = "rank-0001.state", *manifest = "manifest.json";
  refused(state, "is cut: ", [](const auto& f) { fs::resize_file(f, fs::file_size(f) - 1); });
  refused(state, "is cut: 5 of ", [](const auto& f) { fs::resize_file(f, 5); });
  refused(state, "is damaged: its checksum", [](const auto& f) { overwrite(f, -2000, '\x55'); });
  refused(state, "is damaged: its checksum", [](const auto& f) { overwrite(f, -3, '\x55'); });
  refused(state, "is of version 3 of checkpoints; this program reads version 2",
          [](const auto& f) { overwrite(f, 8, '\x03'); });
  refused(state, "is no rank's file of a checkpoint", [](const auto& f) { overwrite(f, 0, 'X'); });
  refused(state, "no such file", [](const auto& f) { fs::remove(f); });
  refused(state, "is of another checkpoint", [](const auto& f) {
    fs::copy_file(fs::path(f).parent_path() / "rank-0000.state", f, fs::copy_options::overwrite_existing);
  });
  refused(manifest, "cannot be read", [](const auto& f) { fs::resize_file(f, fs::file_size(f) / 2); });
  refused(manifest, "is damaged: its checksum", [](const auto& f) {
    auto j = nlohmann::json::parse(std::ifstream(f));
    j["losses"][0] = 1.0;
    std::ofstream(f) << j;
  });
  refused(manifest, "is of version 3 of checkpoints", [](const auto& f) {
    auto j = nlohmann::json::parse(std::ifstream(f));
    j["version"] = 3;
    std::ofstream(f) << j;
  });
}

TEST(Checkpoints, OfAnotherRunAreRefused) {
  const auto nothing = [](const CheckpointFolder&) {};
  EXPECT_NE(refusal(nothing, {"model.layers=2"}).find("is of another run: model.layers is 4 there, 2 here"),
            std::string::npos);
  EXPECT_NE(refusal(nothing, {"training.lr=1"}).find("training.lr is 0.001 there, 1 here"), std::string::npos);
  EXPECT_NE(refusal(nothing, {}, 3).find("nothing of 3 steps is left to do"), std::string::npos);
  EXPECT_NE(refusal(nothing, {}, 6, false).find("has checkpoints already, the last of step 3"), std::string::npos);
  EXPECT_NE(refusal([](const CheckpointFolder& f) { fs::remove_all(f.path); }).find("has no checkpoint to resume"),
            std::string::npos);
  EXPECT_EQ(refusal(nothing), "went on");
}

// What a killed run left of a checkpoint is not taken for one, nor for a part of the next.
TEST(Checkpoints, UnfinishedOnesAreTakenAway) {
  const plan::Scenario scenario = scenario_of(kGpt, grid(2, 1, 1, 0));
  const CheckpointFolder folder;
  perform_with(scenario, options_of(3, folder.path));
  fs::create_directories(folder.path + "/" + execute::checkpoint_name(6));
  std::ofstream(folder.file(6, "rank-0001.state")) << "of the killed run";
  std::ofstream(folder.file(6, "rank-0000.state.77-0.tmp")) << "half";
  const execute::Outcome whole = perform_with(scenario, options_of(7)),
                         rest = perform_with(scenario, options_of(7, folder.path, true));
  EXPECT_EQ(rest.result.loss[6], whole.result.loss[6]) << "(the learning rate's schedule is that of 3 steps before)";
  EXPECT_FALSE(fs::exists(folder.file(6, "rank-0000.state.77-0.tmp")));
  EXPECT_NO_THROW(execute::read_manifest(folder.path + "/" + execute::checkpoint_name(6)));
}

// Ranks that are processes, here in threads of one.
TEST(Checkpoints, OverGlooAreThoseOfThreads) {
  if (!execute::gloo_available()) GTEST_SKIP() << "built without Gloo";
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "Gloo is not built for the thread sanitizer, which cannot see how its threads agree";
#endif
  const plan::Scenario scenario = scenario_of(kLlama, grid(2, 1, 1, 1, {"training.precision=bf16"}));
  const program::Program program = lower::lower(scenario);
  const CheckpointFolder folder, meeting;
  const execute::Outcome whole = perform_with(scenario, options_of(7));
  std::optional<execute::Outcome> last;
  for (const bool resume : {false, true}) {
    execute::Options options = options_of(7, folder.path, resume);
    if (!resume)
      options.before_op = [manifest = manifest_of(options.checkpoint, 5)](int rank, std::int64_t step,
                                                                          const program::Op&) {
        if (rank == 1 && step == 5) fail_once_there(manifest);
      };
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.emplace_back([&, rank] {
        try {
          execute::ProcessOptions o;
          o.rank = rank, o.ranks = 2, o.folder = meeting.path;
          const auto world = execute::make_process_world(o);
          if (auto outcome = execute::perform(scenario, program, options, *world)) last = std::move(outcome);
        } catch (const execute::RankFailure&) {
          EXPECT_FALSE(resume);
        }
      });
    for (std::thread& rank : ranks) rank.join();
  }
  ASSERT_TRUE(last);
  EXPECT_EQ(last->first_step, 3);
  expect_same_bits(whole, *last);
}

}  // namespace
}  // namespace rehearse
