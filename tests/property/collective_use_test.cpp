// A result says by which algorithm and protocol each of its collectives went: all of them, counted, as pinned, at every
// fidelity; the same after writing and reading; and two results that differ in it say so when compared. And what is
// said of a better machine on which the step is longer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "reports/answers.h"
#include "reports/difference.h"
#include "sim/collective/nccl_tuning.h"
#include "sim/program/program.h"
#include "sim/program/work.h"
#include "sim/result/read_directory.h"
#include "sim/run/run.h"
#include "sim/run/why.h"
#include "tests/support/simulated.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

namespace fs = std::filesystem;
using result::CollectiveUse;

std::string plan_text(const std::string& pins) {
  return "rehearse: 1\nname: ways\n"
         "model: {family: gpt, layers: 4, hidden: 512, heads: 8, vocab: 1024, max_seq_len: 128}\n"
         "cluster: {topology: dgx-h100, gpus: 16" +
         pins + "}\nplan: {tensor: 2, micro_batch: 1, zero: 1}\ntraining: {global_batch: 16, seq_len: 128}\n";
}

result::Result simulate(const std::string& text, run::Fidelity fidelity = run::Fidelity::flow) {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  options.fidelity = fidelity;
  options.record = true;
  return run::simulate_scenario(scenario_from(text), options);
}

result::StoredResult stored(const result::Result& r) {
  const fs::path dir = test::temporary_path("ways");
  result::write_directory(r, dir);
  result::StoredResult read = result::read_directory(dir);
  fs::remove_all(dir);
  return read;
}

// Calls of the program by group, kind and size: of each instance of the group one.
std::map<std::string, std::int64_t> calls_of(const std::string& text) {
  const plan::Scenario scenario = scenario_from(text);
  const plan::RankGrid grid = scenario.grid();
  const program::Program program = lower::lower(scenario);
  std::map<std::string, std::int64_t> calls;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const program::Role& role = program.roles[static_cast<std::size_t>(grid.coordinate(rank, Axis::pipeline))];
    for (const program::Slot& slot : role.slots)
      for (const program::Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops)
        if (const auto* c = std::get_if<program::Collective>(&op.shape)) {
          const program::Group& group = program.groups[static_cast<std::size_t>(c->group)];
          const std::vector<int> members = grid.members(rank, group.axes, group.pipeline_only, group.tensor_block);
          if (members.size() > 1 && members.front() == rank)
            ++calls[fmt::format("{} {} {}", group.name, program::kind_name(op.shape), program::collective_bytes(op))];
        }
  }
  return calls;
}

TEST(CollectivesOfAResult, AreAllOfTheProgramsWithTheirWays) {
  const std::string text = plan_text("");
  for (const run::Fidelity fidelity : {run::Fidelity::analytic, run::Fidelity::flow, run::Fidelity::step}) {
    const result::Result r = simulate(text, fidelity);
    std::map<std::string, std::int64_t> listed;
    bool stepped = false;
    for (const CollectiveUse& c : r.collectives) {
      listed[fmt::format("{} {} {}", c.group, c.kind, c.bytes)] += c.count;
      EXPECT_TRUE(collective::algorithm_called(c.algorithm)) << c.algorithm;
      EXPECT_TRUE(c.protocol == "ll" || c.protocol == "ll128" || c.protocol == "simple") << c.protocol;
      EXPECT_FALSE(c.pinned);
      EXPECT_EQ(c.nodes, c.group == "tensor" ? 1 : 2) << c.group;
      EXPECT_EQ(c.ranks, c.group == "tensor" ? 2 : c.group == "data" ? 8 : c.ranks);
      EXPECT_GT(c.alone_ps, 0);
      if (fidelity != run::Fidelity::step) {
        EXPECT_GE(c.mean_ps, c.alone_ps);
        EXPECT_EQ(c.fidelity, fidelity == run::Fidelity::flow ? "flow" : "analytic");
      }
      if (fidelity == run::Fidelity::analytic) {
        EXPECT_EQ(c.mean_ps, c.alone_ps);
      }
      stepped = stepped || c.fidelity == "step";
    }
    EXPECT_EQ(listed, calls_of(text));
    EXPECT_EQ(stepped, fidelity == run::Fidelity::step);
  }
}

