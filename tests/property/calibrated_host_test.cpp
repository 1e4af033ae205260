// Scenarios on a calibrated host, whatever the plan: a step's time is accounted for to the picosecond, the same file
// gives the same times, and what costs more is never faster.
#include <gtest/gtest.h>

#include <numeric>

#include "sim/run/run.h"
#include "tests/support/calibration.h"

namespace rehearse {
namespace {

using test::CalibrationText;
using test::TemporaryFile;

CalibrationText host(int cores) {
  CalibrationText c;
  c.cores = cores;
  c.kernels = {{"gemm", "m=256 n=256 k=256", 1e-3, 2.0 * 256 * 256 * 256, 786432},
               {"add", "elements=65536", 2e-4, 0, 786432}};
  for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter", "send"}) {
    c.transfers.push_back({kind, 2, 1024, 1e-5});
    c.transfers.push_back({kind, 2, 1048576, 4e-4});
  }
  c.sharing = R"({"class": "gemm", "beside": "gemm", "slowdown": 1.1})";
  c.dispatch_s = 4e-7, c.wake_s = 1e-5;
  return c;
}

result::Result simulated(const CalibrationText& c, const std::vector<std::string>& assignments) {
  const TemporaryFile file("host.json", c.text());
  const std::string root = REHEARSE_SOURCE_DIR;
  run::Options options;
  options.data_root = root;
  options.calibrations = {file.path()};
  return run::simulate_scenario(plan::read_scenario(root + "/scenarios/gpt-tiny-2x2x2.yaml", assignments, root),
                                options);
}

class CalibratedHost : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(CalibratedHost, AccountsForAStepToThePicosecond) {
  for (const int cores : {1, 3, 16}) {
    const result::Result r = simulated(host(cores), GetParam());
    EXPECT_GT(r.step_time_ps, 0);
    EXPECT_EQ(std::accumulate(r.breakdown_ps.begin(), r.breakdown_ps.end(), std::int64_t{0}), r.step_time_ps);
    EXPECT_GT(r.breakdown_ps[static_cast<std::size_t>(result::Share::host)], 0);
  }
}

TEST_P(CalibratedHost, GivesTheSameTimesAgain) {
  const result::Result a = simulated(host(2), GetParam()), b = simulated(host(2), GetParam());
  EXPECT_EQ(a.step_time_ps, b.step_time_ps);
  EXPECT_EQ(a.breakdown_ps, b.breakdown_ps);
  EXPECT_EQ(a.events, b.events);
}

TEST_P(CalibratedHost, IsNoFasterWithSlowerThreads) {
  CalibrationText slow = host(2);
  slow.dispatch_s = 1e-5, slow.wake_s = 1e-4;
  EXPECT_GT(simulated(slow, GetParam()).step_time_ps, simulated(host(2), GetParam()).step_time_ps);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, CalibratedHost,
    testing::Values(std::vector<std::string>{}, std::vector<std::string>{"plan.tensor=1", "plan.zero=3"},
                    std::vector<std::string>{"plan.tensor=1", "plan.pipeline=4", "plan.schedule=gpipe"},
                    std::vector<std::string>{"cluster.gpus=1", "plan.tensor=1", "plan.pipeline=1"}));

}  // namespace
}  // namespace rehearse
