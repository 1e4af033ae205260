// The ledger of plans performed on a GPU: which class of kernels is furthest off, and what is printed.
#include "reports/ledgers/gpu_ledger.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/reports/stored.h"

namespace rehearse::reports {
namespace {

GpuRow row(const std::string& id, double measured, double simulated) {
  GpuRow r;
  r.step.id = id;
  r.step.measured_s = measured, r.step.simulated_s = simulated;
  r.step.measured_bytes = 1000, r.step.simulated_bytes = 1010;
  r.exact = 0.9;
  return r;
}

// Norms take 4 of 100 ms: too little to count, however far off. Of the others attention is furthest.
TEST(GpuLedger, ClassesThatTakeATwentiethCount) {
  GpuRow r = row("gpt2", 0.11, 0.12);
  r.classes = {{"gemm", 0.077, 0.070}, {"attention", 0.021, 0.026}, {"norm", 0.010, 0.004}};
  const GpuSummary s = summarize({r, row("other", 0.1, 0.1)});
  EXPECT_EQ(s.worst_class, "attention of gpt2");
  EXPECT_NEAR(s.worst_class_error, 21.0 / 26 - 1, 1e-12);
  EXPECT_EQ(s.plans, 2);
  EXPECT_NEAR(s.worst_error, 0.12 / 0.11 - 1, 1e-12);
  EXPECT_NEAR(s.worst_memory_error, 0.01, 1e-12);
}

TEST(GpuLedger, APlanThatFailedIsNamedAndCountsNowhere) {
  GpuRow failed;
  failed.step.id = "gpt2-xl";
  failed.step.reason = "exit status 3: does not fit";
  const GpuSummary s = summarize({failed});
  EXPECT_EQ(s.plans, 0);
  EXPECT_NE(gpu_ledger_table({failed}).find("not performed: gpt2-xl: exit status 3"), std::string::npos);
  EXPECT_NE(gpu_ledger_csv({failed}).find("gpt2-xl,step,,,,,,,exit status 3: does not fit,no,,,,,,,\n"),
            std::string::npos);
}

TEST(GpuLedger, ARowAPlanAndClass) {
  GpuRow r = row("gpt2", 0.5, 0.25);
  r.classes = {{"gemm", 0.25, 0.5}};
  const std::string csv = gpu_ledger_csv({r});
  EXPECT_NE(csv.find("gpt2,step,0.5,0.25,-0.5,1000,1010,0.01"), std::string::npos) << csv;
  EXPECT_NE(csv.find("gpt2,gemm,0.5,0.25,-0.5,,,,,,,,,,,,\n"), std::string::npos) << csv;
  EXPECT_NE(gpu_ledger_json({r}).find("rehearse.gpu_ledger/1"), std::string::npos);
}

// 2.5% off where the calibration had walked the steps, 20% where it had not: never one number for both.
TEST(GpuLedger, WalkedAndHeldOutPlansAreToldApart) {
  GpuRow known = row("known", 0.2, 0.205), unknown = row("unknown", 0.2, 0.24);
  unknown.held_out = true;
  EXPECT_NEAR(summarize({known, unknown}, false).worst_error, 0.025, 1e-9);
  EXPECT_NEAR(summarize({known, unknown}, true).worst_error, 0.2, 1e-9);
  const std::string table = gpu_ledger_table({unknown, known});
  const std::size_t walked = table.find("walked:"), first = table.find("known "),
                    held = table.find("held out of the walk:");
  EXPECT_LT(walked, first);
  EXPECT_LT(first, held);
  EXPECT_LT(held, table.find("unknown"));
  EXPECT_NE(gpu_ledger_csv({known, unknown}).find("unknown,step,0.2,0.24,"), std::string::npos);
}

// One product by the calibrated algorithm, one by another, one that the calibration does not have.
TEST(GpuLedger, PerformedAlgorithmsAreComparedWithCalibratedOnes) {
  const result::StoredResult simulated = stored();
  result::StoredResult measured = stored("measured");
  measured.result.gpu.products = {{"nt bf16>bf16", 16, 32, 64, "id 66 split-k 1"},
                                  {"tn bf16>f32", 32, 64, 16, "id 66 split-k 1"},
                                  {"nn bf16>bf16", 1, 2, 3, "id 6"}};
  const Algorithms calibrated = {{"nt bf16>bf16 m=16 n=32 k=64", "id 66 split-k 1"},
                                 {"tn bf16>f32 m=32 n=64 k=16", "id 66 split-k 4"}};
  LocalPlan plan;
  plan.id = "gpt2";
  plan.held_out = true;
  const GpuRow r = gpu_row(plan, difference(simulated, measured), calibrated);
  EXPECT_TRUE(r.held_out);
  EXPECT_EQ(r.same_algorithms, 1);
  ASSERT_EQ(r.other_algorithms.size(), 1U);
  EXPECT_EQ(r.other_algorithms.front().product, "tn bf16>f32 m=32 n=64 k=16");
  EXPECT_EQ(r.other_algorithms.front().calibrated, "id 66 split-k 4");
  EXPECT_EQ(r.other_algorithms.front().performed, "id 66 split-k 1");
}

TEST(GpuLedger, ClocksPowerAndOtherAlgorithmsStandBesideAPlan) {
  GpuRow r = row("gpt2", 0.5, 0.5);
  r.gpu.samples = 20;
  r.gpu.sm_mhz = 1620, r.gpu.least_sm_mhz = 1500, r.gpu.max_sm_mhz = 1980;
  r.gpu.power_w = 690, r.gpu.power_limit_w = 700, r.gpu.temperature_c = 66, r.gpu.throttle = "sw_power_cap";
  r.same_algorithms = 11;
  r.other_algorithms = {{"tn bf16>f32 m=8 n=8 k=8", "id 6 split-k 1", "id 6 split-k 4"}};
  const std::string table = gpu_ledger_table({r});
  for (const char* part : {"1620 MHz", "690 of 700 W", "sw_power_cap", "calibrated: 11 of 12", "split-k 4"})
    EXPECT_NE(table.find(part), std::string::npos) << part << " in " << table;
  EXPECT_NE(gpu_ledger_csv({r}).find(",no,1620,1500,690.0,66,sw_power_cap,11,1\n"), std::string::npos)
      << gpu_ledger_csv({r});
  EXPECT_NE(gpu_ledger_json({r}).find("\"performed\": \"id 6 split-k 4\""), std::string::npos) << gpu_ledger_json({r});
}

// ln(50257) = 10.825.
TEST(GpuLedger, LossesMustBeginAtGuessingAndFall) {
  const std::int64_t vocab = 50257;
  EXPECT_EQ(loss_problem({10.9, 10.2, 9.8, 9.1, 8.0, 7.5, 7.4, 7.3}, vocab), "");
  EXPECT_NE(loss_problem({11.4, 9, 8, 7}, vocab).find("11.4000, not within 0.5 of ln(50257) = 10.8249"),
            std::string::npos);
  EXPECT_NE(loss_problem({10.2, 9, 8, 7}, vocab), "");
  EXPECT_NE(loss_problem({10.8, 10.9, 10.8, 10.9}, vocab).find("does not fall"), std::string::npos);
  EXPECT_NE(loss_problem({std::nan(""), 1}, vocab), "");
  EXPECT_NE(loss_problem({10.8, 9, 8, std::nan("")}, vocab), "");
  EXPECT_NE(loss_problem({}, vocab), "");
}

}  // namespace
}  // namespace rehearse::reports
