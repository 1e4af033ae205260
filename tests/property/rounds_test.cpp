// Rounds of micro-batches that a folded simulation leaves out, where something changes between them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "sim/run/run.h"
#include "tests/support/lowered.h"
#include "tests/support/without_engine.h"

namespace rehearse::rounds_test {
namespace {

result::Result simulated_with(const std::string& noise, bool fold) {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  options.fold = fold;
  return run::simulate_scenario(
      scenario_from("rehearse: 1\nmodel: llama2-7b\nframework: rehearse\ncluster: {topology: dgx-a100, gpus: 16}\n"
                    "plan: {tensor: 8, pipeline: 2, micro_batch: 1}\ntraining: {global_batch: 64, seq_len: 2048}\n" +
                    noise),
      options);
}

// Links that are slow at times: at those that lie in rounds that would be left out, and in one that would be counted.
TEST(Rounds, LinksThatAreSlowAtTimes) {
  for (const char* period : {"2s", "3s", "700ms", "50ms"}) {
    const std::string noise =
        std::string("noise: {links: [{resources: '*nic*', capacity: 0.001, period: ") + period + ", duty: 0.3}]}\n";
    EXPECT_EQ(without_engine(simulated_with(noise, true)), without_engine(simulated_with(noise, false))) << period;
  }
}

TEST(Rounds, LinksThatAreAlwaysSlow) {
  const std::string noise = "noise: {links: [{resources: '*nic*', capacity: 0.1}]}\n";
  const result::Result folded = simulated_with(noise, true), every = simulated_with(noise, false);
  EXPECT_EQ(without_engine(folded), without_engine(every));
  EXPECT_LT(folded.events * 4, every.events) << "rounds are left out";
}

result::Result dual_pipe_of(int global_batch, bool fold) {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  options.fold = fold;
  return run::simulate_scenario(
      scenario_from(
          fmt::format("rehearse: 1\nframework: rehearse\ncluster: {{topology: dgx-a100, gpus: 16}}\n"
                      "model: {{family: gpt, layers: 32, hidden: 1024, heads: 16, vocab: 8192, max_seq_len: 1024}}\n"
                      "plan: {{tensor: 1, pipeline: 16, schedule: dualpipe_v, chunks: 2, micro_batch: 1}}\n"
                      "training: {{global_batch: {}, seq_len: 1024}}\n",
                      global_batch)),
      options);
}

// The state repeats only after some hundred micro-batches, not within the first few rounds.
TEST(Rounds, ThatComeToRepeatLate) {
  const result::Result folded = dual_pipe_of(160, true), every = dual_pipe_of(160, false);
  EXPECT_EQ(without_engine(folded), without_engine(every));
  EXPECT_LT(folded.events * 2, every.events) << "rounds are left out";
  EXPECT_EQ(dual_pipe_of(512, true).events, folded.events) << "however many rounds there are";
}

}  // namespace
}  // namespace rehearse::rounds_test
