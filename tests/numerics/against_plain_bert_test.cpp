// An encoder's plans performed by the Performer against the plain BERT (plain_bert.h): twenty steps have its losses
// whatever the split, and the gradients it works out are those of finite differences. The model is small, but no size
// equals another and the vocabulary does not divide.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/performer.h"
#include "tests/numerics/plain_bert.h"
#include "tests/numerics/plain_runs.h"
#include "tests/support/lowered.h"

namespace rehearse::numerics {
namespace {

const char* const kBert = R"(
rehearse: 1
model: {family: bert, layers: 4, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 63, max_seq_len: 18,
        max_predictions: 5, attention: flash}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 2, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 7}
)";  // the class token and the mask are 61 and 62

BertExample example_of(execute::Data& data, const plan::Scenario& scenario, std::int64_t number) {
  const std::int64_t n = scenario.training.seq_len, p = scenario.model.max_predictions;
  BertExample e;
  const auto load = [&](program::InputKind kind, std::int64_t count) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    data.load(kind, {number}, count, values.data());
    return values;
  };
  e.tokens = load(program::InputKind::tokens, n);
  e.segments = load(program::InputKind::segments, n);
  e.places = load(program::InputKind::predictions, p);
  e.targets = load(program::InputKind::targets, p);
  e.label = load(program::InputKind::labels, 1).front();
  return e;
}

BertShape shape_of(const model::Model& m) {
  return {m.layers, m.hidden, m.heads, m.head_dim, m.ffn_hidden, m.vocab, m.max_seq_len, m.segment_kinds};
}

class AgainstPlainBert : public testing::TestWithParam<PlainCase> {};

TEST_P(AgainstPlainBert, TwentyStepsHaveThePlainModelsLosses) {
  const plan::Scenario scenario = scenario_from(kBert, GetParam().assignments);
  expect_losses_of<PlainBert>(shape_of(scenario.model), scenario, example_of);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, AgainstPlainBert,
    testing::Values(
        PlainCase{"OneRank", {}}, PlainCase{"UnfusedAttention", {"model.attention=unfused"}},
        PlainCase{"OneSegment", {"model.segment_kinds=1"}}, PlainCase{"OtherPredictions", {"model.max_predictions=9"}},
        PlainCase{"FullRecompute", {"plan.recompute=full"}},
        PlainCase{"SelectiveRecompute", {"model.attention=unfused", "plan.recompute=selective"}},
        PlainCase{"NvidiaKernels", {"framework=nvidia-bert", "model.dropout=0"}},
        PlainCase{"TorchKernels", {"framework=torch-ddp", "model.dropout=0"}}, PlainCase{"Data", split(2, {})},
        PlainCase{"Zero1", split(4, {"plan.zero=1"})}, PlainCase{"Zero2", split(2, {"plan.zero=2"})},
        PlainCase{"Zero3", split(2, {"plan.zero=3"})}, PlainCase{"Pipeline", split(2, {"plan.pipeline=2"})},
        PlainCase{"GPipe", split(2, {"plan.pipeline=2", "plan.schedule=gpipe"})},
        PlainCase{"Interleaved", split(2, {"plan.pipeline=2", "plan.chunks=2", "plan.schedule=interleaved"})},
        PlainCase{"ZeroBubble", split(2, {"plan.pipeline=2", "plan.schedule=zero_bubble"})},
        PlainCase{"Tensor", split(2, {"plan.tensor=2"})},
        PlainCase{"TensorOverlapped", split(2, {"plan.tensor=2", "plan.overlap_tensor_backward=true"})},
        PlainCase{"MegatronTensorPipeline", split(8, {"framework=megatron-2021", "model.dropout=0", "plan.pipeline=2",
                                                      "plan.tensor=2", "plan.zero=1"})},
        PlainCase{"TablesApartZero3", split(4, {"plan.zero=3", "plan.pipeline=2", "plan.recompute=full"})}),
    plain_case_name);

// In 16 bits the first losses are fp32's but for rounding, 2^-9 of bf16 and 2^-12 of fp16 each time. A loss
// scale at which no step overflows and is left out.
TEST(BertIn16Bits, LossesAreNearThoseOfFp32) {
  const TokenFile tokens = alternating_tokens();
  const auto losses = [&](const std::vector<std::string>& assignments) {
    const plan::Scenario scenario = scenario_from(kBert, assignments);
    execute::Options options;
    options.steps = 8;
    options.data = tokens.path();
    return execute::perform(scenario, lower::lower(scenario), options).result.loss;
  };
  const std::vector<double> exact = losses({});
  for (const char* framework : {"rehearse", "torch-ddp", "nvidia-bert"})
    for (const auto& [precision, tolerance] : {std::pair{"bf16", 0.02}, std::pair{"fp16", 0.005}}) {
      SCOPED_TRACE(std::string(framework) + " " + precision);
      const std::vector<double> rounded =
          losses({std::string("framework=") + framework, "model.dropout=0", "training.loss_scale=128",
                  std::string("training.precision=") + precision, "cluster.gpus=2"});
      for (std::size_t s = 0; s < exact.size(); ++s) EXPECT_NEAR(rounded[s], exact[s], tolerance * exact[s]) << s;
    }
}

// The plain model's own gradients: a step of 1e-5 either way, of some elements of each parameter.
TEST(PlainBert, GradientsAreThoseOfFiniteDifferences) {
  BertShape shape{2, 6, 2, 4, 10, 9, 7, 2};
  PlainBert model(shape, waves);
  const std::vector<BertExample> batch = {{{7, 1, 8, 2, 3}, {0, 0, 1, 1, 1}, {2, 4}, {4, 3}, 1},
                                          {{7, 5, 5, 0, 8}, {0, 0, 1, 1, 1}, {1, 4}, {6, 2}, 0}};
  expect_gradients_of_differences(model, batch, 1e-5);
}

}  // namespace
}  // namespace rehearse::numerics
