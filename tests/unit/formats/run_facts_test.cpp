// Facts that complete rows of published runs: what is filled, what is kept, what a row says of it, and the shipped
// ones.
#include "formats/run_facts.h"

#include <gtest/gtest.h>

#include <fstream>

#include "formats/published_runs.h"
#include "sim/base/diagnostics.h"
#include "sim/base/unfinished.h"

namespace rehearse::formats {
namespace {

RunFacts facts_of(const std::string& text) {
  const TemporaryFolder folder("facts");
  const std::string file = folder.path() + "/facts.yaml";
  std::ofstream(file) << "run_facts: 1\nfacts:\n" << text;
  return RunFacts::read(file);
}

constexpr const char* kFacts = R"(
  - when: {source: 'paper'}
    columns: {vocab: 64000, seq_len: 2048}
    from: its section 6
  - when: {model: 'GPT-*175B'}
    columns: {layers: 96, vocab: 51200}
    from: table 2.1
  - when: {source: 'paper', layers: '96'}
    columns: {vpp: 'layers / pp', global_batch: '8 * gpus', dp: 'gpus / 3'}
    from: inferred
)";

TEST(RunFacts, FillEmptyColumnsAndNoOthers) {
  RunColumns row = {{"source", "paper"}, {"model", "gpt-3-175b"}, {"seq_len", "4096"}, {"pp", "8"}, {"gpus", "64"}};
  const std::vector<std::string> said = facts_of(kFacts).complete(row);
  EXPECT_EQ(row["vocab"], "64000") << "the first fact that has it";
  EXPECT_EQ(row["seq_len"], "4096") << "the row's own";
  EXPECT_EQ(row["layers"], "96") << "patterns take any letters of either case";
  EXPECT_EQ(row["vpp"], "12") << "96 / 8, of a layer count that a fact filled";
  EXPECT_EQ(row["global_batch"], "512");
  EXPECT_EQ(column(row, "dp"), "") << "64 / 3 is no whole number";
  EXPECT_EQ(said, (std::vector<std::string>{"vocab 64000 (its section 6)", "layers 96 (table 2.1)",
                                            "vpp 12, global_batch 512 (inferred)"}));
}

TEST(RunFacts, ARowWithoutAMatchStaysAsItIs) {
  RunColumns row = {{"source", "other"}, {"model", "GPT-1T"}};
  const RunColumns before = row;
  EXPECT_TRUE(facts_of(kFacts).complete(row).empty());
  EXPECT_EQ(row, before);
}

TEST(RunFacts, ValuesAreTextsOrProductsAndQuotientsOfColumns) {
  const RunColumns row = {{"gpus", "96"}, {"tp", "8"}, {"pp", "6"}, {"dp", ""}};
  EXPECT_EQ(fact_value("selective", row), "selective");
  EXPECT_EQ(fact_value("gpus", row), "96");
  EXPECT_EQ(fact_value("gpus / tp / pp", row), "2");
  EXPECT_EQ(fact_value("gpus / tp * 5", row), "60");
  EXPECT_EQ(fact_value("gpus / dp", row), "") << "an empty column";
  EXPECT_EQ(fact_value("gpus / 5", row), "") << "19.2";
  EXPECT_EQ(fact_value("gpus / 0", row), "");
}

TEST(RunFacts, WithoutASourceOrWithAnUnknownKeyTheyAreRefused) {
  const auto problem = [](const std::string& text) {
    try {
      facts_of(text);
    } catch (const InputError& error) {
      return error.diagnostics().front().text();
    }
    return std::string();
  };
  EXPECT_NE(problem("  - when: {model: a}\n    columns: {vocab: 1}\n").find("from"), std::string::npos);
  EXPECT_NE(problem("  - when: {model: a}\n    from: b\n").find("columns"), std::string::npos);
  EXPECT_NE(problem("  - when: {model: a}\n    columns: {vocab: 1}\n    from: b\n    form: c\n").find("form"),
            std::string::npos);
}

PublishedRules shipped() {
  const std::string folder = std::string(REHEARSE_SOURCE_DIR) + "/calibrate/published/";
  return PublishedRules::read(folder + "throughput-rules.yaml", folder + "run-facts.yaml");
}

// What the row says, with what facts and rules of its source say of the rest.
PublishedRun converted(RunColumns columns) {
  static const PublishedRules rules = shipped();
  columns.emplace("id", "row"), columns.emplace("metric", "iter_time_s"), columns.emplace("value", "1");
  columns.emplace("unit", "s");
  return rules.convert(columns);
}

bool has(const PublishedRun& run, const std::string& line) {
  return run.scenario.find(line + "\n") != std::string::npos;
}

TEST(RunFacts, MegaScalesRunsHaveTheirPapersVocabularyAndChunks) {
  const PublishedRun run = converted({{"source", "megascale-fig9"},
                                      {"model", "GPT-530B"},
                                      {"layers", "105"},
                                      {"hidden", "20480"},
                                      {"heads", "160"},
                                      {"seq_len", "2048"},
                                      {"gpu", "NVIDIA Ampere (A100-class)"},
                                      {"gpus", "11200"},
                                      {"tp", "8"},
                                      {"pp", "35"},
                                      {"dp", "40"},
                                      {"sharding_notes", "Megatron-LM"}});
  ASSERT_EQ(run.reason, "");
  EXPECT_FALSE(run.complete);
  EXPECT_EQ(run.assumed.front(), "vocab 64000 (Jiang et al. 2024, arXiv 2402.15627, section 6.1)");
  for (const char* line : {"  vocab: 64000", "  chunks: 3", "  global_batch: 11200", "  micro_batch: 1"})
    EXPECT_TRUE(has(run, line)) << line << run.scenario;
  EXPECT_FALSE(has(run, "  async_tensor_parallel: true"));
}

// A source that no rule names: the model's name gives its shape, and its notes the framework.
TEST(RunFacts, NamedModelsHaveTheirShapeWhoeverRanThem) {
  RunColumns row = {{"source", "new"},
                    {"model", "Llama2-70B"},
                    {"seq_len", "4096"},
                    {"gpu", "H100-SXM-80GB"},
                    {"gpus", "64"},
                    {"tp", "8"},
                    {"pp", "1"},
                    {"micro_batch", "1"},
                    {"global_batch", "64"},
                    {"precision", "bf16"},
                    {"recompute", "none"},
                    {"sharding_notes", "FSDP2 and TP"}};
  const PublishedRun run = converted(row);
  ASSERT_EQ(run.reason, "");
  for (const char* line : {"  layers: 80", "  hidden: 8192", "  kv_heads: 8", "  ffn_hidden: 28672", "  vocab: 32000",
                           "framework: torch-fsdp2", "  seq_len: 4096"})
    EXPECT_TRUE(has(run, line)) << line << run.scenario;
  EXPECT_EQ(run.assumed.back(), "the framework, torch-fsdp2, as the row names its software");
  row["model"] = "Llama2-71B";
  EXPECT_EQ(converted(row).reason, "the number of layers is not given");
}

TEST(RunFacts, TheTransformerOfWmtIsAnEncoderWithADecoder) {
  const PublishedRun run = converted({{"source", "nv-dle"},
                                      {"model", "Transformer-big (WMT14)"},
                                      {"gpu", "V100-SXM3-32GB(DGX-2)"},
                                      {"gpus", "16"},
                                      {"tp", "1"},
                                      {"pp", "1"},
                                      {"precision", "FP32"},
                                      {"metric", "tokens_per_s"},
                                      {"value", "136253"}});
  ASSERT_EQ(run.reason, "");
  EXPECT_DOUBLE_EQ(run.step_s, 16 * 5120 / 136253.0);
  for (const char* line : {"  preset: transformer-big", "  encoder_layers: 6", "  decoder_seq_len: 32",
                           "  micro_batch: 160", "  topology: dgx2-v100"})
    EXPECT_TRUE(has(run, line)) << line << run.scenario;
}

TEST(RunFacts, StagesOfATableWithoutThemAreTheRestOfAReplica) {
  const auto row = [](const char* model, const char* gpus, const char* dp) {
    return converted({{"source", "megatron-readme-2021-01"},
                      {"model", model},
                      {"layers", "105"},
                      {"hidden", "20480"},
                      {"heads", "128"},
                      {"vocab", "51200"},
                      {"seq_len", "2048"},
                      {"gpu", "A100-SXM-80GB"},
                      {"gpus", gpus},
                      {"dp", dp},
                      {"global_batch", "2520"},
                      {"precision", "fp16"},
                      {"recompute", "full"},
                      {"metric", "tflops_per_gpu"},
                      {"value", "152"},
                      {"unit", "TFLOP/s"}});
  };
  const PublishedRun large = row("GPT-530B", "2520", "9"), small = row("GPT-3.6B", "64", "32");
  for (const char* line : {"  tensor: 8", "  pipeline: 35", "  micro_batch: 1"}) EXPECT_TRUE(has(large, line)) << line;
  for (const char* line : {"  tensor: 2", "  pipeline: 1", "  micro_batch: 16"}) EXPECT_TRUE(has(small, line)) << line;
  EXPECT_GT(large.step_s, 0);
}

// With token drop it is the same model.
TEST(RunFacts, TokenDropHasTheExpertsOfItsModel) {
  const PublishedRun run = converted({{"source", "megatron-bridge"},
                                      {"model", "Qwen3_235B_a22B (tokendrop)"},
                                      {"layers", "94"},
                                      {"hidden", "4096"},
                                      {"heads", "64"},
                                      {"kv_heads", "4"},
                                      {"vocab", "151936"},
                                      {"seq_len", "4096"},
                                      {"gpu", "B200"},
                                      {"gpus", "64"},
                                      {"tp", "1"},
                                      {"pp", "8"},
                                      {"vpp", "2"},
                                      {"ep", "8"},
                                      {"micro_batch", "1"},
                                      {"global_batch", "1024"},
                                      {"precision", "FP8 (default recipe)"}});
  ASSERT_EQ(run.reason, "");
  for (const char* line : {"  experts: 128", "  expert_ffn_hidden: 1536", "  capacity_factor: 1"})
    EXPECT_TRUE(has(run, line)) << line << run.scenario;
}

}  // namespace
}  // namespace rehearse::formats
