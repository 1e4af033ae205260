// The tables of one and of several results: what they say, and that no line is wider than a terminal.
#include "reports/tables.h"

#include <gtest/gtest.h>

#include <sstream>

#include "reports/limits.h"
#include "reports/text.h"

namespace rehearse::reports {
namespace {

using result::Result;
using result::Share;

constexpr std::int64_t kSecond = 1'000'000'000'000;

// 1,024 ranks, a step of 20 s, of which `percent_of` says where it goes (percent by share).
Result example(const std::vector<std::pair<Share, std::int64_t>>& percents) {
  Result r;
  r.scenario_name = "GPT-3 175B on 1024 A100";
  r.scenario_file = "scenarios/gpt3-175b-1024xa100.yaml";
  r.scenario = {{"plan.tensor", "8"},        {"plan.pipeline", "8"},
                {"plan.data", "16"},         {"plan.micro_batch", "1"},
                {"plan.schedule", "1f1b"},   {"plan.micro_batches", "96"},
                {"plan.zero", "1"},          {"plan.bucket_bytes", "26214400"},
                {"model", "gpt3-175b"},      {"cluster.device", "a100-sxm-80g"},
                {"training.seq_len", "2048"}};
  r.ranks = 1024;
  r.step_time_ps = 20 * kSecond;
  r.tokens_per_s = 1536 * 2048 / 20.0;
  r.tokens_per_s_per_gpu = r.tokens_per_s / 1024;
  r.model_flops = 3.2e18;
  r.hardware_flops = 3.2e18;
  r.peak_flops_per_gpu = 312e12;
  r.flop_formula =
      "72 B s L h^2 (1 + s/6h + V/12Lh), attention counted in full (Narayanan et al. 2021, arXiv 2104.04473)";
  for (const auto& [share, percent] : percents) r.breakdown_ps[static_cast<std::size_t>(share)] = percent * kSecond / 5;
  r.memory_capacity = 80'000'000'000;
  const std::int64_t gb = 1'000'000'000;
  for (int stage = 0; stage < 8; ++stage)
    r.stages.push_back(
        {stage, 5 * gb, 10 * gb, 3 * gb, 20 * gb, gb, gb, 2 * gb, 42 * gb, "backward micro-batch 0: layer95.mlp.up"});
  r.stages[0].activations += 19 * gb;
  r.stages[0].peak += 19 * gb;
  r.coverage = {0.725, 0, 0, 0.275};
  r.interval_low_s = 19.2;
  r.interval_high_s = 20.8;
  r.ops = 24'100'000;
  r.events = 1'200'000;
  r.ranks_simulated = 1024;
  r.wall_s = 0.84;
  r.peak_rss_bytes = 412'000'000;
  return r;
}

Result compute_bound() {
  return example({{Share::compute, 78},
                  {Share::exposed_tensor, 9},
                  {Share::exposed_data, 3},
                  {Share::bubble, 7},
                  {Share::optimizer, 3}});
}

void expect_80_columns(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), 80u) << line;
}

TEST(Summary, SaysWhatMatters) {
  const std::string text = summary(compute_bound());
  expect_80_columns(text);
  for (const char* expected :
       {"GPT-3 175B on 1024 A100", "1,024 ranks", "20 s", "153.6 a GPU", "MFU 50.1%", "HFU 50.1%", "compute", "78.0%",
        "61.00", "72.5% exact measurements", "27.5% data sheets", "24.1M ops", "1,024 ranks in 0.84 s"})
    EXPECT_NE(text.find(expected), std::string::npos) << expected << " is missing from\n" << text;
  EXPECT_EQ(text.find("exposed context"), std::string::npos) << "a share of nothing has no line";
}

TEST(Summary, SaysWhatTheAcceleratorsTake) {
  Result r = compute_bound();
  EXPECT_EQ(summary(r).find("Energy"), std::string::npos) << "where the device's file does not say";
  // 1,024 GPUs at 350 W for 20 s; 3,145,728 tokens a step.
  r.energy = {true, 1'638'400, 5'000'000, 500'000, 29'600, 6e6, 8e6, 5e6, 400, 1};
  const std::string text = summary(r);
  EXPECT_NE(text.find("Power               350 of 400 W a GPU\n"
                      "Energy              7.17 MJ a step, 633 kWh a billion tokens\n"),
            std::string::npos)
      << text;
  expect_80_columns(text);
}

TEST(Summary, NamesThePlanInItsOwnOrder) {
  const std::string text = summary(compute_bound());
  EXPECT_NE(text.find("\ngpt3-175b on a100-sxm-80g\n"
                      "tensor 8, pipeline 8, data 16, micro_batch 1, micro_batches 96, schedule 1f1b,\nzero 1\n"),
            std::string::npos)
      << text;
}

TEST(Summary, ModelsWithoutASequenceCountSamples) {
  Result r = compute_bound();
  EXPECT_NE(summary(r).find("Tokens a second"), std::string::npos);
  r.scenario.erase("training.seq_len");
  EXPECT_NE(summary(r).find("Samples a second"), std::string::npos);
}

TEST(Summary, StagesThatNeedTheSameShareARow) {
  const std::string text = summary(compute_bound());
  EXPECT_NE(text.find("\n  1-7 "), std::string::npos) << text;
  EXPECT_EQ(text.find("\n  2 "), std::string::npos);
}

TEST(Summary, BarsAreInProportion) {
  // compute is the longest bar (34), the bubble 7/78 of it: round(3.05) = 3.
  const std::string text = summary(compute_bound());
  EXPECT_NE(text.find(" " + std::string(34, '#') + "\n"), std::string::npos) << text;
  const std::size_t bubble = text.find("  bubble");
  EXPECT_EQ(std::count(text.begin() + static_cast<std::ptrdiff_t>(bubble),
                       text.begin() + static_cast<std::ptrdiff_t>(text.find('\n', bubble)), '#'),
            3);
}