TEST(CollectivesOfAResult, SayWhatIsPinnedAndAreReadBack) {
  const result::Result chosen = simulate(plan_text(""));
  const result::Result pinned =
      simulate(plan_text(", collectives: [{kind: all_reduce, algorithm: ring, protocol: simple}]"));
  int pins = 0;
  for (const CollectiveUse& c : pinned.collectives) {
    EXPECT_EQ(c.pinned, c.kind == "all_reduce") << c.kind;
    if (!c.pinned) continue;
    ++pins;
    EXPECT_EQ(reports::way_of(c), "ring simple (pinned)");
  }
  EXPECT_GT(pins, 0);
  const result::StoredResult first = stored(chosen), second = stored(pinned);
  ASSERT_EQ(second.result.collectives.size(), pinned.collectives.size());
  EXPECT_EQ(result::to_json(first.result).find("\"collectives\""), result::to_json(chosen).find("\"collectives\""));
  for (std::size_t i = 0; i < pinned.collectives.size(); ++i) {
    const CollectiveUse &wrote = pinned.collectives[i], &read = second.result.collectives[i];
    EXPECT_EQ(
        std::tie(read.kind, read.group, read.ranks, read.nodes, read.bytes, read.algorithm, read.protocol),
        std::tie(wrote.kind, wrote.group, wrote.ranks, wrote.nodes, wrote.bytes, wrote.algorithm, wrote.protocol));
    EXPECT_EQ(
        std::tie(read.pinned, read.channels, read.fidelity, read.coverage, read.count, read.alone_ps, read.mean_ps),
        std::tie(wrote.pinned, wrote.channels, wrote.fidelity, wrote.coverage, wrote.count, wrote.alone_ps,
                 wrote.mean_ps));
    EXPECT_NEAR(read.low, wrote.low, 1e-9);
    EXPECT_NEAR(read.high, wrote.high, 1e-9);
  }
  const reports::Difference d = reports::difference(first, second);
  ASSERT_FALSE(d.ways.empty());
  EXPECT_EQ(d.ways[0].values[reports::kSecond], "ring simple (pinned)");
  EXPECT_NE(reports::difference_table(d).find("Collectives that go another way"), std::string::npos);
  EXPECT_TRUE(reports::difference(first, first).ways.empty());
}

engine::Outcome outcome_of(std::int64_t step_ms, std::int64_t compute_ms, const std::string& algorithm,
                           std::int64_t mean_ms) {
  engine::Outcome o;
  o.step_time = Time::from_us(1000 * step_ms);
  o.breakdown_ps[static_cast<std::size_t>(result::Share::compute)] = Time::from_us(1000 * compute_ms).ps();
  CollectiveUse use;
  use.kind = "all_reduce", use.group = "data", use.bytes = 1 << 20, use.algorithm = algorithm, use.protocol = "simple";
  use.count = 4, use.mean_ps = Time::from_us(1000 * mean_ms).ps();
  o.collectives = {use};
  return o;
}

TEST(WhatIfAgainstExpectation, NamesItsCause) {
  using run::why_against_expectation;
  const engine::Outcome plain = outcome_of(100, 80, "ring", 5);
  EXPECT_EQ(why_against_expectation(plain, outcome_of(90, 80, "ring", 2), "doubled", true), "");
  EXPECT_EQ(why_against_expectation(plain, outcome_of(110, 80, "tree", 9), "halved", false), "");
  EXPECT_EQ(why_against_expectation(plain, outcome_of(110, 80, "tree", 9), "doubled", true),
            "Doubled, it makes the step 10 ms longer: data all_reduce of 1.049 MB goes by tree simple instead of ring "
            "simple (9 ms instead of 5 ms).");
  EXPECT_EQ(why_against_expectation(plain, outcome_of(104, 85, "ring", 3), "doubled", true),
            "Doubled, it makes the step 4 ms longer: kernels that run during communication take 5 ms more a rank.");
  EXPECT_EQ(why_against_expectation(plain, outcome_of(98, 80, "ring", 8), "halved", false),
            "Halved, it makes the step 2 ms shorter: operations and transfers meet in another order.");
}

}  // namespace
}  // namespace rehearse
