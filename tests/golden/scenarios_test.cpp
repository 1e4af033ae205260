// What the shipped scenarios give, so that a change of any part shows. Step times and memory were printed by
// `rehearse simulate`; a change of more than the tolerance is to be understood, not adjusted.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/run/reinforcement/reinforcement.h"
#include "sim/run/run.h"

namespace rehearse {
namespace {

constexpr double kTolerance = 0.01;

struct Golden {
  std::string scenario;
  double step_s, peak_gb;
  bool fits;
};

class Scenario : public testing::TestWithParam<Golden> {};

TEST_P(Scenario, GivesWhatItGave) {
  const Golden& golden = GetParam();
  const std::string root = REHEARSE_SOURCE_DIR;
  run::Options options;
  options.data_root = root;
  options.record = false;
  const auto scenario = plan::read_scenario(root + "/scenarios/" + golden.scenario + ".yaml", {}, root);
  const auto result = scenario.reinforcement.given ? run::simulate_reinforcement(scenario, {}, options)
                                                   : run::simulate_scenario(scenario, options);
  EXPECT_NEAR(static_cast<double>(result.step_time_ps) * 1e-12, golden.step_s, kTolerance * golden.step_s);
  std::int64_t peak = 0;
  for (const auto& stage : result.stages) peak = std::max(peak, stage.peak);
  EXPECT_NEAR(static_cast<double>(peak) * 1e-9, golden.peak_gb, kTolerance * golden.peak_gb);
  EXPECT_EQ(result.memory_fits, golden.fits);
  std::int64_t sum = 0;
  for (const auto part : result.breakdown_ps) sum += part;
  EXPECT_EQ(sum, result.step_time_ps) << "the breakdown sums to the step to the picosecond";
}

INSTANTIATE_TEST_SUITE_P(
    Shipped, Scenario,
    testing::Values(
        Golden{"gpt3-175b-1024xa100", 24.30, 25.34, true}, Golden{"gpt3-175b-zero3-tp2", 17.93, 32.43, true},
        Golden{"gpt3-175b-tp8-pp16", 24.57, 17.31, true}, Golden{"gpt3-175b-gpipe", 19.95, 351.3, false},
        Golden{"llama2-7b-8xa100", 13.19, 53.63, true}, Golden{"llama3-8b-lora-8xh100", 2.381, 42.20, true},
        Golden{"gpt-10b-offload-1xv100", 13.49, 32.69, true},
        Golden{"llama3-405b-context-16384xh100", 12.23, 94.69, true},
        Golden{"gpt2-xl-32xa100-ethernet-top1", 0.3387, 50.87, true},
        Golden{"gpt2-diloco-2-nodes", 0.2084, 7.533, true}, Golden{"cnn-imagenet-slow-storage", 0.05632, 4.206, true},
        Golden{"cifar-4-workers-async", 0.000286, 1.078, true}, Golden{"dlrm-criteo-8xa100", 0.009948, 12.21, true},
        Golden{"llama3-70b-32xh100-32xa100", 46.32, 77.40, true}, Golden{"mixtral-8x7b-64xh100", 2.596, 60.15, true},
        Golden{"mtp-small-8xh100", 0.3801, 14.28, true}, Golden{"deepseek-v3-2048xh800", 32.35, 62.23, true},
        Golden{"deepseek-v3-fp8-2048xh800", 16.73, 83.07, true}, Golden{"palm-540b-3072xtpuv4", 15.97, 14.54, true},
        Golden{"maxtext-64b-64xtpuv5p", 7.253, 84.37, true}, Golden{"t5-3b-16xa100", 0.6939, 8.78, true},
        Golden{"llama3-8b-grpo-16xh100", 59.27, 42.20, true}, Golden{"qwen3-32b-grpo-64xh100", 156.7, 42.02, true},
        Golden{"llama3-70b-ppo-128xh100", 107.1, 37.76, true}, Golden{"peers/gpt3-step-1024", 5.583, 81.13, true},
        Golden{"published/korthikanti-22b-full", 1.421, 61.27, true},
        Golden{"published/korthikanti-22b-selective", 1.069, 66.22, true},
        Golden{"published/korthikanti-175b-full", 17.99, 63.14, true},
        Golden{"published/korthikanti-175b-selective", 13.58, 69.80, true}),
    [](const auto& test) {
      std::string name = test.param.scenario;
      for (char& c : name)
        if (c == '-' || c == '/') c = '_';
      return name;
    });

}  // namespace
}  // namespace rehearse
