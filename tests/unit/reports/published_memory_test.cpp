// Published peaks of memory against predicted ones.
#include "reports/ledgers/published_memory.h"

#include <gtest/gtest.h>

#include "tests/support/text.h"
#include "throughput_rows.h"

namespace rehearse::reports {
namespace {

ThroughputRow with_memory(const std::string& id, const std::string& kind, double measured, double predicted) {
  ThroughputRow row = published_row(id, 10, 9);
  row.memory_kind = kind, row.memory_measured = measured, row.memory_predicted = predicted;
  return row;
}

TEST(PublishedMemory, ScoresAreOfASourceAndAKind) {
  std::vector<ThroughputRow> rows = {with_memory("a", "allocated", 100, 90), with_memory("b", "allocated", 50, 60),
                                     with_memory("c", "reserved", 80, 80), published_row("d", 10, 9),
                                     with_memory("e", "allocated", 10, 1)};
  rows[4].used = false;
  const auto scores = memory_scores(rows);
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0].kind, "allocated");
  EXPECT_EQ(scores[0].n, 2);
  EXPECT_NEAR(scores[0].mean, 0.15, 1e-12);  // of -10% and +20%
  EXPECT_NEAR(scores[0].bias, 0.05, 1e-12);
  EXPECT_EQ(scores[0].worst->id, "b");
  EXPECT_EQ(scores[1].kind, "reserved");
  EXPECT_EQ(scores[1].mean, 0);
}

TEST(PublishedMemory, StandsInTheTableAndTheFiles) {
  const std::vector<ThroughputRow> rows = {with_memory("a", "allocated", 100, 75), published_row("b", 10, 9)};
  EXPECT_TRUE(has(throughput_table(rows), "allocated  1  25.0%  -25.0%  -25.0%   a\n")) << throughput_table(rows);
  EXPECT_EQ(memory_score_table({published_row("b", 10, 9)}), "");
  const std::string csv = throughput_csv(rows);
  EXPECT_TRUE(has(csv, ",allocated,100.0,75.0,-0.25\n")) << csv;
  EXPECT_TRUE(has(csv, ",,,,\n")) << csv;
  const std::string json = throughput_json(rows);
  EXPECT_TRUE(has(json, "\"measured_bytes\": 100.0")) << json;
  EXPECT_TRUE(has(json, "\"memory_sources\"")) << json;
}

}  // namespace
}  // namespace rehearse::reports
