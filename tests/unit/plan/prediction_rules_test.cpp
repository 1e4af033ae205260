// What multi-token prediction cannot be with: each problem at its place, with the rule.
#include <gtest/gtest.h>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using Texts = std::vector<std::string>;

const std::string kModel =
    "rehearse: 1\nmodel: {family: llama, layers: 4, hidden: 96, heads: 12, ffn_hidden: 64, vocab: 100, max_seq_len: 64";

std::string only(const std::string& model, const std::string& rest) {
  const Texts found = problems(kModel + model + "}\n" + rest);
  EXPECT_EQ(found.size(), 1U) << testing::PrintToString(found);
  return found.empty() ? std::string() : found.front();
}

TEST(PredictionRules, WhereItIsNotAvailable) {
  EXPECT_NE(only(", mtp_depth: 1, position: learned", "").find("model.mtp_depth: mtp_depth = 1: a module's embedding"),
            std::string::npos);
  EXPECT_NE(only(", mtp_depth: 4", "training: {seq_len: 4}\n")
                .find("model.mtp_depth: mtp_depth = 4 modules look at as many tokens ahead, but sequences have 4"),
            std::string::npos);
  EXPECT_NE(only(", mtp_depth: 1", "training: {lora_rank: 4}\n").find("adapters alone are trained"), std::string::npos);
  EXPECT_NE(only(", mtp_loss_weight: 0.1", "").find("model.mtp_loss_weight: has no meaning without"),
            std::string::npos);
  EXPECT_NE(only(", mtp_depth: 17", "").find("model.mtp_depth"), std::string::npos);
  EXPECT_NE(only(", mtp_depth: 1", "cluster: {gpus: 2}\nplan: {pipeline: 2, gradient_compression: [int8]}\n")
                .find("first and last stage hold the same table"),
            std::string::npos);
}

TEST(PredictionRules, WhatIsAvailable) {
  const std::string model = kModel + ", mtp_depth: 2}\n";
  for (const char* rest : {"", "training: {seq_len: 3}\n", "training: {documents: fixed, document_length: 20}\n",
                           "cluster: {gpus: 4}\nplan: {pipeline: 2, tensor: 2, sequence_parallel: true}\n",
                           "cluster: {gpus: 4}\nplan: {pipeline: 4, layers_per_stage: [0, 2, 2, 0]}\n"})
    EXPECT_TRUE(problems(model + rest).empty()) << rest;
}

// Fewer layers than stages, where the ends have none.
TEST(PredictionRules, LayersNeedNotBeAsManyAsStages) {
  const std::string plan = "cluster: {gpus: 5}\nplan: {pipeline: 5}\ntraining: {global_batch: 5}\n";
  EXPECT_EQ(read(kModel + ", mtp_depth: 1}\n" + plan).plan.layers_per_stage,
            (std::vector<std::int64_t>{1, 1, 1, 1, 0}));
  const std::string wide = "cluster: {gpus: 6}\nplan: {pipeline: 6}\ntraining: {global_batch: 6}\n";
  EXPECT_EQ(read(kModel + ", mtp_depth: 1}\n" + wide).plan.layers_per_stage,
            (std::vector<std::int64_t>{0, 1, 1, 1, 1, 0}));
  EXPECT_TRUE(problems(kModel + ", mtp_depth: 1}\ncluster: {gpus: 5}\nplan: {pipeline: 5, layers_per_stage: [0, 1, 1, "
                                "2, 0]}\n")
                  .empty());
  EXPECT_NE(only(", mtp_depth: 1", "cluster: {gpus: 7}\nplan: {pipeline: 7}\n").find("at least one layer each"),
            std::string::npos);
  EXPECT_NE(only("", "cluster: {gpus: 5}\nplan: {pipeline: 5}\n").find("at least one layer each"), std::string::npos);
  EXPECT_NE(only(", mtp_depth: 1", "cluster: {gpus: 5}\nplan: {pipeline: 5, layers_per_stage: by_time}\n")
                .find("by_time gives every stage a layer"),
            std::string::npos);
}

// With modules an end may have no layers; nothing else may.
TEST(PredictionRules, StagesBetweenTheEndsHaveLayers) {
  const std::string kNone =
      "4:43 plan.layers_per_stage[1]: a stage without layers: only the first and the last may have none, with "
      "model.mtp_depth";
  EXPECT_EQ(only(", mtp_depth: 1", "cluster: {gpus: 3}\nplan: {pipeline: 3, layers_per_stage: [2, 0, 2]}\n"), kNone);
  EXPECT_EQ(only("", "cluster: {gpus: 2}\nplan: {pipeline: 2, layers_per_stage: [4, 0]}\n"), kNone);
}

}  // namespace
}  // namespace rehearse::plan
