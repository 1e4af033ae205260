// Ranks on CPUs have one arena, those on other devices if the job says so: an op that writes where another stream's op
// still reads waits for it, in the step and over the border of two. Where sends that wait for their receivers would
// then make ranks wait in a circle, they are made from copies. Times in picoseconds.
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
  one.model.buffered = false;
  EXPECT_EQ(one.run(1).step_time.ps(), 1000 + 5000 + 2000);
  one.options.arena = true;
  EXPECT_EQ(one.run(1).step_time.ps(), 1000 + 5000 + 1000 + 2000);
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

// Micro-batches through a ring: backward of each lets forward go on, two ahead of it. Forward (1000) saves what the
// data stream then sends away (5000); forward of micro-batch 2 writes where that of 0 lay, and waits until it has gone.
TEST(Arena, APlaceOfARingWaitsForItsOwnLastUse) {
  testing::RoleBuilder b;
  const auto compute = b.stream("compute", program::StreamKind::compute),
             data = b.stream("data", program::StreamKind::data);
  const auto made = b.event("made");
  const auto forward = b.body("forward"), backward = b.body("backward");
  b.kernel(forward, "save", compute, {}, made).writes = {{0, 0}};
  b.kernel(forward, "away", data, {made}).reads = {{0, 0}};
  program::Op& used = b.kernel(backward, "use", compute);
  used.reads = used.releases = {{0, 0}};
  for (const int m : {0, 1}) b.slot(forward, m);
  for (const int m : {2, 3}) {
    b.slot(backward, m - 2);
    b.slot(forward, m);
  }
  for (const int m : {2, 3}) b.slot(backward, m);
  program::Role role = b.build();
  program::Buffer& buffer = role.buffers.emplace_back();
  buffer.name = "saved", buffer.shape = {4}, buffer.lifetime = program::Lifetime::micro_batch;
  program::Program program;
  program.roles.push_back(role);
  testing::TestCosts costs;
  costs.ps = {{"save", 1000}, {"away", 5000}, {"use", 0}};
  Options options;
  options.steps = 1;
  options.arena = true;
  options.recorded_ranks = {0};
  const Outcome outcome =
      simulate(program, testing::grid_of(1, 1, 1), testing::TestCluster(1), testing::TestModel(), costs, options);
  std::vector<std::int64_t> saves;
  for (const result::OpRecord& record : outcome.records)
    if (record.body == forward && record.op == 0) saves.push_back(record.start_ps);
  // The data stream sends from 1000, 6000, 11000 and 16000 on.
  EXPECT_EQ(saves, (std::vector<std::int64_t>{0, 1000, 6000, 11000}));
  EXPECT_EQ(outcome.step_time.ps(), 1000 + 4 * 5000);
}

// Each of two stages sends before it receives. A message takes 500 once both have come, a copy 100.
struct SendsFirst {
  program::Program program;
  testing::TestModel model;
  testing::TestCosts costs;
  Options options;

  SendsFirst() {
    for (const int stage : {0, 1}) {
      testing::RoleBuilder b(stage);
      const auto stream = b.stream("pipeline", program::StreamKind::pipeline);
      const auto body = b.body("body");
      const auto send = [&](int channel) {
        b.message(body, "send" + std::to_string(channel), stream, true, 1, channel, 4).reads = {{0, 0}};
      };
      const auto receive = [&](int channel) {
        b.message(body, "receive" + std::to_string(channel), stream, false, 1, channel, 4).writes = {{0, 0}};
      };
      if (stage == 0) {
        send(0), send(1), receive(2);
      } else {
        send(2), receive(0), receive(1);
      }
      b.slot(body);
      program::Role role = b.build();
      program::Buffer& buffer = role.buffers.emplace_back();
      buffer.name = "value", buffer.shape = {4}, buffer.lifetime = program::Lifetime::persistent;
      program.roles.push_back(role);
    }
    model.messages = [](int, int, std::int64_t) { return testing::plan_of(500); };
    costs.otherwise = 100;
    options.steps = 1;
    options.recorded_ranks = {0, 1};
  }
  Outcome run() { return simulate(program, testing::grid_of(1, 1, 2), testing::TestCluster(2), model, costs, options); }
};

TEST(Arena, SendsThatWaitForTheirReceiversStandInACircle) {
  EXPECT_THROW(SendsFirst().run(), Deadlock);
}

// One slot: stage 0's second send waits until the first message has been received.
TEST(Arena, SendsFromCopiesGoOutOneAfterTheOther) {
  SendsFirst stages;
  stages.options.arena = true;
  const Outcome outcome = stages.run();
  ASSERT_EQ(outcome.records.size(), 6u);
  const auto expect = [&](std::size_t index, int rank, int op, std::int64_t start, std::int64_t duration) {
    const result::OpRecord& record = outcome.records[index];
    EXPECT_EQ(record.rank, rank);
    EXPECT_EQ(record.op, op);
    EXPECT_EQ(record.start_ps, start) << "rank " << rank << ", op " << op;
    EXPECT_EQ(record.duration_ps, duration) << "rank " << rank << ", op " << op;
  };
  expect(0, 0, 0, 0, 100);
  expect(1, 0, 1, 100, 600);
  expect(2, 0, 2, 700, 500);
  expect(3, 1, 0, 0, 100);
  expect(4, 1, 1, 100, 500);
  expect(5, 1, 2, 600, 600);
  EXPECT_EQ(outcome.records[1].waited_ps, 500) << "for the slot";
  EXPECT_EQ(outcome.records[1].moving_ps, 100) << "the copy";
  EXPECT_EQ(outcome.step_time.ps(), 1200);
}

}  // namespace
}  // namespace rehearse::engine
