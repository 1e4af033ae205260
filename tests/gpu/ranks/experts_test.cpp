// Experts on GPUs train as on CPUs, whatever the device does late: rows that are traded by counts which the host waits
// for, choices that it gives and keeps, and Adafactor's means of tensors in parts, which know the rank's place.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "sim/model/recorded_choices.h"
#include "tests/gpu/ranks/gpu_run.h"
#include "tests/support/lowered.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

using Assignments = std::vector<std::string>;

const std::string kRoutedModel =
    "rehearse: 1\n"
    "model: {family: moe, layers: 2, hidden: 16, heads: 4, kv_heads: 2, vocab: 256, max_seq_len: 8, experts: 4, "
    "experts_per_token: 2, expert_ffn_hidden: 12, aux_loss: 0.05, capacity_factor: 1.25}\n"
    "training: {global_batch: 8, precision: fp32, lr: 1e-3, seed: 3}\n";

plan::Scenario scenario_of(const Assignments& plan) {
  Assignments all = plan;
  all.insert(all.begin(), {"framework=rehearse", "plan.bucket=2KiB"});
  const std::string path = test::temporary_path("gpu_experts.yaml");
  std::ofstream(path) << kRoutedModel;
  return plan::read_scenario(path, all, REHEARSE_SOURCE_DIR, plan::Purpose::perform);
}

struct RoutedCase {
  std::string name;
  Assignments plan;
};
std::ostream& operator<<(std::ostream& out, const RoutedCase& c) {
  return out << c.name;
}

class GpuExperts : public testing::TestWithParam<RoutedCase> {};

TEST_P(GpuExperts, TrainAsOnCpus) {
  const plan::Scenario scenario = scenario_of(GetParam().plan);
  execute::Options options;
  options.steps = 5;
  options.record_routing = true;
  options.timeout = std::chrono::seconds(20);
  const execute::Outcome cpu = execute::perform(scenario, lower::lower(scenario), options);
  for (const unsigned seed : {1U, 2U, 3U}) {
    GpuRun run;
    run.late.seed = seed;
    const execute::Outcome gpu = run.perform(scenario, options);
    ASSERT_EQ(gpu.result.loss.size(), cpu.result.loss.size());
    for (std::size_t step = 0; step < cpu.result.loss.size(); ++step)
      ASSERT_NEAR(gpu.result.loss[step] / cpu.result.loss[step], 1, scenario.cluster.gpus == 1 ? 0 : 1e-5)
          << "step " << step << ", seed " << seed;
    EXPECT_EQ(model::routing_table_text(gpu.routing), model::routing_table_text(cpu.routing)) << "seed " << seed;
    EXPECT_EQ(fake_nccl_alive(), 0);
  }
}

