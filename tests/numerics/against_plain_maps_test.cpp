// Plans of networks with grouped convolutions and squeeze-and-excitation, performed, against the plain network
// (plain_maps.h): twenty steps have its losses whatever the split.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/rank/initial_values.h"
#include "tests/numerics/plain_maps.h"
#include "tests/numerics/plain_runs.h"
#include "tests/support/lowered.h"

namespace rehearse::numerics {
namespace {

std::string trained(const char* lr) {
  return std::string(
             "cluster: {topology: local, gpus: 1}\n"
             "training: {global_batch: 6, precision: fp32, optimizer: sgd, momentum: 0.9, weight_decay: 0, clip: 0, "
             "seed: 5, lr: ") +
         lr + "}\n";
}
// 12 maps in 3 groups, of strides 1 and 2; depthwise, and to twice as many; a list that scales them, of silu.
const std::string kLayers =
    "rehearse: 1\n"
    "model: {family: custom, image: {channels: 3, size: 9}, sync_batch_norm: true, layer_list: [{layer: convolution, "
    "width: 12, groups: 3}, {layer: silu}, {layer: scale, body: [{layer: average_pool}, {layer: linear, width: 5}, "
    "{layer: silu}, {layer: linear, width: 12}, {layer: sigmoid}]}, {layer: convolution, width: 18, groups: 3, stride: "
    "2, bias: false}, {layer: batch_norm}, {layer: silu}, {layer: convolution, width: 18, kernel: 5, groups: 18}, "
    "{layer: silu}, {layer: convolution, width: 36, groups: 18, stride: 2}, {layer: batch_norm}, {layer: silu}, "
    "{layer: linear, width: 4}]}\n" +
    trained("0.002");
// SE-ResNeXt of two stages: 8 groups of 2 maps and of 4, and normalisation over all ranks' images.
const std::string kResidual =
    "rehearse: 1\n"
    "model: {family: cnn, image: {channels: 2, size: 8}, residual_block: bottleneck, residual_layers: [1, 1], widths: "
    "[5], residual_groups: 8, residual_group_width: 2, squeeze_ratio: 64, sync_batch_norm: true}\n" +
    trained("0.02");

std::vector<double> plain_losses(const plan::Scenario& s) {
  const auto draw = [&](program::Init::Kind kind, double width, const std::string& name, std::int64_t n) {
    std::vector<float> values(static_cast<std::size_t>(n));
    execute::draw_values(kind, width, name, s.training.seed, 0, n, values.data());
    return values;
  };
  PlainMaps model(s.model.layer_list, s.model.input(), draw);
  const std::unique_ptr<execute::Data> data = execute::open_data(s.model, 1, s.training.seed, "");
  const std::int64_t pixels = s.model.input().elements();
  std::vector<double> losses;
  for (std::int64_t step = 0; step < kPlainSteps; ++step) {
    std::vector<std::vector<float>> images;
    std::vector<std::int32_t> labels;
    for (std::int64_t i = 0; i < s.training.global_batch; ++i) {
      const std::int64_t number = step * s.training.global_batch + i;
      images.emplace_back(static_cast<std::size_t>(pixels));
      labels.push_back(-1);
      data->load(program::InputKind::images, {number}, pixels, images.back().data());
      data->load(program::InputKind::labels, {number}, 1, &labels.back());
    }
    losses.push_back(model.loss_and_gradients(images, labels));
    model.step(s.training.lr, s.training.momentum);
  }
  return losses;
}

// Once for all plans of a model.
const std::vector<double>& plain_losses_once(const plan::Scenario& s, bool residual) {
  static std::map<bool, std::vector<double>> known;
  const auto [found, is_new] = known.try_emplace(residual);
  if (is_new) found->second = plain_losses(s);
  return found->second;
}

class AgainstPlainMaps : public testing::TestWithParam<PlainCase> {};

TEST_P(AgainstPlainMaps, TwentyStepsHaveThePlainNetworksLosses) {
  const bool residual = GetParam().name.starts_with("Residual");
  plan::Scenario scenario = scenario_from(residual ? kResidual : kLayers, GetParam().assignments);
  scenario.purpose = plan::Purpose::perform;
  const std::vector<double> losses = performed(scenario, kPlainSteps).result.loss;
  const std::vector<double>& expected = plain_losses_once(scenario, residual);
  if (!residual) return expect_losses(losses, expected);
  // At ReLU's kink rounding is not small: it decides what is passed on.
  ASSERT_EQ(losses.size(), expected.size());
  EXPECT_LT(expected.back(), 0.9 * expected.front());
  for (std::size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(losses[step] / expected[step], 1, 1e-4) << "step " << step;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, AgainstPlainMaps,
    testing::Values(PlainCase{"OneRank", {"plan.micro_batch=6"}},
                    PlainCase{"Recompute", {"plan.micro_batch=6", "plan.recompute=full"}},
                    PlainCase{"TorchKernels", {"plan.micro_batch=6", "framework=torch-ddp"}},
                    PlainCase{"Data", split(3, {"plan.micro_batch=2"})},
                    PlainCase{"Zero1", split(2, {"plan.micro_batch=3", "plan.zero=1"})},
                    PlainCase{"Zero2", split(2, {"plan.micro_batch=3", "plan.zero=2"})},
                    PlainCase{"Zero3", split(2, {"plan.micro_batch=3", "plan.zero=3"})},
                    PlainCase{"Pipeline", split(4, {"plan.micro_batch=6", "plan.pipeline=4"})},
                    PlainCase{"PipelineZero1", split(4, {"plan.micro_batch=3", "plan.pipeline=2", "plan.zero=1"})},
                    PlainCase{"ResidualOneRank", {"plan.micro_batch=6"}},
                    PlainCase{"ResidualZero3", split(2, {"plan.micro_batch=3", "plan.zero=3"})},
                    PlainCase{"ResidualPipeline", split(3, {"plan.micro_batch=6", "plan.pipeline=3"})}),
    plain_case_name);

}  // namespace
}  // namespace rehearse::numerics
