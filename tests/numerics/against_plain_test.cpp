// Plans performed by the Performer against the plain GPT: whatever the split, twenty steps have the losses of a model
// that shares no code with lowering, kernels or the Performer; only the initial values and the sequences are handed
// over. The model is small, but no size equals another and the vocabulary does not divide, so that a swapped dimension
// shows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/performer.h"
#include "tests/numerics/plain_gpt.h"
#include "tests/numerics/plain_runs.h"
#include "tests/support/lowered.h"

namespace rehearse::numerics {
namespace {

// Clipping at 0.5 is felt in every step: the gradients' norm stays between 0.9 and 2.2.
const char* const kScenario = R"(
rehearse: 1
model: {family: gpt, layers: 4, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 61, max_seq_len: 18, attention: flash}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 2, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 7}
)";

// The same with experts; one sequence a micro-batch, as the plain model has it. Two layers and this seed keep scores
// apart: where two are equal but for rounding, a token goes elsewhere than the plain model's, and the losses part.
const char* const kExperts = R"(
rehearse: 1
model: {family: moe, layers: 2, hidden: 24, heads: 6, head_dim: 8, vocab: 61, max_seq_len: 18, attention: flash,
        norm: layernorm, position: learned, tied_embeddings: true, experts: 6, experts_per_token: 2,
        expert_ffn_hidden: 20, aux_loss: 0.3}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 1, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 7}
)";

// Latent attention: no width of a head, of a latent or of a value equals another.
const char* const kLatent = R"(
rehearse: 1
model: {family: moe, layers: 2, hidden: 24, heads: 6, kv_lora_rank: 10, q_lora_rank: 14, qk_nope_head_dim: 6,
        qk_rope_head_dim: 4, v_head_dim: 7, vocab: 61, max_seq_len: 18, attention: flash, tied_embeddings: true,
        experts: 6, experts_per_token: 2, expert_ffn_hidden: 20, shared_experts: 1, aux_loss: 0.3, capacity_factor: 1,
        router: sigmoid}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 1, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 8}
)";

// moment_block: of moments in 8 bits. With multi-token prediction the parts of the losses come behind them, by part.
std::vector<double> plain_losses(const plan::Scenario& scenario, const std::string& data_file,
                                 std::size_t moment_block = 0) {
  const model::Model& m = scenario.model;
  const plan::Training& t = scenario.training;
  const GptShape shape = plain_shape(scenario);
  const std::string read =
      read_of(scenario, data_file) + fmt::format("\nblock {}, shards", moment_block) + shards_text(shape);
  return trained_once(read, [&] {
    const auto data = execute::open_data(m, t.seq_len, t.seed, data_file);
    PlainGpt<double> model(shape, initial_values(scenario));
    const auto plain = sequences(*data, scenario);
    std::vector<std::vector<double>> parts(static_cast<std::size_t>(m.mtp_depth > 0 ? 1 + m.mtp_depth : 0));
    const PlainGpt<double>::Data read_and_parted = [&](std::int64_t step, std::int64_t index) {
      if (index == 0 && !parts.empty()) {
        std::vector<Sequence> batch;
        for (std::int64_t i = 0; i < t.global_batch; ++i) batch.push_back(plain(step, i));
        const std::vector<double> now = model.loss_parts(batch);
        for (std::size_t part = 0; part < parts.size(); ++part) parts[part].push_back(now[part]);
      }
      return plain(step, index);
    };
    std::vector<double> losses = model.train(
        kPlainSteps, t.global_batch,
        {t.lr, t.beta1, t.beta2, t.eps, t.weight_decay, t.clip, t.moments == plan::MomentsKind::bf16, moment_block},
        read_and_parted);
    for (const auto& part : parts) losses.insert(losses.end(), part.begin(), part.end());
    return losses;
  });
}

// In the order of plain_losses().
std::vector<double> performed_losses(const plan::Scenario& scenario, const std::string& data_file) {
  execute::Options options;
  options.steps = kPlainSteps;
  options.data = data_file;
  const result::Result r = execute::perform(scenario, lower::lower(scenario), options).result;
  std::vector<double> losses = r.loss;
  for (const auto& part : r.loss_parts) losses.insert(losses.end(), part.of_steps.begin(), part.of_steps.end());
  return losses;
}

std::vector<double> of_steps(const std::vector<double>& losses) {
  return {losses.begin(), losses.begin() + kPlainSteps};
}

void expect_plain_losses(const char* text, const PlainCase& c) {
  const TokenFile tokens = learnable_tokens();
  const plan::Scenario scenario = scenario_from(text, c.assignments);
  const std::vector<double> expected = plain_losses(scenario, tokens.path());
  const std::vector<double> losses = performed_losses(scenario, tokens.path());
  expect_losses(of_steps(losses), of_steps(expected), learnt_share(scenario));
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = kPlainSteps; i < expected.size(); ++i)
    EXPECT_NEAR(losses[i], expected[i], kPlainTolerance * expected[i])
        << "part " << i / kPlainSteps - 1 << ", step " << i % kPlainSteps;
}

class AgainstPlain : public testing::TestWithParam<PlainCase> {};

TEST_P(AgainstPlain, TwentyStepsHaveThePlainModelsLosses) {
  expect_plain_losses(kScenario, GetParam());
}

