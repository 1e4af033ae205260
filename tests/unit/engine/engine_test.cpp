// Streams, events, transfers and hosts of small programs; times in picoseconds.
#include "sim/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/engine/machine.h"

namespace rehearse::engine {
namespace {

using result::OpRecord;
using result::Share;
using testing::EventId;
using testing::RoleBuilder;
using testing::StreamKind;

struct Case {
  program::Program program;
  plan::RankGrid grid = testing::grid_of(1, 1, 1);
  testing::TestCluster cluster{64};
  testing::TestModel model;
  testing::TestCosts costs;
  Options options;

  Case() { options.steps = 1; }
  Outcome run() const { return simulate(program, grid, cluster, model, costs, options); }
};

std::int64_t share_of(const Outcome& outcome, Share which) {
  return outcome.breakdown_ps[static_cast<std::size_t>(which)];
}
std::int64_t end_of_op(const OpRecord& record) {
  return record.start_ps + record.duration_ps;
}

// Two stages, rank 0 computes 1000 and rank 1 3000; then both reduce (startup 100, bytes 500), then a kernel of 10.
Case uneven_pair() {
  Case s;
  s.grid = testing::grid_of(1, 1, 2);
  s.program.groups = {testing::group_of("world", program::GroupKind::world, Axis::pipeline)};
  for (int stage = 0; stage < 2; ++stage) {
    RoleBuilder role(stage);
    const auto compute = role.stream("compute", StreamKind::compute), comm = role.stream("data", StreamKind::data);
    const EventId ready = role.event("ready"), reduced = role.event("reduced");
    const auto body = role.body("step");
    role.kernel(body, stage == 0 ? "short" : "long", compute, {}, ready);
    role.all_reduce(body, "reduce", comm, 0, 10, {ready}, reduced);
    role.kernel(body, "after", compute, {reduced});
    role.slot(body);
    s.program.roles.push_back(role.build());
  }
  s.costs.ps = {{"short", 1000}, {"long", 3000}, {"after", 10}};
  s.model.groups = [](const std::vector<int>&, std::int64_t) {
    auto plan = testing::plan_of(500);
    plan.startup = Time::from_ps(100);
    return plan;
  };
  s.options.recorded_ranks = {0};
  return s;
}

TEST(Engine, AnAllReduceStartsWhenTheLastMemberPosts) {
  const Outcome outcome = uneven_pair().run();
  EXPECT_EQ(outcome.step_time.ps(), 3000 + 100 + 500 + 10);
  ASSERT_EQ(outcome.records.size(), 3u);
  EXPECT_EQ(outcome.records[0].start_ps, 0);
  EXPECT_EQ(outcome.records[0].duration_ps, 1000);
  EXPECT_EQ(outcome.records[1].start_ps, 1000) << "a transfer is recorded from its post";
  EXPECT_EQ(outcome.records[1].duration_ps, 2600) << "to its end";
  EXPECT_EQ(outcome.records[2].start_ps, 3600);
  EXPECT_EQ(outcome.ops, 6);
}

// Rank 0 waits 2000 for rank 1 and 600 for the transfer, rank 1 only the 600; means are over both.
TEST(Engine, WaitingForPeersIsBubbleAndMovingBytesIsExposed) {
  const Outcome outcome = uneven_pair().run();
  EXPECT_EQ(share_of(outcome, Share::compute), (1010 + 3010) / 2);
  EXPECT_EQ(share_of(outcome, Share::bubble), 2000 / 2);
  EXPECT_EQ(share_of(outcome, Share::other), 600);
}

TEST(Engine, BusyTimeIsCountedByCoverageWithItsInterval) {
  Case s = uneven_pair();
  s.model.groups = [](const std::vector<int>&, std::int64_t) {
    auto plan = testing::plan_of(600);
    plan.coverage = collective::Coverage::spec;
    plan.low = 0.5, plan.high = 2;
    return plan;
  };
  const Outcome outcome = s.run();
  EXPECT_DOUBLE_EQ(outcome.coverage_busy_s[0], 4020e-12) << "kernels: exact";
  EXPECT_DOUBLE_EQ(outcome.coverage_busy_s[3], 1200e-12) << "the transfer on both ranks, from its start";
  EXPECT_DOUBLE_EQ(outcome.busy_s, 5220e-12);
  EXPECT_DOUBLE_EQ(outcome.busy_low_s, 4020e-12 * 0.9 + 600e-12);
  EXPECT_DOUBLE_EQ(outcome.busy_high_s, 4020e-12 * 1.2 + 2400e-12);
}

// Bodies A (100, records e) and B (10, on another stream, waits for e).
Case two_bodies(const std::vector<char>& slots) {
  Case s;
  RoleBuilder role;
  const auto compute = role.stream("compute", StreamKind::compute), copy = role.stream("copy", StreamKind::copy);
  const EventId e = role.event("e");
  const auto a = role.body("a"), b = role.body("b");
  role.kernel(a, "a", compute, {}, e);
  role.kernel(b, "b", copy, {e});
  for (const char slot : slots) role.slot(slot == 'a' ? a : b);
  s.program.roles.push_back(role.build());
  s.costs.ps = {{"a", 100}, {"b", 10}};
  s.options.recorded_ranks = {0};
  return s;
}

std::vector<std::int64_t> starts_of(const Outcome& outcome, std::int32_t body) {
  std::vector<std::int64_t> starts;
  for (const OpRecord& record : outcome.records)
    if (record.body == body) starts.push_back(record.start_ps);
  return starts;
}

TEST(Engine, AWaitIsForTheLatestRecordBeforeItInProgramOrder) {
  EXPECT_EQ(starts_of(two_bodies({'a', 'a', 'b', 'a'}).run(), 1), (std::vector<std::int64_t>{200}));
  EXPECT_EQ(starts_of(two_bodies({'a', 'b', 'a', 'b'}).run(), 1), (std::vector<std::int64_t>{100, 200}));
}

TEST(Engine, AWaitBeforeAnyRecordIsMetAndAStepLaterItIsForTheStepBefore) {
  Case s = two_bodies({'b', 'a'});
  EXPECT_EQ(starts_of(s.run(), 1), (std::vector<std::int64_t>{0}));
  s.options.steps = 2;
  EXPECT_EQ(starts_of(s.run(), 1), (std::vector<std::int64_t>{100}));
}

TEST(Engine, ASingleStepEndsWithEverything) {
  EXPECT_EQ(two_bodies({'a', 'b'}).run().step_ends, (std::vector<Time>{Time::from_ps(110)}));
}

TEST(Engine, StepsFollowWithoutABarrierAndTheLastIsReported) {
  Case s = two_bodies({'a', 'b'});
  s.options.steps = 3;
  const Outcome outcome = s.run();
  // A step ends with the compute stream; the 10 ps on the other stream are beside the next step.
  EXPECT_EQ(outcome.step_ends, (std::vector<Time>{Time::from_ps(100), Time::from_ps(200), Time::from_ps(300)}));
  EXPECT_EQ(outcome.step_time.ps(), 100);
  EXPECT_EQ(outcome.ops, 6);
}

// One rank: a kernel of `trigger` ps on the copy stream, then a transfer; beside it a compute stream with kernels.
Case beside_a_transfer(const std::vector<std::int64_t>& kernels, std::int64_t trigger, collective::TransferPlan plan) {
  Case s;
  s.program.groups = {testing::group_of("data", program::GroupKind::data, Axis::data)};
  RoleBuilder role;
  const auto compute = role.stream("compute", StreamKind::compute), copy = role.stream("copy", StreamKind::copy),
             comm = role.stream("data", StreamKind::data);
  const EventId e = role.event("e");
  const auto body = role.body("step");
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    role.kernel(body, fmt::format("k{}", i), compute);
    s.costs.ps[fmt::format("k{}", i)] = kernels[i];
  }
  role.kernel(body, "trigger", copy, {}, e);
  s.costs.ps["trigger"] = trigger;
  role.all_reduce(body, "reduce", comm, 0, 10, {e});
  role.slot(body);
  s.program.roles.push_back(role.build());
  s.model.groups = [plan](const std::vector<int>&, std::int64_t) { return plan; };
  // Twice as slow with SMs held; three times with bandwidth taken.
  s.costs.slowed = [](std::int64_t alone, const cost::Interference& beside) {
    return alone * (beside.sms_held > 0 ? 2 : 1) * (beside.bandwidth_taken > 0 ? 3 : 1);
  };
  s.options.recorded_ranks = {0};
  return s;
}

std::vector<std::int64_t> ends_on_compute(const Outcome& outcome, int kernels) {
  std::vector<std::int64_t> ends;
  for (const OpRecord& record : outcome.records)
    if (record.op < kernels) ends.push_back(end_of_op(record));
  std::sort(ends.begin(), ends.end());
  return ends;
}

TEST(Engine, ComputeAndATransferOverlap) {
  const Outcome outcome = beside_a_transfer({1000}, 100, testing::plan_of(800)).run();
  EXPECT_EQ(outcome.step_time.ps(), 1000);
}

TEST(Engine, AKernelKeepsItsDoneFractionWhenATransferTakesSms) {
  auto plan = testing::plan_of(5000);
  plan.sms = 4;
  const Outcome outcome = beside_a_transfer({1000}, 400, plan).run();
  EXPECT_EQ(ends_on_compute(outcome, 1), (std::vector<std::int64_t>{400 + 600 * 2}));
}

// 300 + 500 + 200. At 400 the second kernel has 400 of 500 left: 800. At 1400 the transfer ends, when the third, of 400
// since 1200, is half done: 100 more.
TEST(Engine, AChangeAmidSeveralKernelsFindsTheOneInProgress) {
  auto plan = testing::plan_of(1000);
  plan.sms = 4;
  const Outcome outcome = beside_a_transfer({300, 500, 200}, 400, plan).run();
  EXPECT_EQ(ends_on_compute(outcome, 3), (std::vector<std::int64_t>{300, 1200, 1500}));
}

// SMs are held from the post at 400, bandwidth from the start of the bytes at 600. 600 left at 400: 1200 at twice;
// after 200 of these 1000 of 2000 is left: 3000 of 6000.
TEST(Engine, SmsAreHeldFromTheLaunchAndBandwidthFromTheFirstByte) {
  auto plan = testing::plan_of(100'000);
  plan.sms = 4;
  plan.startup = Time::from_ps(200);
  plan.memory_bytes = 1000;
  const Outcome outcome = beside_a_transfer({1000}, 400, plan).run();
  EXPECT_EQ(ends_on_compute(outcome, 1), (std::vector<std::int64_t>{600 + 3000}));
}

TEST(Engine, KernelsOffTheComputeStreamAreNotSlowedAndDoNotSlow) {
  auto plan = testing::plan_of(5000);
  plan.sms = 4;
  Case s = beside_a_transfer({}, 400, plan);
  auto& ops = s.program.roles[0].bodies[0].ops;
  program::Op extra = ops[0];
  extra.name = "extra", extra.records = -1;
  ops.push_back(extra);
  s.costs.ps["extra"] = 1000;
  const Outcome outcome = s.run();
  EXPECT_EQ(outcome.step_time.ps(), 5400);
  EXPECT_TRUE(std::any_of(outcome.records.begin(), outcome.records.end(),
                          [](const OpRecord& r) { return r.start_ps == 400 && r.duration_ps == 1000; }));
}

// Ranks that share cores: one kernel each.
Case on_shared_cores(int ranks, int cores, int threads) {
  Case s;
  s.grid = testing::grid_of(1, ranks, 1);
  RoleBuilder role;
  const auto compute = role.stream("compute", StreamKind::compute);
  const auto body = role.body("step");
  role.kernel(body, "k0", compute);
  role.kernel(body, "k1", compute);
  role.slot(body);
  s.program.roles.push_back(role.build());
  s.costs.ps = {{"k0", 1001}, {"k1", 500}};
  s.cluster.sharing = {cores, threads};
  return s;
}

TEST(Engine, FourRanksOnTwoCoresTakeExactlyTwice) {
  EXPECT_EQ(on_shared_cores(4, 2, 1).run().step_time.ps(), 2 * 1501);
  EXPECT_EQ(on_shared_cores(2, 2, 1).run().step_time.ps(), 1501);
  EXPECT_EQ(on_shared_cores(4, 2, 2).run().step_time.ps(), 4 * 1501);
}

// One core, kernels of 1000 and 3000: both at half until 2000, then the second alone with 2000 left.
TEST(Engine, ARankThatFinishesGivesItsCoresToTheOthers) {
  Case s = uneven_pair();
  s.cluster.sharing = {1, 1};
  s.model.groups = [](const std::vector<int>&, std::int64_t) { return collective::TransferPlan(); };
  s.costs.ps["after"] = 0;
  s.options.recorded_ranks = {0, 1};
  const Outcome outcome = s.run();
  EXPECT_EQ(outcome.step_time.ps(), 4000);
  EXPECT_EQ(end_of_op(outcome.records[0]), 2000);
}

Case launching(int kernels, std::int64_t each) {
  Case s;
  RoleBuilder role;
  const auto compute = role.stream("compute", StreamKind::compute);
  const auto body = role.body("step");
  for (int i = 0; i < kernels; ++i) role.kernel(body, fmt::format("k{}", i), compute);
  role.slot(body);
  s.program.roles.push_back(role.build());
  s.costs.otherwise = each;
  s.options.launch_cost = Time::from_ps(1000);
  return s;
}

// Kernel i is launched by 1000 (i + 1) and runs 100.
TEST(Engine, ALaunchBoundRankWaitsForItsHost) {
  const Outcome outcome = launching(10, 100).run();
  EXPECT_EQ(outcome.step_time.ps(), 10 * 1000 + 100);
  EXPECT_EQ(share_of(outcome, Share::compute), 10 * 100);
  EXPECT_EQ(share_of(outcome, Share::host), 10 * 1000 + 100 - 10 * 100);
}

TEST(Engine, ADeviceBoundRankHidesItsLaunches) {
  const Outcome outcome = launching(10, 5000).run();
  EXPECT_EQ(outcome.step_time.ps(), 1000 + 10 * 5000);
  EXPECT_EQ(share_of(outcome, Share::host), 1000);
}

// Kernel a (500) is launched by 100 and done at 600; the host waits for it and launches b by 700.
TEST(Engine, AHostSyncHoldsLaterLaunchesUntilItsWaitsAreMet) {
  Case s;
  RoleBuilder role;
  const auto compute = role.stream("compute", StreamKind::compute), host = role.stream("host", StreamKind::host);
  const EventId e = role.event("e");
  const auto body = role.body("step");
  role.kernel(body, "a", compute, {}, e);
  role.op(body, "sync", host, program::HostSync{}, {e});
  role.kernel(body, "b", compute);
  role.slot(body);
  s.program.roles.push_back(role.build());
  s.costs.ps = {{"a", 500}, {"b", 50}};
  s.options.launch_cost = Time::from_ps(100);
  Outcome outcome = s.run();
  EXPECT_EQ(outcome.step_time.ps(), 750);
  EXPECT_EQ(share_of(outcome, Share::host), 200);
  s.options.launch_cost = Time();
  outcome = s.run();
  EXPECT_EQ(outcome.step_time.ps(), 550);
  EXPECT_EQ(outcome.ops, 3);
}

// What a HostSync waits for takes the blame for what it holds back: here a reduction of 600 after a kernel of 1000.
TEST(Engine, ATransferBehindAHostSyncIsExposed) {
  Case s;
  s.grid = testing::grid_of(1, 2, 1);
  s.program.groups = {testing::group_of("data", program::GroupKind::data, Axis::data)};
  RoleBuilder role;
  const auto compute = role.stream("compute", StreamKind::compute), comm = role.stream("data", StreamKind::data),
             host = role.stream("host", StreamKind::host);
  const EventId ready = role.event("ready"), reduced = role.event("reduced");
  const auto body = role.body("step");
  role.kernel(body, "a", compute, {}, ready);
  role.all_reduce(body, "reduce", comm, 0, 10, {ready}, reduced);
  role.op(body, "sync", host, program::HostSync{}, {reduced});
  role.kernel(body, "b", compute);
  role.slot(body);
  s.program.roles.push_back(role.build());
  s.model.groups = [](const std::vector<int>&, std::int64_t) { return testing::plan_of(600); };
  s.options.steps = 2;
  const Outcome outcome = s.run();
  EXPECT_EQ(outcome.step_time.ps(), 2600);
  EXPECT_EQ(share_of(outcome, Share::exposed_data), 600);
  EXPECT_EQ(share_of(outcome, Share::compute), 2000);
}

TEST(Engine, AStreamsTransfersGoInOrder) {
  Case s = uneven_pair();
  for (program::Role& role : s.program.roles) {
    auto& ops = role.bodies[0].ops;
    program::Op second = ops[1];
    second.name = "second", second.waits.clear(), ops[1].records = -1;
    ops.insert(ops.begin() + 2, second);
  }
  EXPECT_EQ(s.run().step_time.ps(), 3000 + 600 + 600 + 10);
}

TEST(Engine, ProgressMayStopARun) {
  Case s = two_bodies({'a', 'b'});
  s.options.steps = 100'000;
  s.options.progress = [](double done) {
    EXPECT_GT(done, 0);
    EXPECT_LE(done, 1);
    throw std::runtime_error("stopped");
  };
  EXPECT_THROW(s.run(), std::runtime_error);
}

}  // namespace
}  // namespace rehearse::engine
