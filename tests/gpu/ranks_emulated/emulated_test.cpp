// A rank on a GPU over the CUDA runtime and our own CUDA kernels, both emulated (tests/gpu/emulator): it trains as one
// on the CPU does. What no emulator shows: streams that run side by side, which tests/gpu/ranks has.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "blas.h"
#include "execute/performer.h"
#include "execute/processes/local_world.h"
#include "execute/rank/gpu/cuda_gpu.h"
#include "execute/rank/gpu/gpu_maker.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

execute::Outcome on_gpu(const plan::Scenario& scenario, execute::Options options, execute::Graphs graphs) {
  execute::GpuMaker::Parts parts;
  parts.gpu = [](int) { return execute::make_cuda_gpu(0, &emulator::blas_api()); };
  parts.options.graphs = graphs;
  execute::GpuMaker maker(std::move(parts));
  options.maker = &maker;
  const auto world = execute::make_local_world(1, options.timeout);
  return *execute::perform(scenario, lower::lower(scenario), options, *world);
}

void expect_trains_as_on_the_cpu(const std::string& text, double tolerance, execute::Graphs graphs) {
  const plan::Scenario scenario = scenario_from(text);
  execute::Options options;
  options.steps = 5;
  const std::vector<double> cpu = execute::perform(scenario, lower::lower(scenario), options).result.loss;
  const execute::Outcome gpu = on_gpu(scenario, options, graphs);
  ASSERT_EQ(gpu.result.loss.size(), cpu.size());
  for (std::size_t step = 0; step < cpu.size(); ++step)
    EXPECT_NEAR(gpu.result.loss[step] / cpu[step], 1, tolerance) << "step " << step;
  EXPECT_EQ(gpu.device.graph_steps, graphs == execute::Graphs::off ? 0 : 2);
}

const std::string kMlp =
    "rehearse: 1\n"
    "model: {family: mlp, widths: [16, 16, 8]}\n"
    "cluster: {gpus: 1}\n"
    "plan: {micro_batch: 4}\n"
    "training: {global_batch: 8, precision: fp32, lr: 3e-3, clip: 0.5}\n";

std::string gpt(const std::string& precision) {
  return "rehearse: 1\n"
         "model: {family: gpt, layers: 1, hidden: 32, heads: 2, vocab: 256, max_seq_len: 8, dropout: 0.1}\n"
         "cluster: {gpus: 1}\n"
         "plan: {micro_batch: 1}\n"
         "training: {global_batch: 2, lr: 1e-3, seed: 3, precision: " +
         precision + "}\n";
}

TEST(EmulatedGpuRank, TrainsAnMlp) {
  expect_trains_as_on_the_cpu(kMlp, 1e-4, execute::Graphs::off);
}
TEST(EmulatedGpuRank, TrainsAnMlpFromGraphs) {
  expect_trains_as_on_the_cpu(kMlp, 1e-4, execute::Graphs::automatic);
}
TEST(EmulatedGpuRank, TrainsAGpt) {
  expect_trains_as_on_the_cpu(gpt("fp32"), 1e-4, execute::Graphs::off);
}
TEST(EmulatedGpuRank, TrainsAGptInBf16FromGraphs) {
  expect_trains_as_on_the_cpu(gpt("bf16"), 1e-2, execute::Graphs::automatic);
}

}  // namespace
}  // namespace rehearse
