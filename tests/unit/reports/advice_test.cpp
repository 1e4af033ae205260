// Why a plan is of its kind, in words: what rules out the simpler kinds.
#include "reports/advice.h"

#include <gtest/gtest.h>

#include "reports/text.h"

namespace rehearse::reports {
namespace {

constexpr std::int64_t kGiga = 1'000'000'000;

Advice advice(int kind, std::int64_t gpus, std::vector<SimplerKind> simpler) {
  Advice a;
  a.known = true;
  a.kind = kind, a.gpus = gpus;
  a.peak_bytes = 40 * kGiga, a.capacity_bytes = 80 * kGiga;
  a.objective = 2;
  a.simpler = std::move(simpler);
  return a;
}

TEST(Advice, OfOneGpuIsNotToDistribute) {
  EXPECT_NE(advice_reason(advice(0, 1, {})).find("nothing to distribute"), std::string::npos);
}

TEST(Advice, SaysByHowMuchMemoryRulesOutASimplerKind) {
  const Advice a = advice(1, 64, {{0, 12, 12, 120 * kGiga, 0}});
  EXPECT_NE(advice_reason(a).find("would need 120 GB at the least"), std::string::npos) << advice_reason(a);
  EXPECT_EQ(advice_against(a, a.simpler[0]),
            "none of 12 plans fits; the least needs 120 GB of 80 GB, 1.5 times as much");
}

TEST(Advice, SaysByHowMuchTimeRulesOutASimplerKind) {
  const Advice a = advice(4, 64, {{0, 3, 3, 900 * kGiga, 0}, {2, 9, 1, 0, 2.5}, {3, 9, 1, 0, 4}});
  EXPECT_NE(advice_reason(a).find("Simpler ones fit, but the best takes 25.0% longer"), std::string::npos);
  EXPECT_EQ(advice_against(a, a.simpler[1]), "the best takes 25.0% longer");
}

TEST(Advice, AfterALimitDoesNotClaimWhatWasNotLookedAt) {
  Advice a = advice(2, 64, {{1, 9, 2, 100 * kGiga, 0}});
  a.proven = false;
  EXPECT_NE(advice_against(a, a.simpler[0]).find("a limit ended the search"), std::string::npos);
  EXPECT_EQ(advice_reason(a).find("Simpler"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::reports
