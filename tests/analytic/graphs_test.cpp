// Captured graphs (plan.cuda_graphs): what the host launches, how long a step takes that waits for it alone, and the
// buffers that graphs read, against hand counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "tests/support/simulated.h"

namespace rehearse {
namespace {

constexpr std::int64_t kGraphLayers = 3, kGraphTokens = 2 * 32, kGraphHidden = 64, kGraphBatches = 4;
constexpr const char* kGraphModel =
    "rehearse: 1\nmodel: {family: gpt, layers: 3, hidden: 64, heads: 4, vocab: 128, max_seq_len: 32}\n"
    "cluster: {topology: dgx-a100, gpus: 1}\nplan: {micro_batch: 2}\ntraining: {global_batch: 8}\n";

struct Graphs {
  plan::Scenario scenario;
  program::Program program;
};
Graphs graphs(const std::string& kind, std::vector<std::string> more = {}) {
  more.push_back("plan.cuda_graphs=" + kind);
  const plan::Scenario scenario = scenario_from(kGraphModel, more);
  Graphs g{scenario, lower::lower(scenario)};
  EXPECT_EQ(violations(g.program, scenario.grid()), "");
  return g;
}

bool copies_into_graph(const program::Op& op) {
  return op.name.find(".static") != std::string::npos && op.name.find(".copy") != std::string::npos;
}
bool is_sync(const program::Op& op) {
  return std::holds_alternative<program::HostSync>(op.shape);
}
std::int64_t launches(const program::Role& role) {
  return sum_over_step(
      role, [](const program::Role&, const program::Op& op) -> std::int64_t { return is_sync(op) ? 0 : op.launches; });
}

// Forward and backward of a layer are a graph and a copy each; what is before, between and after them is as it was.
TEST(CudaGraphs, OfLayersAreLaunchedOnceEachWay) {
  const program::Program none = graphs("none").program, layer = graphs("layer").program;
  const auto of_layers = [](const program::Role&, const program::Op& op) -> std::int64_t {
    return op.name.find("layer") != std::string::npos && op.phase != program::Phase::optimizer && !copies_into_graph(op)
               ? op.launches
               : 0;
  };
  const std::int64_t kernels = sum_over_step(none.roles[0], of_layers);
  ASSERT_GT(kernels, 20 * kGraphLayers * kGraphBatches);
  EXPECT_EQ(sum_over_step(layer.roles[0], of_layers), 2 * kGraphLayers * kGraphBatches);
  EXPECT_EQ(launches(layer.roles[0]), launches(none.roles[0]) - kernels + 4 * kGraphLayers * kGraphBatches);
}

TEST(CudaGraphs, OfAStepAreOneLaunchBesidesTheOptimizer) {
  for (const char* framework : {"rehearse", "megatron-core"}) {
    const program::Program step = graphs("step", {std::string("framework=") + framework}).program;
    const program::Role& role = step.roles[0];
    const auto& last = role.bodies[static_cast<std::size_t>(role.slots.back().body)].ops;
    const auto kernels = last.size() - static_cast<std::size_t>(std::count_if(last.begin(), last.end(), is_sync));
    EXPECT_EQ(launches(role), static_cast<std::int64_t>(kernels) + 1) << framework;
  }
}

// Kernels take no time: the step is its launches, of a microsecond each.
TEST(CudaGraphs, AStepThatWaitsForItsHostIsItsLaunches) {
  const GivenCosts nothing([](const program::Op&) { return Time(); });
  Time before = Time::from_us(1e9);
  for (const char* kind : {"none", "layer", "step"}) {
    const Graphs g = graphs(kind);
    const engine::Outcome outcome = simulated(g.scenario, nothing, Communication::free, {}, 1, Time::from_us(1));
    EXPECT_EQ(outcome.step_time, Time::from_us(1) * launches(g.program.roles[0])) << kind;
    EXPECT_LT(outcome.step_time, before) << kind;
    before = outcome.step_time;
  }
}

// Neither do the messages of a pipeline wait for the host then, nor it for them.
TEST(CudaGraphs, OfStagesThatExchangeInGroupsRun) {
  const GivenCosts nothing([](const program::Op&) { return Time(); });
  for (const char* kind : {"layer", "step"}) {
    const Graphs g = graphs(kind, {"framework=megatron-core", "cluster.gpus=3", "plan.pipeline=3"});
    const engine::Outcome outcome = simulated(g.scenario, nothing, Communication::free, {}, 2, Time::from_us(1));
    EXPECT_GT(outcome.step_time, Time::from_us(1)) << kind;
  }
}

// A layer's input, in 16 bits, for each micro-batch under way; what the layer before gave is then free.
TEST(CudaGraphs, OfLayersReadCopiesOfTheirInputs) {
  const program::Program layer = graphs("layer").program;
  std::int64_t bytes = 0;
  for (const program::Buffer& b : layer.roles[0].buffers)
    if (b.name.ends_with(".static") && b.lifetime == program::Lifetime::micro_batch) bytes += b.bytes();
  EXPECT_EQ(bytes, kGraphLayers * kGraphTokens * kGraphHidden * 2);
}

TEST(CudaGraphs, OfManyPlansAreSound) {
  for (const char* kind : {"layer", "step"}) {
    graphs(kind, {"cluster.gpus=8", "plan.tensor=2", "plan.pipeline=2", "plan.sequence_parallel=true", "plan.zero=1",
                  "model.layers=4"});
    graphs(kind, {"cluster.gpus=2", "plan.context=2", "plan.zero=2", "framework=nemo"});
    graphs(kind, {"cluster.gpus=2", "plan.pipeline=2", "plan.schedule=zero_bubble", "model.layers=4"});
    graphs(kind, {"training.precision=fp8"});
  }
  graphs("step", {"plan.recompute=full"});
}

}  // namespace
}  // namespace rehearse
