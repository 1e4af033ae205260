// The intervals that published runs say a step has (reports/ledgers/step_intervals.h).
#include "reports/ledgers/step_intervals.h"

#include <gtest/gtest.h>

namespace rehearse::reports {
namespace {

ThroughputRow run(const std::string& source, const std::string& framework, double measured) {
  ThroughputRow row;
  row.source = source, row.framework = framework, row.used = true;
  row.measured_s = measured, row.predicted_s = 1;
  return row;
}

TEST(StepIntervals, LeaveTheSourceOutAndWeighOthersAlike) {
  std::vector<ThroughputRow> rows;
  for (int i = 0; i < 100; ++i) rows.push_back(run("large", "a", 1.1));
  rows.push_back(run("small", "b", 1.5));
  rows.back().kernels_low = 0.7, rows.back().kernels_high = 1.2;
  rows.push_back(run("third", "b", 0.8));
  rows.push_back(run("third", "b", 0.8));
  rows.back().used = false;
  EXPECT_EQ(step_intervals_csv(rows),
            "of,name,low,high,kernels_low,kernels_high,runs\n"
            "without source,large,0.800,1.500,0.700,1.200,2\n"
            "without source,small,0.800,1.100,1.000,1.000,101\n"
            "without source,third,1.000,1.500,0.700,1.200,101\n"
            "framework,a,1.000,1.100,1.000,1.000,100\n"
            "framework,b,0.800,1.500,0.700,1.200,2\n"
            "framework,others,0.800,1.500,0.700,1.200,0\n");
}

TEST(StepIntervals, NeedTwoSources) {
  EXPECT_EQ(step_intervals_csv({run("one", "a", 1.1), run("one", "b", 1.2)}), "");
}

}  // namespace
}  // namespace rehearse::reports
