// Ranks on CPUs have one arena: an op that writes where another stream's op still reads waits for it, in the step and
// over the border of two. Times in picoseconds.
#include <gtest/gtest.h>

#include "tests/unit/engine/machine.h"

namespace rehearse::engine {
namespace {

// Two buffers of a slot one after the other in the same bytes: compute writes each (1000), the data stream reads it
// (5000 the first, 2000 the second). Only events that say when a value is there; none says that it was read.
struct TwoBuffersInOnePlace {
  program::Program program;
  plan::RankGrid grid = testing::grid_of(1, 1, 1);
  testing::TestCluster cluster{1};
  testing::TestModel model;
  testing::TestCosts costs;
  Options options;

  TwoBuffersInOnePlace() {
    testing::RoleBuilder b;
    const auto compute = b.stream("compute", program::StreamKind::compute),
               data = b.stream("data", program::StreamKind::data);
    const auto made = b.event("made"), again = b.event("again");
    const auto body = b.body("body");
    b.kernel(body, "write first", compute, {}, made).writes = {{0, 0}};
    program::Op& read_first = b.kernel(body, "read first", data, {made});
    read_first.reads = read_first.releases = {{0, 0}};
    b.kernel(body, "write second", compute, {}, again).writes = {{1, 0}};
    program::Op& read_second = b.kernel(body, "read second", data, {again});
    read_second.reads = read_second.releases = {{1, 0}};
    b.slot(body);
    program::Role role = b.build();
    for (const char* name : {"first", "second"}) {
      program::Buffer& buffer = role.buffers.emplace_back();
      buffer.name = name;
      buffer.shape = {4};
    }
    program.roles.push_back(role);
    costs.ps = {{"write first", 1000}, {"read first", 5000}, {"write second", 1000}, {"read second", 2000}};
    costs.machine.cpu = true;
    model.buffered = true;
    options.recorded_ranks = {0};
  }
  Outcome run(int steps) {
    options.steps = steps;
    return simulate(program, grid, cluster, model, costs, options);
  }
};

TEST(Arena, AnOpWaitsForWhoStillReadsWhereItWrites) {
  TwoBuffersInOnePlace one;
  EXPECT_EQ(one.run(1).step_time.ps(), 1000 + 5000 + 1000 + 2000);
}

TEST(Arena, AllocatorsThatDoNotReuseInProgramOrderHaveNoSuchWaits) {
  TwoBuffersInOnePlace one;
  one.costs.machine.cpu = false;
  EXPECT_EQ(one.run(1).step_time.ps(), 1000 + 5000 + 2000);
}

// The next step's first write waits for this one's last read.
TEST(Arena, TheWaitGoesOverTheBorderOfSteps) {
  TwoBuffersInOnePlace one;
  const Outcome outcome = one.run(3);
  ASSERT_EQ(outcome.records.size(), 4u);
  const std::int64_t start = outcome.records[0].start_ps;
  EXPECT_EQ(outcome.records[0].op, 0);
  EXPECT_EQ(start, 2 * 9000);
}

}  // namespace
}  // namespace rehearse::engine
