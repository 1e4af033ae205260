// Commands at a scenario with section `reinforcement`: simulate shows phases, those that know training alone refuse it.
#include <gtest/gtest.h>

#include "program.h"

namespace rehearse::e2e {
namespace {

constexpr const char* kGrpo = "llama3-8b-grpo-16xh100";

TEST(Reinforcement, SimulateShowsItsPhases) {
  const Outcome r = run({"simulate", kGrpo});
  EXPECT_EQ(r.status, 0) << r.err;
  for (const char* phase : {"generation", "actor scoring", "reference scoring", "actor training", "copies", "weights"})
    EXPECT_TRUE(has(r.out, std::string("\n  ") + phase + " ")) << phase << r.out;
  EXPECT_TRUE(has(r.out, "4 updates of 512 sequences")) << r.out;
}

TEST(Reinforcement, WhatKnowsTrainingAloneRefusesIt) {
  const Folder folder;
  const std::vector<std::vector<std::string>> commands = {
      {"execute", kGrpo, "--shrink"},
      {"plan", kGrpo},
      {"simulate", kGrpo, "--samples", "2"},
      {"goodput", kGrpo, "--set", "failures.host_mtbf_hours=1", "--set", "checkpoint.storage_bandwidth=1GB/s"}};
  for (const auto& command : commands) {
    const Outcome r = run(command);
    EXPECT_EQ(r.status, 2) << command.front() << r.err;
    EXPECT_TRUE(has(r.err, "reinforcement")) << command.front() << r.err;
  }
  ASSERT_EQ(run({"simulate", kGrpo, "-o", folder / "a"}).status, 0);
  const Outcome compared = run({"compare", folder / "a", folder / "a"});
  EXPECT_EQ(compared.status, 0) << compared.err;
  EXPECT_TRUE(has(compared.out, "\n  reference scoring ")) << compared.out;
  EXPECT_TRUE(has(compared.out, "+0.0%")) << compared.out;
}

}  // namespace
}  // namespace rehearse::e2e
