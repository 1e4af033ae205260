// What a search knows of plans before it lowers them (sim/search/layer_floor.h), and before it lays their memory out:
// no more than what they take and need, and not much less. Bounds on random plans: the fuzz target `plan`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "sim/lower/lower.h"
#include "sim/run/fit.h"
#include "sim/run/run.h"
#include "sim/search/layer_floor.h"
#include "sim/search/machines.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

const std::string kFloorsRoot = REHEARSE_SOURCE_DIR;

std::string floors_scenario(const std::string& text) {
  const std::string path = test::temporary_path("floors.yaml");
  std::ofstream(path) << "rehearse: 1\n" << text;
  return path;
}

constexpr const char* kSmallGpt =
    "model: {family: gpt, layers: 4, hidden: 512, heads: 8, vocab: 2048, max_seq_len: 256}\n"
    "framework: rehearse\ncluster: {topology: dgx-a100, gpus: 16}\n"
    "training: {global_batch: 32, seq_len: 256, precision: bf16}\n";

constexpr const char* kUnlikeDevices =
    "model: {family: gpt, layers: 6, hidden: 512, heads: 8, vocab: 2048, max_seq_len: 256}\n"
    "framework: rehearse\n"
    "cluster: {nodes: [{topology: dgx-h100, count: 1}, {topology: dgx-a100, count: 1}]}\n"
    "training: {global_batch: 32, seq_len: 256, precision: bf16}\n";

// Of layers that are split by time it is known before that replicas on unlike devices go as fast as the slowest.
TEST(SearchFloors, FloorsOfSplitsByTimeKnowTheSlowest) {
  const std::string file = floors_scenario(kUnlikeDevices);
  run::Options options;
  options.data_root = kFloorsRoot;
  options.record = false;
  for (const char* order : {"[tensor, context, expert, data, pipeline]", "[tensor, context, expert, pipeline, data]"}) {
    const auto read = [&](const char* layers, int chunks) {
      return plan::read_scenario(
          file,
          {"plan.tensor=4", "plan.pipeline=2", "plan.micro_batch=1", fmt::format("plan.chunks={}", chunks),
           chunks > 1 ? "plan.schedule=interleaved" : "plan.schedule=1f1b", std::string("plan.rank_order=") + order,
           std::string("plan.layers_per_stage=") + layers},
          kFloorsRoot);
    };
    const plan::Scenario even = read("auto", 1);
    const run::Machine machine(even, options);
    search::CollectiveTimes times(machine.collectives.model());
    search::PassesHeld held;
    const auto floor = [&](const plan::Scenario& of) {
      return search::plan_floor(search::layer_floors(of, machine), of, machine, times, held).step.seconds();
    };
    for (const int chunks : {1, 3}) {
      const plan::Scenario by_time = read("by_time", chunks);
      EXPECT_LE(floor(by_time), Time::from_ps(run::simulate_scenario(by_time, options).step_time_ps).seconds());
    }
    const bool replicas_apart = std::string(order).ends_with("data]");
    if (replicas_apart) {
      EXPECT_GE(floor(read("by_time", 1)), 0.85 * floor(even)) << "all stages are on both kinds";
    }
    EXPECT_GE(floor(read("by_time", 3)), 0.6 * floor(even)) << "the slow stage has three layers at least";
  }
}

