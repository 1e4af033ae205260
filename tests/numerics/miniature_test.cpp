// The miniature of a plan (sim/run/miniature.h): of random plans that can be, each is a scenario that can be performed,
// with the schedule, ZeRO stage, recomputation and sequence parallelism of the large one, within the limits, and it is
// performed without an error. Of a shipped plan, what is kept and what is reduced.
#include "sim/run/miniature.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include "execute/performer.h"
#include "sim/lower/lower.h"
#include "tests/fuzz/random_plan.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

const std::string kMiniatureRoot = REHEARSE_SOURCE_DIR;

// Of fixed seeds, those that can be.
std::optional<plan::Scenario> feasible_plan(unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(160, '\0');
  for (char& c : bytes) c = static_cast<char>(random() & 0xff);
  bytes[6] = 0;  // not on a host: that would need a calibration
  fuzz::Choices choices(bytes);
  const std::string text = fuzz::random_plan(choices, "none.json").text;
  if (text.find("none.json") != std::string::npos) return {};
  const std::string path = test::temporary_path(fmt::format("large{}.yaml", seed));
  std::ofstream(path) << text;
  try {
    return plan::read_scenario(path, {}, kMiniatureRoot);
  } catch (const InputError&) {
    return {};
  }
}

// What is not listed as dropped, with the rule that forbids it, is as it was.
void expect_same_strategies(const plan::Scenario& large, const run::Miniature& miniature) {
  const plan::Scenario& small = miniature.scenario;
  const auto dropped = [&](const std::string& key) {
    return std::any_of(miniature.rows.begin(), miniature.rows.end(), [&](const run::MiniatureRow& row) {
      return row.what == key && row.fate == run::Fate::dropped && !row.why.empty();
    });
  };
  const plan::Plan &l = large.plan, &s = small.plan;
  if (s.pipeline > 1) {
    EXPECT_EQ(l.schedule, s.schedule);
    EXPECT_EQ(l.chunks > 1, s.chunks > 1);
  }
  EXPECT_EQ(l.zero, s.zero);
  EXPECT_EQ(l.recompute, s.recompute);
  if (s.tensor > 1) {
    EXPECT_EQ(l.sequence_parallel, s.sequence_parallel);
  }
  EXPECT_EQ(l.offload_optimizer, s.offload_optimizer);
  EXPECT_EQ(l.overlap_grad_reduce, s.overlap_grad_reduce);
  EXPECT_EQ(l.overlap_param_gather, s.overlap_param_gather);
  EXPECT_EQ(large.framework.name, small.framework.name);
  if (!dropped("training.precision")) {
    EXPECT_EQ(large.training.precision, small.training.precision);
  }
  if (!dropped("training.optimizer")) {
    EXPECT_EQ(large.training.optimizer, small.training.optimizer);
  }
  for (const auto& [whole, part] : {std::pair(l.pipeline, s.pipeline), std::pair(l.tensor, s.tensor),
                                    std::pair(l.data, s.data), std::pair(l.expert, s.expert)})
    EXPECT_EQ(whole > 1, part > 1) << whole << " became " << part;
}

TEST(Miniature, OfRandomPlansKeepsTheirStrategiesAndIsPerformed) {
  int performed = 0;
  for (unsigned seed = 1; seed <= 120; ++seed) {
    const std::optional<plan::Scenario> large = feasible_plan(seed);
    if (!large) continue;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    run::MiniatureLimits limits;
    limits.ranks = 16;
    limits.flops = 3e7;
    const run::Miniature small = run::miniature_of(*large, {}, kMiniatureRoot, limits);
    EXPECT_LE(small.scenario.cluster.gpus, 16);
    if (small.within) {
      EXPECT_LE(run::miniature_flops(small.scenario), limits.flops);
    }
    expect_same_strategies(*large, small);
    execute::Options options;
    options.steps = 1;
    const execute::Outcome outcome = execute::perform(small.scenario, lower::lower(small.scenario), options);
    EXPECT_TRUE(std::isfinite(outcome.result.loss.front()));
    ++performed;
  }
  EXPECT_GE(performed, 20) << "few plans show little";
}

