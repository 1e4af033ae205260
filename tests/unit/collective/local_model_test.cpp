// Transfers between ranks of one host, from a calibration: sizes, groups not measured, what the copies of a message
// take, and what is missing.
#include <gtest/gtest.h>

#include "sim/base/diagnostics.h"
#include "sim/cluster/machines.h"
#include "sim/collective/collective.h"
#include "tests/support/calibration.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;
using rehearse::test::CalibrationText;
using rehearse::test::TemporaryFile;

CalibrationText measured() {
  CalibrationText c;
  c.cores = 4;
  c.kernels = {{"gemm", "m=1 n=1 k=1"}};
  c.transfers = {{"all_reduce", 2, 1000, 10e-6},   {"all_reduce", 2, 100'000, 40e-6}, {"all_reduce", 4, 1000, 15e-6},
                 {"all_gather", 2, 1000, 8e-6},    {"send", 2, 1000, 6e-6},           {"send", 2, 100'000, 46e-6},
                 {"send", 2, 100'000, 5.0, "gloo"}};
  return c;
}

class LocalModel : public testing::Test {
 protected:
  explicit LocalModel(const CalibrationText& c = measured())
      : file_("local-model.json", c.text()), host_(numbers(), 8), model_(make_model(host_, file_.path())) {}
  static cluster::LocalHostNumbers numbers() {
    return {"local", "local", 4, 1, Bandwidth(1'000'000'000), Time::from_us(1)};
  }
  TransferPlan all_reduce(int ranks, std::int64_t bytes) const {
    std::vector<int> members;
    for (int r = 0; r < ranks; ++r) members.push_back(r);
    return model_->collective(CollectiveKind::all_reduce, members, Bytes(bytes));
  }

  TemporaryFile file_;
  cluster::LocalHost host_;
  std::unique_ptr<CollectiveModel> model_;
};

TEST_F(LocalModel, IsExactAtMeasuredSizes) {
  const TransferPlan plan = all_reduce(2, 100'000);
  EXPECT_NEAR(plan.alone().seconds(), 40e-6, 1e-11);
  EXPECT_EQ(plan.coverage, Coverage::exact);
  EXPECT_NEAR(plan.startup.seconds(), 10e-6, 1e-11);  // what the smallest takes: nothing stretches it
  EXPECT_EQ(plan.threads, 2);
  EXPECT_TRUE(plan.activities.front().uses.empty());
  EXPECT_NEAR(plan.low, 0.9, 1e-9);
}

TEST_F(LocalModel, InterpolatesBetweenSizes) {
  const TransferPlan plan = all_reduce(2, 10'000);  // the middle, in logarithms: sqrt(10 * 40)
  EXPECT_NEAR(plan.alone().seconds(), 20e-6, 1e-10);
  EXPECT_EQ(plan.coverage, Coverage::interpolated);
}

TEST_F(LocalModel, GrowsInProportionBeyondTheLargest) {
  const TransferPlan plan = all_reduce(2, 199'000);  // 99,000 bytes took 30 us
  EXPECT_NEAR(plan.alone().seconds(), 70e-6, 1e-10);
  EXPECT_EQ(plan.coverage, Coverage::extrapolated);
  EXPECT_NEAR(all_reduce(2, 10).alone().seconds(), 10e-6, 1e-11);  // and never falls below the smallest
}

// Eight members on four cores against two on two: passes 8 / 4 against 2 / 2, twice the moving part.
TEST_F(LocalModel, TakesAnotherGroupsTimeForAKindNotMeasured) {
  const std::vector<int> two = {0, 1}, eight = {0, 1, 2, 3, 4, 5, 6, 7};
  const TransferPlan broadcast = model_->collective(CollectiveKind::broadcast, two, Bytes(100'000));
  EXPECT_NEAR(broadcast.alone().seconds(), 40e-6, 1e-10);
  EXPECT_EQ(broadcast.coverage, Coverage::extrapolated);
  const TransferPlan large = all_reduce(8, 1000);  // the group of four is the most alike
  EXPECT_NEAR(large.startup.seconds(), 15e-6, 1e-11);
  EXPECT_EQ(large.threads, 4);
  EXPECT_EQ(large.coverage, Coverage::extrapolated);
  EXPECT_GT(large.high, 1.5);
}

TEST_F(LocalModel, SplitsAMessageBetweenItsSides) {
  const TransferPlan plan = model_->send(0, 1, Bytes(100'000));
  EXPECT_TRUE(model_->buffered_messages());
  EXPECT_NEAR(plan.startup.seconds(), 6e-6, 1e-11);
  EXPECT_NEAR(plan.copy_out.seconds(), 20e-6, 1e-11);
  EXPECT_NEAR(plan.copy_in.seconds(), 20e-6, 1e-11);
  EXPECT_TRUE(plan.activities.empty());
  EXPECT_EQ(model_->send(1, 1, Bytes(100'000)).alone(), Time());
}

TEST_F(LocalModel, OneMemberMovesNothing) {
  EXPECT_EQ(all_reduce(1, 1000).alone(), Time());
}

TEST_F(LocalModel, SaysWhatACalibrationLacks) {
  CalibrationText c = measured();
  c.transfers = {{"all_reduce", 2, 1000, 1e-5}, {"send", 2, 1000, 1e-5, "gloo"}};
  const TemporaryFile file("lacking.json", c.text());
  try {
    make_model(host_, file.path());
    FAIL() << "accepted";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("'send'"), std::string::npos) << e.what();
    EXPECT_NE(e.diagnostics().front().hint.find("rehearse calibrate"), std::string::npos);
  }
}

}  // namespace
}  // namespace rehearse::collective
