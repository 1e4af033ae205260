// Plans of an encoder with a decoder, performed, against the plain T5 (plain_t5.h): twenty steps have its losses
// whatever the split, and the gradients it works out are those of finite differences. The model is small, but no size
// equals another, the vocabulary does not divide, and the biases' buckets share distances.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/performer.h"
#include "sim/base/relative_position.h"
#include "tests/numerics/plain_runs.h"
#include "tests/numerics/plain_t5.h"
#include "tests/support/lowered.h"

namespace rehearse::numerics {
namespace {

const char* const kT5 = R"(
rehearse: 1
model: {family: t5, encoder_layers: 2, decoder_layers: 3, hidden: 24, heads: 4, head_dim: 5, ffn_hidden: 28, vocab: 67,
        max_seq_len: 18, decoder_seq_len: 10}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 1, bucket: 4KiB}
training: {global_batch: 4, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 7}
)";

const std::string kLearned = "model.position=learned";

T5Example t5_example(execute::Data& data, const plan::Scenario& scenario, std::int64_t number) {
  const std::int64_t n = scenario.training.seq_len, t = scenario.model.decoder_tokens(n);
  const auto load = [&](program::InputKind kind, std::int64_t count) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    data.load(kind, {number}, count, values.data());
    return values;
  };
  return {load(program::InputKind::tokens, n), load(program::InputKind::decoder_tokens, t),
          load(program::InputKind::targets, t)};
}

T5Shape t5_shape(const model::Model& m) {
  return {m.encoder_layers,
          m.decoder_layers,
          m.hidden,
          m.heads,
          m.head_dim,
          m.ffn_hidden,
          m.vocab,
          m.relative_buckets,
          m.relative_distance,
          m.activation == model::ActivationKind::geglu,
          m.tied_embeddings,
          m.bias,
          m.norm == model::NormKind::layernorm,
          m.position == model::Position::learned ? m.max_seq_len : 0};
}

class AgainstPlainT5 : public testing::TestWithParam<PlainCase> {};

TEST_P(AgainstPlainT5, TwentyStepsHaveThePlainModelsLosses) {
  std::vector<std::string> assignments = GetParam().assignments;
  if (std::find(assignments.begin(), assignments.end(), kLearned) == assignments.end())
    assignments.insert(assignments.end(), {"model.relative_buckets=8", "model.relative_distance=11"});
  const plan::Scenario scenario = scenario_from(kT5, assignments);
  expect_losses_of<PlainT5>(t5_shape(scenario.model), scenario, t5_example);
}

// v1.1: gated by gelu, a head with a table of its own. At a rate at which no step jumps, where rounding would grow.
const std::vector<std::string> kV11 = {"model.activation=geglu", "model.tied_embeddings=false", "training.lr=3e-3"};

// As Megatron-LM and NeMo train it: learned positions, LayerNorms, biases, gated by gelu, one table for all.
const std::vector<std::string> kMegatron = {kLearned, "model.norm=layernorm", "model.bias=true",
                                            "model.activation=geglu", "training.lr=3e-3"};

