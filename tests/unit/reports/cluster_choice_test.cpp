// Of several clusters the one with the fewest GPUs in time and the cheapest, and the nearest where none is in time.
#include "reports/cluster_choice.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace rehearse::reports {
namespace {

ClusterOption option(const std::string& cluster, std::int64_t gpus, double tokens_per_s, double usd) {
  ClusterOption o;
  o.cluster = cluster, o.gpus = gpus;
  o.search.scenario = "s";
  o.search.proven = true;
  o.search.price.usd = usd;
  o.search.tokens = 864e6;
  if (tokens_per_s > 0) {
    SweepRow row;
    row.gpus = gpus, row.tokens_per_s = tokens_per_s, row.step_time_ps = 1'000'000'000'000;
    o.search.best.push_back(row);
    o.search.joules.push_back(0);
  }
  return o;
}

// 864 million tokens: 1,000 a second take 10 days.
ClusterChoice choice(double days) {
  ClusterChoice c;
  c.tokens = 864e6, c.days = days;
  c.options = {option("few", 8, 2000, 5), option("cheap", 16, 2500, 1), option("slow", 4, 500, 0.01),
               option("none", 4, 0, 0.01)};
  return c;
}

TEST(ClusterChoice, FewestGpusAndCheapestOfThoseInTime) {
  const ClusterChoice c = choice(5);
  EXPECT_EQ(fewest_gpus(c), 0u);
  EXPECT_EQ(cheapest(c), 1u);  // 4 days x 24 h x 16 x 1 = 1,536, beside 5 x 24 x 8 x 5 = 4,800
  const std::string text = cluster_text(c);
  EXPECT_NE(text.find("Cheapest that train 864M tokens in 5 days: 16 GPUs of cheap, 4 days, $1,536"), std::string::npos)
      << text;
  EXPECT_NE(text.find("none, 4 GPUs: nothing fits in memory."), std::string::npos) << text;
}

TEST(ClusterChoice, WhereNoneIsInTimeTheNearestIsNamed) {
  const std::string text = cluster_text(choice(1));
  EXPECT_NE(text.find("None of these trains 864M tokens in 1 days; the nearest is 16 GPUs of cheap"), std::string::npos)
      << text;
  EXPECT_TRUE(nlohmann::json::parse(cluster_json(choice(1)))["cheapest"].is_null());
}

TEST(ClusterChoice, APriceThatIsNotKnownIsSaid) {
  ClusterChoice c = choice(0);
  c.options[0].search.price.usd = 0;
  EXPECT_NE(cluster_text(c).find("No price is known of few"), std::string::npos) << cluster_text(c);
  EXPECT_EQ(cheapest(c), 2u);
}

}  // namespace
}  // namespace rehearse::reports
