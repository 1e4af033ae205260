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

}  // namespace
}  // namespace rehearse