// Moments in bf16. A gradient that is off by fp32's rounding now and then rounds a moment to the other neighbour, 2^-8
// of it away: measured, 2.6e-5 of a loss at most. A model that does not round its moments is 1.2e-4 away, one that
// updates by what it has rounded 1.7e-4, one that cuts off 8.6e-4.
constexpr double kMomentsTolerance = 5e-5;

double apart(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t s = 0; s < a.size(); ++s) most = std::max(most, std::abs(b.at(s) / a[s] - 1));
  return most;
}

class MomentsAgainstPlain : public testing::TestWithParam<PlainCase> {};

TEST_P(MomentsAgainstPlain, TwentyStepsHaveTheRoundingModelsLosses) {
  const TokenFile tokens = learnable_tokens();
  std::vector<std::string> assignments = GetParam().assignments;
  const plan::Scenario wide = scenario_from(kScenario, assignments);
  assignments.emplace_back("training.moments=bf16");
  const plan::Scenario scenario = scenario_from(kScenario, assignments);
  const std::vector<double> losses = performed_losses(scenario, tokens.path());
  EXPECT_LT(apart(losses, plain_losses(scenario, tokens.path())), kMomentsTolerance);
  EXPECT_GT(apart(losses, plain_losses(wide, tokens.path())), kMomentsTolerance) << "was anything rounded?";
}

// Moments in 8 bits, of matrices that have 4,096 elements and more, none of them whole blocks. A rounding that goes the
// other way is up to 1% of a moment: measured, 7.4e-7 of a loss in the first six steps, 1.2e-4 in all. Blocks of 512
// are 6.1e-5 and 2.6e-3 away, wide moments 8e-5 and 4.9e-3.
constexpr int kFirstSteps = 6;
constexpr double kCodedTolerance = 3e-4;

class CodedMomentsAgainstPlain : public testing::TestWithParam<PlainCase> {};

TEST_P(CodedMomentsAgainstPlain, TwentyStepsHaveTheRoundingModelsLosses) {
  const TokenFile tokens = learnable_tokens();
  std::vector<std::string> assignments = GetParam().assignments;
  assignments.insert(assignments.end(), {"model.hidden=36", "model.ffn_hidden=120", "training.moments=int8"});
  const plan::Scenario scenario = scenario_from(kScenario, assignments);
  const std::vector<double> losses = performed_losses(scenario, tokens.path());
  const auto first = [](std::vector<double> all) { return all.resize(kFirstSteps), all; };
  const std::vector<double> expected = plain_losses(scenario, tokens.path(), 256);
  EXPECT_LT(apart(first(losses), first(expected)), kPlainTolerance);
  EXPECT_LT(apart(losses, expected), kCodedTolerance);
  if (GetParam().name != "OneRank") return;
  for (const std::size_t other : {std::size_t{0}, std::size_t{512}}) {  // no blocks, or larger ones
    const std::vector<double> unlike = plain_losses(scenario, tokens.path(), other);
    EXPECT_GT(apart(first(losses), first(unlike)), kPlainTolerance) << other;
    EXPECT_GT(apart(losses, unlike), kCodedTolerance) << other;
  }
}

// What the windows below are held to would show a window that is one token off.
TEST(Windows, OneTokenIsFelt) {
  const TokenFile tokens = learnable_tokens();
  const auto last = [&](const char* window) {
    return performed_losses(scenario_from(kScenario, {std::string("model.sliding_window=") + window}), tokens.path())
        .back();
  };
  const double five = last("5");
  for (const char* window : {"4", "6"})
    EXPECT_GT(std::fabs(last(window) - five), 20 * kPlainTolerance * five) << window;
  EXPECT_EQ(last("16"), last("0")) << "as long as the sequence";
}

class ExpertsAgainstPlain : public testing::TestWithParam<PlainCase> {};

TEST_P(ExpertsAgainstPlain, TwentyStepsHaveThePlainModelsLosses) {
  expect_plain_losses(kExperts, GetParam());
}

class LatentAgainstPlain : public testing::TestWithParam<PlainCase> {};