// What is said of layers from few of them is what all say.
TEST(SearchFloors, LayersThatAreAlikeAreLoweredOnce) {
  const std::string training = "training: {global_batch: 8, seq_len: 128, precision: bf16}\n";
  const std::string on_a100 = "framework: megatron-core\ncluster: {topology: dgx-a100, gpus: 8}\n";
  const std::string on_two =
      "framework: rehearse\ncluster: {nodes: [{topology: dgx-h100, count: 1}, {topology: dgx-a100, count: 1}]}\n";
  for (const std::string& text :
       {"model: {family: gpt, layers: 9, hidden: 256, heads: 4, vocab: 1024, max_seq_len: 128}\n" + on_a100 + training,
        "model: {family: gpt, layers: 9, hidden: 256, heads: 4, vocab: 1024, max_seq_len: 128, dropout: 0.1, "
        "tied_embeddings: false}\nplan: {tensor: 2, sequence_parallel: true, recompute: full}\n" +
            on_two + training,
        "model: {family: llama, layers: 7, hidden: 256, heads: 4, kv_heads: 2, ffn_hidden: 512, vocab: 1024, "
        "max_seq_len: 128}\n"
        "plan: {context: 2}\n" +
            on_a100 + training,
        "model: {family: moe, layers: 6, hidden: 256, heads: 4, expert_ffn_hidden: 512, vocab: 1024, experts: 8, "
        "experts_per_token: 2, max_seq_len: 128}\nplan: {expert: 4}\n" +
            on_a100 + training}) {
    run::Options options;
    options.data_root = kFloorsRoot;
    const plan::Scenario scenario = plan::read_scenario(floors_scenario(text), {}, kFloorsRoot);
    const run::Machine machine(scenario, options);
    const std::vector<search::LayerFloor> few = search::layer_floors(scenario, machine),
                                          all = search::layer_floors(scenario, machine, search::Lowered::every_layer);
    ASSERT_EQ(few.size(), static_cast<std::size_t>(machine.kinds()));
    const auto same = [&](const search::UnitFloor& a, const search::UnitFloor& b) {
      EXPECT_EQ(a.forward_ps, b.forward_ps) << text;
      EXPECT_EQ(a.backward_ps, b.backward_ps);
      EXPECT_EQ(a.parameters, b.parameters);
      EXPECT_EQ(a.kept, b.kept);
      // Shares of buckets, whose number differs.
      EXPECT_LE(std::abs(a.gradients - b.gradients), 1024);
      EXPECT_LE(std::abs(a.optimizer - b.optimizer), 1024);
    };
    for (std::size_t kind = 0; kind < few.size(); ++kind) {
      same(few[kind].first, all[kind].first), same(few[kind].last, all[kind].last);
      ASSERT_EQ(few[kind].layers.size(), all[kind].layers.size());
      for (std::size_t layer = 0; layer < all[kind].layers.size(); ++layer)
        same(few[kind].layers[layer], all[kind].layers[layer]);
      EXPECT_GT(all[kind].layers[3].forward_ps, 0);
    }
  }
}

// Floors of memory of every schedule: no more than what a plan needs, and most of it.
TEST(SearchFloors, FloorsOfMemoryHoldOfEverySchedule) {
  const std::string file = floors_scenario(
      "model: {family: gpt, layers: 16, hidden: 512, heads: 8, vocab: 1024, max_seq_len: 512}\n"
      "framework: megatron-core\ncluster: {topology: dgx-a100, gpus: 8}\n"
      "training: {global_batch: 64, seq_len: 512, precision: bf16}\n");
  run::Options options;
  options.data_root = kFloorsRoot;
  options.record = false;
  for (const std::string schedule :
       {"gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_v", "dualpipe", "dualpipe_v"})
    for (const std::string recompute : {"none", "full"}) {
      std::vector<std::string> plan = {"plan.pipeline=4", "plan.zero=1", "plan.micro_batch=2",
                                       "plan.schedule=" + schedule, "plan.recompute=" + recompute};
      if (schedule == "interleaved") plan.emplace_back("plan.chunks=2");
      const plan::Scenario scenario = plan::read_scenario(file, plan, kFloorsRoot);
      const run::Machine machine(scenario, options);
      search::CollectiveTimes times(machine.collectives.model());
      search::PassesHeld held;
      const auto floor = [&](const plan::Scenario& of) {
        const search::PlanFloor least = search::plan_floor(search::layer_floors(of, machine), of, machine, times, held);
        return search::with_reserve(least.bytes, of, machine);
      };
      const std::int64_t peak = run::largest_peak(run::simulate_scenario(scenario, options).stages);
      const std::int64_t nothing = search::with_reserve(0, scenario, machine);
      EXPECT_LE(floor(scenario), peak) << schedule << " " << recompute;
      // What is computed again, or kept for weights' gradients, no floor counts.
      EXPECT_GE(floor(scenario) - nothing, (peak - nothing) / (recompute == "none" ? 2 : 3)) << schedule;
      plan::Scenario by_time = scenario;
      by_time.plan.layers_by_time = true;
      EXPECT_LE(floor(by_time), floor(scenario)) << schedule << " " << recompute;
      EXPECT_GT(floor(by_time), nothing);
    }
}

// What the fullest stage's arena needs is known before the others are laid out.
TEST(SearchFloors, TheFullestStageIsPlacedFirst) {
  const std::string file = floors_scenario(kSmallGpt);
  run::Options options;
  options.data_root = kFloorsRoot;
  options.record = false;
  for (const std::string schedule : {"1f1b", "dualpipe_v"}) {
    const plan::Scenario scenario = plan::read_scenario(
        file, {"plan.pipeline=2", "plan.schedule=" + schedule, "plan.micro_batch=1", "plan.zero=1"}, kFloorsRoot);
    const run::Machine machine(scenario, options);
    const std::int64_t peak = run::largest_peak(run::simulate_scenario(scenario, options).stages);
    EXPECT_EQ(search::fullest_placed(lower::lower(scenario), scenario, machine), peak);
  }
}

}  // namespace
}  // namespace rehearse
