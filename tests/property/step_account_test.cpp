// The account of a step that is worked out from the files of a result, against the breakdown the engine kept while it
// ran. Ranks of a stage are alike in these plans, so one of each stage stands for all, and the two must agree.
#include "reports/step_account.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <numeric>

#include "sim/result/read_directory.h"
#include "sim/run/run.h"
#include "tests/support/lowered.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;

result::StoredResult simulated_and_stored(const std::string& text, int steps) {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  options.steps = steps;
  options.record = true;
  const fs::path dir = test::temporary_path("account");
  result::write_directory(run::simulate_scenario(scenario_from(text), options), dir);
  result::StoredResult stored = result::read_directory(dir);
  fs::remove_all(dir);
  return stored;
}

std::map<std::string, std::int64_t> by_share(const reports::StepAccount& account) {
  std::map<std::string, std::int64_t> shares;
  for (const std::string_view name : result::kShareNames) shares[std::string(name)] = 0;
  for (const reports::AccountPart& part : account.parts) {
    const bool wait = shares.contains(part.line) && part.phase.empty();
    shares[wait ? part.line : part.phase == "optimizer" ? "optimizer" : "compute"] += part.ps;
  }
  return shares;
}

struct Case {
  const char* name;
  const char* plan;
  int gpus;
  const char* framework = "rehearse";
  const char* data = "";
  const char* family = "gpt";
};

class AccountAgrees : public testing::TestWithParam<std::tuple<Case, int>> {};

TEST_P(AccountAgrees, WithTheEnginesBreakdown) {
  const auto& [c, steps] = GetParam();
  const std::string text =
      "rehearse: 1\nname: account\n" +
      std::string("model: {layers: 8, hidden: 1024, heads: 16, vocab: 51200, max_seq_len: 512, family: ") + c.family +
      "}\n" + "cluster: {topology: dgx-a100, gpus: " + std::to_string(c.gpus) + "}\nplan: {" + c.plan +
      "}\ntraining: {global_batch: 32}\nframework: " + c.framework + "\n" + c.data;
  const result::StoredResult stored = simulated_and_stored(text, steps);
  const reports::StepAccount account = reports::step_account(stored);
  std::int64_t sum = 0;
  for (const reports::AccountPart& part : account.parts) sum += part.ps;
  EXPECT_EQ(sum, stored.result.step_time_ps) << "to the picosecond";
  const auto shares = by_share(account);
  for (std::size_t i = 0; i < result::kShares; ++i) {
    const std::string name(result::kShareNames[i]);
    EXPECT_NEAR(static_cast<double>(shares.at(name)), static_cast<double>(stored.result.breakdown_ps[i]), 64)
        << name << ": but for the rounding of means";
  }
}

constexpr Case kCases[] = {
    {"tensor", "tensor: 4, micro_batch: 4", 4},
    {"ddp", "micro_batch: 2, bucket: 4MiB", 8},
    {"zero3", "micro_batch: 2, zero: 3", 8},
    {"pipeline", "pipeline: 4, micro_batch: 2", 4},
    {"pipeline_over_nodes", "tensor: 8, pipeline: 4, micro_batch: 2", 32},
    {"interleaved", "pipeline: 4, schedule: interleaved, chunks: 2, micro_batch: 2, zero: 1", 8},
    {"batched_exchange", "tensor: 4, pipeline: 4, micro_batch: 2", 16, "megatron-2021"},
    {"batched_exchange_and_data", "tensor: 2, pipeline: 2, micro_batch: 2", 16, "megatron-2021"},
    {"slow_workers", "micro_batch: 2", 8, "torch-ddp", "data: {workers: 2, sample_time: 20ms}\n"},
    {"slow_process", "micro_batch: 2", 8, "rehearse", "data: {sample_time: 1ms}\n"},
    {"slow_storage", "pipeline: 2, micro_batch: 2", 4, "rehearse",
     "data: {workers: 4, sample_bytes: 10MB, storage_bandwidth: 1GB/s}\n"},
    {"hybrid", "micro_batch: 1, zero: 3, zero_group: node", 16},
    {"experts", "micro_batch: 2, zero: 1, expert: 2", 8, "megatron-core", "",
     "moe, experts: 8, experts_per_token: 2, expert_ffn_hidden: 1024"},
    {"all", "tensor: 2, pipeline: 2, micro_batch: 2, zero: 2, sequence_parallel: true, recompute: full", 16},
};

INSTANTIATE_TEST_SUITE_P(Plans, AccountAgrees, testing::Combine(testing::ValuesIn(kCases), testing::Values(1, 2)),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::to_string(std::get<1>(tested.param)) + "_steps";
                         });

}  // namespace
}  // namespace rehearse
