// The ledger of published runs: averages, quantiles, what is inside its interval, and rows that are not used.
#include "reports/ledgers/throughput_ledger.h"

#include <gtest/gtest.h>

#include "throughput_rows.h"

namespace rehearse::reports {
namespace {

TEST(ThroughputLedger, SummarisesErrorsOfUsedRows) {
  std::vector<ThroughputRow> rows = {published_row("a", 10, 9), published_row("b", 10, 11),
                                     published_row("c", 10, 10.2), published_row("d", 10, 14)};
  rows[3].used = false;
  rows[1].fits = false;
  std::vector<const ThroughputRow*> pointers;
  for (const ThroughputRow& each : rows) pointers.push_back(&each);
  const ErrorSummary s = summarize(pointers);
  EXPECT_EQ(s.n, 3);
  EXPECT_EQ(s.inside, 1);
  EXPECT_EQ(s.unfit, 1);
  EXPECT_NEAR(s.mean, (0.1 + 0.1 + 0.02) / 3, 1e-12);
  EXPECT_NEAR(s.bias, (-0.1 + 0.1 + 0.02) / 3, 1e-12);
  EXPECT_NEAR(s.median, 0.1, 1e-12);
  EXPECT_NEAR(std::abs(s.worst), 0.1, 1e-12);
}

TEST(ThroughputLedger, TablesAndFilesNameEveryRow) {
  std::vector<ThroughputRow> rows = {published_row("a", 10, 9), published_row("b", 10, 11)};
  rows[1].used = false, rows[1].reason = "the vocabulary is not given";
  const std::string table = throughput_table(rows);
  EXPECT_NE(table.find("Framework"), std::string::npos);
  EXPECT_NE(table.find("\n  1: the vocabulary is not given"), std::string::npos);
  const std::string csv = throughput_csv(rows);
  EXPECT_NE(csv.find("\na,s,Framework,m,,A,true,,step_time_s,10.0,9.0,"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\nb,s,Framework,m,,A,false,the vocabulary is not given,step_time_s,10.0,"), std::string::npos);
  const std::string json = throughput_json(rows);
  EXPECT_NE(json.find("\"rehearse.ledger/1\""), std::string::npos);
  EXPECT_NE(json.find("\"predicted\": null"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::reports
