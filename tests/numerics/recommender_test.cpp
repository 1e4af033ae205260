// Lists of layers that read tokens or sparse features, performed: every plan trains as one rank does, also with tables
// that ranks have for themselves, and gradients are those of the loss.
#include <gtest/gtest.h>

#include "tests/numerics/plan_runs.h"

namespace rehearse {
namespace {

const std::string kTokens =
    "rehearse: 1\n"
    "model: {family: custom, tokens: 6, layer_list: [{layer: embedding, vocab: 50, width: 16, positions: true}, "
    "{layer: "
    "residual, body: [{layer: layer_norm}, {layer: attention, heads: 4, kv_heads: 2, causal: true}, {layer: dropout, "
    "rate: 0.1}]}, {layer: residual, body: [{layer: linear, width: 32}, {layer: gelu}, {layer: linear, width: 16}]}, "
    "{layer: attention, heads: 2, bias: false}, {layer: average_pool}, {layer: linear, width: 4}]}\n"
    "training: {global_batch: 12, precision: fp32, lr: 3e-3}\n";

// A DLRM: dense features, five sparse ones, products of pairs.
const std::string kRecommender =
    "rehearse: 1\n"
    "model: {family: custom, features: 5, loss: binary_cross_entropy, layer_list: [{layer: linear, width: 8}, {layer: "
    "relu}, {layer: tables, width: 8, rows: [40, 7, 3, 90, 12], lookups: [3, 1, 2, 1, 4], pooling: mean}, {layer: "
    "pairs}, {layer: linear, width: 16}, {layer: relu}, {layer: linear, width: 1}]}\n"
    "training: {global_batch: 12, precision: fp32, lr: 0.02, weight_decay: 0}\n";
const std::string kFlat =
    "rehearse: 1\n"
    "model: {family: custom, features: 4, loss: binary_cross_entropy, layer_list: [{layer: tables, width: 4, rows: "
    "[20, 30]}, {layer: flatten}, {layer: linear, width: 16}, {layer: tanh}, {layer: linear, width: 1}]}\n"
    "training: {global_batch: 12, precision: fp32, lr: 0.02}\n";

class Recommender : public testing::TestWithParam<Case> {};
TEST_P(Recommender, TrainsAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam());
}

std::vector<Case> token_cases() {
  std::vector<Case> cases = {{"tokens_pipeline3", kTokens, grid(3, 1, 3, 0, {"plan.micro_batch=4"})},
                             {"tokens_recompute", kTokens, grid(2, 1, 1, 0, {"plan.recompute=full"})},
                             {"tokens_zero_bubble", kTokens, grid(2, 1, 2, 0, {"plan.schedule=zero_bubble"})}};
  for (const int zero : {0, 1, 2, 3})
    cases.push_back({"tokens_zero" + std::to_string(zero), kTokens, grid(2, 1, 1, zero)});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Tokens, Recommender, testing::ValuesIn(token_cases()), name_of_case);

std::vector<Case> table_cases() {
  const std::string sharded = "plan.embedding_tables=sharded";
  const Assignments sgd = {"training.sparse_optimizer=sgd", "training.clip=0", "training.lr=0.05"};
  const Assignments adagrad = {"training.sparse_optimizer=adagrad", "training.clip=0"};
  const std::string half = "plan.micro_batch=6", third = "plan.micro_batch=4";
  std::vector<Case> cases = {
      {"replicated_pipeline3", kRecommender, grid(3, 1, 3, 0, {"plan.micro_batch=6"})},
      {"replicated_recompute", kRecommender, grid(2, 1, 1, 0, {"plan.recompute=full"})},
      {"flat", kFlat, grid(2, 1, 1, 0)},
      {"flat_sharded", kFlat, grid(2, 1, 1, 0, {sharded})},
      {"sharded3", kRecommender, grid(3, 1, 1, 0, {sharded})},
      {"sharded2_micro_batches", kRecommender, grid(2, 1, 1, 1, {sharded, "plan.micro_batch=3"})},
      {"sharded5_adamw_clipped", kRecommender, grid(3, 1, 1, 0, {sharded}), {"training.clip=0.05"}},
      {"sharded2_pipeline2", kRecommender, grid(4, 1, 2, 0, {sharded, "plan.micro_batch=3"})},
      {"sharded3_sgd", kRecommender, grid(3, 1, 1, 0, {sharded, third}), sgd},
      {"sharded2_adagrad_zero2", kRecommender, grid(2, 1, 1, 2, {sharded, half}), adagrad}};
  for (const int zero : {1, 2, 3}) {
    cases.push_back({"replicated_zero" + std::to_string(zero), kRecommender, grid(2, 1, 1, zero)});
    cases.push_back({"sharded_zero" + std::to_string(zero), kRecommender, grid(2, 1, 1, zero, {sharded})});
    // Ranks own 2 and 3 of the tables.
    cases.push_back({"sharded_lamb_zero" + std::to_string(zero),
                     kRecommender,
                     grid(2, 1, 1, zero, {sharded}),
                     {"training.optimizer=lamb"}});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Tables, Recommender, testing::ValuesIn(table_cases()), name_of_case);

TEST(RecommenderGradients, AreThoseOfTheLoss) {
  expect_gradients_of_the_loss(kRecommender, "1e-2", 0.03);
  expect_gradients_of_the_loss(kRecommender, "1e-2", 0.03, {"training.sparse_optimizer=sgd"});
  std::string tokens = kTokens;
  tokens.replace(tokens.find("rate: 0.1"), 9, "rate: 0");
  expect_gradients_of_the_loss(tokens, "1e-2", 0.03);
}

}  // namespace
}  // namespace rehearse
