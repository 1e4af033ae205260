// framework: auto, the default: which profile stands for which plan, where, and what a scenario says of it.
#include <fstream>

#include "sim/plan/framework.h"
#include "tests/support/temporary.h"
#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

const std::string kGpus = "rehearse: 1\n" + kSmallModel + "cluster: {topology: dgx-a100, gpus: 8}\n";
const std::string kMlp =
    "rehearse: 1\nmodel: {family: mlp, widths: [64, 64, 64, 8]}\ncluster: {topology: dgx-a100, gpus: 8}\n";

std::string chosen(const std::string& text, const std::vector<std::string>& plan) {
  return read(text, plan).framework.name;
}

TEST(AutoFramework, IsWhatPeopleRunOnGpus) {
  EXPECT_EQ(chosen(kGpus, {}), "torch-ddp");
  EXPECT_EQ(chosen(kGpus, {"cluster.gpus=1"}), "torch-ddp");
  for (const char* zero : {"plan.zero=1", "plan.zero=2", "plan.zero=3"})
    EXPECT_EQ(chosen(kGpus, {zero}), "torch-fsdp2");
  for (const char* split : {"plan.tensor=2", "plan.pipeline=2", "plan.context=2"}) {
    for (const char* zero : {"plan.zero=0", "plan.zero=1", "plan.zero=2"})
      EXPECT_EQ(chosen(kGpus, {split, zero}), "megatron-core") << split << " " << zero;
    EXPECT_EQ(chosen(kGpus, {split, "plan.zero=3"}), "torch-fsdp2") << split;
  }
  EXPECT_EQ(chosen(kGpus, {"plan.offload_optimizer=true"}), "megatron-core") << "torch-ddp has none";
  EXPECT_EQ(chosen(kGpus, {"plan.offload_optimizer=true", "plan.zero=2"}), "torch-fsdp2");
  EXPECT_EQ(chosen(kMlp, {"plan.offload_optimizer=true"}), "rehearse");
  EXPECT_EQ(chosen(kMlp, {}), "torch-ddp");
  EXPECT_EQ(chosen(kMlp, {"plan.zero=1"}), "torch-fsdp2");
  EXPECT_EQ(chosen(kMlp, {"plan.pipeline=2"}), "rehearse") << "what no other framework makes";
}

TEST(AutoFramework, SaysWhyAndGivesItsDefaults) {
  const Scenario s = read(kGpus, {"plan.tensor=2"});
  EXPECT_EQ(s.framework_why, "a transformer with tensor, pipeline, context or expert parallelism");
  EXPECT_FALSE(s.plan.overlap_grad_reduce) << "megatron-core's default";
  EXPECT_EQ(s.model.attention, model::AttentionKind::cudnn);
  EXPECT_EQ(read("framework: auto\n" + kGpus, {"plan.tensor=2"}).framework.name, s.framework.name);
  const Scenario named = read(kGpus, {"plan.tensor=2", "framework=rehearse"});
  EXPECT_EQ(named.framework_why, "");
  EXPECT_TRUE(named.plan.overlap_grad_reduce);
  EXPECT_EQ(read(kGpus, {"framework=megatron-2021", "framework=auto"}).framework.name, "torch-ddp");
}

TEST(AutoFramework, IsTheIdealOnACpuAndWhereThePlanIsPerformed) {
  const std::string local = "rehearse: 1\n" + kSmallModel + "cluster: {topology: local, gpus: 4}\n";
  EXPECT_EQ(chosen(local, {}), "rehearse");
  EXPECT_EQ(read(local).framework_why, "ranks are a CPU's threads");
  EXPECT_EQ(chosen(kGpus, {"cluster.overrides.device=local"}), "rehearse");
  EXPECT_EQ(chosen(kGpus, {"costs.calibration=[measured.json]"}), "rehearse");
  EXPECT_EQ(chosen(kGpus, {"costs.calibration=[a100-sxm-80g, measured.json]"}), "torch-ddp")
      << "the first is the device";

  const std::string topology = test::temporary_path("cpus.yaml");
  std::ofstream(topology) << "topology: 1\nkind: links\ndevice: local\n";
  EXPECT_EQ(chosen(kGpus, {"cluster.topology=" + topology}), "rehearse");
  std::ofstream(topology) << "topology: 1\nkind: links\ndevice: a100-sxm-80g\n";
  EXPECT_EQ(chosen(kGpus, {"cluster.topology=" + topology}), "torch-ddp");
  std::filesystem::remove(topology);

  const std::string path = test::temporary_path("scenario.yaml");
  std::ofstream(path) << kGpus;
  const Scenario performed = read_scenario(path, {"plan.tensor=2"}, REHEARSE_SOURCE_DIR, Purpose::perform);
  std::filesystem::remove(path);
  EXPECT_EQ(performed.framework.name, "rehearse");
  EXPECT_EQ(performed.framework_why, "what is performed");
}

