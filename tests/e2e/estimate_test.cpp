// rehearse estimate as a user runs it: sizes, presets, configurations, and what it refuses.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/e2e/program.h"

namespace rehearse::e2e {
namespace {

using EstimateJson = nlohmann::json;

TEST(EstimateCommand, ABareSizeSaysWhatItAssumes) {
  const Outcome r = run({"estimate", "175B"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "GPUs needed      44: states over 80% of 80 GB")) << r.out;
  EXPECT_TRUE(has(r.out, "2.8 TB, 16 bytes a parameter")) << r.out;
  EXPECT_TRUE(has(r.out, "Assumed: bf16 parameters and gradients (2 + 2 bytes)")) << r.out;
  EXPECT_LE(widest(r.out), 80u) << r.out;
  EXPECT_TRUE(has(run({"estimate", "540B"}).out, "GPUs needed      135:"));
  const std::string chinchilla = run({"estimate", "70B"}).out;
  EXPECT_TRUE(has(chinchilla, "tokens           1.4T") && has(chinchilla, "5.88e23")) << chinchilla;
}

TEST(EstimateCommand, EveryPresetHasOne) {
  const EstimateJson models = EstimateJson::parse(run({"list", "models", "--json"}).out);
  ASSERT_GT(models.size(), 60u);
  for (const EstimateJson& model : models) {
    const std::string name = model["name"];
    const Outcome r = run({"estimate", name});
    EXPECT_EQ(r.status, 0) << name << r.err;
    EXPECT_LE(widest(r.out), 80u) << r.out;
    const EstimateJson j = EstimateJson::parse(run({"estimate", name, "--json"}).out);
    EXPECT_EQ(j["schema"], "rehearse.estimate/1");
    EXPECT_EQ(j["parameters"].get<double>(), model["parameters"].get<double>()) << name;
    EXPECT_EQ(j["state_bytes"].get<double>(), 16 * model["parameters"].get<double>()) << name;
  }
}

TEST(EstimateCommand, OptionsChangeWhatIsAssumed) {
  const EstimateJson j =
      EstimateJson::parse(run({"estimate", "7B", "--tokens", "2T", "--device", "h100-sxm", "--memory", "40GB",
                               "--share", "50%", "--mfu", "50", "--gpus", "16", "--json"})
                              .out);
  EXPECT_EQ(j["tokens"], 2e12);
  EXPECT_EQ(j["training_flops"], 6 * 7e9 * 2e12);
  EXPECT_EQ(j["gpus_needed"], 6) << "112 GB in 20 GB each";
  EXPECT_EQ(j["gpus"], 16);
  EXPECT_EQ(j["assumed"]["mfu"], 0.5);
  EXPECT_NEAR(j["one_gpu_s"].get<double>(), 8.4e22 / (j["assumed"]["peak_bf16_flops"].get<double>() / 2), 1e3);
  EXPECT_NEAR(j["all_gpus_s"].get<double>() * 16, j["one_gpu_s"].get<double>(), 1e-3);
}

TEST(EstimateCommand, AConfigurationIsAModel) {
  const Folder folder;
  const std::string file =
      folder.write("config.json",
                   R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 688, "vocab_size": 32000, "max_position_embeddings": 512})");
  const Outcome r = run({"estimate", file, "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  // 2 tables of 32,000 x 256; a layer: 2 norms, q and o 256 x 256, k and v 256 x 128, 3 x 256 x 688; a last norm.
  const double layer = 2 * 256 + 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 688;
  EXPECT_EQ(EstimateJson::parse(r.out)["parameters"].get<double>(), 2 * 32000 * 256 + 2 * layer + 256);
  EXPECT_EQ(EstimateJson::parse(r.out)["seq_len"], 512);
}

// Of windows the sequence length is that of simulate: the model's longest where some layers see all of it.
TEST(EstimateCommand, AWindowOfSomeLayersIsNoSequenceLength) {
  const auto seq_len = [](const char* model) {
    return EstimateJson::parse(run({"estimate", model, "--json"}).out)["seq_len"].get<int>();
  };
  EXPECT_EQ(seq_len("gpt-oss-20b"), 131072);
  EXPECT_EQ(seq_len("gemma2-9b"), 8192);
  EXPECT_EQ(seq_len("mistral-7b"), 4096);
}

TEST(EstimateCommand, WhatCannotBeIsRefused) {
  struct Case {
    std::vector<std::string> arguments;
    const char* message;
  };
  for (const Case& c :
       std::vector<Case>{{{"lama3-8b"}, "did you mean 'llama3-8b'?"},
                         {{"175X"}, "'175X' is none of"},
                         {{"7B", "--tokens", "many"}, "--tokens: error: expected a number such as 1.4T"},
                         {{"7B", "--memory", "80"}, "--memory: error: expected a size from 1MB on, such as 80GB"},
                         {{"7B", "--share", "0%"}, "--share: error: expected a percentage, 1 to 100"},
                         {{"7B", "--share", "nan"}, "--share: error: expected a percentage"},
                         {{"7B", "--seq-len", "8"}, "--seq-len: error: a bare size has no layers"},
                         {{"cnn-cifar", "--tokens", "1T"}, "--tokens: error: cnn-cifar reads no tokens"},
                         {{"7B", "--device", "h100"}, "h100-"},
                         {{"7B", "--mfu", "0"}, "--mfu"},
                         {{"/nowhere/config.json"}, "/nowhere/config.json"}}) {
    std::vector<std::string> arguments = c.arguments;
    arguments.insert(arguments.begin(), "estimate");
    const Outcome r = run(arguments);
    EXPECT_EQ(r.status, 2) << c.arguments.front() << r.out;
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(has(r.err, c.message)) << r.err;
  }
}

}  // namespace
}  // namespace rehearse::e2e
