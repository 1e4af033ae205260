// Scenario files that are right: defaults, derived values, overrides, and the files that are shipped.
#include "sim/plan/scenario.h"

#include <filesystem>
#include <sstream>

#include "sim/base/document.h"
#include "tests/support/temporary.h"
#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

// What a topology's file says of direct transfers goes the scenario's way, whichever it is; null says nothing.
TEST(Scenario, GpuDirectIsTheTopologysUnlessItIsGiven) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  const auto overrides = [](const std::vector<std::string>& assignments) {
    return read("rehearse: 1\n" + kSmallModel + "cluster: {topology: aws-p4d, gpus: 1}\n", assignments)
        .cluster.overrides;
  };
  EXPECT_EQ(overrides({}), Pairs());
  EXPECT_EQ(overrides({"cluster.gpudirect=true"}), (Pairs{{"gpudirect", "true"}}));
  EXPECT_EQ(overrides({"cluster.gpudirect=false"}), (Pairs{{"gpudirect", "false"}}));
}

// Written anew for another folder: files in lists, and in mappings of lists, have their whole path too.
TEST(ScenarioText, NamesFilesInListsWholly) {
  const std::filesystem::path folder = test::temporary_path("lists");
  std::filesystem::create_directories(folder / "deep");
  for (const char* name : {"own.json", "deep/more.json", "big.yaml", "other.yaml", "ranks.txt"})
    std::ofstream(folder / name) << "{}";
  const std::string scenario = (folder / "s.yaml").string();
  std::ofstream(scenario)
      << "rehearse: 1\nmodel: gpt-tiny\n"
         "cluster:\n  nodes: [{topology: big.yaml, count: 2}, {topology: dgx-a100, count: 1}]\n"
         "  jobs: [{scenario: other.yaml, set: {cluster.placement: ranks.txt}, placement: ranks.txt}]\n"
         "costs: {calibration: [own.json, deep/more.json, a100-sxm-80g, gone.json]}\n";
  const std::string text = scenario_text(scenario, {}, "of a test");
  const std::string whole = std::filesystem::absolute(folder).string();
  EXPECT_NE(
      text.find("calibration: ['" + whole + "/own.json', '" + whole + "/deep/more.json', a100-sxm-80g, gone.json]"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("nodes: [{topology: '" + whole + "/big.yaml', count: 2}, {topology: dgx-a100, count: 1}]"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("jobs: [{scenario: '" + whole +
                      "/other.yaml', set: {cluster.placement: ranks.txt}, placement: '" + whole + "/ranks.txt'}]"),
            std::string::npos)
      << text;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

TEST(Scenario, EveryKeyButVersionAndModelHasADefault) {
  const Scenario s = read("rehearse: 1\n" + kSmallModel);
  EXPECT_EQ(s.name, "plan_EveryKeyButVersionAndModelHasADefault") << "the file's stem";
  EXPECT_EQ(s.framework.name, "rehearse");
  EXPECT_EQ(s.cluster.topology, "local");
  EXPECT_EQ(s.cluster.gpus, 1);
  EXPECT_EQ(s.cluster.threads_per_rank, 0);
  EXPECT_TRUE(s.cluster.overrides.empty());
  EXPECT_EQ(s.plan.tensor, 1);
  EXPECT_EQ(s.plan.pipeline, 1);
  EXPECT_EQ(s.plan.data, 1);
  EXPECT_EQ(s.plan.schedule, Schedule::one_f_one_b);
  EXPECT_EQ(s.plan.layers_per_stage, (std::vector<std::int64_t>{12}));
  EXPECT_EQ(s.plan.micro_batch, 1);
  EXPECT_EQ(s.plan.zero, 0);
  EXPECT_EQ(s.plan.bucket, Bytes(25 << 20));
  EXPECT_TRUE(s.plan.overlap_grad_reduce);
  EXPECT_TRUE(s.plan.overlap_param_gather);
  EXPECT_FALSE(s.plan.sequence_parallel);
  EXPECT_EQ(s.plan.recompute, Recompute::none);
  EXPECT_EQ(s.training.global_batch, 1);
  EXPECT_EQ(s.training.seq_len, 128) << "the model's max_seq_len";
  EXPECT_EQ(s.training.precision, Precision::bf16);
  EXPECT_EQ(s.training.grad_dtype, Precision::fp32);
  EXPECT_EQ(s.training.reduce_dtype, Precision::fp32);
  EXPECT_EQ(s.training.optimizer, OptimizerKind::adamw);
  EXPECT_EQ(s.training.lr_schedule, "constant");
  EXPECT_DOUBLE_EQ(s.training.lr, 3e-4);
  EXPECT_DOUBLE_EQ(s.training.clip, 1.0);
  EXPECT_TRUE(s.calibrations.empty());
  EXPECT_EQ(s.grid().ranks(), 1);
}

TEST(Scenario, FilesItNamesMayLieBesideIt) {
  const std::string text =
      "rehearse: 1\nmodel: gpt2-small\ncluster: {topology: own.yaml, placement: places.txt}\n"
      "costs: {calibration: [own.json, other.json]}\n";
  const std::filesystem::path folder = std::filesystem::path(scenario_file("")).parent_path();
  for (const char* name : {"own.yaml", "places.txt", "own.json"}) std::ofstream(folder / name) << "x";
  const Scenario s = read(text);
  EXPECT_EQ(s.cluster.topology, folder / "own.yaml");
  EXPECT_EQ(s.calibrations, (std::vector<std::string>{folder / "own.json", "other.json"}));
  EXPECT_EQ(s.cluster.overrides.back().second, "'" + (folder / "places.txt").string() + "'");
  // What is said on the command line is meant from there.
  EXPECT_EQ(read(text, {"cluster.topology=own.yaml"}).cluster.topology, "own.yaml");
  for (const char* name : {"own.yaml", "places.txt", "own.json"}) std::filesystem::remove(folder / name);
}

TEST(Scenario, ReadsEveryKey) {
  const Scenario s = read("rehearse: 1\nname: All keys\n" + kSmallModel + R"(framework: megatron-2021
cluster: {topology: dgx-a100, gpus: 16, threads_per_rank: 2, overrides: {nic: {bandwidth: 100Gbps, count: 4}, gpu.sms: 96}}
plan:
  tensor: 2
  pipeline: 4
  context: 1
  context_kind: ring
  expert: 1
  expert_tensor: 1
  schedule: gpipe
  chunks: 1
  layers_per_stage: [2, 4, 4, 2]
  embedding_as_layer: false
  micro_batch: 2
  zero: 2
  zero_group: all
  bucket: 1MiB
  overlap_grad_reduce: true
  overlap_param_gather: true
  sequence_parallel: true
  recompute: selective
  rank_order: [pipeline, tensor, context, expert, data]
training: {global_batch: 24, seq_len: 64, precision: fp16, grad_dtype: fp16, reduce_dtype: fp32, optimizer: sgd, lr: 0.1,
           moments: bf16, lr_schedule: cosine, warmup_steps: 7, betas: [0.8, 0.9], eps: 1e-6, momentum: 0.9, weight_decay: 0, clip: 0,
           seed: 5, lora_rank: 4, lora_alpha: 6, lora_targets: [mlp]}
costs: {calibration: [a100-sxm-80g, mine.yaml]}
noise:
  seed: 9
  distribution: uniform
  granularity: op
  kernels: 0.03
  transfers: 0.1
  slow_ranks: [{ranks: [3], factor: 1.2}, {share: 0.25, factor: 2}]
  links: [{resources: node0/nic*, capacity: 0.5}, {resources: "*", share: 0.5, capacity: 0.1, period: 10ms, duty: 0.2}]
)");
  EXPECT_EQ(s.name, "All keys");
  EXPECT_EQ(s.framework.name, "megatron-2021");
  EXPECT_EQ(s.cluster.threads_per_rank, 2);
  EXPECT_EQ(s.cluster.overrides, (Pairs{{"nic.bandwidth", "100Gbps"}, {"nic.count", "4"}, {"gpu.sms", "96"}}));
  EXPECT_EQ(s.plan.data, 2) << "16 / (2 * 4)";
  EXPECT_EQ(s.plan.schedule, Schedule::gpipe);
  EXPECT_EQ(s.plan.layers_per_stage, (std::vector<std::int64_t>{2, 4, 4, 2}));
  EXPECT_EQ(s.plan.zero, 2);
  EXPECT_EQ(s.plan.bucket, Bytes(1 << 20));
  EXPECT_TRUE(s.plan.overlap_grad_reduce) << "the file overrules the profile";
  EXPECT_TRUE(s.plan.sequence_parallel);
  EXPECT_EQ(s.plan.recompute, Recompute::selective);
  EXPECT_EQ(s.training.micro_batches(s.plan), 6) << "24 / (2 * 2)";
  EXPECT_EQ(s.training.seq_len, 64);
  EXPECT_EQ(s.training.precision, Precision::fp16);
  EXPECT_EQ(s.training.grad_dtype, Precision::fp16);
  EXPECT_EQ(s.training.reduce_dtype, Precision::fp32);
  EXPECT_EQ(s.training.optimizer, OptimizerKind::sgd);
  EXPECT_EQ(s.training.moments, MomentsKind::bf16);
  EXPECT_EQ(s.training.lr_schedule, "cosine");
  EXPECT_EQ(s.training.warmup_steps, 7);
  EXPECT_DOUBLE_EQ(s.training.beta1, 0.8);
  EXPECT_DOUBLE_EQ(s.training.beta2, 0.9);
  EXPECT_DOUBLE_EQ(s.training.momentum, 0.9);
  EXPECT_DOUBLE_EQ(s.training.weight_decay, 0);
  EXPECT_EQ(s.training.seed, 5);
  EXPECT_EQ(s.training.lora_rank, 4);
  EXPECT_DOUBLE_EQ(s.training.lora_alpha, 6);
  EXPECT_FALSE(s.training.lora_qkv || s.training.lora_proj);
  EXPECT_TRUE(s.training.lora_fc1 && s.training.lora_fc2);
  EXPECT_EQ(s.calibrations, (std::vector<std::string>{"a100-sxm-80g", "mine.yaml"}));
  EXPECT_EQ(s.noise.seed, 9);
  EXPECT_EQ(s.noise.distribution, Distribution::uniform);
  EXPECT_EQ(s.noise.granularity, Granularity::op);
  EXPECT_DOUBLE_EQ(s.noise.kernels, 0.03);
  EXPECT_DOUBLE_EQ(s.noise.transfers, 0.1);
  ASSERT_EQ(s.noise.slow_ranks.size(), 2U);
  EXPECT_EQ(s.noise.slow_ranks[0].ranks, std::vector<std::int64_t>{3});
  EXPECT_DOUBLE_EQ(s.noise.slow_ranks[0].share, 0);
  EXPECT_DOUBLE_EQ(s.noise.slow_ranks[1].share, 0.25);
  EXPECT_DOUBLE_EQ(s.noise.slow_ranks[1].factor, 2);
  ASSERT_EQ(s.noise.links.size(), 2U);
  EXPECT_EQ(s.noise.links[0].resources, "node0/nic*");
  EXPECT_DOUBLE_EQ(s.noise.links[0].share, 1);
  EXPECT_EQ(s.noise.links[0].period, Time());
  EXPECT_EQ(s.noise.links[1].period, Time::from_us(10000));
  EXPECT_DOUBLE_EQ(s.noise.links[1].duty, 0.2);
  EXPECT_EQ(s.grid().coordinate(3, Axis::pipeline), 3) << "pipeline varies fastest";
  EXPECT_EQ(s.grid().coordinate(4, Axis::tensor), 1);
}

TEST(Scenario, TheFrameworkSetsWhatTheFileLeavesOpen) {
  const Scenario s = read("rehearse: 1\nframework: megatron-2021\n" + kSmallModel);
  EXPECT_EQ(s.model.attention, model::AttentionKind::unfused);
  EXPECT_DOUBLE_EQ(s.model.dropout, 0.1);
  EXPECT_FALSE(s.plan.overlap_grad_reduce);
  EXPECT_FALSE(s.plan.overlap_param_gather);
  const Scenario given =
      read("rehearse: 1\nframework: megatron-2021\n" + kSmallModel, {"model.attention=flash", "model.dropout=0"});
  EXPECT_EQ(given.model.attention, model::AttentionKind::flash);
  EXPECT_DOUBLE_EQ(given.model.dropout, 0);
}

TEST(Scenario, GlobalBatchDefaultsToOneMicroBatchAReplica) {
  const Scenario s = read("rehearse: 1\n" + kSmallModel + "cluster: {gpus: 3}\nplan: {micro_batch: 4}\n");
  EXPECT_EQ(s.plan.data, 3);
  EXPECT_EQ(s.training.global_batch, 12);
}

TEST(Scenario, DataParallelThreeIsAPlanLikeAnyOther) {
  const Scenario s = read("rehearse: 1\n" + kSmallModel +
                          "cluster: {gpus: 12}\nplan: {tensor: 2, pipeline: 2}\ntraining: {global_batch: 9}\n");
  EXPECT_EQ(s.plan.data, 3);
  EXPECT_EQ(s.training.micro_batches(s.plan), 3);
  EXPECT_EQ(s.grid().members(0, {Axis::data}), (std::vector<int>{0, 2, 4}));
}

TEST(Scenario, LayersNeedNotDivideByStages) {
  const Scenario even =
      read("rehearse: 1\n" + kSmallModel + "cluster: {gpus: 3}\nplan: {pipeline: 3}\n", {"model.layers=15"});
  EXPECT_EQ(even.plan.layers_per_stage, (std::vector<std::int64_t>{5, 5, 5}));
  const Scenario uneven =
      read("rehearse: 1\n" + kSmallModel + "cluster: {gpus: 64}\nplan: {pipeline: 64}\n", {"model.layers=96"});
  EXPECT_EQ(std::count(uneven.plan.layers_per_stage.begin(), uneven.plan.layers_per_stage.end(), 2), 32);
  EXPECT_EQ(std::count(uneven.plan.layers_per_stage.begin(), uneven.plan.layers_per_stage.end(), 1), 32);
}

TEST(Scenario, SequenceParallelIsOffWithoutATensorAxis) {
  EXPECT_FALSE(read("rehearse: 1\n" + kSmallModel + "plan: {sequence_parallel: true}\n").plan.sequence_parallel);
}

TEST(Scenario, Fp32HasFp32Gradients) {
  const Scenario s = read("rehearse: 1\n" + kSmallModel + "training: {precision: fp32}\n");
  EXPECT_EQ(s.training.grad_dtype, Precision::fp32);
  EXPECT_EQ(s.training.reduce_dtype, Precision::fp32);
}

TEST(Scenario, AssignmentsOverruleTheFileInOrder) {
  const Scenario s = read("rehearse: 1\n" + kSmallModel + "plan: {tensor: 4}\n",
                          {"plan.tensor=1", "cluster.gpus=4", "plan.tensor=2", "training.betas=[0.5, 0.6]"});
  EXPECT_EQ(s.plan.tensor, 2);
  EXPECT_EQ(s.plan.data, 2);
  EXPECT_DOUBLE_EQ(s.training.beta2, 0.6);
}

TEST(Scenario, EmptySectionsAreAllDefaults) {
  const Scenario s = read("rehearse: 1\n" + kSmallModel + "cluster:\nplan:\ntraining:\ncosts:\nnoise:\n");
  EXPECT_EQ(s.cluster.gpus, 1);
  EXPECT_EQ(s.training.seq_len, 128);
}

std::vector<std::string> shipped(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(REHEARSE_SOURCE_DIR) + folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(ShippedScenarios, AllRead) {
  std::vector<std::string> files = shipped("/scenarios");
  const std::vector<std::string> published = shipped("/scenarios/published");
  EXPECT_GE(published.size(), 8U);
  files.insert(files.end(), published.begin(), published.end());
  EXPECT_GE(files.size(), 17U);
  for (const std::string& file : files) {
    try {
      const Scenario s = read_scenario(file, {}, REHEARSE_SOURCE_DIR);
      EXPECT_EQ(s.grid().ranks(), s.cluster.gpus) << file;
      EXPECT_NE(s.name, std::filesystem::path(file).stem().string()) << file << " has no name";
    } catch (const InputError& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(ShippedScenarios, TheGpt3PlansKeepGpusAndBatch) {
  for (const std::string& file : shipped("/scenarios")) {
    if (file.find("gpt3-175b") == std::string::npos || file.find("16384") != std::string::npos) continue;
    const Scenario s = read_scenario(file, {}, REHEARSE_SOURCE_DIR);
    EXPECT_EQ(s.cluster.gpus, 1024) << file;
    EXPECT_EQ(s.training.global_batch, 1536) << file;
    EXPECT_EQ(s.training.seq_len, 2048) << file;
  }
}

TEST(ShippedScenarios, PublishedRunsHaveTheShapesOfTheirPaper) {
  struct Run {
    const char* size;
    std::int64_t gpus, pipeline, batch, layers, hidden, heads;
  };
  for (const Run& run : {Run{"22b", 8, 1, 4, 48, 6144, 64}, Run{"175b", 64, 8, 64, 96, 12288, 96},
                         Run{"530b", 280, 35, 280, 105, 20480, 128}, Run{"1t", 512, 64, 512, 128, 25600, 160}}) {
    for (const bool selective : {false, true}) {
      const std::string file = std::string(REHEARSE_SOURCE_DIR) + "/scenarios/published/korthikanti-" + run.size +
                               (selective ? "-selective.yaml" : "-full.yaml");
      const Scenario s = read_scenario(file, {}, REHEARSE_SOURCE_DIR);
      EXPECT_EQ(s.cluster.gpus, run.gpus) << file;
      EXPECT_EQ(s.plan.tensor, 8) << file;
      EXPECT_EQ(s.plan.pipeline, run.pipeline) << file;
      EXPECT_EQ(s.plan.data, 1) << file;
      EXPECT_EQ(s.training.global_batch, run.batch) << file;
      EXPECT_EQ(s.model.layers, run.layers) << file;
      EXPECT_EQ(s.model.hidden, run.hidden) << file;
      EXPECT_EQ(s.model.heads, run.heads) << file;
      EXPECT_EQ(s.model.ffn_hidden, 4 * run.hidden) << file;
      EXPECT_EQ(padded_vocab(s.model, s.plan, s.framework), 51200) << file;
      EXPECT_EQ(s.plan.sequence_parallel, selective) << file;
      EXPECT_EQ(s.plan.recompute, selective ? Recompute::selective : Recompute::full) << file;
      EXPECT_EQ(s.training.precision, Precision::fp16) << file;
      EXPECT_DOUBLE_EQ(s.model.dropout, 0.1) << file;
    }
  }
}

TEST(ShippedScenarios, EveryPublishedValueNamesAScenario) {
  const std::string folder = std::string(REHEARSE_SOURCE_DIR) + "/scenarios/published/";
  std::istringstream lines(read_text_file(folder + "measurements.csv"));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "id,scenario,metric,value,unit,source");
  int rows = 0;
  while (std::getline(lines, line)) {
    ++rows;
    const std::size_t begin = line.find(',') + 1;
    const std::string scenario = line.substr(begin, line.find(',', begin) - begin);
    EXPECT_TRUE(std::filesystem::exists(folder + scenario)) << line;
  }
  EXPECT_EQ(rows, 19);
}

}  // namespace
}  // namespace rehearse::plan