TEST_P(LatentAgainstPlain, TwentyStepsHaveThePlainModelsLosses) {
  expect_plain_losses(kLatent, GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Models, AgainstPlain,
    testing::Values(PlainCase{"OneRank", {}}, PlainCase{"UnfusedAttention", {"model.attention=unfused"}},
                    PlainCase{"OwnHead", {"model.tied_embeddings=false"}},
                    PlainCase{"GroupedQueries", {"model.kv_heads=2"}}, PlainCase{"NoBiases", {"model.bias=false"}},
                    PlainCase{"NoClipping", {"training.clip=0"}}, PlainCase{"FullRecompute", {"plan.recompute=full"}},
                    PlainCase{"SelectiveRecompute", {"model.attention=unfused", "plan.recompute=selective"}},
                    PlainCase{"MegatronKernels", {"framework=megatron-2021", "model.dropout=0"}}),
    plain_case_name);

// Each rank of the tensor group has the key-value head, with biases too, and as PaLM has it.
INSTANTIATE_TEST_SUITE_P(
    OneKeyHead, AgainstPlain,
    testing::Values(
        PlainCase{"OneRank", {"model.kv_heads=1"}},
        PlainCase{"Tensor", split(2, {"model.kv_heads=1", "plan.tensor=2"})},
        PlainCase{"TensorBucketsOfOne", split(4, {"model.kv_heads=1", "plan.tensor=2", "plan.bucket=1KiB"})},
        PlainCase{"TensorFusedBiases", split(2, {"model.kv_heads=1", "plan.tensor=2", "plan.fused_epilogues=all"})},
        PlainCase{"PalmTensorSequence",
                  split(2, {"model.kv_heads=1", "model.parallel_block=one_norm", "model.bias=false", "plan.tensor=2",
                            "plan.sequence_parallel=true", "plan.zero=0"})},
        PlainCase{"TensorRing", split(4, {"model.kv_heads=1", "plan.tensor=2", "plan.context=2"})}),
    plain_case_name);

std::vector<std::string> with(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const std::vector<std::string> kThreeKeys = {"model.kv_heads=3", "model.ffn_hidden=42"};

// Each of three key-value heads is on two ranks of six.
INSTANTIATE_TEST_SUITE_P(
    SharedKeyHeads, AgainstPlain,
    testing::Values(PlainCase{"OneRank", kThreeKeys},
                    PlainCase{"TensorThree", split(3, with(kThreeKeys, {"plan.tensor=3"}))},
                    PlainCase{"Tensor", split(6, with(kThreeKeys, {"plan.tensor=6"}))},
                    PlainCase{"TensorNoBiases", split(6, with(kThreeKeys, {"plan.tensor=6", "model.bias=false"}))},
                    PlainCase{"TensorBucketsOfOne", split(12, with(kThreeKeys, {"plan.tensor=6", "plan.bucket=1KiB"}))},
                    PlainCase{"TensorFusedBiases",
                              split(6, with(kThreeKeys, {"plan.tensor=6", "plan.fused_epilogues=all"}))},
                    PlainCase{"TensorRing", split(12, with(kThreeKeys, {"plan.tensor=6", "plan.context=2"}))}),
    plain_case_name);

const std::string kOneNorm = "model.parallel_block=one_norm", kTwoNorms = "model.parallel_block=two_norms";
const std::vector<std::string> kPalm = {kOneNorm, "model.kv_heads=1", "model.bias=false"};

// A model under data parallelism, the ZeRO stages and a pipeline.
std::vector<PlainCase> divided(const std::string& name, const std::vector<std::string>& model) {
  std::vector<PlainCase> cases;
  for (const char* zero : {"0", "1", "2", "3"})
    cases.push_back(PlainCase{name + "Zero" + zero, split(2, with(model, {std::string("plan.zero=") + zero}))});
  cases.push_back(PlainCase{name + "TwoStages", split(4, with(model, {"plan.pipeline=2", "plan.zero=1"}))});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(OneNormDivided, AgainstPlain, testing::ValuesIn(divided("OneNorm", {kOneNorm})),
                         plain_case_name);
INSTANTIATE_TEST_SUITE_P(TwoNormsDivided, AgainstPlain, testing::ValuesIn(divided("TwoNorms", {kTwoNorms})),
                         plain_case_name);
INSTANTIATE_TEST_SUITE_P(PalmDivided, AgainstPlain, testing::ValuesIn(divided("Palm", kPalm)), plain_case_name);

INSTANTIATE_TEST_SUITE_P(
    Blocks, AgainstPlain,
    testing::Values(
        PlainCase{"OneNorm", {kOneNorm}}, PlainCase{"TwoNorms", {kTwoNorms}},
        PlainCase{"OneNormFullRecompute", {kOneNorm, "plan.recompute=full"}},
        PlainCase{"TwoNormsFullRecompute", {kTwoNorms, "plan.recompute=full"}},
        PlainCase{"OneNormTorch", {kOneNorm, "framework=torch-ddp", "model.dropout=0"}},
        PlainCase{"OneNormTensor", split(2, {kOneNorm, "plan.tensor=2"})},
        PlainCase{"TwoNormsTensorSequence", split(2, {kTwoNorms, "plan.tensor=2", "plan.sequence_parallel=true"})},
        PlainCase{"OneNormTensorSequence", split(2, {kOneNorm, "plan.tensor=2", "plan.sequence_parallel=true"})},
        PlainCase{"TwoNormsPipeline", split(2, {kTwoNorms, "plan.pipeline=2"})},
        PlainCase{"OneNormZeroBubble", split(2, {kOneNorm, "plan.pipeline=2", "plan.schedule=zero_bubble"})},
        PlainCase{"QueriesKeysValuesBias", {"model.bias=false", "model.qkv_bias=true"}},
        PlainCase{"QueriesKeysValuesBiasTensor",
                  split(2, {"plan.tensor=2", "model.bias=false", "model.qkv_bias=true"})},
        PlainCase{"NormBias", {"model.bias=false", "model.norm_bias=true", kOneNorm}},
        PlainCase{"MorePositions", {"model.position_rows=40"}}),
    plain_case_name);

const std::string kRope = "model.position=rope", kPart = "model.rotary_dim=4";

INSTANTIATE_TEST_SUITE_P(
    Rotation, AgainstPlain,
    testing::Values(PlainCase{"Whole", {kRope}}, PlainCase{"Part", {kRope, kPart}},
                    PlainCase{"PartGroupedQueries", {kRope, kPart, "model.kv_heads=2", "model.attention=unfused"}},
                    PlainCase{"PartTensor", split(2, {kRope, kPart, "plan.tensor=2"})},
                    PlainCase{"PartRing", split(2, {kRope, kPart, "plan.context=2"})},
                    PlainCase{"SquaredRelu", {"model.activation=squared_relu"}},
                    PlainCase{"SquaredReluTorch",
                              {"model.activation=squared_relu", "framework=torch-ddp", "model.dropout=0"}},
                    PlainCase{"NemotronTensorSequence",
                              split(2, {kRope, kPart, "model.activation=squared_relu", "model.bias=false",
                                        "model.norm_bias=true", "plan.tensor=2", "plan.sequence_parallel=true"})}),
    plain_case_name);

const std::string kWindow = "model.sliding_window=5", kSecond = "model.full_attention_every=2";

INSTANTIATE_TEST_SUITE_P(
    Windows, AgainstPlain,
    testing::Values(
        PlainCase{"OneRank", {kWindow}}, PlainCase{"OfItselfAlone", {"model.sliding_window=1", kSecond}},
        PlainCase{"OneLess", {"model.sliding_window=15"}}, PlainCase{"EverySecondFull", {kWindow, kSecond}},
        PlainCase{"Unfused", {kWindow, kSecond, "model.attention=unfused"}},
        PlainCase{"UnfusedSelectiveRecompute", {kWindow, "model.attention=unfused", "plan.recompute=selective"}},
        PlainCase{"GroupedQueriesRope", {kWindow, kSecond, kRope, "model.kv_heads=2"}},
        PlainCase{"FullRecompute", {kWindow, kSecond, "plan.recompute=full"}},
        PlainCase{"Tensor", split(2, {kWindow, kSecond, "plan.tensor=2"})},
        PlainCase{"TensorSequence", split(2, {kWindow, kSecond, "plan.tensor=2", "plan.sequence_parallel=true"})},
        PlainCase{"PipelineOddStages", split(2, {kWindow, kSecond, "plan.pipeline=2", "plan.layers_per_stage=[1, 3]"})},
        PlainCase{"GatheredKeys", split(2, {kWindow, kSecond, "plan.context=2", "plan.context_kind=all_gather"})},
        PlainCase{"GatheredKeysTensorPipeline",
                  split(8, {"model.sliding_window=9", "plan.context=2", "plan.context_kind=all_gather", "plan.tensor=2",
                            "plan.sequence_parallel=true", "plan.pipeline=2"})},
        PlainCase{"AllToAll", split(2, {kWindow, kSecond, "plan.context=2", "plan.context_kind=all_to_all"})}),
    plain_case_name);

INSTANTIATE_TEST_SUITE_P(WindowsDivided, AgainstPlain, testing::ValuesIn(divided("Windows", {kWindow, kSecond})),
                         plain_case_name);

// Modules of multi-token prediction behind latent attention and experts, as in DeepSeek-V3, and more of them.
std::vector<PlainCase> prediction_cases() {
  const std::string one = "model.mtp_depth=1", two = "model.mtp_depth=2", heavy = "model.mtp_loss_weight=1.4",
                    own = "model.tied_embeddings=false", sequence = "plan.sequence_parallel=true";
  const auto with = [](std::int64_t gpus, std::vector<std::string> more) { return split(gpus, std::move(more)); };
  return {
      {"One", {one}},
      {"OneOwnHead", {one, own}},
      {"TwoHeavy", {two, heavy, own}},
      {"ThreeTied", {"model.mtp_depth=3", heavy}},
      {"FullRecompute", {two, heavy, "plan.recompute=full"}},
      {"LatentRecompute", {one, "plan.recompute_latent=true"}},
      {"Data", with(2, {one, own})},
      {"Zero1", with(2, {two, "plan.zero=1"})},
      {"Zero2", with(2, {two, own, "plan.zero=2"})},
      {"Zero3", with(2, {two, "plan.zero=3"})},
      {"Zero3OwnHead", with(2, {two, own, "plan.zero=3", "plan.recompute=full"})},
      {"Tensor", with(2, {two, heavy, "plan.tensor=2"})},
      {"TensorSequence", with(2, {two, heavy, own, "plan.tensor=2", sequence})},
      {"TensorSequenceOverlapped", with(2, {one, "plan.tensor=2", sequence, "plan.overlap_tensor_backward=true"})},
      {"Ring", with(2, {two, heavy, "plan.context=2"})},
      {"AllToAll", with(2, {two, own, "plan.context=2", "plan.context_kind=all_to_all"})},
      {"Pipeline", with(2, {two, heavy, own, "plan.pipeline=2"})},
      {"PipelineTied", with(2, {two, heavy, "plan.pipeline=2"})},
      {"PipelineTiedZero2", with(4, {two, "plan.pipeline=2", "plan.zero=2"})},
      {"PipelineZero3", with(4, {two, own, "plan.pipeline=2", "plan.zero=3"})},
      {"PipelineTiedZero3", with(4, {two, "plan.pipeline=2", "plan.zero=3", "plan.recompute=full"})},
      {"Gpipe", with(2, {one, heavy, own, "plan.pipeline=2", "plan.schedule=gpipe"})},
      {"ZeroBubble", with(2, {two, heavy, own, "plan.pipeline=2", "plan.schedule=zero_bubble"})},
      {"Interleaved",
       with(2, {one, heavy, "model.layers=4", "plan.pipeline=2", "plan.chunks=2", "plan.schedule=interleaved"})},
      {"DualPipeV", with(2, {one, heavy, own, "model.layers=4", "plan.pipeline=2", "plan.schedule=dualpipe_v"})},
      {"DualPipeVOverlapped", with(4, {one, heavy, own, "model.layers=4", "plan.pipeline=2", "plan.schedule=dualpipe_v",
                                       "plan.expert=2", "plan.zero=1", "plan.overlap_expert_exchange=true"})},
      {"NoLayersAtTheEnds",
       with(4, {one, heavy, "model.layers=4", "plan.pipeline=4", "plan.layers_per_stage=[0, 2, 2, 0]"})},
      {"ZeroBubbleV", with(2, {two, heavy, "model.layers=4", "plan.pipeline=2", "plan.schedule=zero_bubble_v"})},
      {"Expert2", with(2, {two, heavy, "plan.expert=2"})},
      {"Expert2Pipeline2Zero1", with(4, {one, heavy, own, "plan.expert=2", "plan.pipeline=2", "plan.zero=1"})},
      {"Expert2Zero2Sequence",
       with(8, {two, own, "plan.expert=2", "plan.zero=2", "plan.tensor=2", sequence, "plan.pipeline=2"})},
      {"MegatronCore", with(8, {one, heavy, own, "framework=megatron-core", "plan.expert=2", "plan.pipeline=2",
                                "plan.tensor=2", sequence, "plan.zero=1", "plan.recompute=full"})}};
}
INSTANTIATE_TEST_SUITE_P(MultiTokenPrediction, LatentAgainstPlain, testing::ValuesIn(prediction_cases()),
                         plain_case_name);

// Adapters alone move: with a weight of their own of 3 / 4, and rates at which 20 steps of them are felt.
std::vector<std::string> adapted(std::vector<std::string> more) {
  more.insert(more.begin(), {"training.lora_rank=4", "training.lora_alpha=3", "training.lr=1e-2"});
  return more;
}
const std::string kAttentionAlone = "training.lora_targets=[attention]", kMlpAlone = "training.lora_targets=[mlp]",
                  kFirstAlone = "training.lora_targets=[attention_qkv]",
                  kSecondsAlone = "training.lora_targets=[attention_dense, mlp_fc2]",
                  kLastAlone = "training.lora_targets=[mlp_fc2]";

std::vector<PlainCase> lora_cases() {
  std::vector<PlainCase> cases = {
      {"OneRank", {}},
      {"AttentionAlone", {kAttentionAlone}},
      {"MlpAlone", {kMlpAlone}},
      {"QueriesAlone", {kFirstAlone, "training.lora_alpha=12"}},
      {"SecondProductsAlone", {kSecondsAlone}},
      {"SecondProductsAloneRecomputed", {kSecondsAlone, "plan.recompute=full"}},
      {"LastProductAlone", {kLastAlone}},
      {"TwoNormsLastProductAlone", {kTwoNorms, kLastAlone}},
      {"TensorSequenceSecondProductsAlone", split(2, {"plan.tensor=2", "plan.sequence_parallel=true", kSecondsAlone})},
      {"PipelineLastProductAlone", split(2, {"plan.pipeline=2", kLastAlone})},
      {"GroupedQueriesNoBiases", {"model.kv_heads=2", "model.bias=false"}},
      {"FullRecompute", {"plan.recompute=full"}},
      {"SelectiveRecompute", {"model.attention=unfused", "plan.recompute=selective"}},
      {"OneNorm", {kOneNorm}},
      {"OneNormMlpAlone", {kOneNorm, kMlpAlone}},
      {"TwoNormsAttentionAlone", {kTwoNorms, kAttentionAlone}},
      {"TwoNormsMlpAlone", {kTwoNorms, kMlpAlone}},
      {"Torch", {"framework=torch-ddp", "model.dropout=0"}},
      {"MegatronKernels", {"framework=megatron-2021", "model.dropout=0"}},
      {"Data", split(2, {})},
      {"Zero1", split(4, {"plan.zero=1"})},
      {"Zero2", split(2, {"plan.zero=2"})},
      {"Zero3", split(2, {"plan.zero=3"})},
      {"Zero3MlpAlone", split(2, {"plan.zero=3", kMlpAlone})},
      {"Tensor", split(2, {"plan.tensor=2"})},
      {"TensorNoOverlap", split(2, {"plan.tensor=2", "plan.overlap_tensor_backward=false"})},
      {"TensorAttentionAlone", split(2, {"plan.tensor=2", kAttentionAlone})},
      {"TensorSequence", split(2, {"plan.tensor=2", "plan.sequence_parallel=true"})},
      {"TensorSequenceMlpAlone", split(2, {"plan.tensor=2", "plan.sequence_parallel=true", kMlpAlone})},
      {"TensorSequenceNoOverlap",
       split(2, {"plan.tensor=2", "plan.sequence_parallel=true", "plan.overlap_tensor_backward=false"})},
      {"Zero2Sequence", split(4, {"plan.zero=2", "plan.tensor=2", "plan.sequence_parallel=true"})},
      {"Zero3Tensor", split(4, {"plan.zero=3", "plan.tensor=2"})},
      {"Ring", split(2, {"plan.context=2"})},
      {"Pipeline", split(2, {"plan.pipeline=2"})},
      {"PipelineMlpAlone", split(2, {"plan.pipeline=2", kMlpAlone})},
      {"Gpipe", split(2, {"plan.pipeline=2", "plan.schedule=gpipe"})},
      {"Interleaved", split(2, {"plan.pipeline=2", "plan.chunks=2", "plan.schedule=interleaved"})},
      {"AllThree", split(8, {"plan.tensor=2", "plan.pipeline=2", "plan.sequence_parallel=true", "plan.zero=1"})}};
  for (PlainCase& c : cases) c.assignments = adapted(std::move(c.assignments));
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Lora, AgainstPlain, testing::ValuesIn(lora_cases()), plain_case_name);

INSTANTIATE_TEST_SUITE_P(
    Splits, AgainstPlain,
    testing::Values(
        PlainCase{"Tensor", split(2, {"plan.tensor=2"})},
        PlainCase{"TensorSequence", split(2, {"plan.tensor=2", "plan.sequence_parallel=true"})},
        PlainCase{"Pipeline", split(2, {"plan.pipeline=2"})}, PlainCase{"Data", split(2, {})},
        PlainCase{"Zero1", split(4, {"plan.zero=1"})}, PlainCase{"Zero2", split(2, {"plan.zero=2"})},
        PlainCase{"Zero3", split(2, {"plan.zero=3"})},
        PlainCase{"Zero3TiedTablesApart", split(4, {"plan.zero=3", "plan.pipeline=2", "plan.recompute=full"})},
        PlainCase{"Zero2Sequence", split(4, {"plan.zero=2", "plan.tensor=2", "plan.sequence_parallel=true"})},
        PlainCase{"MegatronPipeline", split(4, {"framework=megatron-2021", "model.dropout=0", "plan.pipeline=2",
                                                "plan.tensor=2", "plan.zero=1"})},
        PlainCase{"Interleaved", split(2, {"plan.pipeline=2", "plan.chunks=2", "plan.schedule=interleaved"})},
        PlainCase{"AllThree",
                  split(8, {"plan.tensor=2", "plan.pipeline=2", "plan.sequence_parallel=true", "plan.zero=1"})}),
    plain_case_name);

INSTANTIATE_TEST_SUITE_P(Splits, MomentsAgainstPlain,
                         testing::Values(PlainCase{"OneRank", {}}, PlainCase{"Data", split(2, {})},
                                         PlainCase{"Zero1", split(4, {"plan.zero=1"})},
                                         PlainCase{"Zero3", split(2, {"plan.zero=3"})},
                                         PlainCase{"Tensor", split(2, {"plan.tensor=2"})},
                                         PlainCase{"Pipeline", split(2, {"plan.pipeline=2"})},
                                         PlainCase{"Torch", {"framework=torch-ddp", "model.dropout=0"}}),
                         plain_case_name);

INSTANTIATE_TEST_SUITE_P(Splits, CodedMomentsAgainstPlain,
                         testing::Values(PlainCase{"OneRank", {}}, PlainCase{"Data", split(2, {})},
                                         PlainCase{"Zero1", split(4, {"plan.zero=1"})},
                                         PlainCase{"Zero2", split(2, {"plan.zero=2"})},
                                         PlainCase{"Zero3", split(2, {"plan.zero=3"})},
                                         PlainCase{"Pipeline", split(2, {"plan.pipeline=2"})},
                                         PlainCase{"Torch", {"framework=torch-ddp", "model.dropout=0"}}),
                         plain_case_name);

INSTANTIATE_TEST_SUITE_P(
    Models, ExpertsAgainstPlain,
    testing::Values(
        PlainCase{"OneRank", {}}, PlainCase{"NoAuxiliaryLoss", {"model.aux_loss=0"}},
        PlainCase{"Capacity", {"model.capacity_factor=1"}}, PlainCase{"CapacityTight", {"model.capacity_factor=0.6"}},
        PlainCase{"CapacityAmple", {"model.capacity_factor=3"}}, PlainCase{"Sigmoid", {"model.router=sigmoid"}},
        PlainCase{"Shared", {"model.shared_experts=2", "model.shared_ffn_hidden=14"}},
        PlainCase{"Groups", {"model.expert_groups=3", "model.groups_per_token=1"}},
        PlainCase{"GroupsSigmoid", {"model.expert_groups=3", "model.groups_per_token=2", "model.router=sigmoid"}},
        PlainCase{"ThreeOfSix", {"model.experts_per_token=3", "model.capacity_factor=1.25"}},
        PlainCase{"FullRecompute", {"plan.recompute=full", "model.capacity_factor=1"}}),
    plain_case_name);

std::vector<PlainCase> expert_splits() {
  const auto with = [](std::int64_t gpus, std::vector<std::string> more) {
    more.push_back("model.capacity_factor=1");
    return split(gpus, std::move(more));
  };
  return {{"Data", split(2, {})},
          {"Tensor", split(2, {"plan.tensor=2"})},
          {"Zero1", split(4, {"plan.zero=1"})},
          {"Pipeline", split(2, {"plan.pipeline=2"})},
          {"ZeroBubble", split(2, {"plan.pipeline=2", "plan.schedule=zero_bubble"})},
          {"CapacityTensor", with(2, {"plan.tensor=2"})},
          {"CapacityTensorSequence", with(2, {"plan.tensor=2", "plan.sequence_parallel=true"})},
          {"CapacityContext", with(2, {"plan.context=2"})},
          {"Expert2", with(2, {"plan.expert=2"})},
          {"Expert2Data2", with(4, {"plan.expert=2"})},
          {"Expert2Data2Zero1", with(4, {"plan.expert=2", "plan.zero=1"})},
          {"Expert2Data2Zero2", with(4, {"plan.expert=2", "plan.zero=2"})},
          {"Expert2Data2Zero3", with(4, {"plan.expert=2", "plan.zero=3"})},
          {"Expert2Zero1", with(2, {"plan.expert=2", "plan.zero=1"})},
          {"Expert3", with(6, {"plan.expert=3", "training.global_batch=12"})},
          {"Expert2Tensor2", with(4, {"plan.expert=2", "plan.tensor=2"})},
          {"Expert2Tensor2Sequence", with(4, {"plan.expert=2", "plan.tensor=2", "plan.sequence_parallel=true"})},
          {"Expert2Whole",
           with(2, {"plan.expert=2", "plan.tensor=2", "plan.sequence_parallel=true", "plan.expert_tensor=1"})},
          {"Expert6WholeZero1", with(12, {"plan.expert=6", "plan.tensor=2", "plan.sequence_parallel=true",
                                          "plan.expert_tensor=1", "plan.zero=1", "training.global_batch=12"})},
          {"Expert2Context2", with(2, {"plan.expert=2", "plan.context=2"})},
          {"Expert6Context2", with(12, {"plan.expert=6", "plan.context=2", "plan.zero=1", "training.global_batch=12"})},
          {"Expert2Pipeline2", with(4, {"plan.expert=2", "plan.pipeline=2"})},
          {"Expert2Pipeline2ZeroBubble", with(4, {"plan.expert=2", "plan.pipeline=2", "plan.schedule=zero_bubble"})},
          {"Expert2MegatronCore",
           with(8, {"plan.expert=2", "plan.pipeline=2", "plan.tensor=2", "plan.sequence_parallel=true",
                    "framework=megatron-core", "plan.zero=1", "model.shared_experts=1", "plan.recompute=full"})}};
}
INSTANTIATE_TEST_SUITE_P(Splits, ExpertsAgainstPlain, testing::ValuesIn(expert_splits()), plain_case_name);

// As Qwen3 with experts, with a seed that keeps scores apart: RMSNorm, of each head's queries and keys too, and rotated
// positions; three queries a key.
std::vector<PlainCase> head_norm_cases() {
  const auto with = [](std::int64_t gpus, std::vector<std::string> more) {
    more.insert(more.end(), {"training.seed=5", "model.norm=rmsnorm", "model.position=rope", "model.qk_norm=true",
                             "model.kv_heads=2", "model.tied_embeddings=false"});
    return gpus > 1 ? split(gpus, std::move(more)) : more;
  };
  const std::string sequence = "plan.sequence_parallel=true", capacity = "model.capacity_factor=1";
  return {{"OneRank", with(1, {})},
          {"FullRecompute", with(1, {"plan.recompute=full"})},
          {"Data", with(2, {})},
          {"Zero3", with(2, {"plan.zero=3"})},
          {"Tensor", with(2, {"plan.tensor=2"})},
          {"TensorSequence", with(2, {"plan.tensor=2", sequence, capacity})},
          {"Ring", with(2, {"plan.context=2", capacity})},
          {"AllToAll", with(2, {"plan.context=2", "plan.context_kind=all_to_all", capacity})},
          {"Pipeline", with(2, {"plan.pipeline=2"})},
          {"ZeroBubble", with(2, {"plan.pipeline=2", "plan.schedule=zero_bubble"})},
          {"Expert2", with(2, {"plan.expert=2", capacity})},
          {"Expert2Data2Zero1", with(4, {"plan.expert=2", "plan.zero=1", capacity})},
          {"Expert2Tensor2Sequence", with(4, {"plan.expert=2", "plan.tensor=2", sequence, capacity})},
          {"Expert2Context2", with(2, {"plan.expert=2", "plan.context=2", capacity})},
          {"MegatronCore", with(8, {"framework=megatron-core", "plan.expert=2", "plan.pipeline=2", "plan.tensor=2",
                                    sequence, "plan.zero=1", "plan.recompute=full", capacity})}};
}
INSTANTIATE_TEST_SUITE_P(HeadNorms, ExpertsAgainstPlain, testing::ValuesIn(head_norm_cases()), plain_case_name);

INSTANTIATE_TEST_SUITE_P(
    Models, LatentAgainstPlain,
    testing::Values(PlainCase{"OneRank", {}}, PlainCase{"UnfusedAttention", {"model.attention=unfused"}},
                    PlainCase{"QueriesFromTheToken", {"model.q_lora_rank=0"}},
                    PlainCase{"ValuesWiderThanKeys", {"model.v_head_dim=13"}},
                    PlainCase{"LatentRecompute", {"plan.recompute_latent=true"}},
                    PlainCase{"LatentRecomputeFromTheToken", {"plan.recompute_latent=true", "model.q_lora_rank=0"}},
                    PlainCase{"LatentAndFullRecompute", {"plan.recompute_latent=true", "plan.recompute=full"}},
                    PlainCase{"FullRecompute", {"plan.recompute=full"}},
                    PlainCase{"SelectiveRecompute", {"model.attention=unfused", "plan.recompute=selective"}}),
    plain_case_name);

const std::string kSequence = "plan.sequence_parallel=true", kFromToken = "model.q_lora_rank=0",
                  kAgain = "plan.recompute_latent=true", kOps = "plan.recompute=ops";

std::vector<PlainCase> latent_ops_cases() {
  const auto with = [](std::int64_t gpus, std::vector<std::string> more) {
    more.push_back(kOps);
    return split(gpus, std::move(more));
  };
  return {{"OneRank", with(1, {})},
          {"FromTheToken", with(1, {kFromToken})},
          {"Unfused", with(1, {"model.attention=unfused"})},
          {"EverySecond", with(1, {"plan.recompute_every=2", kAgain})},
          {"Tensor", with(2, {"plan.tensor=2"})},
          {"TensorSequence", with(2, {"plan.tensor=2", kSequence})},
          {"TensorSequenceFromTheToken", with(2, {"plan.tensor=2", kSequence, kFromToken})},
          {"ZeroBubble", with(2, {"plan.pipeline=2", "plan.schedule=zero_bubble"})},
          {"Zero3", with(2, {"plan.zero=3"})},
          {"Fsdp2", with(4, {"plan.zero=3", "framework=torch-fsdp2-compile", "plan.expert=2"})},
          {"Fsdp2FromTheToken", with(4, {"plan.zero=3", "framework=torch-fsdp2", "plan.expert=2", kFromToken})},
          {"Ring", with(2, {"plan.context=2"})},
          {"RingFromTheToken", with(2, {"plan.context=2", kFromToken})},
          {"AllToAll", with(2, {"plan.context=2", "plan.context_kind=all_to_all"})},
          {"AllToAllFromTheToken", with(2, {"plan.context=2", "plan.context_kind=all_to_all", kFromToken})},
          {"WholeExperts", with(2, {"plan.expert=2", "plan.tensor=2", kSequence, "plan.expert_tensor=1"})},
          {"Prediction", with(2, {"model.mtp_depth=1", "plan.pipeline=2", "model.tied_embeddings=false"})},
          {"MegatronCore", with(8, {"framework=megatron-core", "plan.expert=2", "plan.pipeline=2", "plan.tensor=2",
                                    kSequence, "plan.zero=1"})}};
}
INSTANTIATE_TEST_SUITE_P(RecomputeOps, LatentAgainstPlain, testing::ValuesIn(latent_ops_cases()), plain_case_name);

INSTANTIATE_TEST_SUITE_P(
    Splits, LatentAgainstPlain,
    testing::Values(
        PlainCase{"Tensor", split(2, {"plan.tensor=2"})},
        PlainCase{"TensorUnfused", split(2, {"plan.tensor=2", "model.attention=unfused"})},
        PlainCase{"TensorFromTheToken", split(2, {"plan.tensor=2", kFromToken})},
        PlainCase{"TensorSequence", split(2, {"plan.tensor=2", kSequence})},
        PlainCase{"TensorSequenceFromTheToken", split(2, {"plan.tensor=2", kSequence, kFromToken})},
        PlainCase{"TensorOverlapped", split(2, {"plan.tensor=2", kSequence, "plan.overlap_tensor_backward=true"})},
        PlainCase{"TensorSequenceAgain", split(2, {"plan.tensor=2", kSequence, kAgain})},
        PlainCase{"ZeroBubbleAgain", split(2, {"plan.pipeline=2", "plan.schedule=zero_bubble", kAgain})},
        PlainCase{"Zero3Again", split(2, {"plan.zero=3", kAgain})},
        PlainCase{"RingAgain", split(2, {"plan.context=2", kAgain})},
        PlainCase{"Pipeline", split(2, {"plan.pipeline=2"})},
        PlainCase{"ZeroBubble", split(2, {"plan.pipeline=2", "plan.schedule=zero_bubble"})},
        PlainCase{"Zero1", split(2, {"plan.zero=1"})}, PlainCase{"Zero2", split(2, {"plan.zero=2"})},
        PlainCase{"Zero3", split(2, {"plan.zero=3", "plan.recompute=full"})},
        PlainCase{"Ring", split(2, {"plan.context=2"})},
        PlainCase{"GatheredKeys", split(2, {"plan.context=2", "plan.context_kind=all_gather"})},
        PlainCase{"AllToAll", split(2, {"plan.context=2", "plan.context_kind=all_to_all"})},
        PlainCase{"Expert2", split(2, {"plan.expert=2"})},
        PlainCase{"Expert2Data2Zero1", split(4, {"plan.expert=2", "plan.zero=1"})},
        PlainCase{"Expert2Zero2Sequence",
                  split(8, {"plan.expert=2", "plan.zero=2", "plan.tensor=2", kSequence, "plan.pipeline=2"})},
        PlainCase{"Expert2Zero3", split(4, {"plan.expert=2", "plan.zero=3"})},
        PlainCase{"WholeExperts", split(2, {"plan.expert=2", "plan.tensor=2", kSequence, "plan.expert_tensor=1"})},
        PlainCase{"MegatronCore", split(8, {"framework=megatron-core", "plan.expert=2", "plan.pipeline=2",
                                            "plan.tensor=2", kSequence, "plan.zero=1", "plan.recompute=full"})}),
    plain_case_name);

}  // namespace
}  // namespace rehearse::numerics
