// What lies in the memory of hosts, as each format says it and back.
#include <gtest/gtest.h>

#include <algorithm>

#include "launch/launch.h"
#include "sim/plan/scenario.h"
#include "tests/unit/launch/written.h"

namespace rehearse::launch {
namespace {

plan::Scenario scenario_with(const std::vector<std::string>& assignments) {
  const Written base("offload.yaml",
                     "rehearse: 1\nmodel: llama3-8b\ncluster: {topology: dgx-h100, gpus: 64}\n"
                     "plan: {zero: 3}\ntraining: {global_batch: 512, seq_len: 4096}\n");
  return plan::read_scenario(base.path, assignments, REHEARSE_SOURCE_DIR);
}

plan::Scenario imported(const std::string& name, const std::string& text, int gpus = 64) {
  const Imported back = import_plan(name, text, {"llama3-8b", "", gpus});
  const Written scenario("imported.yaml", back.scenario);
  return plan::read_scenario(scenario.path, {}, REHEARSE_SOURCE_DIR);
}

bool listed(const Exported& exported, const std::string& key) {
  return std::any_of(exported.left_out.begin(), exported.left_out.end(),
                     [&](const LeftOut& one) { return one.key == key; });
}

TEST(Offload, MegatronHasTheActivationsOfTheFirstLayers) {
  const plan::Scenario s = scenario_with({"framework=megatron-core", "plan.offload_layers=20"});
  const Exported exported = export_plan("megatron", s, 8);
  EXPECT_FALSE(listed(exported, "plan.offload_layers"));
  EXPECT_NE(exported.text.find("--cpu-offloading-num-layers 20"), std::string::npos) << exported.text;
  EXPECT_EQ(imported("x.sh", exported.text).plan.offload_layers, 20);
  const Exported bridge = export_plan("megatron-bridge", s, 8);
  EXPECT_NE(bridge.text.find("cfg.model.cpu_offloading_num_layers = 20\n"), std::string::npos) << bridge.text;
  EXPECT_NE(bridge.text.find("cfg.model.cpu_offloading = True\n"), std::string::npos);
  EXPECT_TRUE(listed(export_plan("deepspeed", scenario_with({"framework=deepspeed", "plan.offload_layers=20"}), 8),
                     "plan.offload_layers"));
}

TEST(Offload, DeepSpeedHasOptimizerParametersAndActivations) {
  const plan::Scenario s =
      scenario_with({"framework=deepspeed", "plan.offload_optimizer=true", "plan.offload_parameters=true",
                     "plan.recompute=full", "plan.offload_activations=true"});
  const Exported exported = export_plan("deepspeed", s, 8);
  for (const LeftOut& one : exported.left_out) EXPECT_FALSE(one.key.starts_with("plan.offload")) << one.key;
  const plan::Scenario back = imported("ds.json", exported.text);
  EXPECT_TRUE(back.plan.offload_optimizer && back.plan.offload_parameters && back.plan.offload_activations);
  EXPECT_TRUE(
      imported("ds.json", R"({"zero_optimization": {"stage": 2, "cpu_offload": true}})").plan.offload_optimizer);
  for (const char* none : {R"({"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}})",
                           R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}})",
                           R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})"}) {
    const plan::Scenario plain = imported("ds.json", none);
    EXPECT_FALSE(plain.plan.offload_optimizer || plain.plan.offload_parameters) << none;
  }
  EXPECT_THROW(imported("ds.json", R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "disk"}}})"),
               InputError);
  EXPECT_TRUE(listed(export_plan("deepspeed", scenario_with({"plan.zero=0", "plan.offload_optimizer=true"}), 8),
                     "plan.offload_optimizer"));
}

