// The knee of a scaling curve: where an added GPU gives less than half of what those before give.
#include "reports/search.h"

#include <gtest/gtest.h>

namespace rehearse::reports {
namespace {

ScalingReport curve(const std::vector<std::pair<std::int64_t, double>>& points) {
  ScalingReport r;
  for (const auto& [gpus, tokens_per_s] : points) {
    SearchReport search;
    search.scenario = "s";
    search.objective = "step_time";
    search.proven = true;
    if (tokens_per_s > 0) {
      SweepRow row;
      row.status = SweepStatus::fits;
      row.gpus = gpus, row.tokens_per_s = tokens_per_s, row.step_time_ps = 1'000'000;
      search.best.push_back(row);
      search.joules.push_back(0);
    }
    r.searches.push_back(search);
  }
  return r;
}

TEST(Knee, IsTheLastNumberBeforeAddedGpusGiveLessThanHalf) {
  // 8 GPUs give 100 each of 800; the 8 added ones 75 each; the 16 after that (400 of 1,400, 25 each of 87.5).
  const auto knee = knee_of(curve({{8, 800}, {16, 1400}, {32, 1800}, {64, 1900}}));
  ASSERT_TRUE(knee);
  EXPECT_EQ(knee->gpus, 16);
  EXPECT_EQ(knee->next, 32);
  EXPECT_DOUBLE_EQ(knee->gives, 25 / 87.5);
}

TEST(Knee, IsNowhereOnAStraightLine) {
  EXPECT_FALSE(knee_of(curve({{8, 800}, {16, 1600}, {32, 3200}})));
  EXPECT_FALSE(knee_of(curve({{8, 800}})));
}

TEST(Knee, LooksPastNumbersWhereNothingFits) {
  const auto knee = knee_of(curve({{8, 0}, {16, 1600}, {32, 1700}}));
  ASSERT_TRUE(knee);
  EXPECT_EQ(knee->gpus, 16);
}

// A million tokens a second on 8 GPUs: a billion are 1,000 s or 2.22 GPU-hours, a trillion 2,222.
TEST(Costs, AreOfABillionTokensOrOfTheRun) {
  ScalingReport r = curve({{8, 1e6}});
  SearchReport& search = r.searches[0];
  search.keys = {{"plan.zero", {"1"}}};
  search.best[0].values = {"1"}, search.best[0].batch.seq_len = 2048;
  search.gpu_hours.push_back(0);
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(search_text(search), "Cost: GPU-hours of a billion tokens.")) << search_text(search);
  EXPECT_TRUE(has(search_text(search), "2.222")) << search_text(search);
  search.tokens = 1e12;
  EXPECT_TRUE(has(search_text(search), "2.222")) << "GPU-hours stay a billion's, which the text below has of the run";
  search.price.usd = 2, search.price.instance = "p", search.price.date = "2026-11";
  EXPECT_TRUE(has(search_text(search), "$4,444")) << search_text(search);
  EXPECT_TRUE(has(search_text(search), "Cost: dollars of 1T tokens, at ")) << search_text(search);
  search.tokens = 0;
  EXPECT_TRUE(has(search_text(search), "$4.444")) << search_text(search);
  EXPECT_TRUE(has(scaling_text(r), "Cost: dollars of a billion tokens")) << scaling_text(r);
}

TEST(Knee, IsNamedBelowTheTable) {
  EXPECT_NE(scaling_text(curve({{8, 800}, {16, 900}})).find("The knee: 8 GPUs."), std::string::npos);
  EXPECT_NE(scaling_json(curve({{8, 800}, {16, 900}})).find("\"knee_gpus\": 8"), std::string::npos);
  EXPECT_NE(scaling_text(curve({{8, 800}, {16, 1600}})).find("No knee"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::reports
