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

// Plain steps of size r along the gradient g0 of the first batch change the second batch's loss by -r g0 g1 to first
// order, g1 being its own gradient: both read off the parameters after one and two steps.
void expect_step_along_gradient(const std::string& text, const Assignments& more = {}) {
  const auto run = [&](const char* lr, int steps) {
    Assignments all = {"cluster.gpus=1",          "plan.micro_batch=12",           "training.optimizer=sgd",
                       "training.momentum=0",     "training.weight_decay=0",       "training.clip=0",
                       "training.warmup_steps=0", "training.lr_schedule=constant", std::string("training.lr=") + lr};
    all.insert(all.end(), more.begin(), more.end());
    return perform(text, all, steps);
  };
  constexpr double kRate = 1e-2;
  const execute::Outcome still = run("1e-12", 2), one = run("1e-2", 1), two = run("1e-2", 2);
  double product = 0;
  for (const auto& [name, w0] : still.parameters) {
    const auto &w1 = one.parameters.at(name), &w2 = two.parameters.at(name);
    for (std::size_t i = 0; i < w0.size(); ++i)
      product += (double{w0[i]} - double{w1[i]}) * (double{w1[i]} - double{w2[i]}) / (kRate * kRate);
  }
  const double change = two.result.loss[1] - still.result.loss[1];
  ASSERT_GT(std::abs(change), 5e-5) << "too near to rounding";
  EXPECT_NEAR(change / (-kRate * product), 1, 0.03);
}

TEST(RecommenderGradients, AreThoseOfTheLoss) {
  expect_step_along_gradient(kRecommender);
  expect_step_along_gradient(kRecommender, {"training.sparse_optimizer=sgd"});
  std::string tokens = kTokens;
  tokens.replace(tokens.find("rate: 0.1"), 9, "rate: 0");
  expect_step_along_gradient(tokens);
}

}  // namespace
}  // namespace rehearse
