// Plans of a GPT with what GPT-J and BLOOM have besides, performed, against the plain GPT (plain_gpt.h): biases by
// distance in the place of positions, a norm behind the embedding, biases of the feed-forward layer and of the head
// alone. Six heads are no power of two, so that both halves of the slopes' rule are met.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/numerics/plain_runs.h"
#include "tests/support/lowered.h"

namespace rehearse::numerics {
namespace {

const char* const kSixHeads = R"(
rehearse: 1
model: {family: gpt, layers: 4, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 67, max_seq_len: 18}
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 2, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 7}
)";

class AgainstPlainAlibi : public testing::TestWithParam<PlainCase> {};

TEST_P(AgainstPlainAlibi, TwentyStepsHaveThePlainModelsLosses) {
  expect_plain_gpt_losses(scenario_from(kSixHeads, GetParam().assignments), alternating_tokens());
}

std::vector<std::string> both(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const std::string kUnfused = "model.attention=unfused", kFlash = "model.attention=flash";
const std::vector<std::string> kBloom = {"model.position=alibi", "model.embedding_norm=true", kUnfused};
const std::vector<std::string> kGptJ = {
    "model.position=rope",  "model.rotary_dim=4",          "model.parallel_block=one_norm",
    "model.bias=false",     "model.norm_bias=true",        "model.mlp_bias=true",
    "model.head_bias=true", "model.tied_embeddings=false", kFlash};

INSTANTIATE_TEST_SUITE_P(
    Plans, AgainstPlainAlibi,
    testing::Values(
        PlainCase{"Slopes", {"model.position=alibi", kUnfused}},
        PlainCase{"SlopesFlash", {"model.position=alibi", kFlash}},
        PlainCase{"SlopesOfEight", {"model.position=alibi", "model.heads=8", kFlash}},
        PlainCase{"SlopesInAWindow", {"model.position=alibi", "model.sliding_window=5", kFlash, "training.lr=3e-3"}},
        PlainCase{"SlopesRing", split(2, {"model.position=alibi", kFlash, "plan.context=2"})},
        PlainCase{"SlopesAllToAll",
                  split(2, {"model.position=alibi", kFlash, "plan.context=2", "plan.context_kind=all_to_all"})},
        PlainCase{"EmbeddingNorm", {"model.embedding_norm=true", kFlash}}, PlainCase{"Bloom", kBloom},
        PlainCase{"BloomFullRecompute", both(kBloom, {"plan.recompute=full"})},
        PlainCase{"BloomMegatron", both(kBloom, {"framework=megatron-2021", "model.dropout=0"})},
        PlainCase{"BloomTorch", both(kBloom, {"framework=torch-ddp", "model.dropout=0"})},
        PlainCase{"BloomTensor", split(2, both(kBloom, {"plan.tensor=2"}))},
        PlainCase{"BloomTensorSequence", split(2, both(kBloom, {"plan.tensor=2", "plan.sequence_parallel=true"}))},
        PlainCase{"BloomPipelineZero1", split(4, both(kBloom, {"plan.pipeline=2", "plan.zero=1"}))},
        PlainCase{"BloomZero3", split(2, both(kBloom, {"plan.zero=3"}))},
        PlainCase{"BloomZero3Pipeline", split(4, both(kBloom, {"plan.zero=3", "plan.pipeline=2"}))},
        PlainCase{"BloomZero3Untied", split(2, both(kBloom, {"plan.zero=3", "model.tied_embeddings=false"}))},
        PlainCase{"BloomDualPipe",
                  split(2, both(kBloom, {"plan.pipeline=2", "plan.schedule=dualpipe", "plan.micro_batch=1"}))},
        PlainCase{"GptJ", kGptJ}, PlainCase{"GptJTorch", both(kGptJ, {"framework=torch-ddp", "model.dropout=0"})},
        PlainCase{"GptJFusedBiases", both(kGptJ, {"plan.fused_epilogues=all"})},
        PlainCase{"GptJTensor", split(2, both(kGptJ, {"plan.tensor=2"}))},
        PlainCase{"GptJPipeline", split(2, both(kGptJ, {"plan.pipeline=2"}))}, PlainCase{"GptJData", split(2, kGptJ)},
        PlainCase{"GptJZero3", split(2, both(kGptJ, {"plan.zero=3"}))}),
    plain_case_name);

}  // namespace
}  // namespace rehearse::numerics