TEST(AutoFramework, OfAJobBesideIsThatOfItsOwnPlanOnTheSharedCluster) {
  const Scenario s = read("rehearse: 1\n" + kSmallModel +
                          "cluster:\n  topology: dgx-a100\n  gpus: 4\n  jobs:\n"
                          "    - {set: {plan.tensor: 2}}\n    - {set: {framework: rehearse}}\n"
                          "plan: {zero: 3}\n");
  EXPECT_EQ(s.framework.name, "torch-fsdp2");
  ASSERT_EQ(s.jobs.size(), 2u);
  EXPECT_EQ(s.jobs[0].scenario.framework.name, "torch-fsdp2") << "zero 3 with tensor 2";
  EXPECT_EQ(s.jobs[1].scenario.framework.name, "rehearse");
  const std::string other = test::temporary_path("other.yaml");
  std::ofstream(other) << "rehearse: 1\n" << kSmallModel << "cluster: {gpus: 4}\nplan: {tensor: 2}\n";
  const Scenario beside = read("rehearse: 1\n" + kSmallModel +
                               "cluster:\n  topology: dgx-a100\n  gpus: 4\n  jobs: [{scenario: " + other + "}]\n");
  std::filesystem::remove(other);
  ASSERT_EQ(beside.jobs.size(), 1u);
  EXPECT_EQ(beside.jobs[0].scenario.framework.name, "megatron-core") << "its file says local, the machine is shared";
}

// Hugging Face's Accelerate wraps what is sharded in FSDP and whole replicas in DistributedDataParallel.
TEST(Accelerate, IsFsdpOrDdpByThePlan) {
  const std::string text = "framework: accelerate\n" + kGpus + "training: {precision: bf16}\n";
  const Scenario replicas = read(text), sharded = read(text, {"plan.zero=3"});
  EXPECT_EQ(replicas.framework.name, "accelerate");
  EXPECT_TRUE(replicas.framework.autocast && replicas.framework.copies_buckets) << "torch-ddp's policies";
  EXPECT_EQ(replicas.training.reduce_dtype, Precision::fp32);
  EXPECT_EQ(sharded.framework.name, "accelerate");
  EXPECT_FALSE(sharded.framework.autocast);
  EXPECT_EQ(sharded.framework.shard_gather, ShardGather::after_reduce) << "no prefetch in backward";
  EXPECT_EQ(sharded.training.grad_dtype, Precision::fp32) << "of fp32 shards";
  EXPECT_EQ(sharded.training.reduce_dtype, Precision::bf16);
  EXPECT_EQ(read(text, {"plan.zero=3", "training.reduce_dtype=fp32"}).training.reduce_dtype, Precision::fp32);
  const std::vector<std::string> refused = problems(text, {"plan.tensor=2"});
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_NE(refused[0].find("framework accelerate holds replicas of a whole model"), std::string::npos) << refused[0];
}

TEST(AutoFramework, MistakesAreToldOnce) {
  const std::vector<std::string> found = problems(kGpus + "plan: {tensor: 2, zero: 9, tensr: 1}\n");
  EXPECT_EQ(found.size(), 2u) << (found.empty() ? "" : found.front());
}

}  // namespace
}  // namespace rehearse::plan
