// Stages that do not share the layers evenly, against the bound of account/balance.h: a step takes at least as long as
// its largest stage computes, so at least 1 - mean / largest of the ranks' time is idle, and no more than that once
// there are many micro-batches.
#include "sim/account/balance.h"

#include <gtest/gtest.h>

#include "tests/support/simulated.h"

namespace rehearse {
namespace {

constexpr Time kForward = Time::from_us(100), kBackward = Time::from_us(200);
constexpr char kModel[] = "rehearse: 1\nmodel: {family: gpt, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n";

plan::Scenario pipeline(int layers, int stages, const std::vector<std::string>& more = {}) {
  std::vector<std::string> assignments = {"model.layers=" + std::to_string(layers), "framework=rehearse",
                                          "cluster.gpus=" + std::to_string(stages),
                                          "plan.pipeline=" + std::to_string(stages), "training.global_batch=64"};
  assignments.insert(assignments.end(), more.begin(), more.end());
  return scenario_from(kModel, assignments);
}

account::WorkOf seconds_of(const cost::CostModel& costs) {
  return [&costs](const program::Role& role, const program::Op& op) {
    return costs.kernel(role, op, {}).duration.seconds();
  };
}

std::string note_of(const plan::Scenario& scenario, const account::WorkOf& work) {
  const auto notes = account::balance_notes(scenario, lower::lower(scenario), work, "by its kernels");
  if (notes.empty()) return "";
  EXPECT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes.front().what, "uneven_stages");
  return notes.front().text;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Balance, SixLayersOnFourStagesLoseAQuarterAtLeast) {
  const auto scenario = pipeline(6, 4);  // 1, 2, 2, 1: the largest is 4/3 of the mean
  const GivenCosts costs = block_costs(kForward, kBackward);
  const auto balance = account::balance_of(scenario, lower::lower(scenario), seconds_of(costs));
  EXPECT_EQ(balance.layers, (std::vector<std::int64_t>{1, 2, 2, 1}));
  EXPECT_NEAR(balance.largest_over_mean, 4.0 / 3, 1e-12);
  EXPECT_EQ(balance.largest, 1u);
  const std::string note = note_of(scenario, seconds_of(costs));
  EXPECT_TRUE(has(note, "they hold from 1 to 2 of the 6 layers")) << note;
  EXPECT_TRUE(has(note, "Stage 1 (2 layers) computes 1.33 times as long as the mean stage")) << note;
  EXPECT_TRUE(has(note, "25.0% of the ranks' time or more")) << note;
  EXPECT_TRUE(has(note, "The layers divide by: plan.pipeline 2; 3 or 6, with other GPUs or another batch.")) << note;
}

TEST(Balance, TheBoundHoldsAndIsReachedWithManyMicroBatches) {
  const GivenCosts costs = block_costs(kForward, kBackward);
  for (const char* schedule : {"1f1b", "gpipe"})
    for (const int micro_batches : {4, 64, 1000}) {
      const auto scenario = pipeline(
          6, 4, {std::string("plan.schedule=") + schedule, "training.global_batch=" + std::to_string(micro_batches)});
      const auto outcome = simulated(scenario, costs, Communication::free, {}, 2);
      const double idle = 1 - share(outcome, result::Share::compute);
      EXPECT_GE(idle, 0.25) << schedule << " " << micro_batches;
      EXPECT_TRUE(micro_batches < 1000 || idle < 0.255) << schedule << " " << idle;
    }
}

TEST(Balance, EvenStagesHaveNoNote) {
  const GivenCosts costs = block_costs(kForward, kBackward);
  EXPECT_EQ(note_of(pipeline(8, 4), seconds_of(costs)), "");
  EXPECT_EQ(note_of(pipeline(6, 1), seconds_of(costs)), "") << "no pipeline";
  // 12 layers in 2 chunks of 3 stages: each stage 2 + 2.
  EXPECT_EQ(note_of(pipeline(12, 3, {"plan.schedule=interleaved", "plan.chunks=2", "training.global_batch=63"}),
                    seconds_of(costs)),
            "");
}

TEST(Balance, LayersThatWereListedAreComparedWithAuto) {
  const GivenCosts costs = block_costs(kForward, kBackward);
  const std::string note = note_of(pipeline(8, 4, {"plan.layers_per_stage=[1, 3, 2, 2]"}), seconds_of(costs));
  EXPECT_TRUE(has(note, "they hold from 1 to 3 of the 8 layers. Stage 1 (3 layers)")) << note;
  EXPECT_TRUE(has(note, "plan.layers_per_stage: auto gives each 2.")) << note;
}

TEST(Balance, AHeavyHeadIsToldOfFromATenthOn) {
  // The head's matrix product takes as long as `layers` layers; the stages hold 2 layers each.
  const auto head = [](double layers) {
    return GivenCosts([=](const program::Op& op) {
      if (op.phase == program::Phase::forward && ends_with(op.name, "mlp.up.forward")) return kForward + kBackward;
      if (op.phase == program::Phase::forward && op.name.find("head") != std::string::npos &&
          std::holds_alternative<program::Gemm>(op.shape))
        return Time::from_seconds((kForward + kBackward).seconds() * layers);
      return Time();
    });
  };
  const auto scenario = pipeline(8, 4);
  const GivenCosts light = head(0.2), heavy = head(2);  // (2 + h) / (2 + h / 4): 1.073 and 1.6
  EXPECT_EQ(note_of(scenario, seconds_of(light)), "");
  const std::string note = note_of(scenario, seconds_of(heavy));
  EXPECT_TRUE(
      has(note, "though each holds 2 of the 8 layers. Stage 3 (2 layers, with the head (logits)) computes 1.60"))
      << note;
  EXPECT_TRUE(has(note, "plan.layers_per_stage may give it fewer.")) << note;
}

TEST(Balance, NamesTheCountsThatDivide) {
  // 96 layers on 64 stages: 32 and 96 are next; 1,024 GPUs in tensors of 8 go with 32 alone.
  const auto s = scenario_from(kModel, {"model.layers=96", "model.heads=8", "cluster.gpus=1024", "plan.tensor=8",
                                        "plan.pipeline=64", "training.global_batch=64"});
  const account::Divisors d = account::dividing(s);
  EXPECT_EQ(d.pipelines, (std::vector<std::int64_t>{32}));
  EXPECT_EQ(d.other_pipelines, (std::vector<std::int64_t>{48, 96}));
  EXPECT_TRUE(d.chunks.empty());
  // 12 layers in 2 chunks of 4 stages are 8 parts; 1 and 3 chunks of 4 stages would divide, and 2 of 3, 2 or 6 stages.
  const auto chunked = pipeline(12, 4, {"plan.schedule=interleaved", "plan.chunks=2"});
  EXPECT_EQ(account::dividing(chunked).chunks, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(account::dividing(chunked).pipelines, (std::vector<std::int64_t>{2}));
}

TEST(Balance, WithoutTimesFlopsCount) {
  // Of a small vocabulary the FLOPs are the layers' alone, nearly.
  const auto scenario = pipeline(6, 4, {"model.vocab=16", "model.hidden=256"});
  const auto balance = account::balance_of(scenario, lower::lower(scenario), account::flops_of);
  EXPECT_NEAR(balance.largest_over_mean, 4.0 / 3, 0.02);
}

}  // namespace
}  // namespace rehearse
