// The plain GPT is held against what does not share its code: differences of its own loss, closed forms, steps worked
// out by hand, and the losses of the same parameters in a forward pass written a second time, per token on lists, in
// Python.
#include "tests/numerics/plain_gpt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace rehearse::numerics {
namespace {

GptShape small_shape() {
  GptShape shape;
  shape.layers = 2;
  shape.hidden = 6;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 3;
  shape.ffn_hidden = 10;
  shape.vocab = 7;
  shape.max_seq_len = 6;
  return shape;
}

// Numbers in [-1, 1) without a pattern a mistake could hide in: fractional parts of multiples of the golden ratio.
double scatter(std::int64_t n) {
  return 2 * std::fmod(static_cast<double>(n) * 0.6180339887498949, 1.0) - 1;
}

float scattered(const std::string& name, std::int64_t index) {
  const double around = name.ends_with("gamma") ? 1 : 0;
  return static_cast<float>(around + 0.4 * scatter(index + 101 * static_cast<std::int64_t>(name.size()) + name.back()));
}

Sequence sequence_of(std::int64_t number, std::int64_t tokens, std::int64_t vocab) {
  Sequence sequence;
  for (std::int64_t t = 0; t < tokens; ++t) {
    sequence.tokens.push_back(static_cast<std::int32_t>((number * 5 + t * t + 1) % vocab));
    sequence.targets.push_back(static_cast<std::int32_t>((number * 3 + t * 4 + 2) % vocab));
  }
  return sequence;
}

std::vector<Sequence> small_batch() {
  return {sequence_of(0, 5, 7), sequence_of(1, 5, 7)};
}

// The derivative by every single parameter is the loss's central difference.
void expect_gradients_are_differences(const GptShape& shape) {
  PlainGpt<double> model(shape, scattered);
  const std::vector<Sequence> batch = small_batch();
  EXPECT_EQ(model.loss(batch), model.loss_and_gradients(batch));
  constexpr double kStep = 1e-5;
  for (auto& p : model.parameters()) {
    for (std::size_t i = 0; i < p.value.size(); ++i) {
      const double value = p.value[i];
      p.value[i] = value + kStep;
      const double above = model.loss(batch);
      p.value[i] = value - kStep;
      const double below = model.loss(batch);
      p.value[i] = value;
      const double slope = (above - below) / (2 * kStep);
      ASSERT_NEAR(p.gradient[i], slope, 1e-8 + 1e-6 * std::abs(slope)) << p.name << "[" << i << "]";
    }
  }
}

TEST(PlainGpt, GradientsAreDifferencesOfTheLossWithTiedTablesAndGroupedQueries) {
  expect_gradients_are_differences(small_shape());
}

TEST(PlainGpt, GradientsAreDifferencesOfTheLossWithAnOwnHeadAndNoBiases) {
  GptShape shape = small_shape();
  shape.tied_embeddings = shape.bias = false;
  shape.kv_heads = shape.heads;
  expect_gradients_are_differences(shape);
}

TEST(PlainGpt, GradientsAreDifferencesOfTheLossWithLatentAttention) {
  GptShape shape = small_shape();
  shape.bias = false;
  shape.kv_heads = shape.heads;
  shape.kv_rank = 5, shape.nope = 3, shape.rope = 4, shape.value_dim = 2;
  shape.head_dim = shape.nope + shape.rope;
  for (const std::int64_t rank : {0, 3}) {
    shape.q_rank = rank;
    expect_gradients_are_differences(shape);
  }
}

TEST(PlainGpt, GradientsAreDifferencesOfTheLossWithMultiTokenPrediction) {
  GptShape shape = small_shape();
  shape.rope = shape.head_dim / 2 * 2;
  shape.mtp_weight = 0.7;
  for (const std::int64_t depth : {1, 2}) {
    shape.mtp_depth = depth;
    expect_gradients_are_differences(shape);
  }
}

TEST(PlainGpt, GradientsAreDifferencesOfTheLossWithAdapters) {
  GptShape shape = small_shape();
  shape.lora_rank = 2, shape.lora_scale = 1.5;
  expect_gradients_are_differences(shape);
  shape.lora_qkv = shape.lora_up = false;
  expect_gradients_are_differences(shape);
}

// An adapter of s B A beside W is the product with W + s B A.
TEST(PlainGpt, AnAdapterIsAWeightOfLowRank) {
  GptShape shape = small_shape();
  const PlainGpt<double> without(shape, scattered);
  shape.lora_rank = 2, shape.lora_scale = 1.5;
  PlainGpt<double> adapted(shape, scattered), merged(shape, scattered);
  EXPECT_NE(adapted.loss(small_batch()), without.loss(small_batch()));
  for (auto& p : merged.parameters()) {
    const std::size_t end = p.name.find(".lora_b");
    if (end == std::string::npos) continue;
    const std::string product = p.name.substr(0, end);
    auto& a = merged.parameter(product + ".lora_a").value;
    auto& weight = merged.parameter(product + ".weight").value;
    const std::size_t in = a.size() / 2, out = p.value.size() / 2;
    ASSERT_EQ(weight.size(), in * out);
    for (std::size_t o = 0; o < out; ++o)
      for (std::size_t i = 0; i < in; ++i)
        weight[o * in + i] += 1.5 * (p.value[o * 2] * a[i] + p.value[o * 2 + 1] * a[in + i]);
    std::fill(p.value.begin(), p.value.end(), 0.0);
  }
  EXPECT_NEAR(merged.loss(small_batch()), adapted.loss(small_batch()), 1e-12);
}

TEST(PlainGpt, AnUpdateWithAdaptersLeavesEverythingElse) {
  GptShape shape = small_shape();
  shape.lora_rank = 2;
  PlainGpt<double> model(shape, scattered);
  const auto before = model.parameters();
  model.loss_and_gradients(small_batch());
  model.update({});
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(model.parameters()[i].value != before[i].value, before[i].name.find(".lora_") != std::string::npos)
        << before[i].name;
}

TEST(PlainGpt, ForwardGivesTheLossesOfASecondImplementation) {
  const std::vector<double> expected = {2.219031334926377, 3.573914478878416, 3.302678881743497, 3.183637361581392,
                                        1.380645110926287};
  const auto losses = PlainGpt<double>(small_shape(), scattered).token_losses(sequence_of(0, 5, 7));
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t t = 0; t < losses.size(); ++t) EXPECT_NEAR(losses[t], expected[t], 1e-12) << "token " << t;
}

