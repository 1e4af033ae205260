// Plans of models as Gemma has them, performed, against the plain Gemma (plain_gemma.h): twenty steps have its losses
// whatever the split, and the gradients it works out are those of finite differences. Heads are wider than hidden /
// heads, caps are low enough to bend scores and logits, windows short, and bases of rotation unlike.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/performer.h"
#include "tests/numerics/plain_gemma.h"
#include "tests/numerics/plain_runs.h"
#include "tests/support/lowered.h"

namespace rehearse::numerics {
namespace {

const char* const kFirst = R"(
rehearse: 1
model: {family: llama, layers: 4, hidden: 24, heads: 4, kv_heads: 2, head_dim: 10, ffn_hidden: 28, vocab: 61,
        max_seq_len: 18, activation: geglu, tied_embeddings: true, scaled_embeddings: true, zero_centered_norms: true,
        attention: flash}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 1, bucket: 4KiB}
training: {global_batch: 4, seq_len: 16, precision: fp32, lr: 3e-3, weight_decay: 0.2, clip: 0.5, seed: 7}
)";

std::vector<std::string> with(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const std::vector<std::string> kSecond = {"model.post_norms=true",   "model.attention_softcap=0.5",
                                          "model.logit_softcap=1.5", "model.sliding_window=5",
                                          "model.query_scale=3",     "model.full_attention_every=2"};
const std::vector<std::string> kThird = {
    "model.post_norms=true",  "model.qk_norm=true",  "model.sliding_window=5",  "model.full_attention_every=3",
    "model.rope_base=100000", "model.query_scale=3", "model.rope_base_local=50"};
const std::vector<std::string> kUnfused = {"model.attention=unfused"};

GemmaShape gemma_shape(const model::Model& m) {
  GemmaShape shape{m.layers, m.hidden, m.heads, m.kv_heads, m.head_dim, m.ffn_hidden, m.vocab};
  shape.window = m.sliding_window, shape.full_every = m.full_attention_every;
  shape.tied = m.tied_embeddings, shape.scaled_embeddings = m.scaled_embeddings;
  shape.around_one = m.zero_centered_norms, shape.post_norms = m.post_norms, shape.head_norms = m.qk_norm;
  shape.score_cap = m.attention_softcap, shape.logit_cap = m.logit_softcap;
  shape.score_scale = static_cast<double>(m.query_scale > 0 ? m.query_scale : m.head_dim);
  shape.base = m.rope_base, shape.local_base = m.rope_base_local > 0 ? m.rope_base_local : m.rope_base;
  shape.local_scales_alone = m.rope_base_local > 0;
  constexpr const char* kinds[] = {"", "linear", "llama3", "yarn"};
  shape.scaling = kinds[static_cast<std::size_t>(m.rope_scaling)];
  shape.factor = m.rope_factor, shape.low = m.rope_low_freq_factor, shape.high = m.rope_high_freq_factor;
  shape.trained = static_cast<double>(m.rope_trained_len);
  return shape;
}

Sequence gemma_example(execute::Data& data, const plan::Scenario& scenario, std::int64_t number) {
  const std::int64_t n = scenario.training.seq_len;
  Sequence s{std::vector<std::int32_t>(static_cast<std::size_t>(n)), {}};
  s.targets = s.tokens;
  data.load(program::InputKind::tokens, {number}, n, s.tokens.data());
  data.load(program::InputKind::targets, {number}, n, s.targets.data());
  return s;
}

class AgainstPlainGemma : public testing::TestWithParam<PlainCase> {};

TEST_P(AgainstPlainGemma, TwentyStepsHaveThePlainModelsLosses) {
  const plan::Scenario scenario = scenario_from(kFirst, GetParam().assignments);
  expect_losses_of<PlainGemma>(gemma_shape(scenario.model), scenario, gemma_example);
}

INSTANTIATE_TEST_SUITE_P(
    Parts, AgainstPlainGemma,
    testing::Values(PlainCase{"First", {}}, PlainCase{"NormsByTheirWeight", {"model.zero_centered_norms=false"}},
                    PlainCase{"EmbeddingAsItIs", {"model.scaled_embeddings=false"}},
                    PlainCase{"PostNorms", {"model.post_norms=true"}},
                    PlainCase{"CappedScores", {"model.attention_softcap=0.5"}},
                    PlainCase{"CappedScoresUnfused", with({"model.attention_softcap=0.5"}, kUnfused)},
                    PlainCase{"CappedLogits", {"model.logit_softcap=1.5"}},
                    PlainCase{"ScaledScores", {"model.query_scale=3"}},
                    PlainCase{"ScaledScoresUnfused", with({"model.query_scale=3"}, kUnfused)},
                    PlainCase{"HeadNorms", {"model.qk_norm=true"}},
                    PlainCase{"HeadNormsByTheirWeight", {"model.qk_norm=true", "model.zero_centered_norms=false"}},
                    PlainCase{"Base", {"model.rope_base=50"}}, PlainCase{"Second", kSecond}, PlainCase{"Third", kThird},
                    PlainCase{"OneKeyHead", with({"model.kv_heads=1"}, kThird)},
                    PlainCase{"OwnHead", with({"model.tied_embeddings=false"}, kSecond)}),
    plain_case_name);

INSTANTIATE_TEST_SUITE_P(
    Plans, AgainstPlainGemma,
    testing::Values(
        PlainCase{"SecondUnfused", with(kSecond, kUnfused)},
        PlainCase{"SecondSelectiveRecompute", with(kSecond, {"model.attention=unfused", "plan.recompute=selective"})},
        PlainCase{"SecondFullRecompute", with(kSecond, {"plan.recompute=full"})},
        PlainCase{"ThirdFullRecompute", with(kThird, {"plan.recompute=full"})},
        PlainCase{"SecondOpsRecompute", with(kSecond, {"plan.recompute=ops"})},
        PlainCase{"ThirdOpsRecomputeTensor", split(2, with(kThird, {"plan.recompute=ops", "plan.tensor=2"}))},
        PlainCase{"SecondTorch", with(kSecond, {"framework=torch-ddp", "model.dropout=0"})},
        PlainCase{"ThirdMegatron", with(kThird, {"framework=megatron-2021", "model.dropout=0"})},
        PlainCase{"FirstData", split(2, {})}, PlainCase{"SecondData", split(2, kSecond)},
        PlainCase{"ThirdZero1", split(2, with(kThird, {"plan.zero=1"}))},
        PlainCase{"SecondZero2", split(2, with(kSecond, {"plan.zero=2"}))},
        PlainCase{"SecondZero3", split(2, with(kSecond, {"plan.zero=3"}))},
        PlainCase{"ThirdZero3Recomputed", split(2, with(kThird, {"plan.zero=3", "plan.recompute=full"}))},
        PlainCase{"FirstTensor", split(2, {"plan.tensor=2"})},
        PlainCase{"SecondTensor", split(2, with(kSecond, {"plan.tensor=2"}))},
        PlainCase{"ThirdTensor", split(2, with(kThird, {"plan.tensor=2"}))},
        PlainCase{"SecondTensorSequence", split(2, with(kSecond, {"plan.tensor=2", "plan.sequence_parallel=true"}))},
        PlainCase{"ThirdTensorSequence", split(2, with(kThird, {"plan.tensor=2", "plan.sequence_parallel=true"}))},
        PlainCase{"ThirdTensorZero2", split(4, with(kThird, {"plan.tensor=2", "plan.zero=2"}))},
        PlainCase{"ThirdTensorZero3", split(4, with(kThird, {"plan.tensor=2", "plan.zero=3"}))},
        PlainCase{"SecondPipeline", split(2, with(kSecond, {"plan.pipeline=2"}))},
        PlainCase{"ThirdPipeline", split(2, with(kThird, {"plan.pipeline=2", "plan.layers_per_stage=[1, 3]"}))},
        PlainCase{"SecondInterleaved",
                  split(2, with(kSecond, {"plan.pipeline=2", "plan.schedule=interleaved", "plan.chunks=2"}))},
        PlainCase{"ThirdZeroBubble", split(2, with(kThird, {"plan.pipeline=2", "plan.schedule=zero_bubble"}))},
        PlainCase{"SecondRing", split(2, {"model.attention_softcap=0.5", "model.query_scale=3", "plan.context=2"})},
        PlainCase{"ThirdAllToAll", split(2, with(kThird, {"plan.context=2", "plan.context_kind=all_to_all"}))},
        PlainCase{"SecondTensorPipelineMegatron", split(4, with(kSecond, {"framework=megatron-2021", "model.dropout=0",
                                                                          "plan.tensor=2", "plan.pipeline=2"}))}),
    plain_case_name);

const std::vector<std::string> kLinear = {"model.rope_scaling=linear", "model.rope_factor=3"};
// Of five pairs of columns some stay, some are in between and some are divided.
const std::vector<std::string> kLlama3 = {"model.rope_scaling=llama3",      "model.rope_factor=6",
                                          "model.rope_low_freq_factor=0.1", "model.rope_high_freq_factor=2",
                                          "model.rope_trained_len=32",      "model.rope_base=400"};
const std::vector<std::string> kYarn = {"model.rope_scaling=yarn", "model.rope_factor=6", "model.rope_trained_len=40",
                                        "model.rope_base=400"};

INSTANTIATE_TEST_SUITE_P(
    ScaledAngles, AgainstPlainGemma,
    testing::Values(PlainCase{"Linear", kLinear}, PlainCase{"LinearBesideLocal", with(kThird, kLinear)},
                    PlainCase{"LinearOfWindowsToo", with(kSecond, kLinear)}, PlainCase{"Llama3", kLlama3},
                    PlainCase{"Yarn", kYarn}, PlainCase{"LinearTensor", split(2, with(kLinear, {"plan.tensor=2"}))},
                    PlainCase{"Llama3Ring", split(2, with(kLlama3, {"plan.context=2"}))},
                    PlainCase{"YarnPipelineRecomputed",
                              split(2, with(kYarn, {"plan.pipeline=2", "plan.recompute=full"}))},
                    PlainCase{"LinearBesideLocalPipeline", split(2, with(with(kThird, kLinear), {"plan.pipeline=2"}))}),
    plain_case_name);

// One key-value head, which each rank of a tensor group has: the sum of its gradients is the one rank's.
INSTANTIATE_TEST_SUITE_P(
    OneKeyHead, AgainstPlainGemma,
    testing::Values(
        PlainCase{"Tensor", split(2, with({"model.kv_heads=1", "plan.tensor=2"}, kThird))},
        PlainCase{"TensorFour", split(4, with({"model.kv_heads=1", "plan.tensor=4"}, kSecond))},
        PlainCase{"TensorUnfused", split(2, {"model.kv_heads=1", "plan.tensor=2", "model.attention=unfused"})},
        PlainCase{"TensorSequence",
                  split(2, with({"model.kv_heads=1", "plan.tensor=2", "plan.sequence_parallel=true"}, kThird))},
        PlainCase{"TensorZero1", split(4, {"model.kv_heads=1", "plan.tensor=2", "plan.zero=1"})},
        PlainCase{"TensorZero2", split(4, with({"model.kv_heads=1", "plan.tensor=2", "plan.zero=2"}, kThird))},
        PlainCase{"TensorZero3Recomputed",
                  split(4, {"model.kv_heads=1", "plan.tensor=2", "plan.zero=3", "plan.recompute=full"})},
        PlainCase{"TensorPipeline", split(4, {"model.kv_heads=1", "plan.tensor=2", "plan.pipeline=2"})},
        PlainCase{"TensorZeroBubble",
                  split(4, {"model.kv_heads=1", "plan.tensor=2", "plan.pipeline=2", "plan.schedule=zero_bubble"})},
        PlainCase{"TensorOpsRecompute", split(2, {"model.kv_heads=1", "plan.tensor=2", "plan.recompute=ops"})},
        PlainCase{"TensorWithoutOverlap",
                  split(2, {"model.kv_heads=1", "plan.tensor=2", "plan.overlap_tensor_backward=false"})}),
    plain_case_name);

// Two key-value heads on four ranks: each is on two, whose sum of its gradients is the one rank's.
INSTANTIATE_TEST_SUITE_P(
    SharedKeyHeads, AgainstPlainGemma,
    testing::Values(
        PlainCase{"Tensor", split(4, with({"plan.tensor=4"}, kThird))},
        PlainCase{"TensorUnfused", split(4, with({"plan.tensor=4", "model.attention=unfused"}, kSecond))},
        PlainCase{"TensorSequence", split(4, with({"plan.tensor=4", "plan.sequence_parallel=true"}, kThird))},
        PlainCase{"TensorZero1", split(8, {"plan.tensor=4", "plan.zero=1"})},
        PlainCase{"TensorZero2", split(8, with({"plan.tensor=4", "plan.zero=2"}, kThird))},
        PlainCase{"TensorZero3Recomputed", split(8, {"plan.tensor=4", "plan.zero=3", "plan.recompute=full"})},
        PlainCase{"TensorPipeline", split(8, {"plan.tensor=4", "plan.pipeline=2"})},
        PlainCase{"TensorZeroBubble", split(8, {"plan.tensor=4", "plan.pipeline=2", "plan.schedule=zero_bubble"})},
        PlainCase{"TensorOffload", split(8, {"plan.tensor=4", "plan.zero=2", "plan.offload_optimizer=true"})}),
    plain_case_name);

// Elements of all layers' weights with that ending of their names that a rank holds.
std::int64_t held_of(const program::Role& role, std::string_view ending) {
  std::int64_t elements = 0;
  for (const program::Buffer& b : role.buffers)
    if (b.name.ends_with(ending) && !b.name.starts_with("grad.")) elements += b.elements();
  return elements;
}

// What a rank holds of them, with the gradients and the optimizer's states, which are as large: queries' rows of its
// own, key and value whole; and their gradients are summed over the group once.
TEST(OneKeyHead, EachRankHasItsQueriesAndAllOfKeyAndValue) {
  const plan::Scenario scenario = scenario_from(kFirst, split(4, {"model.kv_heads=1", "plan.tensor=4"}));
  const program::Program program = lower::lower(scenario);
  EXPECT_EQ(violations(program, scenario.grid()), "");
  const program::Role& role = program.roles.front();
  const std::int64_t queries = held_of(role, ".q.weight"), keys = held_of(role, ".kv.weight");
  std::int64_t sums = 0;
  EXPECT_EQ(queries, 4 * 24 * 10);   // layers x hidden x a head
  EXPECT_EQ(keys, 4 * 24 * 2 * 10);  // twice as much for key and value
  std::int64_t persistent = 0;
  for (const program::Buffer& b : role.buffers)
    if (b.cls == program::BufferClass::parameter && b.lifetime == program::Lifetime::persistent && !b.is_view())
      persistent += b.elements();
  const std::int64_t others = 4 * (24 * 10 + 3 * 24 * 28 / 4 + 2 * 24) + 24, table = 64 / 4 * 24;
  EXPECT_EQ(persistent, queries + keys + others + table);
  for (const program::Body& body : role.bodies)
    for (const program::Op& op : body.ops) sums += op.name.starts_with("tensor_reduce.") ? 1 : 0;
  EXPECT_GE(sums, 1);
}

TEST(SharedKeyHeads, EachRankHasOneAndSumsItOverThoseThatHaveItToo) {
  const plan::Scenario scenario = scenario_from(kFirst, split(4, {"plan.tensor=4"}));
  const program::Program program = lower::lower(scenario);
  EXPECT_EQ(violations(program, scenario.grid()), "");
  const program::Role& role = program.roles.front();
  const std::int64_t queries = held_of(role, ".q.weight"), keys = held_of(role, ".kv.weight");
  std::int64_t summed = 0;
  EXPECT_EQ(queries, 4 * 24 * 10);   // layers x hidden x a head
  EXPECT_EQ(keys, 4 * 24 * 2 * 10);  // one key and one value of two
  for (const program::Body& body : role.bodies)
    for (const program::Op& op : body.ops) {
      const auto* sum = std::get_if<program::Collective>(&op.shape);
      if (sum == nullptr || !op.name.starts_with("tensor_reduce.")) continue;
      const program::Group& group = program.groups[static_cast<std::size_t>(sum->group)];
      EXPECT_EQ(group.name, "key_head");
      EXPECT_EQ(scenario.grid().members(2, group.axes, group.pipeline_only, group.tensor_block),
                (std::vector<int>{2, 3}));
      summed += sum->elements;
    }
  EXPECT_EQ(summed, keys);
}

// The plain model's own gradients: a step of 3e-6 either way, of some elements of each parameter.
TEST(PlainGemma, GradientsAreThoseOfFiniteDifferences) {
  GemmaShape shape{2, 6, 4, 2, 4, 10, 9};
  shape.window = 3, shape.full_every = 2, shape.scaled_embeddings = shape.around_one = shape.post_norms = true;
  shape.score_cap = 0.7, shape.logit_cap = 1.1, shape.score_scale = 3, shape.base = 300, shape.local_base = 20;
  for (const bool head_norms : {false, true}) {
    shape.head_norms = head_norms, shape.tied = head_norms;
    PlainGemma model(shape, waves);
    const std::vector<Sequence> batch = {{{7, 1, 8, 2, 3}, {1, 8, 2, 3, 0}}, {{0, 5, 5, 4, 8}, {5, 5, 4, 8, 6}}};
    expect_gradients_of_differences(model, batch, 3e-6);
  }
}

}  // namespace
}  // namespace rehearse::numerics
