// Rows of published runs as scenarios: columns, rules, what is missing or assumed, and metrics as seconds of a step.
#include "formats/published_runs.h"

#include <gtest/gtest.h>

#include <fstream>

#include "sim/base/diagnostics.h"
#include "sim/base/unfinished.h"

namespace rehearse::formats {
namespace {

constexpr const char* kRules = R"(throughput_rules: 1
rules:
  - when: {gpu: 'A100*'}
    set: {cluster.topology: dgx-a100}
  - when: {model: '*'}
    set: {model.family: gpt}
  - when: {source: ['one', 'two*']}
    software: Some Framework
    flops: hw96
    peak_tflops: 312
    set: {framework: megatron-2021}
  - when: {source: 'two*'}
    assume: the vocabulary
  - when: {model: '*moe*'}
    skip: mixtures of experts are not available yet
  - when: {model: 'Known*'}
    set: {model.preset: gpt2-small}
)";

std::string written(const TemporaryFolder& folder, const std::string& text) {
  const std::string file = folder.path() + "/rules.yaml";
  std::ofstream(file) << text;
  return file;
}

PublishedRules rules() {
  const TemporaryFolder folder("rules");
  return PublishedRules::read(written(folder, kRules));
}

RunColumns row() {
  return {{"id", "one-001"},     {"source", "one"},     {"model", "GPT-22B"},    {"layers", "48"},
          {"hidden", "6144"},    {"heads", "64"},       {"ffn_hidden", "24576"}, {"vocab", "51200"},
          {"seq_len", "2048"},   {"gpu", "A100-SXM"},   {"gpus", "8"},           {"tp", "8"},
          {"pp", "1"},           {"vpp", "1"},          {"micro_batch", "4"},    {"global_batch", "4"},
          {"precision", "fp16"}, {"recompute", "full"}, {"seq_parallel", "no"},  {"metric", "iter_time_s"},
          {"value", "1.42"},     {"unit", "s"},         {"zero_stage", "0"}};
}

TEST(PublishedRuns, ARowThatSaysAllBecomesAScenario) {
  const PublishedRun run = rules().convert(row());
  EXPECT_EQ(run.reason, "");
  EXPECT_TRUE(run.complete);
  EXPECT_EQ(run.software, "Some Framework");
  EXPECT_DOUBLE_EQ(run.step_s, 1.42);
  EXPECT_EQ(run.scenario, R"(rehearse: 1
cluster:
  gpus: 8
  topology: dgx-a100
framework: megatron-2021
model:
  family: gpt
  ffn_hidden: 24576
  heads: 64
  hidden: 6144
  layers: 48
  max_seq_len: 2048
  vocab: 51200
plan:
  micro_batch: 4
  pipeline: 1
  recompute: full
  tensor: 8
  zero: 0
training:
  global_batch: 4
  precision: fp16
  seq_len: 2048
)");
}

TEST(PublishedRuns, MetricsBecomeSecondsOfAStep) {
  RunColumns columns = row();
  const auto step = [&](const char* metric, const char* value, const char* unit) {
    columns["metric"] = metric, columns["value"] = value, columns["unit"] = unit;
    return rules().convert(columns).step_s;
  };
  const double tokens = 4 * 2048.0;
  EXPECT_DOUBLE_EQ(step("tokens_per_s", "1000", "tokens/s"), tokens / 1000);
  EXPECT_DOUBLE_EQ(step("tokens_per_s_per_gpu", "1000", "tokens/s/GPU"), tokens / 8000);
  EXPECT_DOUBLE_EQ(step("sequences_per_s", "2", "sequences/s"), 2);
  // 96 B s L h^2 (1 + s/6h + V/16Lh), Narayanan et al. 2021
  const double h = 6144, layers = 48;
  const double flops = 96 * tokens * layers * h * h * (1 + 2048 / (6 * h) + 51200 / (16 * layers * h));
  EXPECT_NEAR(step("tflops_per_gpu", "100", "TFLOP/s"), flops / 8e14, 1e-9);
  EXPECT_NEAR(step("mfu", "50", "%"), flops / (0.5 * 312e12 * 8), 1e-9);
  EXPECT_EQ(step("normalized_throughput", "2", "x"), 0);
}

TEST(PublishedRuns, WhatIsAssumedMakesTierB) {
  RunColumns columns = row();
  columns["source"] = "two-b";
  const PublishedRun run = rules().convert(columns);
  EXPECT_EQ(run.reason, "");
  EXPECT_FALSE(run.complete);
  EXPECT_EQ(run.assumed, std::vector<std::string>{"the vocabulary"});
  columns = row();
  columns["pp"] = "4", columns["vpp"] = "";
  EXPECT_FALSE(rules().convert(columns).complete) << "virtual stages not given";
}

TEST(PublishedRuns, SaysWhyARowIsNoScenario) {
  const auto reason = [](const char* column, const char* value) {
    RunColumns columns = row();
    columns[column] = value;
    const PublishedRun run = rules().convert(columns);
    EXPECT_EQ(run.scenario, "");
    return run.reason;
  };
  EXPECT_EQ(reason("layers", ""), "the number of layers is not given");
  EXPECT_EQ(reason("gpu", "TPUv4"), "no rule names a machine for GPU 'TPUv4'");
  EXPECT_EQ(reason("model", "Big-MoE"), "mixtures of experts are not available yet");
  EXPECT_EQ(reason("value", "-1"), "the measured value is not positive");
}

// A preset gives the shape of a model that the row leaves out, and no more than that.
TEST(PublishedRuns, APresetGivesTheShape) {
  RunColumns columns = row();
  columns["model"] = "Known-124M";
  for (const char* column : {"layers", "hidden", "heads", "ffn_hidden", "vocab"}) columns[column] = "";
  const PublishedRun run = rules().convert(columns);
  EXPECT_EQ(run.reason, "");
  EXPECT_NE(run.scenario.find("  preset: gpt2-small\n"), std::string::npos) << run.scenario;
  EXPECT_EQ(run.scenario.find("layers:"), std::string::npos);
  columns["micro_batch"] = "";
  EXPECT_EQ(rules().convert(columns).reason, "the micro-batch is not given");
}

TEST(PublishedRuns, InterleavedStagesAndHybridShards) {
  RunColumns columns = row();
  columns["pp"] = "4", columns["vpp"] = "3", columns["zero_stage"] = "3(hybrid)", columns["seq_parallel"] = "yes";
  const std::string scenario = rules().convert(columns).scenario;
  EXPECT_NE(scenario.find("  chunks: 3\n"), std::string::npos);
  EXPECT_NE(scenario.find("  schedule: interleaved\n"), std::string::npos);
  EXPECT_NE(scenario.find("  sequence_parallel: true\n"), std::string::npos);
  EXPECT_NE(scenario.find("  zero: 3\n  zero_group: node\n"), std::string::npos);
}

TEST(PublishedRuns, RunsOfOneTaskDifferInTheirSplitAlone) {
  const auto converted = [](std::initializer_list<std::pair<const char*, const char*>> changes) {
    RunColumns columns = row();
    for (const auto& [column, value] : changes) columns[column] = value;
    return rules().convert(columns);
  };
  const PublishedRun first = converted({});
  EXPECT_EQ(first.split, "tp8 pp1 dp1 z0 mb4");
  EXPECT_EQ(first.gpus, 8);
  EXPECT_EQ(first.seq_len, 2048);
  EXPECT_EQ(first.global_batch, 4);
  const PublishedRun other = converted({{"id", "one-002"},
                                        {"tp", "2"},
                                        {"pp", "2"},
                                        {"vpp", "3"},
                                        {"micro_batch", "1"},
                                        {"zero_stage", "1"},
                                        {"recompute", "none"},
                                        {"value", "2"}});
  EXPECT_EQ(other.split, "tp2 pp2x3 dp2 z1 mb1");
  EXPECT_EQ(other.task, first.task);
  for (const auto& [column, value] :
       {std::pair{"global_batch", "8"}, std::pair{"seq_len", "4096"}, std::pair{"gpus", "16"},
        std::pair{"layers", "24"}, std::pair{"precision", "bf16"}, std::pair{"source", "two"}})
    EXPECT_NE(converted({{column, value}}).task, first.task) << column;
}

TEST(PublishedRuns, PeaksOfMemoryHaveAUnitAndAKind) {
  RunColumns columns = row();
  EXPECT_EQ(rules().convert(columns).memory_kind, MemoryKind::none);
  columns["peak_memory"] = "2.5", columns["memory_unit"] = "GiB", columns["memory_kind"] = "reserved";
  EXPECT_EQ(memory_problem(columns), "");
  PublishedRun run = rules().convert(columns);
  EXPECT_EQ(run.memory_kind, MemoryKind::reserved);
  EXPECT_DOUBLE_EQ(run.memory_bytes, 2.5 * 1024 * 1024 * 1024);
  columns["memory_unit"] = "GB", columns["memory_kind"] = "not stated";
  run = rules().convert(columns);
  EXPECT_EQ(run.memory_kind, MemoryKind::not_stated);
  EXPECT_DOUBLE_EQ(run.memory_bytes, 2.5e9);
  columns["memory_unit"] = "gigs";
  EXPECT_EQ(memory_problem(columns), "memory_unit 'gigs' is none of GB, GiB, MiB");
  columns["memory_unit"] = "GB", columns["memory_kind"] = "used";
  EXPECT_EQ(memory_problem(columns), "memory_kind 'used' is none of allocated, reserved, not stated");
  columns["peak_memory"] = "-1";
  EXPECT_EQ(memory_problem(columns), "peak_memory '-1' is no positive number");
}

TEST(PublishedRuns, TheLastRuleSaysWhatIsMissing) {
  const TemporaryFolder folder("rules");
  const std::string file = written(folder, R"(throughput_rules: 1
rules:
  - when: {gpu: 'A100*'}
    set: {cluster.topology: dgx-a100, model.family: gpt}
  - when: {source: 'one'}
    missing: copies
  - when: {model: 'GPT*'}
    missing: copies and jitter
)");
  const PublishedRules read = PublishedRules::read(file);
  EXPECT_EQ(read.convert(row()).missing, "copies and jitter");
  RunColumns columns = row();
  columns["model"] = "Llama";
  EXPECT_EQ(read.convert(columns).missing, "copies");
}

// Of the shipped rules: images have no layers, widths and sequences in their row; its batch is the repository's.
TEST(PublishedRuns, ResidualNetworksHaveTheirShapeFromAPreset) {
  const PublishedRules shipped =
      PublishedRules::read(std::string(REHEARSE_SOURCE_DIR) + "/calibrate/published/throughput-rules.yaml");
  RunColumns columns = {{"id", "nv-dle-008"},
                        {"source", "nv-dle"},
                        {"model", "ResNet50v1.5"},
                        {"gpu", "V100-SXM2-16GB"},
                        {"gpus", "8"},
                        {"tp", "1"},
                        {"pp", "1"},
                        {"zero_stage", "0"},
                        {"precision", "mixed fp16"},
                        {"metric", "images_per_s"},
                        {"value", "8322"},
                        {"unit", "images/s"}};
  const PublishedRun run = shipped.convert(columns);
  ASSERT_EQ(run.reason, "");
  EXPECT_DOUBLE_EQ(run.step_s, 2048.0 / 8322);
  for (const char* line : {"preset: resnet-50", "framework: torch-ddp", "micro_batch: 256", "optimizer: sgd"})
    EXPECT_NE(run.scenario.find(line), std::string::npos) << line << run.scenario;
  columns["precision"] = "FP32";
  EXPECT_DOUBLE_EQ(shipped.convert(columns).step_s, 896.0 / 8322);
  columns["model"] = "ResNeXt101-32x4d";
  const PublishedRun grouped = shipped.convert(columns);
  EXPECT_NE(grouped.scenario.find("preset: resnext101-32x4d"), std::string::npos) << grouped.reason;
  EXPECT_DOUBLE_EQ(grouped.step_s, 512.0 / 8322) << "64 images a GPU";
  columns["model"] = "SE-ResNeXt101-32x4d", columns["precision"] = "mixed fp16";
  const PublishedRun squeezed = shipped.convert(columns);
  EXPECT_NE(squeezed.scenario.find("preset: se-resnext101-32x4d"), std::string::npos) << squeezed.reason;
  EXPECT_DOUBLE_EQ(squeezed.step_s, 896.0 / 8322) << "112";
  columns["model"] = "SSD300-RN50";
  EXPECT_NE(shipped.convert(columns).reason.find("a detection network has heads"), std::string::npos);
  columns["model"] = "AmoebaNet-D(18,256)";
  EXPECT_NE(shipped.convert(columns).reason.find("relative to one another"), std::string::npos);
}

// Of the shipped rules: the row counts the layers of encoder and decoder together, and tokens of the encoder.
TEST(PublishedRuns, EncodersWithDecodersHaveHalfOfTheirLayersEach) {
  const PublishedRules shipped =
      PublishedRules::read(std::string(REHEARSE_SOURCE_DIR) + "/calibrate/published/throughput-rules.yaml");
  const RunColumns columns = {{"id", "nemo-launcher-012"},
                              {"source", "nemo-launcher"},
                              {"model", "mT5-3B"},
                              {"layers", "48"},
                              {"hidden", "2048"},
                              {"heads", "32"},
                              {"ffn_hidden", "5120"},
                              {"seq_len", "512"},
                              {"gpu", "A100-SXM-80GB"},
                              {"gpus", "8"},
                              {"tp", "2"},
                              {"pp", "1"},
                              {"micro_batch", "24"},
                              {"global_batch", "1920"},
                              {"precision", "bf16"},
                              {"recompute", "full(0 layers)"},
                              {"metric", "tokens_per_s"},
                              {"value", "91166"}};
  const PublishedRun run = shipped.convert(columns);
  ASSERT_EQ(run.reason, "");
  EXPECT_FALSE(run.complete);
  EXPECT_DOUBLE_EQ(run.step_s, 1920.0 * 512 / 91166);
  for (const char* line : {"preset: nemo-mt5-3b", "encoder_layers: 24", "recompute: none", "framework: nemo-2023"})
    EXPECT_NE(run.scenario.find(line), std::string::npos) << line << run.scenario;
  EXPECT_EQ(run.scenario.find(" layers:"), std::string::npos) << run.scenario;
}

// Of the shipped rules: which recipe an 8-bit row of which source and GPU gets.
TEST(PublishedRuns, EightBitRowsHaveTheRecipeOfTheirSource) {
  const PublishedRules shipped =
      PublishedRules::read(std::string(REHEARSE_SOURCE_DIR) + "/calibrate/published/throughput-rules.yaml");
  struct Expected {
    const char *source, *precision, *gpu, *recipe;
    bool transposes, held;
  };
  for (const Expected& e :
       {Expected{"dgxc", "FP8", "H100-SXM-80GB", "", true, true},
        {"dgxc", "FP8", "GB200", "", false, true},
        {"megatron-bridge", "FP8-CS", "H100-SXM-80GB", "tensorwise", true, true},
        {"megatron-bridge", "FP8-MX", "B200", "mxfp8", false, true},
        {"megatron-bridge", "MXFP8", "GB200", "mxfp8", false, true},
        {"megatron-bridge", "MXFP8", "B300", "mxfp8", false, true},
        {"megatron-bridge", "FP8", "GB300", "tensorwise", false, true},
        {"megatron-bridge", "FP8 (default recipe)", "GB200", "tensorwise", false, true},
        {"megatron-bridge", "FP8 finer quantization granularity (parenthesised)", "B200", "mxfp8", false, false},
        {"torchtitan", "fp8 tensorwise", "H100-96GB-HBM2e 500W (Grand Teton)", "tensorwise", true, false},
        {"torchtitan", "fp8 rowwise", "H100-96GB-HBM2e 500W (Grand Teton)", "rowwise", true, false},
        {"torchtitan", "fp8 linear (fp8 all-gather)", "H200-SXM-141GB", "tensorwise", true, true},
        {"llm-foundry", "amp_fp8", "H100-SXM-80GB", "", true, false}}) {
    RunColumns columns = row();
    columns["source"] = e.source, columns["precision"] = e.precision, columns["gpu"] = e.gpu;
    columns["model"] = "LLAMA3_8B";
    const PublishedRun run = shipped.convert(columns);
    ASSERT_EQ(run.reason, "") << e.source << " " << e.precision;
    const auto has = [&](const std::string& text) { return run.scenario.find(text) != std::string::npos; };
    EXPECT_TRUE(has("precision: fp8")) << run.scenario;
    EXPECT_EQ(has("fp8_recipe: "), *e.recipe != 0) << run.scenario;
    EXPECT_TRUE(has(*e.recipe != 0 ? std::string("fp8_recipe: ") + e.recipe : "precision: fp8")) << run.scenario;
    EXPECT_EQ(has("fp8_transposes: false"), !e.transposes) << run.scenario;
    EXPECT_EQ(has("fp8_params: true"), e.held) << run.scenario;
  }
  RunColumns four = row();
  four["source"] = "megatron-bridge", four["model"] = "LLAMA3_70B", four["gpu"] = "GB200", four["precision"] = "NVFP4";
  const PublishedRun run = shipped.convert(four);
  ASSERT_EQ(run.reason, "");
  EXPECT_NE(run.scenario.find("precision: nvfp4"), std::string::npos) << run.scenario;
  EXPECT_EQ(run.scenario.find("fp8_"), std::string::npos) << run.scenario;
}

TEST(PublishedRuns, RulesWithAnUnknownKeyAreRefused) {
  const TemporaryFolder folder("rules");
  const std::string file = written(folder, "throughput_rules: 1\nrules:\n  - when: {gpu: a}\n    softwear: x\n");
  try {
    PublishedRules::read(file);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(error.diagnostics().front().text().find("softwear"), std::string::npos);
  }
}

}  // namespace
}  // namespace rehearse::formats