TEST(PlainGpt, AModelThatKnowsNothingLosesTheLogarithmOfItsVocabulary) {
  const PlainGpt<double> model(small_shape(), [](const std::string&, std::int64_t) { return 0.0F; });
  EXPECT_NEAR(model.loss(small_batch()), std::log(7.0), 1e-14);
}

TEST(PlainGpt, ATokenChangesNothingBeforeItself) {
  const PlainGpt<double> model(small_shape(), scattered);
  Sequence sequence = sequence_of(0, 6, 7);
  const auto before = model.token_losses(sequence);
  sequence.tokens[3] = (sequence.tokens[3] + 1) % 7;
  const auto after = model.token_losses(sequence);
  for (std::size_t t = 0; t < 3; ++t) EXPECT_EQ(before[t], after[t]) << "token " << t;
  for (std::size_t t = 3; t < 6; ++t) EXPECT_NE(before[t], after[t]) << "token " << t;
}

// beta1 1/2, beta2 3/4, gradients 1 then 3: the averages are 7/4 and 39/16, corrected 7/3 and 39/7.
TEST(PlainGpt, AdamWTakesTheStepWorkedOutByHand) {
  PlainGpt<double> model(small_shape(), [](const std::string&, std::int64_t) { return 2.0F; });
  AdamWSettings settings{0.1, 0.5, 0.75, 0, 0.5, 0};
  double& value = model.parameter("layer1.mlp.up.bias").value[4];
  double& gradient = model.parameter("layer1.mlp.up.bias").gradient[4];
  for (auto& p : model.parameters()) std::fill(p.gradient.begin(), p.gradient.end(), 1.0);
  model.update(settings);
  const double first = 2 * 0.95 - 0.1;
  EXPECT_NEAR(value, first, 1e-14);
  gradient = 3;
  model.update(settings);
  EXPECT_NEAR(value, first * 0.95 - 0.1 * (7.0 / 3) / std::sqrt(39.0 / 7), 1e-14);
}

// Gradients 3 and 4 have norm 5: clipped to 2 they are 2/5 of themselves, but for torch's 1e-6.
TEST(PlainGpt, ClippingScalesAllGradientsByTheirCommonNorm) {
  PlainGpt<double> model(small_shape(), scattered);
  auto& bias = model.parameter("layer0.mlp.down.bias");
  auto& gamma = model.parameter("final_norm.gamma");
  bias.gradient[1] = 3;
  gamma.gradient[5] = 4;
  AdamWSettings settings{0.1, 0.5, 0.75, 1e-8, 0, 2};
  EXPECT_DOUBLE_EQ(model.update(settings), 5);
  EXPECT_DOUBLE_EQ(bias.exp_avg[1], 0.5 * 3 * 2 / (5 + 1e-6));
  EXPECT_DOUBLE_EQ(gamma.exp_avg[5], 0.5 * 4 * 2 / (5 + 1e-6));
  settings.clip = 100;  // above the norm: unchanged
  model.update(settings);
  EXPECT_DOUBLE_EQ(bias.exp_avg[1], 0.5 * (0.5 * 3 * 2 / (5 + 1e-6)) + 0.5 * 3);
}

TEST(PlainGpt, TrainingInFloatFollowsTrainingInDouble) {
  AdamWSettings settings;
  settings.lr = 1e-2;
  const auto data = [](std::int64_t step, std::int64_t index) { return sequence_of(step % 2 * 2 + index, 5, 7); };
  const auto in_double = PlainGpt<double>(small_shape(), scattered).train(20, 2, settings, data);
  const auto in_float = PlainGpt<float>(small_shape(), scattered).train(20, 2, settings, data);
  EXPECT_LT(in_double.back(), 0.8 * in_double.front());
  for (std::size_t i = 0; i < 20; ++i) EXPECT_NEAR(in_float[i], in_double[i], 1e-5 * in_double[i]) << "step " << i;
}

}  // namespace
}  // namespace rehearse::numerics
