// rehearse execute --shrink: a plan of 1,024 GPUs in miniature on this machine, as a user runs it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

TEST(Shrink, SimulatesPerformsComparesAndCarriesBack) {
  const Folder folder;
  const Outcome r = run({"execute", "gpt3-175b-1024xa100", "--set", "training.global_batch=128", "--shrink",
                         "--step-seconds", "0.02", "--budget", "1", "-o", folder / "out"});
  ASSERT_EQ(r.status, 0) << r.err;
  for (const char* words :
       {"8 ranks of 1024", "reduced", "The same program", "Carried back", "Step, carried", "not a", "model's own"})
    EXPECT_TRUE(has(r.out, words)) << words << r.out;
  const auto j = nlohmann::json::parse(read(folder / "out/miniature.json"));
  EXPECT_TRUE(j["miniature"]["same_program"].get<bool>());
  EXPECT_GT(j["miniature"]["ops_compared"].get<int>(), 50);
  const auto& carried = j["carried"];
  const double step = carried["step_simulated_s"].get<double>();
  EXPECT_LE(carried["interval_s"][0].get<double>(), step);
  EXPECT_GE(carried["interval_s"][1].get<double>(), step);
  // The large prediction is what simulate says of the plan, and the miniature a scenario like any.
  const auto large = nlohmann::json::parse(
      run({"simulate", "gpt3-175b-1024xa100", "--set", "training.global_batch=128", "--json"}).out);
  EXPECT_DOUBLE_EQ(large["step_time_s"].get<double>(), step);
  const auto again = nlohmann::json::parse(
      run({"simulate", folder / "out/miniature.yaml", "--calibration", folder / "out/calibration.json", "--json"}).out);
  EXPECT_DOUBLE_EQ(again["step_time_s"].get<double>(), j["miniature"]["simulated_s"].get<double>());
  EXPECT_EQ(run({"execute", folder / "out/miniature.yaml", "--steps", "1"}).status, 0);
}

TEST(Shrink, RefusesWhatIsOfPlansAsTheyAre) {
  EXPECT_EQ(run({"execute", "gpt-tiny-ddp", "--ranks-at-most", "2"}).status, 2);
  const Outcome r = run({"execute", "gpt-tiny-ddp", "--shrink", "--ranks", "gloo"});
  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(has(r.err, "on this machine's cores")) << r.err;
  const Outcome steps = run({"execute", "gpt-tiny-ddp", "--shrink", "--steps", "5"});
  EXPECT_EQ(steps.status, 2);
  EXPECT_TRUE(has(steps.err, "--steps is of a plan that is performed as it is")) << steps.err;
}

}  // namespace
}  // namespace rehearse::e2e
