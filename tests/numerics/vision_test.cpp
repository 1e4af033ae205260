// Residual networks and vision transformers, performed: every plan trains as one rank does, and gradients are those of
// the loss that is said.
#include <gtest/gtest.h>

#include "tests/numerics/plan_runs.h"

namespace rehearse {
namespace {

// At a rate of 0.001 the kinks of ReLU make 1e-7 of rounding 1e-4 to 3e-4 of the loss in 20 steps, on some processors.
const std::string kSgd =
    "training: {global_batch: 12, precision: fp32, optimizer: sgd, lr: 0.0003, momentum: 0.9, weight_decay: 0.001, "
    "clip: "
    "0}\n";
const std::string kResidual =
    "rehearse: 1\n"
    "model: {family: cnn, image: {channels: 2, size: 12}, residual_block: bottleneck, residual_layers: [1, 1], widths: "
    "[5], sync_batch_norm: true}\n" +
    kSgd;
const std::string kBasic =
    "rehearse: 1\n"
    "model: {family: cnn, image: {channels: 2, size: 12}, residual_block: basic, residual_layers: [1, 1], widths: "
    "[5]}\n" +
    kSgd;
// Depthwise in the first stage, two maps a group in the second, with squeeze-and-excitation.
const std::string kGrouped =
    "rehearse: 1\n"
    "model: {family: cnn, image: {channels: 2, size: 12}, residual_block: bottleneck, residual_layers: [1, 1], widths: "
    "[5], residual_groups: 16, residual_group_width: 1, squeeze_ratio: 32, sync_batch_norm: true}\n" +
    kSgd;
const std::string kVision =
    "rehearse: 1\n"
    "model: {family: vit, layers: 4, hidden: 32, heads: 4, image: {channels: 2, size: 8}, patch: 4, classes: 5}\n" +
    kTraining;

// Of every kind of layer that no other model here has, with sums over all ranks.
const std::string kCustom =
    "rehearse: 1\n"
    "model: {family: custom, features: 12, sync_batch_norm: true, layer_list: [{layer: linear, width: 24, bias: "
    "false}, {layer: "
    "batch_norm}, {layer: tanh}, {layer: residual, body: [{layer: linear, width: 32}, {layer: layer_norm}, {layer: "
    "gelu}, {layer: dropout, rate: 0.1}, {layer: linear, width: 24}]}, {layer: residual, body: [{layer: linear, width: "
    "16}, {layer: tanh}], shortcut: [{layer: linear, width: 16, bias: false}]}, {layer: relu}, {layer: linear, width: "
    "5}]}\n"
    "training: {global_batch: 12, precision: fp32, lr: 3e-3}\n";

class Vision : public testing::TestWithParam<Case> {};
TEST_P(Vision, TrainsAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam());
}

// A normalisation is over 12 images everywhere: of one rank, or of the ranks that share its sums.
std::vector<Case> residual_cases() {
  const std::string of[] = {"", "plan.micro_batch=12", "plan.micro_batch=6"};
  std::vector<Case> cases;
  cases.push_back({"ddp2", kResidual, grid(2, 1, 1, 0, {of[2]})});
  for (const int zero : {2, 3})
    cases.push_back({"zero" + std::to_string(zero), kResidual, grid(2, 1, 1, zero, {of[2]})});
  cases.push_back({"hybrid", kResidual, grid(4, 1, 1, 3, {"plan.micro_batch=3", "plan.zero_group=2"})});
  cases.push_back({"pipeline_ddp_zero1", kResidual, grid(4, 1, 2, 1, {of[2]})});
  cases.push_back({"recompute", kResidual, grid(2, 1, 1, 0, {of[2], "plan.recompute=full"})});
  cases.push_back({"recompute_pipeline", kResidual, grid(3, 1, 3, 0, {of[1], "plan.recompute=full"})});
  cases.push_back({"in_kernels_of_the_norm", kBasic, grid(1, 1, 1, 0, {of[1], "framework=tensorflow-xla"})});
  for (const int zero : {0, 1, 2, 3})
    cases.push_back({"grouped_zero" + std::to_string(zero), kGrouped, grid(2, 1, 1, zero, {of[2]})});
  cases.push_back({"grouped_pipeline_recompute", kGrouped, grid(3, 1, 3, 0, {of[1], "plan.recompute=full"})});
  cases.push_back({"grouped_torch", kGrouped, grid(2, 1, 1, 0, {of[2], "framework=torch-ddp"})});
  cases.push_back({"basic_zero_bubble", kBasic, grid(2, 1, 2, 0, {of[1], "plan.schedule=zero_bubble"})});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Residual, Vision, testing::ValuesIn(residual_cases()), name_of_case);

std::vector<Case> transformer_cases() {
  std::vector<Case> cases = {
      {"vit_ddp3", kVision, grid(3, 1, 1, 0)},
      {"vit_tensor2", kVision, grid(2, 2, 1, 0)},
      {"vit_tensor2_pipeline2", kVision, grid(4, 2, 2, 1)},
      {"vit_pipeline4", kVision, grid(4, 1, 4, 0)},
      {"vit_dropout", kVision, grid(2, 2, 1, 0), {"model.dropout=0.1"}},
      {"vit_recompute", kVision, grid(2, 1, 1, 0, {"plan.recompute=full"})},
      {"vit_torch", kVision, grid(2, 1, 1, 0, {"framework=torch-ddp"})},
      {"vit_selective", kVision, grid(2, 2, 1, 0, {"plan.recompute=selective"}), {"model.attention=unfused"}}};
  for (const int zero : {1, 2, 3}) cases.push_back({"vit_zero" + std::to_string(zero), kVision, grid(2, 1, 1, zero)});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Transformer, Vision, testing::ValuesIn(transformer_cases()), name_of_case);

std::vector<Case> custom_cases() {
  const std::string half = "plan.micro_batch=6", whole = "plan.micro_batch=12", full = "plan.recompute=full";
  std::vector<Case> cases = {{"custom_pipeline4", kCustom, grid(4, 1, 4, 0, {whole})},
                             {"custom_recompute", kCustom, grid(2, 1, 1, 0, {half, full})},
                             {"custom_recompute_pipeline2", kCustom, grid(4, 1, 2, 1, {half, full})},
                             {"custom_zero_bubble", kCustom, grid(2, 1, 2, 0, {whole, "plan.schedule=zero_bubble"})},
                             {"custom_torch", kCustom, grid(2, 1, 1, 0, {half, "framework=torch-ddp"})}};
  for (const int zero : {0, 1, 2, 3})
    cases.push_back({"custom_zero" + std::to_string(zero), kCustom, grid(2, 1, 1, zero, {half})});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Custom, Vision, testing::ValuesIn(custom_cases()), name_of_case);

TEST(CustomLayers, GradientsAreThoseOfTheLoss) {
  std::string text = kCustom;
  text.replace(text.find("rate: 0.1"), 9, "rate: 0");
  expect_gradients_of_the_loss(text, "1e-4", 0.02);
}

// Each rank normalises its own images, as one rank does a micro-batch of as many; not as one rank does all of them.
TEST(ResidualNetwork, WithoutSynchronisationEachRankNormalisesItsOwn) {
  const Case two{"", kBasic, grid(2, 1, 1, 0, {"plan.micro_batch=6"})};
  expect_trains_as_one_rank(two, 6);
  const double first = perform(kBasic, two.plan, 3).result.loss.front();
  const double whole = perform(kBasic, {"cluster.gpus=1", "plan.micro_batch=12"}, 3).result.loss.front();
  EXPECT_GT(std::abs(first / whole - 1), 1e-3);
}

TEST(ResidualNetwork, GradientsAreThoseOfTheLoss) {
  expect_gradients_of_the_loss(kResidual, "1e-4", 0.02);
  expect_gradients_of_the_loss(kBasic, "1e-4", 0.02);
  expect_gradients_of_the_loss(kGrouped, "1e-4", 0.02);
}

TEST(ResidualNetwork, OfGroupsRepeatsBitByBit) {
  const Assignments plan = grid(4, 1, 2, 1, {"plan.micro_batch=6"});
  const execute::Outcome first = perform(kGrouped, plan, 6), second = perform(kGrouped, plan, 6);
  EXPECT_EQ(first.result.loss, second.result.loss);
  EXPECT_EQ(first.parameters, second.parameters);
}

TEST(VisionTransformer, GradientsAreThoseOfTheLoss) {
  expect_gradients_of_the_loss(kVision, "1e-4", 0.02);
}

}  // namespace
}  // namespace rehearse