TEST(Miniature, KeepsActivationsOfLayersOnTheHost) {
  const std::string path = test::temporary_path("offload_layers.yaml");
  std::ofstream(path)
      << "rehearse: 1\nmodel: llama2-7b\nframework: megatron-core\ncluster: {topology: dgx-a100, gpus: 8}\n"
         "plan: {micro_batch: 1, zero: 1, offload_layers: 20}\ntraining: {global_batch: 64, seq_len: 4096}\n";
  const plan::Scenario large = plan::read_scenario(path, {}, kMiniatureRoot);
  run::MiniatureLimits limits;
  limits.ranks = 2;
  limits.flops = 3e7;
  const plan::Scenario small = run::miniature_of(large, {}, kMiniatureRoot, limits).scenario;
  EXPECT_GE(small.plan.offload_layers, 1);
  EXPECT_LT(small.plan.offload_layers, small.model.layers);
  execute::Options options;
  options.steps = 1;
  EXPECT_TRUE(std::isfinite(execute::perform(small, lower::lower(small), options).result.loss.front()));
}

TEST(Miniature, OfEveryShippedPlanIsPerformed) {
  for (const auto& entry : std::filesystem::directory_iterator(kMiniatureRoot + "/scenarios")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().filename().string());
    const plan::Scenario large = plan::read_scenario(entry.path().string(), {}, kMiniatureRoot);
    run::MiniatureLimits limits;
    limits.flops = 1e8;
    limits.ranks = std::max<std::int64_t>(2, run::ranks_that_keep_splits(large.plan));
    const run::Miniature small = run::miniature_of(large, {}, kMiniatureRoot, limits);
    expect_same_strategies(large, small);
    execute::Options options;
    options.steps = 1;
    const execute::Outcome outcome = execute::perform(small.scenario, lower::lower(small.scenario), options);
    EXPECT_TRUE(std::isfinite(outcome.result.loss.front()));
  }
}

const run::MiniatureRow& row_of(const run::Miniature& m, const std::string& what) {
  const auto found = std::find_if(m.rows.begin(), m.rows.end(), [&](const auto& row) { return row.what == what; });
  EXPECT_NE(found, m.rows.end()) << what;
  return found == m.rows.end() ? m.rows.front() : *found;
}

TEST(Miniature, OfGpt3SaysWhatItKeptAndReduced) {
  const plan::Scenario large =
      plan::read_scenario(kMiniatureRoot + "/scenarios/gpt3-175b-1024xa100.yaml", {}, kMiniatureRoot);
  EXPECT_EQ(run::ranks_that_keep_splits(large.plan), 8);
  const run::Miniature small = run::miniature_of(large, {}, kMiniatureRoot, {});
  EXPECT_TRUE(small.within);
  EXPECT_EQ(row_of(small, "ranks").small, "8");
  EXPECT_EQ(row_of(small, "tensor").fate, run::Fate::reduced);
  EXPECT_EQ(row_of(small, "plan.schedule").fate, run::Fate::kept);
  EXPECT_EQ(row_of(small, "plan.zero").small, "1");
  EXPECT_EQ(row_of(small, "layers").large, "96");
  EXPECT_EQ(row_of(small, "cluster.topology").fate, run::Fate::dropped);
  // With room enough a rank's shapes stay, and only ranks, layers and the rest of the hidden size go.
  run::MiniatureLimits room;
  room.flops = 1e16;
  room.bytes = Bytes(std::int64_t{1} << 42);
  const run::Miniature wide = run::miniature_of(large, {}, kMiniatureRoot, room);
  EXPECT_EQ(row_of(wide, "heads of a rank").fate, run::Fate::kept);
  EXPECT_EQ(row_of(wide, "feed-forward columns of a rank").fate, run::Fate::kept);
  EXPECT_EQ(row_of(wide, "layers of a stage's chunk").fate, run::Fate::kept);
  EXPECT_EQ(row_of(wide, "tokens of a sequence").fate, run::Fate::kept);
  // As many micro-batches a stage: the bubble has its share.
  EXPECT_EQ(row_of(wide, "micro-batches of a replica").small, "24");
}

