// Predictions of published runs stay as good as they are: a few sources with all of their rows, as `rehearse validate
// --throughput` scores them. A better record is a change of its own, with its reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/e2e/program.h"

namespace rehearse::e2e {
namespace {

struct Record {
  const char* source;
  int rows;
  double mean, inside;  // mean of |predicted / measured - 1|; share of rows inside their interval
};

constexpr const char* kRuns = REHEARSE_SOURCE_DIR "/scenarios/published/throughput.csv";

class PublishedRuns : public testing::TestWithParam<Record> {};

TEST_P(PublishedRuns, AreNotPredictedWorse) {
  const Record& record = GetParam();
  const Folder folder;
  const Outcome r = run({"validate", "--throughput", kRuns, "--filter", record.source, "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto json = nlohmann::json::parse(read(folder / "out/ledger.json"));
  int n = 0, inside = 0;
  double sum = 0;
  for (const auto& row : json["rows"]) {
    if (row["source"] != record.source || !row["used"]) continue;
    ++n;
    sum += std::abs(row["error"].get<double>());
    inside += row["low"] <= row["measured"] && row["measured"] <= row["high"] ? 1 : 0;
  }
  constexpr double kWorse = 0.01;  // a point
  EXPECT_GE(n, record.rows);
  EXPECT_LE(sum / n, record.mean + kWorse);
  EXPECT_GE(static_cast<double>(inside) / n, record.inside - kWorse);
}

INSTANTIATE_TEST_SUITE_P(Shipped, PublishedRuns,
                         testing::Values(Record{"llm-foundry", 127, 0.071, 0.95}, Record{"korthikanti-t5", 8, 0.033, 1},
                                         Record{"simumax-b200", 18, 0.091, 1}, Record{"torchtitan", 7, 0.26, 1}),
                         [](const auto& test) {
                           std::string name = test.param.source;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace rehearse::e2e