TEST(Offload, MegatronHasTheOptimizerOfAdamAndZero) {
  const plan::Scenario s = scenario_with({"plan.zero=1", "plan.offload_optimizer=true", "plan.tensor=2"});
  const Exported exported = export_plan("megatron", s, 8);
  EXPECT_FALSE(listed(exported, "plan.offload_optimizer"));
  EXPECT_NE(exported.text.find("  --use-precision-aware-optimizer\n  --optimizer-cpu-offload\n"), std::string::npos)
      << exported.text;
  EXPECT_TRUE(imported("run.sh", exported.text).plan.offload_optimizer);
  const std::string script = "torchrun pretrain_gpt.py --micro-batch-size 1 --bf16 --use-distributed-optimizer ";
  EXPECT_FALSE(imported("run.sh", script + "--lr 1\n").plan.offload_optimizer);
  EXPECT_FALSE(
      imported("run.sh", script + "--optimizer-cpu-offload --optimizer-offload-fraction 0\n").plan.offload_optimizer);
  const Imported half = import_plan("run.sh", script + "--optimizer-cpu-offload --optimizer-offload-fraction 0.5\n",
                                    {"llama3-8b", "", 8});
  EXPECT_NE(half.scenario.find("offload_optimizer: true"), std::string::npos);
  EXPECT_TRUE(std::any_of(half.report.assumed.begin(), half.report.assumed.end(), [](const std::string& line) {
    return line == "all of the optimizer's states on hosts, not 0.5 of them";
  }));
  const auto refused = [&](const std::vector<std::string>& assignments) {
    const Exported one = export_plan("megatron", scenario_with(assignments), 8);
    EXPECT_EQ(one.text.find("--optimizer-cpu-offload\n"), std::string::npos) << one.text;
    return listed(one, "plan.offload_optimizer");
  };
  EXPECT_TRUE(refused({"plan.zero=0", "plan.tensor=2", "plan.offload_optimizer=true"}));
  EXPECT_TRUE(refused({"plan.zero=1", "plan.offload_optimizer=true", "training.optimizer=sgd"}));
}

TEST(Offload, FsdpHasOptimizerAndParametersTogether) {
  for (const auto& [format, name] : {std::pair{"accelerate", "run.yaml"}, {"torchtitan-toml", "run.toml"}}) {
    const plan::Scenario s =
        scenario_with({"framework=torch-fsdp2", "plan.offload_optimizer=true", "plan.offload_parameters=true"});
    const Exported exported = export_plan(format, s, 8);
    EXPECT_FALSE(listed(exported, "plan.offload_optimizer") || listed(exported, "plan.offload_parameters")) << format;
    const plan::Scenario back = imported(name, exported.text);
    EXPECT_TRUE(back.plan.offload_optimizer && back.plan.offload_parameters) << format;
    const Exported alone = export_plan(format, scenario_with({"plan.offload_optimizer=true"}), 8);
    EXPECT_TRUE(listed(alone, "plan.offload_optimizer")) << format;
    EXPECT_FALSE(imported(name, alone.text).plan.offload_optimizer) << format;
  }
  const std::string first = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_offload_params: true\n";
  EXPECT_TRUE(imported("run.yaml", first + "  fsdp_sharding_strategy: FULL_SHARD\n").plan.offload_parameters);
  const plan::Scenario kept = imported("run.yaml", first + "  fsdp_sharding_strategy: SHARD_GRAD_OP\n");
  EXPECT_TRUE(kept.plan.offload_optimizer && !kept.plan.offload_parameters);
  const plan::Scenario deepspeed =
      imported("run.yaml",
               "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: cpu\n"
               "  offload_param_device: cpu\n");
  EXPECT_TRUE(deepspeed.plan.offload_optimizer && deepspeed.plan.offload_parameters);
  const std::string python =
      export_plan("torchrun", scenario_with({"plan.offload_optimizer=true", "plan.offload_parameters=true"}), 8).text;
  EXPECT_NE(python.find("offload_policy=CPUOffloadPolicy())"), std::string::npos) << python;
  EXPECT_EQ(export_plan("torchrun", scenario_with({}), 8).text.find("CPUOffload"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::launch