std::vector<std::string> with(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, AgainstPlainT5,
    testing::Values(
        PlainCase{"OneRank", {}}, PlainCase{"V11", kV11}, PlainCase{"FullRecompute", {"plan.recompute=full"}},
        PlainCase{"SelectiveRecompute", {"plan.recompute=selective"}},
        PlainCase{"LongDecoder", {"model.decoder_seq_len=21"}},
        PlainCase{"TorchKernels", with({"framework=torch-ddp", "model.dropout=0"}, kV11)},
        PlainCase{"Data", split(2, {})}, PlainCase{"Zero1", split(4, {"plan.zero=1"})},
        PlainCase{"Zero2", split(2, {"plan.zero=2"})}, PlainCase{"Zero3", split(2, with({"plan.zero=3"}, kV11))},
        PlainCase{"Zero3Recomputed", split(2, {"plan.zero=3", "plan.recompute=full"})},
        PlainCase{"EncoderAndDecoder", split(2, {"plan.pipeline=2", "plan.layers_per_stage=[2, 3]"})},
        PlainCase{"EncoderAndDecoderV11", split(2, with({"plan.pipeline=2", "plan.layers_per_stage=[2, 3]"}, kV11))},
        PlainCase{"StageOfBoth", split(2, {"plan.pipeline=2", "plan.layers_per_stage=[3, 2]"})},
        PlainCase{"GPipe", split(3, {"plan.pipeline=3", "plan.layers_per_stage=[2, 1, 2]", "plan.schedule=gpipe"})},
        PlainCase{"FourStages", split(4, with({"plan.pipeline=4", "plan.layers_per_stage=[1, 1, 1, 2]"}, kV11))},
        PlainCase{"Tensor", split(2, {"plan.tensor=2"})},
        PlainCase{"TensorSequence", split(2, with({"plan.tensor=2", "plan.sequence_parallel=true"}, kV11))},
        PlainCase{"MegatronTensorPipeline", split(8, {"framework=megatron-2021", "model.dropout=0", "plan.pipeline=4",
                                                      "plan.tensor=2", "plan.layers_per_stage=[1, 1, 1, 2]"})},
        PlainCase{"Megatron", kMegatron}, PlainCase{"MegatronUntied", with({"model.tied_embeddings=false"}, kMegatron)},
        PlainCase{"LearnedPositions", {kLearned}},
        PlainCase{"BiasesAndDistances", {"model.bias=true", "model.norm=layernorm"}},
        PlainCase{"BiasesAndRootMeanSquares", {"model.bias=true"}},
        PlainCase{"MegatronFullRecompute", with({"plan.recompute=full"}, kMegatron)},
        PlainCase{"MegatronTorchKernels", with({"framework=torch-ddp", "model.dropout=0"}, kMegatron)},
        PlainCase{"MegatronData", split(2, kMegatron)},
        PlainCase{"MegatronZero1", split(4, with({"plan.zero=1"}, kMegatron))},
        PlainCase{"MegatronZero2", split(2, with({"plan.zero=2"}, kMegatron))},
        PlainCase{"MegatronZero3", split(2, with({"plan.zero=3", "plan.recompute=selective"}, kMegatron))},
        PlainCase{"MegatronTensor", split(2, with({"plan.tensor=2"}, kMegatron))},
        PlainCase{"MegatronTensorEager", split(2, with({"plan.tensor=2", "framework=torch-fsdp2"}, kMegatron))},
        PlainCase{"MegatronTensorSequence",
                  split(2, with({"plan.tensor=2", "plan.sequence_parallel=true"}, kMegatron))},
        PlainCase{"MegatronEncoderAndDecoder",
                  split(2, with({"plan.pipeline=2", "plan.layers_per_stage=[2, 3]"}, kMegatron))},
        PlainCase{"MegatronStageOfBoth",
                  split(2, with({"plan.pipeline=2", "plan.layers_per_stage=[3, 2]"}, kMegatron))},
        // Decoder and head on stages of their own: tables of tokens on three, of positions on two.
        PlainCase{"MegatronFourStages",
                  split(4, with({"plan.pipeline=4", "plan.layers_per_stage=[1, 1, 1, 2]", "plan.schedule=gpipe"},
                                kMegatron))},
        PlainCase{"MegatronPipelineZero1",
                  split(4, with({"plan.pipeline=2", "plan.layers_per_stage=[2, 3]", "plan.zero=1"}, kMegatron))},
        PlainCase{"MegatronPipelineTensorZero3",
                  split(8, with({"plan.pipeline=2", "plan.tensor=2", "plan.zero=3"}, kMegatron))},
        PlainCase{"TablesApartZero3", split(6, {"plan.zero=3", "plan.pipeline=3", "plan.recompute=full"})}),
    plain_case_name);

// The plain model's own gradients: a step of 3e-6 either way, of some elements of each parameter.
TEST(PlainT5, GradientsAreThoseOfFiniteDifferences) {
  struct Kind {
    bool gated, tied, biased, layer_norms;
    std::int64_t positions;
  };
  for (const Kind k : {Kind{false, true, false, false, 0}, Kind{true, false, false, false, 0},
                       Kind{true, true, true, true, 6}, Kind{false, false, true, false, 7}}) {
    PlainT5 model({2, 2, 6, 2, 4, 10, 9, 4, 3, k.gated, k.tied, k.biased, k.layer_norms, k.positions}, waves);
    const std::vector<T5Example> batch = {{{7, 1, 8, 2, 3}, {0, 4, 3, 1}, {4, 3, 1, 7}},
                                          {{7, 5, 5, 0, 8}, {0, 6, 2, 2}, {6, 2, 2, 1}}};
    expect_gradients_of_differences(model, batch, 3e-6);
  }
}

TEST(RelativePosition, BucketsAreThoseOfThePlainModel) {
  for (const bool both : {false, true})
    for (const auto& [buckets, farthest] : {std::pair{32, 128}, std::pair{8, 11}, std::pair{16, 100}})
      for (std::int64_t behind = -200; behind <= 200; ++behind)
        EXPECT_EQ(relative_position_bucket(behind, buckets, farthest, both), t5_bucket(behind, buckets, farthest, both))
            << behind << " of " << buckets << (both ? " both ways" : "");
}

}  // namespace
}  // namespace rehearse::numerics
