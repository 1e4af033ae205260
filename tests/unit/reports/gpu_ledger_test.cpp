// The ledger of plans performed on a GPU: which class of kernels is furthest off, and what is printed.
#include "reports/ledgers/gpu_ledger.h"

#include <gtest/gtest.h>

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
  EXPECT_NE(gpu_ledger_csv({failed}).find("gpt2-xl,step,,,,,,,exit status 3: does not fit\n"), std::string::npos);
}

TEST(GpuLedger, ARowAPlanAndClass) {
  GpuRow r = row("gpt2", 0.5, 0.25);
  r.classes = {{"gemm", 0.25, 0.5}};
  const std::string csv = gpu_ledger_csv({r});
  EXPECT_NE(csv.find("gpt2,step,0.5,0.25,-0.5,1000,1010,0.01"), std::string::npos) << csv;
  EXPECT_NE(csv.find("gpt2,gemm,0.5,0.25,-0.5,,,,\n"), std::string::npos) << csv;
  EXPECT_NE(gpu_ledger_json({r}).find("rehearse.gpu_ledger/1"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::reports
