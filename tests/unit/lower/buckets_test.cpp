// How gradients are cut into what is reduced together.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/lowered.h"

namespace rehearse {
namespace {

// Layers of 50.4 million parameters, and an embedding of 2.6 million.
constexpr const char* kScenario =
    "rehearse: 1\nframework: megatron-core\n"
    "model: {family: gpt, layers: 8, hidden: 2048, heads: 16, vocab: 1024, max_seq_len: 256, tied_embeddings: false}\n"
    "plan: {zero: 1, overlap_grad_reduce: true}\n"
    "training: {precision: bf16}\n";
constexpr std::int64_t kLargestParameter = 4 * 2048 * 2048;

// Elements of a stage's reductions over replicas, in the order in which they begin.
std::vector<std::int64_t> reductions(const std::vector<std::string>& plan, std::size_t stage = 0) {
  const program::Program program = lower::lower(scenario_from(kScenario, plan));
  std::vector<std::int64_t> list;
  for (const program::Body& body : program.roles[stage].bodies)
    for (const program::Op& op : body.ops)
      if (const auto* c = std::get_if<program::Collective>(&op.shape);
          c != nullptr && c->kind == program::CollectiveKind::reduce_scatter)
        list.push_back(c->elements);
  return list;
}

void expect_full_from(std::int64_t limit, std::vector<std::int64_t> list) {
  ASSERT_GT(list.size(), 2U);
  list.pop_back();  // what was left
  for (const std::int64_t n : list) {
    EXPECT_GE(n, limit);
    EXPECT_LT(n, limit + kLargestParameter);
  }
}

// max(40,000,000, 1,000,000 x replicas) parameters (Megatron-Core's distributed_data_parallel.py).
TEST(Buckets, OfMegatronCoreGrowWithTheReplicas) {
  expect_full_from(40'000'000, reductions({"cluster.gpus=2"}));
  expect_full_from(40'000'000, reductions({"cluster.gpus=32"}));
  expect_full_from(100'000'000, reductions({"cluster.gpus=100"}));
  EXPECT_EQ(reductions({"cluster.gpus=1000"}).size(), 1U);
}

TEST(Buckets, OfMegatronCoreAreOfTheFirstStageAndChunkOnly) {
  EXPECT_GT(reductions({"cluster.gpus=4", "plan.pipeline=2"}, 0).size(), 2U);
  EXPECT_EQ(reductions({"cluster.gpus=4", "plan.pipeline=2"}, 1).size(), 1U);
  const std::vector<std::string> interleaved = {"cluster.gpus=4", "plan.pipeline=2", "plan.schedule=interleaved",
                                                "plan.chunks=2", "training.global_batch=8"};
  const std::vector<std::int64_t> first = reductions(interleaved, 0);
  EXPECT_EQ(std::count_if(first.begin(), first.end(), [](std::int64_t n) { return n > 80'000'000; }), 1)
      << "the second chunk";
  EXPECT_GT(first.size(), 2U);
  EXPECT_EQ(reductions(interleaved, 1).size(), 2U) << "one a chunk";
}

TEST(Buckets, OfMegatronCoreAreOneWhereReductionsAreNotOverlapped) {
  EXPECT_EQ(reductions({"cluster.gpus=2", "plan.overlap_grad_reduce=false"}).size(), 1U);
}

TEST(Buckets, OfTheScenarioComeBeforeTheFrameworks) {
  expect_full_from(25 * (1 << 20) / 4, reductions({"cluster.gpus=100", "plan.bucket=25MiB"}));
}

// ZeRO-2 keeps no whole gradients: where Megatron's buckets are whole chunks, one is a layer (Megatron FSDP's units).
TEST(Buckets, OfZero2AreLayersWhateverIsOverlapped) {
  for (const char* overlap : {"true", "false"})
    for (const std::size_t stage : {0U, 1U}) {
      const std::vector<std::int64_t> list = reductions(
          {"cluster.gpus=4", "plan.pipeline=2", "plan.zero=2", std::string("plan.overlap_grad_reduce=") + overlap},
          stage);
      EXPECT_GE(list.size(), 5U) << "4 layers, and the embedding or the head";
      for (const std::int64_t n : list) EXPECT_LT(n, 51'000'000);
    }
  expect_full_from(100'000'000, reductions({"cluster.gpus=4", "plan.zero=2", "plan.bucket=400MB"}));
  // Megatron of 2022 reduces all gradients at once, where it keeps them.
  EXPECT_EQ(reductions({"framework=megatron-2022", "cluster.gpus=4", "plan.zero=1"}).size(), 1U);
  EXPECT_EQ(reductions({"framework=megatron-2022", "cluster.gpus=4", "plan.zero=2"}).size(), 10U);
}

// reduce_bucket_size, 5e8 elements (deepspeed/runtime/zero/config.py).
TEST(Buckets, OfDeepSpeedHold500MillionElements) {
  for (const char* zero : {"1", "2"}) {
    const std::vector<std::int64_t> list =
        reductions({"framework=deepspeed", "cluster.gpus=2", std::string("plan.zero=") + zero, "model.layers=24"});
    EXPECT_EQ(list.size(), 3U) << zero;
    expect_full_from(500'000'000, list);
    EXPECT_EQ(reductions({"framework=deepspeed", "cluster.gpus=2", std::string("plan.zero=") + zero, "model.layers=24",
                          "training.precision=fp32"}),
              list)
        << "elements, whatever their type";
  }
}

std::int64_t persistent_bytes(const std::vector<std::string>& plan) {
  const program::Program program = lower::lower(scenario_from(kScenario, plan));
  std::int64_t bytes = 0;
  for (const program::Buffer& b : program.roles.front().buffers)
    if (b.lifetime == program::Lifetime::persistent && !b.is_view()) bytes += b.bytes();
  return bytes;
}

// The parameter, its gradient and AdamW's two moments in fp32, a quarter each; what is cast to 16 bits for a gather is
// given back. An fp32 copy beside 16-bit shards makes 18.
TEST(Shards, OfFsdpAre16BytesAParameter) {
  const double parameters = 8 * 50'400'000. + 2 * 1024 * 2048 + 256 * 2048;
  const auto of = [&](const std::string& framework, const std::string& optimizer = "adamw") {
    return static_cast<double>(persistent_bytes(
               {"cluster.gpus=4", "plan.zero=3", "framework=" + framework, "training.optimizer=" + optimizer})) *
           4 / parameters;
  };
  for (const char* framework : {"torch-fsdp", "torch-fsdp2", "torch-fsdp2-compile", "llm-foundry", "accelerate"})
    EXPECT_NEAR(of(framework), 16, 0.05) << framework;
  EXPECT_NEAR(of("rehearse"), 18, 0.05);
  EXPECT_NEAR(of("torch-fsdp", "lamb"), 16, 0.05);
  EXPECT_NEAR(of("torch-fsdp", "adafactor"), 8, 0.05) << "its squares are sums of rows and columns";
}

}  // namespace
}  // namespace rehearse
