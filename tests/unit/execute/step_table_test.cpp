// steps.csv: a row a step and rank, whose shares add up.
#include "execute/step_table.h"

#include <gtest/gtest.h>

namespace rehearse::execute {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000'000;

Shares computing(std::int64_t compute, std::int64_t bubble) {
  Shares s{};
  s[static_cast<std::size_t>(result::Share::compute)] = compute;
  s[static_cast<std::size_t>(result::Share::bubble)] = bubble;
  return s;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST(StepTable, HasARowForEveryStepAndRank) {
  const StepShares shares = {{computing(2 * kSecond, 1), computing(kSecond, 0)},
                             {computing(kSecond, 0), computing(3 * kSecond, 500)}};
  const auto lines = lines_of(step_table(shares, 0, {2.5, 1.25}));
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_TRUE(lines[0].starts_with("step,rank,loss,end_s,step_s,compute_s,exposed_tensor_s,")) << lines[0];
  EXPECT_TRUE(lines[0].ends_with(",bubble_s,optimizer_s,host_s,other_s")) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("1,0,2.5,2.000000000001,2.000000000001,2.000000000000,")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("1,1,2.5,1.000000000000,1.000000000000,")) << lines[2];
  EXPECT_TRUE(lines[3].starts_with("2,0,1.25,3.000000000001,1.000000000000,")) << lines[3];
  EXPECT_TRUE(lines[4].starts_with("2,1,1.25,4.000000000500,3.000000000500,3.000000000000,")) << lines[4];
}

// Losses are those of the whole training, shares those of this run.
TEST(StepTable, GoesOnAfterTheStepsBefore) {
  const auto lines = lines_of(step_table({{computing(kSecond, 0)}}, 2, {3, 2, 1}));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[1].starts_with("3,0,1,1.000000000000,")) << lines[1];
}

}  // namespace
}  // namespace rehearse::execute