std::vector<RoutedCase> routed_cases() {
  const Assignments dropless = {"model.capacity_factor=0", "model.buffer_factor=2"};
  const auto without_capacity = [&](Assignments plan) {
    plan.insert(plan.end(), dropless.begin(), dropless.end());
    return plan;
  };
  return {
      {"one", {"cluster.gpus=1", "plan.micro_batch=4"}},
      {"one_dropless", without_capacity({"cluster.gpus=1", "plan.micro_batch=4"})},
      {"expert2_zero1", {"cluster.gpus=4", "plan.expert=2", "plan.zero=1"}},
      {"expert2_tensor2", {"cluster.gpus=4", "plan.expert=2", "plan.tensor=2", "plan.sequence_parallel=true"}},
      {"expert2_pipeline2", {"cluster.gpus=4", "plan.expert=2", "plan.pipeline=2"}},
      {"expert2_hybrid", {"cluster.gpus=4", "plan.expert=2", "plan.zero=3", "plan.zero_group=2"}},
      {"dropless_expert2", without_capacity({"cluster.gpus=2", "plan.expert=2"})},
      {"dropless_expert4_zero1", without_capacity({"cluster.gpus=4", "plan.expert=4", "plan.zero=1"})},
      {"dropless_expert2_tensor2",
       without_capacity({"cluster.gpus=4", "plan.expert=2", "plan.tensor=2", "plan.sequence_parallel=true"})},
      {"dropless_expert2_recomputed_pipeline2",
       without_capacity({"cluster.gpus=4", "plan.expert=2", "plan.pipeline=2", "plan.recompute=full"})},
      {"dropless_expert2_overlapped",
       without_capacity({"cluster.gpus=2", "plan.expert=2", "plan.overlap_expert_exchange=true"})},
      {"weighed_expert2_zero1", {"cluster.gpus=4", "plan.expert=2", "plan.zero=1", "plan.weigh_in_experts=true"}},
      {"dropless_weighed_expert2_tensor2",
       without_capacity({"cluster.gpus=4", "plan.expert=2", "plan.tensor=2", "plan.sequence_parallel=true",
                         "plan.weigh_in_experts=true"})},
      {"gathered_expert2", without_capacity({"cluster.gpus=4", "plan.expert=2", "plan.expert_dispatch=all_gather"})},
      {"adafactor_expert2_zero1",
       {"cluster.gpus=4", "plan.expert=2", "plan.zero=1", "training.optimizer=adafactor", "training.lr=1e-2"}},
      {"adafactor_tensor2_zero3",
       {"cluster.gpus=4", "plan.tensor=2", "plan.zero=3", "training.optimizer=adafactor", "training.lr=1e-2"}},
  };
}
INSTANTIATE_TEST_SUITE_P(All, GpuExperts, testing::ValuesIn(routed_cases()),
                         [](const auto& test) { return test.param.name; });

// What another model's routers chose, and no tie of ours.
TEST(GpuReplayedRouting, GivesGatesTheRecordsChoices) {
  execute::Options options;
  options.steps = 4;
  options.record_routing = true;
  options.timeout = std::chrono::seconds(20);
  const plan::Scenario other = scenario_of({"cluster.gpus=1", "plan.micro_batch=8", "training.seed=99"});
  const std::string file = test::temporary_path("gpu_routing.csv");
  std::ofstream(file) << model::routing_table_text(execute::perform(other, lower::lower(other), options).routing);
  for (const Assignments& plan :
       {Assignments{"cluster.gpus=1", "plan.micro_batch=4"}, Assignments{"cluster.gpus=2", "plan.expert=2"},
        Assignments{"cluster.gpus=4", "plan.expert=2", "plan.tensor=2", "plan.sequence_parallel=true"}}) {
    Assignments all = plan;
    all.insert(all.end(), {"model.routing=recorded", "model.routing_file=" + file});
    const plan::Scenario scenario = scenario_of(all);
    const execute::Outcome cpu = execute::perform(scenario, lower::lower(scenario), options);
    GpuRun run;
    run.late.seed = 5;
    const execute::Outcome gpu = run.perform(scenario, options);
    for (std::size_t step = 0; step < cpu.result.loss.size(); ++step)
      EXPECT_NEAR(gpu.result.loss[step] / cpu.result.loss[step], 1, 1e-5) << "step " << step;
    EXPECT_EQ(model::routing_table_text(gpu.routing), model::routing_table_text(cpu.routing));
    const plan::Scenario own = scenario_of(plan);
    EXPECT_NE(execute::perform(own, lower::lower(own), options).result.loss, cpu.result.loss) << "not felt";
  }
}

// Rows for which there is no room end the run before anything is done with them.
TEST(GpuExpertRows, WithoutRoomEndTheRun) {
  for (const char* dispatch : {"all_to_all", "all_gather"}) {
    const plan::Scenario scenario =
        scenario_of({"cluster.gpus=2", "plan.expert=2", "model.capacity_factor=0", "model.buffer_factor=1",
                     std::string("plan.expert_dispatch=") + dispatch});
    execute::Options options;
    options.steps = 2;
    GpuRun run;
    try {
      run.perform(scenario, options);
      FAIL() << "there is room for even rows alone";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("room for"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("model.buffer_factor"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace rehearse
