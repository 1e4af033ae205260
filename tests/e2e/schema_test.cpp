// rehearse schema: the shipped file is its output; every shipped scenario passes, and what an editor should underline
// does not; where the schema refuses, so does the program.
#include <gtest/gtest.h>

#include <filesystem>

#include "program.h"
#include "schema_validator.h"

namespace rehearse::e2e {
namespace {

namespace fs = std::filesystem;

const json& schema() {
  static const json it = json::parse(run({"schema"}).out);
  return it;
}

std::vector<std::string> problems(const std::string& text) {
  return violations(schema(), yaml_as_json(YAML::Load(text)));
}

TEST(Schema, TheShippedFileIsTheCommandsOutput) {
  EXPECT_EQ(read(std::string(REHEARSE_SOURCE_DIR) + "/scenarios/schema.json"), run({"schema"}).out)
      << "write it anew: ./rehearse schema > scenarios/schema.json";
}

TEST(Schema, EveryShippedScenarioPasses) {
  std::size_t files = 0;
  for (const char* folder : {"scenarios", "scenarios/published"})
    for (const auto& entry : fs::directory_iterator(fs::path(REHEARSE_SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".yaml") continue;
      ++files;
      for (const std::string& problem : problems(read(entry.path().string()))) ADD_FAILURE() << entry << problem;
    }
  EXPECT_GE(files, 20u);
  for (const std::string& problem : problems(run({"init", "-"}).out)) ADD_FAILURE() << problem;
}

TEST(Schema, EveryPresetWrittenOutPasses) {
  for (const auto& entry : fs::directory_iterator(fs::path(REHEARSE_SOURCE_DIR) / "scenarios/models")) {
    json scenario = {{"rehearse", 1}, {"model", yaml_as_json(YAML::Load(read(entry.path().string())))}};
    for (const std::string& problem : violations(schema(), scenario)) ADD_FAILURE() << entry << problem;
  }
}

TEST(Schema, WhatItRefusesTheProgramRefusesToo) {
  const std::string head = "rehearse: 1\nmodel: gpt-tiny\n";
  const Folder folder;
  for (const std::string& text : {std::string("model: gpt-tiny\n"),
                                  std::string("rehearse: 1\n"),
                                  std::string("rehearse: 2\nmodel: gpt-tiny\n"),
                                  std::string("rehearse: 1\nmodel: gpt-tinyy\n"),
                                  std::string("rehearse: 1\nmodel: {family: gpt}\n"),
                                  std::string("rehearse: 1\nmodel: {family: moe}\n"),
                                  std::string("rehearse: 1\nmodel: {family: mlp, widths: [4, 2], heads: 2}\n"),
                                  std::string("rehearse: 1\nmodel: {layers: 2}\n"),
                                  std::string("rehearse: 1\nmodel: {hf: [config.json]}\n"),
                                  std::string("rehearse: 1\nmodel: {preset: gpt-tiny, dropout: 2}\n"),
                                  head + "plann: {}\n",
                                  head + "plan: {tensr: 2}\n",
                                  head + "plan: {zero: 4}\n",
                                  head + "plan: {zero: '1'}\n",
                                  head + "plan: {bucket: 25}\n",
                                  head + "plan: {zero_group: 1}\n",
                                  head + "plan: {context: 0}\n",
                                  head + "plan: {embedding_as_layer: 1}\n",
                                  head + "plan: {rank_order: [tensor, data]}\n",
                                  head + "plan: {layers_per_stage: even}\n",
                                  head + "plan: {layers_per_stage: []}\n",
                                  head + "cluster: {gpus: 0}\n",
                                  head + "cluster: {threads_per_rank: some}\n",
                                  head + "training: {betas: [0.9]}\n",
                                  head + "training: {lora_rank: 4, lora_targets: []}\n",
                                  head + "training: {lora_rank: 4, lora_targets: [mlp, mlp]}\n",
                                  head + "training: {lora_rank: 4, lora_targets: [experts]}\n",
                                  head + "training: {betas: [0.9, 1]}\n",
                                  head + "training: {momentum: 1}\n",
                                  head + "training: {precision: int8}\n",
                                  head + "training: {fp8_recipe: mxfp}\n",
                                  head + "framework: torch\n",
                                  head + "noise: {seed: -1}\n",
                                  head + "noise: {kernels: 0.6}\n",
                                  head + "noise: {links: [{resources: '*', capacity: 0.5, period: 3}]}\n",
                                  head + "costs: {calibration: {a: b}}\n"}) {
    EXPECT_FALSE(problems(text).empty()) << text;
    EXPECT_EQ(run({"simulate", folder.write("s.yaml", text)}).status, 2) << text;
  }
}

TEST(Schema, WhatTheProgramTakesPasses) {
  const std::string head = "rehearse: 1\nmodel: gpt-tiny\n";
  for (const std::string& text :
       {head, head + "plan:\n", head + "plan: {layers_per_stage: auto, bucket: 1.5 GiB}\n",
        head + "plan: {layers_per_stage: [1, 3], pipeline: 2}\n", head + "cluster: {topology: ./my.yaml}\n",
        head + "cluster: {overrides: {nic: {count: 4}}}\n", head + "costs: {calibration: [a100-sxm-80g, mine.yaml]}\n",
        head + "name: 7\n", head + "training: {lr: 1e-3, eps: 1e-8, clip: 0}\n", head + "noise: {}\n",
        head + "noise: {seed: 3, kernels: 0.1, slow_ranks: [{ranks: [0], factor: 1.5}]}\n",
        std::string("rehearse: 1\nmodel: {preset: gpt3-175b, layers: 2}\n")})
    for (const std::string& problem : problems(text)) ADD_FAILURE() << text << problem;
}

TEST(Schema, EveryKeyHasItsDescription) {
  const json keys = json::parse(run({"explain", "--json"}).out);
  const json& plan = schema()["properties"]["plan"]["properties"];
  for (const json& key : keys) {
    const std::string path = key["key"];
    if (!path.starts_with("plan.")) continue;
    EXPECT_EQ(plan.at(path.substr(5)).at("description"), key["meaning"].get<std::string>() + ".") << path;
  }
  EXPECT_EQ(plan["schedule"]["default"], "1f1b");
}

}  // namespace
}  // namespace rehearse::e2e
