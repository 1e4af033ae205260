// The same run over Gloo as with local ranks: the worlds of several processes, here in threads of one, connected over
// the loopback. What goes wrong in one ends all, and one of them tells.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "execute/performer.h"
#include "execute/processes/process_world.h"
#include "execute/transport/gloo/gloo_wire.h"
#include "tests/support/lowered.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

const std::string kLlama =
    "rehearse: 1\n"
    "model: {family: llama, layers: 4, hidden: 32, heads: 8, kv_heads: 4, ffn_hidden: 64, vocab: 250, max_seq_len: "
    "16}\n"
    "training: {global_batch: 12, precision: fp32, lr: 1e-3, seed: 3}\n";

struct Runs {
  std::optional<execute::Outcome> outcome;  // the root's
  std::vector<std::string> failures;        // texts, by rank
};

Runs perform_over_gloo(const plan::Scenario& scenario, execute::Options options) {
  const std::string folder = test::temporary_path("world");
  const program::Program program = lower::lower(scenario);
  const int ranks = scenario.grid().ranks();
  Runs runs;
  runs.failures.resize(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        execute::ProcessOptions o;
        o.rank = rank;
        o.ranks = ranks;
        o.folder = folder;
        o.timeout = options.timeout;
        const auto world = execute::make_process_world(o);
        auto outcome = execute::perform(scenario, program, options, *world);
        EXPECT_EQ(outcome.has_value(), rank == 0);
        if (outcome) runs.outcome = std::move(outcome);
      } catch (const std::exception& error) {
        runs.failures[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(std::filesystem::exists(folder + "/rehearse-ranks")) << "files are left";
  std::filesystem::remove_all(folder);
  return runs;
}

class Worlds : public testing::Test {
 protected:
  void SetUp() override {
    if (!execute::gloo_available()) GTEST_SKIP() << "built without Gloo";
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "Gloo is not built for the thread sanitizer, which cannot see how its threads agree";
#endif
  }
};

TEST_F(Worlds, LossesAndParametersAreThoseOfLocalRanks) {
  for (const std::vector<std::string>& plan :
       {std::vector<std::string>{"cluster.gpus=4", "plan.zero=3", "plan.bucket=8KiB",
                                 "training.first_weights=broadcast"},
        std::vector<std::string>{"cluster.gpus=4", "plan.tensor=2", "plan.pipeline=2",
                                 "plan.sequence_parallel=true"}}) {
    const plan::Scenario scenario = scenario_from(kLlama, plan);
    execute::Options options;
    options.steps = 5;
    options.keep_parameters = true;
    options.record = true;
    const execute::Outcome local = execute::perform(scenario, lower::lower(scenario), options);
    const Runs gloo = perform_over_gloo(scenario, options);
    ASSERT_TRUE(gloo.outcome) << gloo.failures.front();
    ASSERT_EQ(gloo.outcome->result.loss.size(), local.result.loss.size());
    for (std::size_t step = 0; step < local.result.loss.size(); ++step)
      EXPECT_NEAR(gloo.outcome->result.loss[step] / local.result.loss[step], 1, 1e-5) << "step " << step;
    ASSERT_EQ(gloo.outcome->parameters.size(), local.parameters.size());
    for (const auto& [name, values] : local.parameters)
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(gloo.outcome->parameters.at(name)[i], values[i], 1e-4) << name;
    EXPECT_EQ(gloo.outcome->result.records.size(), local.result.records.size());
    EXPECT_EQ(gloo.outcome->processes, 4);
  }
}

// 8-bit copies are gathered and largest values put together; sums are in the order of the group, so nothing may differ.
TEST_F(Worlds, EightBitsAreThoseOfLocalRanksInEveryBit) {
  for (const char* recipe : {"delayed", "tensorwise", "mxfp8"}) {
    plan::Scenario scenario =
        scenario_from(kLlama, {"cluster.gpus=4", "plan.tensor=2", "plan.sequence_parallel=true", "plan.micro_batch=6",
                               "model.hidden=64", "model.max_seq_len=32", "training.precision=fp8",
                               std::string("training.fp8_recipe=") + recipe});
    scenario.purpose = plan::Purpose::perform;
    execute::Options options;
    options.steps = 4;
    options.keep_parameters = true;
    const execute::Outcome local = execute::perform(scenario, lower::lower(scenario), options);
    const Runs gloo = perform_over_gloo(scenario, options);
    ASSERT_TRUE(gloo.outcome) << gloo.failures.front();
    EXPECT_EQ(gloo.outcome->result.loss, local.result.loss) << recipe;
    EXPECT_LT(local.result.loss.back(), local.result.loss.front()) << recipe;
  }
}

// What is gathered is added up in the order of the group on every rank.
TEST_F(Worlds, CompressedGradientsAreThoseOfLocalRanksInEveryBit) {
  for (const char* chain : {"int4, stochastic", "top_k, error_feedback"}) {
    const plan::Scenario scenario =
        scenario_from(kLlama, {"cluster.gpus=4", "plan.bucket=8KiB",
                               "plan.gradient_compression=[" + std::string(chain) + "]", "plan.gradient_share=0.1"});
    execute::Options options;
    options.steps = 4;
    options.keep_parameters = true;
    const execute::Outcome local = execute::perform(scenario, lower::lower(scenario), options);
    const Runs gloo = perform_over_gloo(scenario, options);
    ASSERT_TRUE(gloo.outcome) << gloo.failures.front();
    EXPECT_EQ(gloo.outcome->result.loss, local.result.loss) << chain;
    EXPECT_EQ(gloo.outcome->parameters, local.parameters) << chain;
  }
}

// The one text; the others keep silent.
std::string told(const Runs& runs) {
  std::string text;
  for (const std::string& failure : runs.failures) {
    EXPECT_TRUE(text.empty() || failure.empty()) << "told twice:\n" << text << "\n" << failure;
    text += failure;
  }
  return text;
}

const std::vector<std::string> kPipeline = {"cluster.gpus=4", "plan.pipeline=2"};

TEST_F(Worlds, ARankThatThrowsEndsAllAndIsNamed) {
  execute::Options options;
  options.steps = 1000;
  options.before_op = [](int rank, std::int64_t step, const program::Op& op) {
    if (rank == 3 && step == 2 && op.name == "loss.forward") throw std::runtime_error("out of ideas");
  };
  const std::string text = told(perform_over_gloo(scenario_from(kLlama, kPipeline), options));
  EXPECT_EQ(text.rfind("rank 3 (stage1) in 'loss.forward' (slot ", 0), 0u) << text;
  EXPECT_NE(text.find("failed: out of ideas"), std::string::npos) << text;
  EXPECT_NE(text.find("waited for rank"), std::string::npos) << text;
}

TEST_F(Worlds, ARankThatStopsAnsweringIsNamedAfterTheTimeout) {
  execute::Options options;
  options.steps = 1000;
  options.timeout = std::chrono::milliseconds(1000);
  options.before_op = [](int rank, std::int64_t step, const program::Op& op) {
    if (rank == 2 && step == 0 && op.name == "loss.forward") std::this_thread::sleep_for(std::chrono::seconds(5));
  };
  const std::string text = told(perform_over_gloo(scenario_from(kLlama, kPipeline), options));
  // The first to give up may be one that waited for a rank that waited for rank 2.
  EXPECT_NE(text.find("waited 1 s for rank "), std::string::npos) << text;
  EXPECT_NE(text.find(" for rank 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 2 (stage1) was in 'loss.forward'"), std::string::npos) << text;
}

// An op waits only for ops before it in program order, so streams of a rank never wait for one another in a circle.
TEST(Timelines, WaitOnlyForWhatIsEarlierInProgramOrder) {
  for (const std::vector<std::string>& plan :
       {std::vector<std::string>{"cluster.gpus=4", "plan.zero=3"},
        std::vector<std::string>{"cluster.gpus=8", "plan.tensor=2", "plan.pipeline=2", "plan.zero=1"},
        std::vector<std::string>{"cluster.gpus=2", "plan.pipeline=2", "framework=megatron-2021"}}) {
    const plan::Scenario scenario = scenario_from(kLlama, plan);
    const program::Program program = lower::lower(scenario);
    std::size_t waits = 0;
    for (const execute::Timeline& t : execute::make_timelines(program, scenario.grid()))
      for (std::size_t index = 0; index < t.instances.size(); ++index)
        for (std::size_t w = t.instances[index].first_wait; w < t.instances[index].last_wait; ++w, ++waits) {
          const execute::Wait& wait = t.waits[w];
          ASSERT_LE(wait.position, t.per_step(wait.stream));
          if (wait.position < 1) continue;  // of an earlier step
          const auto& stream = t.streams[static_cast<std::size_t>(wait.stream)];
          EXPECT_LT(stream[static_cast<std::size_t>(wait.position - 1)], static_cast<std::int32_t>(index));
        }
    EXPECT_GT(waits, 0u);
  }
}

}  // namespace
}  // namespace rehearse
