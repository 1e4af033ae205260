// How simulated choices fall on experts: shares by the scenario's law, whole rows that add up, and what is said of
// them.
#include "sim/plan/expert_loads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using Rows = std::vector<std::int64_t>;

// 32 tokens of a rank, 2 choices each.
const std::string kText =
    "rehearse: 1\nmodel: {family: moe, layers: 3, hidden: 32, heads: 4, vocab: 250, max_seq_len: 32, experts: 8, "
    "experts_per_token: 2, expert_ffn_hidden: 24, dense_layers: 1, ffn_hidden: 64}\nframework: rehearse\ncluster: "
    "{topology: dgx-a100, gpus: "
    "4}\nplan: {expert: 4}\n";

ExpertLoads loads(const std::vector<std::string>& assignments) {
  return ExpertLoads(read(kText, assignments));
}
std::int64_t sum(const Rows& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}
Rows sorted(Rows rows) {
  std::sort(rows.begin(), rows.end(), std::greater<>());
  return rows;
}

// One token reads its k experts, many read all; in between E (1 - (1 - k/E)^B). Of unlike shares each expert its own:
// with probabilities 0.8 and 0.2 of one choice and two tokens 0.96 + 0.36.
TEST(ExpertLoads, AFewTokensChooseAFewExperts) {
  const std::vector<double> even(64, 1.0 / 64);
  EXPECT_NEAR(expected_experts(even, 8, 1), 8, 1e-12);
  EXPECT_NEAR(expected_experts(even, 8, 4), 64 * (1 - std::pow(56.0 / 64, 4)), 1e-12);
  EXPECT_NEAR(expected_experts(even, 8, 100'000), 64, 1e-12);
  EXPECT_NEAR(expected_experts({0.8, 0.2}, 1, 2), 0.96 + 0.36, 1e-12);
  EXPECT_NEAR(expected_experts({0.5, 0.3, 0.2}, 2, 3), 1 + (1 - std::pow(0.4, 3)) + (1 - std::pow(0.6, 3)), 1e-12);
}

TEST(ExpertLoads, RowsAreTheSharesToTheLargestRemainder) {
  EXPECT_EQ(expert_rows({0.5, 0.25, 0.125, 0.125}, 64, 64), (Rows{32, 16, 8, 8}));
  EXPECT_EQ(expert_rows({0.4, 0.35, 0.25}, 10, 10), (Rows{4, 4, 2})) << "3.5 and 2.5: the first of equal remainders";
  EXPECT_EQ(expert_rows({1. / 3, 1. / 3, 1. / 3}, 8, 8), (Rows{3, 3, 2}));
  EXPECT_EQ(expert_rows({0.5, 0.5, 0}, 3, 6), (Rows{3, 3, 0})) << "an expert has a token once";
}

TEST(ExpertLoads, AddUpWhateverTheLaw) {
  for (const std::string routing : {"uniform", "zipf", "table"})
    for (const std::string micro_batch : {"1", "3"}) {
      std::vector<std::string> all{"model.routing=" + routing, "plan.micro_batch=" + micro_batch};
      if (routing == "table") all.emplace_back("model.routing_table=[5, 4, 3, 2, 1, 1, 1, 1]");
      const ExpertLoads l = loads(all);
      for (const std::int64_t layer : {1, 2}) {
        EXPECT_EQ(sum(l.of(layer).rows), std::stoi(micro_batch) * 64) << routing;
        EXPECT_EQ(sum(l.of(layer).parts), std::stoi(micro_batch) * 64) << routing;
        for (std::size_t rank = 0; rank < 4; ++rank)
          EXPECT_EQ(l.of(layer).parts[rank], l.of(layer).rows[2 * rank] + l.of(layer).rows[2 * rank + 1]) << routing;
      }
    }
}

TEST(ExpertLoads, OfZipfsLawAreInProportionToPowersOfTheRank) {
  model::Model m;
  m.family = model::Family::moe;
  m.experts = 100, m.experts_per_token = 1, m.routing = model::Routing::zipf;
  for (const double exponent : {0.5, 1.0, 1.5}) {
    m.routing_exponent = exponent;
    std::vector<double> shares = expert_shares(m, 7, 3);
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
    std::sort(shares.begin(), shares.end(), std::greater<>());
    for (std::size_t i = 0; i < shares.size(); ++i)
      EXPECT_NEAR(shares[i], shares[0] * std::pow(static_cast<double>(i + 1), -exponent), 1e-12);
  }
  m.routing_exponent = 0;
  for (const double share : expert_shares(m, 7, 3)) EXPECT_DOUBLE_EQ(share, 0.01);
}

// 1 / experts_per_token of the choices at most; the rest keeps its proportions.
TEST(ExpertLoads, GiveNoExpertMoreThanEveryToken) {
  model::Model m;
  m.family = model::Family::moe;
  m.experts = 16, m.experts_per_token = 4, m.routing = model::Routing::zipf, m.routing_exponent = 3;
  std::vector<double> shares = expert_shares(m, 7, 0);
  std::sort(shares.begin(), shares.end(), std::greater<>());
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_DOUBLE_EQ(shares[i], 0.25) << i;
  EXPECT_LT(shares[2], 0.25);
  for (std::size_t i = 3; i < 16; ++i)
    EXPECT_NEAR(shares[i] / shares[2], std::pow(3.0 / static_cast<double>(i + 1), 3), 1e-12);
  m.routing_exponent = 10, m.experts_per_token = 15;
  shares = expert_shares(m, 7, 0);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
}

TEST(ExpertLoads, AreDrawnForEveryLayerBySeed) {
  const ExpertLoads one = loads({"model.routing=zipf"}), again = loads({"model.routing=zipf"});
  const ExpertLoads other = loads({"model.routing=zipf", "training.seed=2"});
  EXPECT_EQ(one.of(1).rows, again.of(1).rows);
  EXPECT_EQ(one.of(2).rows, again.of(2).rows);
  EXPECT_NE(one.of(1).rows, one.of(2).rows);
  EXPECT_NE(one.of(1).rows, other.of(1).rows);
  EXPECT_EQ(sorted(one.of(1).rows), sorted(other.of(2).rows)) << "other experts, the same law";
}

TEST(ExpertLoads, OfATableAreThoseOfTheLayersRow) {
  const ExpertLoads l =
      loads({"model.routing=table", "model.routing_table=[[1, 1, 1, 1, 1, 1, 1, 1], [4, 4, 0, 0, 0, 0, 0, 0]]"});
  EXPECT_EQ(l.of(1).parts, (Rows{16, 16, 16, 16}));
  EXPECT_EQ(l.of(2).parts, (Rows{64, 0, 0, 0}));
  const LoadBalance balance = l.balance();
  EXPECT_EQ(balance.imbalance, 4);
  EXPECT_EQ(balance.worst_layer, 2);
  EXPECT_EQ(balance.mean_imbalance, 2.5);
  EXPECT_EQ(balance.dropped, 0);
  EXPECT_FALSE(l.even());
}

// The first micro-batch has what all have where loads are a layer's.
TEST(ExpertLoads, AreDrawnForEveryMicroBatch) {
  const std::vector<std::string> each{"model.routing=zipf", "model.routing_per=micro_batch",
                                      "training.global_batch=16"};
  const ExpertLoads one = loads(each), again = loads(each), all = loads({"model.routing=zipf"});
  EXPECT_EQ(all.patterns(), 1);
  EXPECT_FALSE(all.vary());
  ASSERT_EQ(one.patterns(), 4);
  EXPECT_TRUE(one.vary());
  for (const std::int64_t layer : {1, 2}) {
    EXPECT_EQ(one.of(layer).rows, all.of(layer).rows);
    std::vector<std::int64_t> most(4, 0);
    for (std::int64_t m = 0; m < 4; ++m) {
      EXPECT_EQ(one.of(layer, m).rows, again.of(layer, m).rows);
      EXPECT_EQ(sorted(one.of(layer, m).rows), sorted(all.of(layer).rows)) << "other experts, the same law";
      for (std::int64_t other = 0; other < m; ++other) EXPECT_NE(one.of(layer, m).rows, one.of(layer, other).rows);
      for (std::size_t place = 0; place < 4; ++place)
        most[place] = std::max(most[place], one.of(layer, m).parts[place]);
    }
    for (std::size_t place = 0; place < 4; ++place) EXPECT_EQ(one.most_rows_at(layer, 0, place), 4 * most[place]);
  }
}

TEST(ExpertLoads, OfATableOfMicroBatchesTakeTurns) {
  const std::string even = "[1, 1, 1, 1, 1, 1, 1, 1]", first = "[4, 4, 0, 0, 0, 0, 0, 0]";
  const std::string table = "model.routing_table=[[" + even + ", " + first + "], [" + first + ", " + even + "]]";
  const ExpertLoads l = loads({"model.routing=table", table, "training.global_batch=12"});
  ASSERT_EQ(l.patterns(), 2) << "of three micro-batches the third has the first one's";
  EXPECT_EQ(l.of(1, 0).parts, (Rows{16, 16, 16, 16}));
  EXPECT_EQ(l.of(1, 1).parts, (Rows{64, 0, 0, 0}));
  EXPECT_EQ(l.of(2, 0).parts, (Rows{64, 0, 0, 0}));
  EXPECT_EQ(l.of(2, 1).parts, (Rows{16, 16, 16, 16}));
  EXPECT_EQ(l.balance().imbalance, 4);
  EXPECT_EQ(l.balance().worst_layer, 1);
  EXPECT_EQ(l.balance().mean_imbalance, 2.5);
  const ExpertLoads single = loads({"model.routing=table", table, "training.global_batch=4"});
  EXPECT_EQ(single.patterns(), 1) << "a step of one micro-batch has the first";
}

TEST(ExpertLoads, OfWhatIsPerformedAreTakenAsEven) {
  Scenario scenario = read(kText, {"model.routing=zipf"});
  EXPECT_FALSE(ExpertLoads(scenario).even());
  scenario.purpose = Purpose::perform;
  EXPECT_TRUE(ExpertLoads(scenario).even());
}

// With a capacity every rank computes as many rows; of the choices of [4, 2, 1, 1] 16 and 0 rows are too many.
TEST(ExpertLoads, BeyondACapacityAreDropped) {
  const ExpertLoads l = loads({"model.routing=table", "model.routing_table=[4, 2, 2, 0, 0, 0, 0, 0]",
                               "model.capacity_factor=2"});  // 16 rows an expert
  EXPECT_EQ(l.of(1).rows, (Rows{32, 16, 16, 0, 0, 0, 0, 0}));
  EXPECT_EQ(l.of(1).dropped, 16);
  EXPECT_EQ(l.of(1).parts, (Rows{32, 32, 32, 32}));
  EXPECT_TRUE(l.even());
  EXPECT_EQ(l.balance().dropped, 0.25);
  EXPECT_EQ(l.balance().imbalance, 1);
  EXPECT_EQ(loads({"model.capacity_factor=1"}).balance().dropped, 0);
}

using Texts = std::vector<std::string>;

TEST(ExpertLoads, ATableOfLoadsHasAShareForEveryExpert) {
  const auto routed = [](const std::string& model) {
    return problems(
        "rehearse: 1\nmodel: {family: moe, layers: 3, hidden: 96, heads: 12, vocab: 100, max_seq_len: 128, "
        "experts: 4, experts_per_token: 2, expert_ffn_hidden: 48, dense_layers: 1, ffn_hidden: 96,\n" +
        model + "}\n");
  };
  EXPECT_EQ(routed("routing: table, routing_table: [3, 3, 1, 0]"), Texts{});
  EXPECT_EQ(routed("routing: table, routing_table: [[1, 1, 1, 1], [2, 2, 1, 0]]"), Texts{});
  EXPECT_EQ(routed("routing: table"),
            (Texts{"2:8 model.routing_table: required key is missing: routing: table needs a share for each expert "
                   "(e.g. 'routing_table: [4, 2, 1, 1]')"}));
  EXPECT_EQ(routed("routing_table: [1, 1, 1, 1]"),
            (Texts{"3:16 model.routing_table: has no meaning without routing: table (routing: table)"}));
  EXPECT_EQ(routed("routing: table, routing_table: [1, 1, 1]"),
            (Texts{"3:32 model.routing_table: 3 shares are listed, but the model has 4 experts"}));
  EXPECT_EQ(routed("routing: table, routing_table: [3, 1, 1, 0]"),
            (Texts{"3:32 model.routing_table: a share of 0.6: each token chooses 2 experts, none of them twice, so an "
                   "expert has 0.5 of the choices at most"}));
  EXPECT_EQ(routed("routing: table, routing_table: [0, 0, 0, 0]"),
            (Texts{"3:32 model.routing_table: no expert has a share"}));
  EXPECT_EQ(routed("routing: table, routing_table: [[1, 1, 1, 1]]"),
            (Texts{"3:32 model.routing_table: 1 rows are listed, but 2 layers have experts"}));
  EXPECT_EQ(routed("routing: table, routing_table: [1, -1, 1, 1]"),
            (Texts{"3:36 model.routing_table[1]: expected a share: a number, 0 to 1e+09"}));
  EXPECT_EQ(routed("routing: zipff").size(), 1U);
  EXPECT_EQ(routed("routing: table, routing_table: [[[1, 1, 1, 1]], [[2, 2, 1, 0], [1, 1, 1, 1]]]"),
            (Texts{"3:49 model.routing_table[1]: 2 micro-batches are listed, but 1 of the first layer (as many lists "
                   "of shares for each layer)"}));
  EXPECT_EQ(routed("routing_per: micro_batch"),
            (Texts{"3:14 model.routing_per: micro_batch: only loads that are drawn differ between micro-batches "
                   "(routing: zipf)"}));
}

}  // namespace
}  // namespace rehearse::plan
