// The whole loop on this machine as a user runs it: validate --local, and the demo's parts. How near the numbers are is
// not asked here: tests run beside one another.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

TEST(ValidateLocal, CalibratesSimulatesAndPerforms) {
  const Folder folder;
  const Outcome r = run(
      {"validate", "--local", "--filter", "gpt-tiny-ddp2", "--budget", "8", "--seconds", "0.3", "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "gpt-tiny-ddp2")) << r.out;
  const auto ledger = nlohmann::json::parse(read(folder / "out/ledger.json"));
  ASSERT_EQ(ledger["rows"].size(), 1U);
  const auto& row = ledger["rows"][0];
  EXPECT_GT(row["measured_s"].get<double>(), 0);
  EXPECT_GT(row["simulated_s"].get<double>(), 0);
  EXPECT_NEAR(row["memory_error"].get<double>(), 0, 0.01);
  // Both results are there and can be compared op by op.
  const Outcome compared =
      run({"compare", folder / "out/gpt-tiny-ddp2/simulated", folder / "out/gpt-tiny-ddp2/measured", "--json"});
  ASSERT_EQ(compared.status, 0) << compared.err;
  // How fast the machine was is known of both, and so how they differ.
  const double drift = nlohmann::json::parse(compared.out)["drift"]["slower"].get<double>();
  EXPECT_GT(drift, 0);
  EXPECT_DOUBLE_EQ(row["drift"].get<double>(), drift);
  // What scattered was measured and is drawn: the same bytes again from what the plan was simulated from.
  const std::vector<std::string> simulate = {"simulate",
                                             REHEARSE_SOURCE_DIR "/scenarios/local/gpt.yaml",
                                             "--set",
                                             "model=gpt-tiny",
                                             "--set",
                                             "cluster.gpus=2",
                                             "--set",
                                             "plan.bucket=256KiB",
                                             "--json",
                                             "--calibration",
                                             folder / "out/gpt-tiny-ddp2/calibration.json"};
  auto first = nlohmann::json::parse(run(simulate).out), second = nlohmann::json::parse(run(simulate).out);
  const auto kept = nlohmann::json::parse(read(folder / "out/gpt-tiny-ddp2/simulated/result.json"));
  EXPECT_EQ(first["samples"]["count"].get<int>(), 9);
  EXPECT_EQ(first["step_time_s"].get<double>(), kept["step_time_s"].get<double>());
  first.erase("engine"), second.erase("engine");
  EXPECT_EQ(first, second);
  // The calibration serves another time.
  const Outcome again = run({"validate", "--local", "--filter", "gpt-tiny-ddp2", "--seconds", "0.3", "--calibration",
                             folder / "out/calibration.json"});
  EXPECT_EQ(again.status, 0) << again.err;
}

TEST(ValidateLocal, RefusesWhatDoesNotFitTogether) {
  EXPECT_EQ(run({"validate", "--budget", "3"}).status, 2);
  const Outcome none = run({"validate", "--local", "--filter", "no-such-plan"});
  EXPECT_EQ(none.status, 2);
  EXPECT_TRUE(has(none.err, "no plan matches")) << none.err;
}

}  // namespace
}  // namespace rehearse::e2e
