// What a miniature's run says of the large prediction: factors by line of the step's account, and the interval.
#include "reports/miniature.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "stored.h"

namespace rehearse::reports {
namespace {

const CarriedLine& carried_line(const Carried& c, const std::string& name) {
  const auto found = std::find_if(c.lines.begin(), c.lines.end(), [&](const auto& l) { return l.line == name; });
  EXPECT_NE(found, c.lines.end()) << name;
  return found == c.lines.end() ? c.lines.front() : *found;
}

// Every product of the miniature takes half as long again as simulated, and all else is as it was.
result::StoredResult half_as_long_again() {
  result::StoredResult slow = stored("measured");
  for (result::OpRow& row : slow.ops)
    if (slow.text_of(row).kind == "gemm") row.duration_ps += row.duration_ps / 2;
  slow.ops[1].start_ps += 2 * kMicrosecond;
  slow.result.step_time_ps = 14 * kMicrosecond;
  return slow;
}

TEST(CarryBack, PutsTheFactorOfEachLineOnTheLargePlansTimes) {
  const result::StoredResult simulated = stored(), measured = half_as_long_again();
  result::StoredResult large = stored();
  large.result.interval_low_s = 9e-6, large.result.interval_high_s = 12e-6;
  const Difference d = difference(simulated, measured);
  const Carried c = carry_back(d, large);
  const CarriedLine& gemm = carried_line(c, "gemm");
  EXPECT_TRUE(gemm.carried);
  EXPECT_DOUBLE_EQ(gemm.factor, 1.5);
  EXPECT_EQ(gemm.large_ps, gemm.simulated_ps) << "the large plan here is the miniature itself";
  // Each line between as simulated and as corrected.
  double low = 0, high = 0, corrected = 0;
  std::int64_t large_ps = 0;
  for (const CarriedLine& line : c.lines) {
    const double there = static_cast<double>(line.large_ps) * 1e-12;
    low += there * std::min(1.0, line.factor);
    high += there * std::max(1.0, line.factor);
    corrected += there * line.factor;
    large_ps += line.large_ps;
  }
  EXPECT_EQ(large_ps, large.result.step_time_ps) << "no part of the step is lost";
  EXPECT_DOUBLE_EQ(c.low_s, low);
  EXPECT_DOUBLE_EQ(c.high_s, high);
  EXPECT_DOUBLE_EQ(c.corrected_s, corrected);
  EXPECT_LE(c.low_s, 10e-6);
  EXPECT_GT(c.high_s, 10e-6);
  EXPECT_DOUBLE_EQ(c.model_low_s, 9e-6);
}

TEST(CarryBack, OfWhatWasMeasuredAsSimulatedIsThePredictionItself) {
  const result::StoredResult simulated = stored(), large = stored();
  result::StoredResult measured = stored();
  measured.result.source = "measured";
  const Difference d = difference(simulated, simulated);
  const Carried c = carry_back(d, large);
  EXPECT_DOUBLE_EQ(c.low_s, 10e-6);
  EXPECT_DOUBLE_EQ(c.high_s, 10e-6);
  EXPECT_DOUBLE_EQ(c.corrected_s, 10e-6);
}

// Of little time nothing can be said; the machine's own change of pace widens the interval, whichever way it went.
TEST(CarryBack, LeavesSmallLinesAloneAndKnowsOfPace) {
  const result::StoredResult simulated = stored(), measured = half_as_long_again(), large = stored();
  Difference d = difference(simulated, measured);
  for (AccountLine& line : d.account)
    if (line.line == "gemm") line.ps = {kMicrosecond / 20, kMicrosecond};
  EXPECT_FALSE(carried_line(carry_back(d, large), "gemm").carried);
  d = difference(simulated, measured);
  const Carried without = carry_back(d, large);
  d.drift = 3;
  const Carried with = carry_back(d, large);
  EXPECT_LT(with.low_s, without.low_s);
  EXPECT_DOUBLE_EQ(with.high_s, without.high_s);
}

TEST(CarryBack, SaysWhatItIs) {
  const result::StoredResult simulated = stored(), measured = half_as_long_again(), large = stored();
  const Difference d = difference(simulated, measured);
  const std::string text = carried_text(carry_back(d, large));
  EXPECT_NE(text.find("this machine's kernels"), std::string::npos) << text;
  EXPECT_NE(text.find("9 us to 12 us"), std::string::npos) << text;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    EXPECT_LE(text.find('\n', at) - at, 80U) << text;
  const std::string json = miniature_json({{"ranks", "1024", "8", "reduced", ""}}, d, carry_back(d, large));
  EXPECT_NE(json.find("\"factor\": 1.5"), std::string::npos) << json;
}

TEST(ShrunkTable, HasReasonsBelow) {
  const std::string table = shrunk_table({{"plan.zero", "1", "1", "kept", ""}, {"x", "a", "b", "dropped", "a rule"}});
  EXPECT_NE(table.find("plan.zero"), std::string::npos);
  EXPECT_NE(table.find("x: a rule."), std::string::npos) << table;
}

}  // namespace
}  // namespace rehearse::reports
