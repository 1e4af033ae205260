// Optimizers other than AdamW with wide moments: every plan has the losses of one rank.
#include <gtest/gtest.h>

#include "tests/numerics/plan_runs.h"

namespace rehearse {
namespace {

class OptimizerPlans : public testing::TestWithParam<Case> {};

TEST_P(OptimizerPlans, TrainAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam());
}

// Matrices of 4,096 elements and more, whose moments are in 8 bits; 72 columns make no whole blocks.
const Assignments kLarger = {"model.hidden=72", "model.heads=4", "model.ffn_hidden=144", "model.layers=2"};

Assignments with(Assignments all, const Assignments& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Assignments int8_moments(const std::string& model) {
  return with(kLarger, {"training.moments=int8", "model.kv_heads=" + std::string(model == "gpt" ? "4" : "2")});
}

std::vector<Case> int8_cases() {
  std::vector<Case> cases;
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}}) {
    const Assignments moments = int8_moments(name);
    cases.push_back({name + "_ddp2", text, grid(2, 1, 1, 0), moments});
    for (const int zero : {1, 2, 3})
      cases.push_back({name + "_zero" + std::to_string(zero), text, grid(4, 1, 1, zero), moments});
    cases.push_back({name + "_pipeline2_zero1", text, grid(4, 1, 2, 1), moments});
    cases.push_back({name + "_fsdp2", text, grid(2, 1, 1, 3, {"framework=torch-fsdp2"}), moments});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Int8Moments, OptimizerPlans, testing::ValuesIn(int8_cases()), name_of_case);

// Ranks of a tensor group have parts of matrices, and blocks of their own: where the columns are split, or rows that
// are not whole blocks, a block has other elements than on one rank. Losses are as near as everywhere; of parameters,
// measured, 2.2e-3 of their norm is another.
TEST(Int8Moments, OfTensorGroupsHaveOneRanksLosses) {
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}})
    for (const Assignments& plan : {grid(2, 2, 1, 0), grid(8, 2, 2, 1, {"plan.sequence_parallel=true"})}) {
      const Assignments moments = int8_moments(name);
      const execute::Outcome& one = performed_once(text, with(moments, {"cluster.gpus=1", "plan.micro_batch=12"}));
      const execute::Outcome many = perform(text, with(moments, plan));
      for (std::size_t step = 0; step < one.result.loss.size(); ++step)
        EXPECT_NEAR(many.result.loss.at(step) / one.result.loss[step], 1, kLossTolerance) << name << ", step " << step;
      EXPECT_LT(distance(one.parameters, many.parameters), 4 * kParameterTolerance) << name;
    }
}

TEST(Int8Moments, RepeatBitByBit) {
  const Assignments plan = with(int8_moments("gpt"), grid(4, 1, 1, 2));
  const execute::Outcome one = perform(kGpt, plan), other = perform(kGpt, plan);
  EXPECT_EQ(one.result.loss, other.result.loss);
  EXPECT_EQ(one.parameters, other.parameters);
}

// What 8 bits change in 40 steps: measured, 2.2e-3 and 7e-4 of a loss.
TEST(Int8Moments, FollowTheLossesOfFp32) {
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}}) {
    const Assignments coded = with(int8_moments(name), {"cluster.gpus=1", "plan.micro_batch=12"});
    const std::vector<double> rounded = perform(text, coded, 40).result.loss,
                              exact = perform(text, with(coded, {"training.moments=fp32"}), 40).result.loss;
    double most = 0;
    for (std::size_t s = 0; s < exact.size(); ++s) most = std::max(most, std::abs(rounded.at(s) / exact[s] - 1));
    EXPECT_LT(most, 4e-3) << name;
    EXPECT_GT(most, 0) << "was anything rounded?";
  }
}

}  // namespace
}  // namespace rehearse