TEST(Summary, FitsIn80ColumnsWhateverTheNames) {
  Result r = compute_bound();
  r.scenario_name = std::string(300, 'n');
  r.scenario_file = "/" + std::string(200, 'd') + "/x.yaml";
  r.limited_by = std::string(200, 's');
  r.step_time_ps = INT64_MAX;
  r.tokens_per_s = 1e30;
  r.stages[3].activations = INT64_MAX;
  r.stages[3].peak = INT64_MAX;
  r.stages[3].where = std::string(150, 'w');
  expect_80_columns(summary(r));
  expect_80_columns(comparison({r, r}));
  expect_80_columns(summary(Result{}));
}

TEST(Comparison, HasARowAPlanAndASentenceEach) {
  Result a = compute_bound(),
         b = example({{Share::compute, 60}, {Share::exposed_data, 31}, {Share::exposed_tensor, 4}, {Share::bubble, 5}}),
         c = compute_bound();
  b.scenario_file = "scenarios/gpt3-175b-zero3-tp2.yaml";
  c.scenario_file = "scenarios/gpt3-175b-gpipe.yaml";
  c.memory_fits = false;
  c.stages[0].peak = 412'300'000'000;
  const std::string text = comparison({a, b, c});
  expect_80_columns(text);
  // 300e9 tokens at 157,286.4 a second are 22.076 days, and 1,024 GPUs of them 542,535 GPU-hours.
  EXPECT_NE(text.find("1024xa100"), std::string::npos) << text;
  EXPECT_NE(text.find(" 22.1 "), std::string::npos) << text;
  EXPECT_NE(text.find("542,535"), std::string::npos) << text;
  EXPECT_NE(text.find("zero3-tp2: GPT-3 175B on 1024 A100\n  Exposed data-parallel communication: 31.0% of the step"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("gpipe             does not fit: needs 412.3 GB of 80 GB a GPU\n"), std::string::npos) << text;
}

TEST(Comparison, OneResultKeepsItsWholeName) {
  EXPECT_NE(comparison({compute_bound()}).find("gpt3-175b-1024xa100: GPT-3"), std::string::npos);
}

TEST(LimitedBy, ComputeWithItsEfficiencyAndLargestLoss) {
  // Exposed communication is 9 + 3 = 12%, more than the bubble's 7%. Kernels: 3.2e18 FLOPs in 15.6 s on 1,024 x 312
  // TFLOP/s.
  EXPECT_EQ(limited_by(compute_bound()),
            "Compute: 78.0% of the step runs kernels at 64.2% of the peak rate; the largest loss is exposed "
            "communication (mostly tensor-parallel), 12.0%.");
}

TEST(LimitedBy, RecomputationIsNamed) {
  Result r = compute_bound();
  r.hardware_flops = 4e18;
  EXPECT_NE(limited_by(r).find("20.0% of their FLOPs recomputation"), std::string::npos) << limited_by(r);
}

// One of five workers is spare: a fifth of what is computed is given up, and nothing is computed twice.
TEST(LimitedBy, IterationsThatAreGivenUpAreNoRecomputation) {
  Result r = compute_bound();
  r.hardware_flops = 4e18;
  r.servers.known = true, r.servers.workers = 5, r.servers.backup_workers = 1;
  EXPECT_NE(limited_by(r).find("20.0% of their FLOPs iterations that are given up (backup workers);"),
            std::string::npos)
      << limited_by(r);
  EXPECT_EQ(limited_by(r).find("recomputation"), std::string::npos) << limited_by(r);
  r.hardware_flops = 5e18;  // of which 1e18 are given up, and 0.8e18 done again
  EXPECT_NE(limited_by(r).find("given up (backup workers), 16.0% of their FLOPs recomputation"), std::string::npos)
      << limited_by(r);
}

TEST(LimitedBy, BubbleWhenItIsLarge) {
  EXPECT_EQ(limited_by(example({{Share::compute, 60}, {Share::bubble, 35}, {Share::exposed_data, 5}})),
            "Pipeline bubble: 35.0% of the step stages wait for work from other stages.");
}

TEST(LimitedBy, CommunicationOfSeveralKindsNamesTheLargest) {
  EXPECT_EQ(limited_by(example(
                {{Share::compute, 55}, {Share::exposed_tensor, 18}, {Share::exposed_data, 15}, {Share::bubble, 12}})),
            "Exposed communication: 33.0% of the step waits for it, 18.0% of the step for tensor-parallel transfers.");
}

TEST(LimitedBy, MemoryComesFirstAndNamesTheClass) {
  Result r = compute_bound();
  r.memory_fits = false;
  r.scenario["plan.schedule"] = "gpipe";
  r.stages[0].activations = 450'000'000'000;
  r.stages[0].peak = 500'000'000'000;
  // Under gpipe stage 0 holds all 96 micro-batches, under 1f1b 8 of them.
  EXPECT_EQ(limited_by(r),
            "Does not fit: stage 0 needs 500 GB of 80 GB a GPU; activations of 96 micro-batches are 90.0% of it.");
  r.scenario["plan.schedule"] = "1f1b";
  EXPECT_NE(limited_by(r).find("activations of 8 micro-batches"), std::string::npos);
  r.stages[0].parameters = 460'000'000'000;
  EXPECT_NE(limited_by(r).find("; parameters are 92.0% of it."), std::string::npos) << limited_by(r);
}

}  // namespace
}  // namespace rehearse::reports
