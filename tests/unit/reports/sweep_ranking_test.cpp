// Ranking of the plans of published sweeps, against values worked out by hand.
#include "reports/ledgers/sweep_ranking.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/text.h"
#include "throughput_rows.h"

namespace rehearse::reports {
namespace {

using Values = std::vector<double>;

TEST(SweepRanking, ValuesAlikeShareTheMeanOfTheirPlaces) {
  EXPECT_EQ(average_ranks({10, 30, 20}), (Values{1, 3, 2}));
  EXPECT_EQ(average_ranks({5, 1, 5, 5, 9}), (Values{3, 1, 3, 3, 5}));  // places 2, 3, 4
  EXPECT_EQ(average_ranks({2, 2, 1, 1}), (Values{3.5, 3.5, 1.5, 1.5}));
  EXPECT_EQ(average_ranks({}), Values{});
}

TEST(SweepRanking, SpearmanWithoutTiesIsOneMinusSixSumsOfSquares) {
  EXPECT_DOUBLE_EQ(*spearman({1, 2, 3, 4}, {10, 20, 30, 40}), 1);
  EXPECT_DOUBLE_EQ(*spearman({1, 2, 3, 4}, {9, 8, 7, 1}), -1);
  // Ranks 1 2 3 4 5 and 2 1 4 3 5: the squares of their differences sum to 4; 1 - 6*4 / (5*24) = 0.8.
  EXPECT_DOUBLE_EQ(*spearman({1, 2, 3, 4, 5}, {0.2, 0.1, 0.4, 0.3, 0.5}), 0.8);
}

TEST(SweepRanking, SpearmanWithTiesIsPearsonsOfTheRanks) {
  // Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4, each around 2.5: products 2.25 + 0 + 0 + 2.25, squares 4.5 and 5.
  EXPECT_DOUBLE_EQ(*spearman({1, 2, 2, 3}, {1, 2, 3, 4}), 4.5 / std::sqrt(4.5 * 5));
  // Ranks 1.5, 1.5, 3 and 2, 3, 1 around 2: products 0 - 0.5 - 1, squares 1.5 and 2.
  EXPECT_DOUBLE_EQ(*spearman({4, 4, 7}, {5, 6, 1}), -1.5 / std::sqrt(1.5 * 2));
}

TEST(SweepRanking, SpearmanOfOneValueIsUndefined) {
  EXPECT_FALSE(spearman({}, {}).has_value());
  EXPECT_FALSE(spearman({1}, {2}).has_value());
  EXPECT_FALSE(spearman({3, 3, 3}, {1, 2, 3}).has_value());
}

TEST(SweepRanking, RegretIsWhatTheChosenPlanTakesMoreThanTheBest) {
  // The prediction would choose b (9 s), measured at 12 s; c was the best at 10 s: 20%.
  std::vector<ThroughputRow> rows = {published_row("a", 15, 14), published_row("b", 12, 9), published_row("c", 10, 11)};
  const auto sweeps = published_sweeps(rows);
  ASSERT_EQ(sweeps.size(), 1u);
  const PublishedSweep& sweep = sweeps.front();
  EXPECT_EQ(sweep.chosen->id, "b");
  EXPECT_EQ(sweep.best->id, "c");
  EXPECT_DOUBLE_EQ(*sweep.regret(), 12.0 / 10 - 1);
  EXPECT_DOUBLE_EQ(*sweep.spearman, 0.5);  // ranks 3 2 1 and 3 1 2: 1 - 6*2 / (3*8)
  EXPECT_EQ(sweep.name, "s 1");
  EXPECT_EQ(sweep.what, "m, 8 GPUs, batch 64, 2,048 tokens");
}

TEST(SweepRanking, WhatIsPredictedNotToFitIsListedAndNotChosen) {
  std::vector<ThroughputRow> rows = {published_row("a", 15, 14), published_row("b", 12, 9), published_row("c", 10, 11)};
  rows[1].fits = false;
  auto sweeps = published_sweeps(rows);
  EXPECT_EQ(sweeps.front().chosen->id, "c");
  EXPECT_DOUBLE_EQ(*sweeps.front().regret(), 0);
  EXPECT_EQ(sweeps.front().rows.size(), 3u);
  EXPECT_EQ(sweeps.front().unfit, 1);
  EXPECT_DOUBLE_EQ(*sweeps.front().spearman, 0.5) << "its time is ranked all the same";
  rows[0].fits = rows[2].fits = false;
  sweeps = published_sweeps(rows);
  EXPECT_EQ(sweeps.front().chosen, nullptr);
  EXPECT_FALSE(sweeps.front().regret().has_value());
  EXPECT_EQ(summarize(sweeps).front().with_regret, 0);
}

TEST(SweepRanking, OfPredictionsAlikeTheFirstIsChosen) {
  const std::vector<ThroughputRow> rows = {published_row("a", 15, 9), published_row("b", 12, 9),
                                           published_row("c", 10, 11)};
  const auto sweeps = published_sweeps(rows);
  EXPECT_EQ(sweeps.front().chosen->id, "a");
  EXPECT_DOUBLE_EQ(*sweeps.front().regret(), 0.5);
}

TEST(SweepRanking, ASweepIsThreeUsedRowsOfOneTask) {
  std::vector<ThroughputRow> rows = {published_row("a", 3, 3), published_row("b", 2, 2), published_row("c", 1, 1),
                                     published_row("d", 3, 3), published_row("e", 2, 2)};
  rows[2].used = false;
  rows[3].task = rows[4].task = "another";
  EXPECT_TRUE(published_sweeps(rows).empty());
  rows[2].used = true;
  EXPECT_EQ(published_sweeps(rows).size(), 1u);
  rows[2].task = "another";
  ASSERT_EQ(published_sweeps(rows).size(), 1u);
  EXPECT_EQ(published_sweeps(rows).front().rows.front()->id, "c");
}

TEST(SweepRanking, SummariesAreMeansOverASourcesSweeps) {
  std::vector<ThroughputRow> rows = {published_row("a", 15, 14), published_row("b", 12, 9), published_row("c", 10, 11),
                                     published_row("d", 1, 1),   published_row("e", 2, 2),  published_row("f", 3, 3)};
  for (std::size_t i = 3; i < 6; ++i) rows[i].task = "another";
  const auto summary = summarize(published_sweeps(rows));
  ASSERT_EQ(summary.size(), 1u);
  EXPECT_EQ(summary[0].sweeps, 2);
  EXPECT_EQ(summary[0].rows, 6);
  EXPECT_DOUBLE_EQ(summary[0].mean_spearman, 0.75);
  EXPECT_DOUBLE_EQ(summary[0].mean_regret, (12.0 / 10 - 1) / 2);
  EXPECT_DOUBLE_EQ(summary[0].worst_regret, 12.0 / 10 - 1);
  EXPECT_EQ(summary[0].best_chosen, 1);
}

TEST(SweepRanking, TablesAndFilesHaveEveryConfiguration) {
  std::vector<ThroughputRow> rows = {published_row("a", 15, 14), published_row("b", 12, 9), published_row("c", 10, 11)};
  const auto sweeps = published_sweeps(rows);
  const std::string table = sweep_tables(sweeps);
  EXPECT_TRUE(has(table, "s 1    3     +0.50   20.0%\n")) << table;
  EXPECT_TRUE(has(table, "; chosen tp8 pp1")) << table;
  EXPECT_EQ(sweep_tables({}), "");
  const std::string csv = sweeps_csv(sweeps);
  EXPECT_TRUE(has(csv, "b,tp8 pp1 dp1 z0 mb1,,12.0,9.0,2,1,true,true,false\n")) << csv;
  EXPECT_TRUE(has(csv, "c,tp8 pp1 dp1 z0 mb1,,10.0,11.0,1,2,true,false,true\n")) << csv;
}

}  // namespace
}  // namespace rehearse::reports
