// Every phase says on a terminal that it works, and ends within a second of processor time once it is interrupted.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/e2e/program.h"
#include "tests/e2e/terminal.h"

namespace rehearse::e2e {
namespace {

// Four thousand micro-batches a replica: every phase before the simulation takes a while.
constexpr char kLarge[] =
    "rehearse: 1\nname: large\nmodel: gpt3-175b\ncluster: {topology: dgx-a100, gpus: 1024}\n"
    "plan: {tensor: 8, pipeline: 8, micro_batch: 1, zero: 1, recompute: full}\ntraining: {global_batch: 65536}\n";

void expect_interrupted(const Shown& shown, const std::string& awaited) {
  EXPECT_TRUE(shown.seen) << awaited << " was never shown: " << shown.text;
  EXPECT_EQ(shown.status, 130) << awaited;
  EXPECT_LT(shown.cpu_after_s, 1.0) << awaited;
  EXPECT_TRUE(has(shown.text, "rehearse: interrupted")) << shown.text;
}

class Phase : public testing::TestWithParam<const char*> {};

TEST_P(Phase, SaysWhatItDoesAndCanBeInterrupted) {
  const Folder folder;
  expect_interrupted(interrupt_at({"simulate", folder.write("large.yaml", kLarge)}, GetParam()), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Simulate, Phase,
                         testing::Values("lowering large", "checking large", "planning the memory of large",
                                         "simulating large"),
                         [](const auto& one) {
                           const std::string name = one.param;
                           return name.substr(0, name.find(' '));
                         });

TEST(Interrupt, WritingLeavesNothingHalfWritten) {
  const Folder folder;
  const std::string scenario =
      folder.write("s.yaml",
                   "rehearse: 1\nmodel: gpt3-175b\ncluster: {topology: dgx-a100, gpus: 64}\n"
                   "plan: {tensor: 8, pipeline: 8, recompute: full}\ntraining: {global_batch: 128}\n");
  const Shown shown = interrupt_at({"simulate", scenario, "--steps", "1", "-o", folder / "out"}, "writing ");
  expect_interrupted(shown, "writing ");
  EXPECT_EQ(folder.files(), std::vector<std::string>{"s.yaml"}) << "no result, and no temporary file";
}

TEST(Interrupt, AJobThatStartsLateShowsHowFarTheClockIs) {
  const Folder folder;
  const std::string jobs = "cluster.jobs=[{name: late, start: 1000s, placement: ['node[1,3,5,7,9,11,13,15]']}]";
  const Shown shown = interrupt_at({"simulate", "two-jobs", "--fold", "off", "--set", jobs}, "   1%");
  expect_interrupted(shown, "   1%");
}

TEST(Interrupt, AReportOfManyOpsStopsToo) {
  const Folder folder;
  ASSERT_EQ(run({"simulate", "gpt-tiny-ddp", "--set", "cluster.topology=dgx-a100", "-o", folder / "r"}).status, 0);
  std::string ops = read(folder / "r/ops.csv");
  const std::string row = ops.substr(ops.find('\n') + 1, ops.find('\n', ops.find('\n') + 1) - ops.find('\n'));
  const std::string rest = row.substr(row.find(','));
  for (int i = 0; i < 400'000; ++i) ops += "0/1/" + std::to_string(1000 + i) + "/forward/x" + rest;
  folder.write("r/ops.csv", ops);
  for (const char* awaited : {"reading results", "making "}) {
    const Shown shown = interrupt_at({"report", folder / "r", "-o", folder / "page.html"}, awaited);
    expect_interrupted(shown, awaited);
  }
  EXPECT_FALSE(has(read(folder / "page.html"), "html"));
}

}  // namespace
}  // namespace rehearse::e2e