TEST(Miniature, OnTwoRanksDropsSplitsAndSaysSo) {
  const plan::Scenario large =
      plan::read_scenario(kMiniatureRoot + "/scenarios/gpt3-175b-1024xa100.yaml", {}, kMiniatureRoot);
  run::MiniatureLimits limits;
  limits.ranks = 2;
  const run::Miniature small = run::miniature_of(large, {}, kMiniatureRoot, limits);
  EXPECT_EQ(small.scenario.cluster.gpus, 2);
  EXPECT_EQ(row_of(small, "pipeline stages").fate, run::Fate::reduced);
  EXPECT_EQ(row_of(small, "tensor").fate, run::Fate::dropped);
  EXPECT_EQ(row_of(small, "data-parallel replicas").fate, run::Fate::dropped);
}

// Layers of one branch: the miniature has one of each kind, also where stages share its few layers.
TEST(Miniature, OfAPatternHasEveryKindOfLayer) {
  struct Case {
    const char* pattern;
    int pipeline;
    bool ends = false;  // count as layers: embedding_as_layer
  };
  for (const auto& [pattern, pipeline, ends] : {Case{"MEMEM*EMEMEMEM*EMEMEMEME", 1},
                                                {"MEMEM*EMEMEMEM*EMEMEMEME", 2},
                                                {"MMMMMMMMMMMMMMMMMMMMMM*E", 4},
                                                {"MEMEM*EMEMEMEM*EMEMEM*", 2, true}}) {
    SCOPED_TRACE(fmt::format("{} in {} stages", pattern, pipeline));
    const std::string path = test::temporary_path("pattern.yaml");
    std::ofstream(path) << fmt::format(
        "rehearse: 1\nmodel: {{family: moe, layers: {}, layer_pattern: \"{}\", hidden: 1024, heads: 16, head_dim: 64, "
        "vocab: 32000, max_seq_len: 2048, position: none, experts: 16, experts_per_token: 2, expert_ffn_hidden: 512, "
        "mamba_heads: 32, mamba_groups: 8}}\ncluster: {{topology: dgx-h100, gpus: 32}}\n"
        "plan: {{tensor: 2, pipeline: {}, expert: 2, micro_batch: 1, embedding_as_layer: {}}}\n"
        "training: {{global_batch: 64, seq_len: 2048}}\n",
        std::string_view(pattern).size(), pattern, pipeline, ends);
    const plan::Scenario large = plan::read_scenario(path, {}, kMiniatureRoot);
    run::MiniatureLimits limits;
    limits.flops = 1e8;
    const run::Miniature small = run::miniature_of(large, {}, kMiniatureRoot, limits);
    for (const char kind : {'M', 'E', '*'})
      EXPECT_NE(small.scenario.model.layer_pattern.find(kind), std::string::npos) << small.scenario.model.layer_pattern;
    execute::Options options;
    options.steps = 1;
    const execute::Outcome outcome = execute::perform(small.scenario, lower::lower(small.scenario), options);
    EXPECT_TRUE(std::isfinite(outcome.result.loss.front()));
  }
}

// What no CPU performs is dropped with the reason, and nothing else is.
TEST(Miniature, OfExpertsThatAreForwardedTradesThemAllToAll) {
  const plan::Scenario large =
      plan::read_scenario(kMiniatureRoot + "/scenarios/deepseek-v3-2048xh800.yaml", {}, kMiniatureRoot);
  const run::Miniature small = run::miniature_of(large, {}, kMiniatureRoot, {});
  EXPECT_EQ(row_of(small, "plan.expert_dispatch").fate, run::Fate::dropped);
  EXPECT_NE(row_of(small, "plan.expert_dispatch").why.find("not performed"), std::string::npos);
  EXPECT_EQ(row_of(small, "plan.recompute").fate, run::Fate::kept);
  EXPECT_GT(small.scenario.plan.expert, 1);
}

}  // namespace
}  // namespace rehearse
