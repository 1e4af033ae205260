// Ranks that are threads of one host: the cores they share, what company costs a kernel, the time between ops, and
// messages that are buffered. Times in picoseconds.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/engine/machine.h"

namespace rehearse::engine {
namespace {

using result::OpRecord;
using result::Share;
using testing::EventId;
using testing::RoleBuilder;
using testing::StreamKind;

struct Host {
  program::Program program;
  plan::RankGrid grid = testing::grid_of(1, 1, 1);
  testing::TestCluster cluster{64};
  testing::TestModel model;
  testing::TestCosts costs;
  Options options;

  Host(int cores, int threads) {
    options.steps = 1;
    costs.machine.cpu = true;
    cluster.sharing = {cores, threads};
    model.buffered = true;
  }
  Outcome run() const { return simulate(program, grid, cluster, model, costs, options); }
};

std::int64_t host_share(const Outcome& outcome, Share which) {
  return outcome.breakdown_ps[static_cast<std::size_t>(which)];
}
std::int64_t record_end(const OpRecord& record) {
  return record.start_ps + record.duration_ps;
}
// The time an op took, by its place in the body of rank `rank`.
const OpRecord& op_of(const Outcome& outcome, int rank, int op) {
  for (const OpRecord& r : outcome.records)
    if (r.rank == rank && r.op == op) return r;
  ADD_FAILURE() << "rank " << rank << " has no op " << op;
  return outcome.records.front();
}

// Twice as long beside each further busy core: 1, 2, 3 times.
std::int64_t by_company(std::int64_t alone, const cost::Interference& beside) {
  return alone * std::max(1, beside.busy_cores);
}

// Data-parallel ranks of one kernel each.
Host one_kernel_each(int ranks, int cores, int threads = 1) {
  Host h(cores, threads);
  h.grid = testing::grid_of(1, ranks, 1);
  RoleBuilder role;
  const auto compute = role.stream("compute", StreamKind::compute);
  const auto body = role.body("step");
  role.kernel(body, "k", compute);
  role.slot(body);
  h.program.roles.push_back(role.build());
  h.costs.slowed = by_company;
  return h;
}

TEST(SharedCores, KernelsTakeWhatTheyTakeInTheirCompany) {
  EXPECT_EQ(one_kernel_each(1, 4).run().step_time.ps(), 1000);
  EXPECT_EQ(one_kernel_each(2, 4).run().step_time.ps(), 2000);
  EXPECT_EQ(one_kernel_each(2, 4, 2).run().step_time.ps(), 4000);  // two threads each: all four cores
}

// Eight threads on four cores: as long as beside four, and half the speed on top.
TEST(SharedCores, ThreadsBeyondTheCoresTakeTurns) {
  EXPECT_EQ(one_kernel_each(8, 4).run().step_time.ps(), 4 * 1000 * 2);
}

// Costs measured while our two threads waited half of their time: two other programs' threads on two cores, so that
// each of the four had half a core. Beside those two, four of ours have a third of a core each: 1.5 times as long.
TEST(SharedCores, OthersThatWereThereBeforeLeaveMoreOfUsAGreaterShare) {
  const auto two_cores = [](int ranks, double waited) {
    Host h = one_kernel_each(ranks, 2);
    h.costs.slowed = {};
    h.costs.machine.pace = {.probes = 1, .product_s = 1, .copy_s = 1, .waited = waited, .cores = 2, .wanted = 2};
    return h.run().step_time.ps();
  };
  EXPECT_EQ(two_cores(2, 0.5), 1000) << "the company that the costs are of";
  EXPECT_EQ(two_cores(4, 0.5), 1500);
  EXPECT_EQ(two_cores(4, 0), 2000) << "nobody else was there";
  EXPECT_EQ(two_cores(4, -1), 2000) << "not known";
}

// 1000 beside another at half speed; the second has 2000 of 4000 (alone: 1000 of 2000) left when the first is done.
TEST(SharedCores, WhatIsLeftOfAKernelGoesOnInTheNewCompany) {
  Host h(2, 1);
  h.grid = testing::grid_of(1, 1, 2);
  for (int stage = 0; stage < 2; ++stage) {
    RoleBuilder role(stage);
    const auto compute = role.stream("compute", StreamKind::compute);
    const auto body = role.body("step");
    role.kernel(body, stage == 0 ? "short" : "long", compute);
    role.slot(body);
    h.program.roles.push_back(role.build());
  }
  h.costs.ps = {{"short", 1000}, {"long", 2000}};
  h.costs.slowed = by_company;
  EXPECT_EQ(h.run().step_time.ps(), 2000 + 1000);
}

// A stream beside the compute stream is a thread like it.
TEST(SharedCores, KernelsOfEveryStreamCount) {
  Host h(1, 1);
  RoleBuilder role;
  const auto compute = role.stream("compute", StreamKind::compute), copy = role.stream("copy", StreamKind::copy);
  const auto body = role.body("step");
  role.kernel(body, "a", compute);
  role.kernel(body, "b", copy);
  role.slot(body);
  h.program.roles.push_back(role.build());
  EXPECT_EQ(h.run().step_time.ps(), 2000);
}

// compute: a (records), b; data: c waits for a; compute: d waits for c.
Host two_streams() {
  Host h(2, 1);
  RoleBuilder role;
  const auto compute = role.stream("compute", StreamKind::compute), data = role.stream("data", StreamKind::data);
  const EventId first = role.event("first"), second = role.event("second");
  const auto body = role.body("step");
  role.kernel(body, "a", compute, {}, first);
  role.kernel(body, "b", compute);
  role.kernel(body, "c", data, {first}, second);
  role.kernel(body, "d", compute, {second});
  role.slot(body);
  h.program.roles.push_back(role.build());
  h.costs.ps = {{"a", 1000}, {"b", 1000}, {"c", 5000}, {"d", 1000}};
  h.options.recorded_ranks = {0};
  return h;
}

// Each op starts 10 after what is before it on its stream, 10 + 300 after what its thread slept for.
TEST(SharedCores, GapsLieBetweenOps) {
  Host h = two_streams();
  h.costs.machine.dispatch = Time::from_ps(10);
  h.costs.machine.wake = Time::from_ps(300);
  const Outcome outcome = h.run();
  EXPECT_EQ(op_of(outcome, 0, 0).start_ps, 10);
  EXPECT_EQ(op_of(outcome, 0, 1).start_ps, 1010 + 10);
  EXPECT_EQ(op_of(outcome, 0, 2).start_ps, 1010 + 310);
  EXPECT_EQ(op_of(outcome, 0, 3).start_ps, 1320 + 5000 + 310);
  EXPECT_EQ(outcome.step_time.ps(), 6630 + 1000);
  EXPECT_EQ(host_share(outcome, Share::host), 10 + 10 + 310);
  EXPECT_EQ(host_share(outcome, Share::compute), 3000);
}

// A wait that is met when it comes up costs no wake.
TEST(SharedCores, AWaitThatDoesNotSleepCostsNoWake) {
  Host h = two_streams();
  h.costs.ps["b"] = 50000;
  h.costs.machine.wake = Time::from_ps(300);
  EXPECT_EQ(op_of(h.run(), 0, 3).start_ps, 51000);
}

TEST(SharedCores, GapsAreOnlyOfRanksThatAreThreads) {
  Host h = two_streams();
  h.costs.machine.dispatch = Time::from_ps(10);
  h.costs.machine.cpu = false;
  EXPECT_EQ(op_of(h.run(), 0, 1).start_ps, 1000);
}

// Two ranks that reduce on a stream of their own while they compute.
Host reduce_beside(int cores, int threads) {
  Host h(cores, 1);
  h.grid = testing::grid_of(1, 2, 1);
  h.program.groups = {testing::group_of("data", program::GroupKind::data, Axis::data)};
  RoleBuilder role;
  const auto compute = role.stream("compute", StreamKind::compute), data = role.stream("data", StreamKind::data);
  const auto body = role.body("step");
  role.kernel(body, "k", compute);
  role.all_reduce(body, "reduce", data, 0, 10);
  role.slot(body);
  h.program.roles.push_back(role.build());
  h.costs.ps = {{"k", 10000}};
  h.model.groups = [threads](const std::vector<int>&, std::int64_t) {
    auto plan = testing::plan_of(4000);
    plan.startup = Time::from_ps(500);
    plan.threads = threads;
    return plan;
  };
  h.options.recorded_ranks = {0};
  return h;
}

// Two cores, two kernels, and from 500 on two more threads: all at half speed. The transfer takes 8000, and the kernels
// have then done 500 + 4000.
TEST(SharedCores, ATransferAndTheKernelsBesideItSlowEachOther) {
  const Outcome outcome = reduce_beside(2, 2).run();
  EXPECT_EQ(record_end(op_of(outcome, 0, 1)), 500 + 8000);
  EXPECT_EQ(record_end(op_of(outcome, 0, 0)), 10000 + 4000);
}

// With cores to spare each takes its own time: what a transfer's participants cost each other is in what was measured.
TEST(SharedCores, ATransferAloneTakesWhatWasMeasured) {
  const Outcome outcome = reduce_beside(4, 2).run();
  EXPECT_EQ(record_end(op_of(outcome, 0, 1)), 4500);
  EXPECT_EQ(record_end(op_of(outcome, 0, 0)), 10000);
}

// Stage 0 sends after a kernel and goes on; stage 1 receives, the first op of its step or after a kernel of its own.
Host message(std::int64_t before_send, std::int64_t before_receive) {
  Host h(8, 1);
  h.grid = testing::grid_of(1, 1, 2);
  for (int stage = 0; stage < 2; ++stage) {
    RoleBuilder role(stage);
    const auto compute = role.stream("compute", StreamKind::compute);
    const auto body = role.body("step");
    role.kernel(body, stage == 0 ? "before-send" : "before-receive", compute);
    role.message(body, "message", compute, stage == 0, stage == 0 ? 1 : -1, 0, 100);
    role.kernel(body, "after", compute);
    role.slot(body);
    h.program.roles.push_back(role.build());
  }
  h.costs.ps = {{"before-send", before_send}, {"before-receive", before_receive}, {"after", 1}};
  h.model.messages = [](int, int, std::int64_t) {
    collective::TransferPlan plan;
    plan.startup = Time::from_ps(50);
    plan.copy_out = Time::from_ps(200), plan.copy_in = Time::from_ps(300);
    return plan;
  };
  h.options.recorded_ranks = {0, 1};
  return h;
}

TEST(Mailboxes, ASenderDoesNotWaitForTheReceiver) {
  const Outcome outcome = message(1000, 90000).run();
  EXPECT_EQ(record_end(op_of(outcome, 0, 1)), 1200);
  EXPECT_EQ(op_of(outcome, 1, 1).start_ps, 90000);
  EXPECT_EQ(record_end(op_of(outcome, 1, 1)), 90300);  // it is there: nobody has to wake
}

TEST(Mailboxes, AReceiverThatComesFirstSleepsAndWakes) {
  const Outcome outcome = message(1000, 0).run();
  EXPECT_EQ(op_of(outcome, 1, 1).start_ps, 0);
  EXPECT_EQ(record_end(op_of(outcome, 1, 1)), 1200 + 50 + 300);
}

TEST(Mailboxes, AWaitIsABubbleUntilTheMessageIsSent) {
  const Outcome outcome = message(1000, 0).run();
  const auto all = std::accumulate(outcome.breakdown_ps.begin(), outcome.breakdown_ps.end(), std::int64_t{0});
  EXPECT_EQ(all, outcome.step_time.ps());
  EXPECT_GT(host_share(outcome, Share::bubble), 0);
}

// Copies are work of the stream's thread: one core for a copy and a kernel makes both take turns.
TEST(Mailboxes, CopiesTakeCores) {
  Host h = message(1000, 5000);
  h.cluster.sharing = {1, 1};
  const Outcome outcome = h.run();
  // Kernels at half speed: the first ends at 2000, the copy at 2400; the last kernel of the sender 2 later.
  EXPECT_EQ(record_end(op_of(outcome, 0, 1)), 2400);
}

// Messages cross one link: 50 ps, then 7000 ps.
void over_network(Host& h) {
  h.cluster = testing::TestCluster(64, {1'000'000'000});
  h.cluster.sharing = {8, 1};
  h.model.messages = [](int, int, std::int64_t) {
    auto plan = testing::plan_of(7000, {{0, 1}});
    plan.startup = Time::from_ps(50);
    return plan;
  };
}

// Over a network the bytes move by themselves; the sender is done at once.
TEST(Mailboxes, AMessageCrossesTheNetworkWhileItsSenderGoesOn) {
  Host h = message(1000, 0);
  over_network(h);
  const Outcome outcome = h.run();
  EXPECT_EQ(record_end(op_of(outcome, 0, 1)), 1000);
  EXPECT_EQ(record_end(op_of(outcome, 1, 1)), 1000 + 50 + 7000);
}

// Bytes of a message over the network move once its receiver asks: what is sent early crosses late.
TEST(Mailboxes, AMessageOverTheNetworkWaitsForItsReceiver) {
  Host h = message(1000, 9000);
  over_network(h);
  const Outcome outcome = h.run();
  EXPECT_EQ(record_end(op_of(outcome, 0, 1)), 1000);
  EXPECT_EQ(record_end(op_of(outcome, 1, 1)), 9000 + 50 + 7000);
}

// Two messages asked for on streams of their own go one after the other, as on one connection: the first is there after
// its own time, not when both have shared the way.
TEST(Mailboxes, MessagesOfAConnectionKeepTheirOrder) {
  Host h(8, 1);
  h.grid = testing::grid_of(1, 1, 2);
  for (int stage = 0; stage < 2; ++stage) {
    RoleBuilder role(stage);
    const auto compute = role.stream("compute", StreamKind::compute);
    const auto other = role.stream("p2p", StreamKind::pipeline);
    const auto body = role.body("step");
    role.message(body, "first", compute, stage == 0, stage == 0 ? 1 : -1, 0, 100);
    role.message(body, "second", other, stage == 0, stage == 0 ? 1 : -1, 1, 100);
    role.slot(body);
    h.program.roles.push_back(role.build());
  }
  h.cluster = testing::TestCluster(64, {1'000'000'000});
  h.cluster.sharing = {8, 1};
  h.model.messages = [](int, int, std::int64_t) { return testing::plan_of(7000, {{0, 1}}); };
  h.options.recorded_ranks = {0, 1};
  const Outcome outcome = h.run();
  EXPECT_EQ(record_end(op_of(outcome, 1, 0)), 7000);
  EXPECT_EQ(record_end(op_of(outcome, 1, 1)), 14000);
}

// Both ranks send before they receive: with senders that wait this order would be a circle.
TEST(Mailboxes, RanksMaySendToEachOtherFirst) {
  Host h(2, 1);
  h.grid = testing::grid_of(1, 1, 2);
  for (int stage = 0; stage < 2; ++stage) {
    RoleBuilder role(stage);
    const auto compute = role.stream("compute", StreamKind::compute);
    const auto body = role.body("step");
    role.message(body, "send", compute, true, 1, 0, 100);
    role.message(body, "receive", compute, false, 1, 0, 100);
    role.slot(body);
    h.program.roles.push_back(role.build());
  }
  h.model.messages = message(0, 0).model.messages;
  EXPECT_EQ(h.run().step_time.ps(), 200 + 300);
}

TEST(Mailboxes, AMessageNobodySendsIsNamed) {
  Host h = message(1000, 0);
  h.program.roles[0].bodies[0].ops.erase(h.program.roles[0].bodies[0].ops.begin() + 1);
  try {
    h.run();
    FAIL() << "no deadlock";
  } catch (const Deadlock& e) {
    EXPECT_NE(std::string(e.what()).find("rank 0 to send"), std::string::npos) << e.what();
  }
}

TEST(SharedCores, TheSameHostGivesTheSameTimes) {
  const Outcome a = reduce_beside(2, 2).run(), b = reduce_beside(2, 2).run();
  ASSERT_EQ(a.records.size(), b.records.size());
  for (std::size_t i = 0; i < a.records.size(); ++i) {
    EXPECT_EQ(a.records[i].start_ps, b.records[i].start_ps);
    EXPECT_EQ(a.records[i].duration_ps, b.records[i].duration_ps);
  }
  EXPECT_EQ(a.events, b.events);
}

}  // namespace
}  // namespace rehearse::engine
