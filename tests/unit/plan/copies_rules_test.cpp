// What does not go with two copies of the parameters (schedule dualpipe): each problem at its place, with the rule.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using Texts = std::vector<std::string>;

std::string of_small_model(const std::string& rest) {
  return "rehearse: 1\n" + kSmallModel + rest;
}

Texts of_two(const std::string& plan, const std::string& training = "", const std::string& rest = "") {
  return problems(of_small_model("cluster: {gpus: 4}\nplan: {pipeline: 2, schedule: dualpipe" + plan +
                                 "}\ntraining: {global_batch: 8" + training + "}\n" + rest));
}

TEST(CopiesRules, StagesAreInPairsAndMicroBatchesEven) {
  EXPECT_EQ(of_two(""), Texts{});
  EXPECT_EQ(of_two(", zero: 1, recompute: full"), Texts{});
  const auto of = [](int stages, int batch) {
    return problems(of_small_model("cluster: {gpus: " + std::to_string(stages) +
                                   "}\nplan: {pipeline: " + std::to_string(stages) +
                                   ", schedule: dualpipe}\ntraining: {global_batch: " + std::to_string(batch) + "}\n"));
  };
  EXPECT_EQ(of(2, 4), Texts{});
  EXPECT_EQ(of(3, 12),
            Texts{"4:18 plan.pipeline: schedule dualpipe has a copy of the model from either end, and stages "
                  "in pairs, but pipeline = 3; nearest: 2 and 4"});
  for (const int batch : {2, 5, 7})
    EXPECT_EQ(of(2, batch),
              Texts{"5:26 training.global_batch: schedule dualpipe needs an even number of micro-batches, "
                    "2 * pipeline = 4 at least, but there are " +
                    std::to_string(batch) + " (global_batch / (data * micro_batch))"});
  EXPECT_EQ(of_two(", chunks: 2"),
            Texts{"4:49 plan.chunks: chunks = 2: several model chunks a stage need schedule: interleaved"});
}

TEST(CopiesRules, GradientsOfBothCopiesAreSummedAsTheyAre) {
  const auto only = [](const Texts& found) {
    EXPECT_EQ(found.size(), 1U) << testing::PrintToString(found);
    return found.empty() ? std::string() : found.front();
  };
  const auto told = [&](const Texts& found, const std::string& key, const std::string& words) {
    const std::string text = only(found);
    EXPECT_NE(text.find(key + ": schedule dualpipe " + words), std::string::npos) << text;
  };
  told(of_two(", offload_optimizer: true"), "plan.offload_optimizer", "sums the gradients of its two copies on the");
  EXPECT_EQ(of_two(", gradient_compression: [sign]").size(), 2U) << "and the tied table";
  told({of_two(", gradient_compression: [sign]").back()}, "plan.gradient_compression", "sums the gradients");
  told(of_two(", local_steps: 4"), "plan.local_steps",
       "sums the gradients of its two copies every step, but local_steps");
  told(of_two(", layers_per_stage: by_time"), "plan.layers_per_stage", "has two parts of the model on every stage");
  told(of_two("", "", "data: {samples: 1000, sample_time: 1ms}\n"), "data", "reads every other micro-batch");
  told(of_two("", ", precision: fp8, fp8_recipe: delayed"), "training.fp8_recipe", "has two copies of a weight");
  EXPECT_NE(only(of_two(", zero: 2")).find("schedule dualpipe leaves in two parts"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::plan
