// What waits are called (sim/account/blame.h): late ranks of the same role and of another, transfers that queue, ops
// that were not launched. Times in picoseconds.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "tests/unit/engine/machine.h"

namespace rehearse::engine {
namespace {

using result::Share;
using testing::EventId;
using testing::RoleBuilder;
using testing::StreamKind;

std::int64_t share(const Outcome& outcome, Share share) {
  return outcome.breakdown_ps[static_cast<std::size_t>(share)];
}

// Two replicas: a kernel of 1000, an all-reduce of 500, an update that waits for it. Rank 1 is slow.
struct Replicas {
  program::Program program;
  plan::RankGrid grid = testing::grid_of(1, 2, 1);
  testing::TestCluster cluster{2};
  testing::TestModel model;
  testing::TestCosts costs;
  Options options;
  RoleBuilder role;
  program::StreamId compute, data;
  program::BodyId body;
  EventId ready, reduced;

  Replicas()
      : compute(role.stream("compute", StreamKind::compute)),
        data(role.stream("data", StreamKind::data)),
        body(role.body("step")),
        ready(role.event("ready")),
        reduced(role.event("reduced")) {
    program.groups = {testing::group_of("data", program::GroupKind::data, Axis::data)};
    model.groups = [](const auto&, std::int64_t) { return testing::plan_of(500); };
    model.messages = [](int, int, std::int64_t) { return testing::plan_of(500); };
    options.steps = 1;
    options.recorded_ranks = {0};
    options.noise.slow_ranks = {{{1}, 0, 3}};
  }
  Outcome run() {
    role.slot(body);
    program.roles.push_back(role.build());
    return simulate(program, grid, cluster, model, costs, options);
  }
};

TEST(Blame, WaitingForASlowRankOfOurRoleIsAStraggler) {
  Replicas r;
  r.costs.ps = {{"update", 0}};
  r.role.kernel(r.body, "k", r.compute, {}, r.ready);
  r.role.all_reduce(r.body, "reduce", r.data, 0, 10, {r.ready}, r.reduced);
  r.role.kernel(r.body, "update", r.compute, {r.reduced});
  const Outcome outcome = r.run();
  EXPECT_EQ(outcome.step_time.ps(), 3500);
  EXPECT_EQ(share(outcome, Share::straggler), 2000 / 2) << "rank 0 waits for rank 1 from 1000 to 3000";
  EXPECT_EQ(share(outcome, Share::exposed_data), 500);
  EXPECT_EQ(share(outcome, Share::compute), (1000 + 3000) / 2);
  const auto reduce = std::find_if(outcome.records.begin(), outcome.records.end(),
                                   [](const result::OpRecord& record) { return record.op == 1; });
  ASSERT_NE(reduce, outcome.records.end());
  EXPECT_EQ(reduce->waited_ps, 2000);
  EXPECT_EQ(reduce->waited_for, Share::straggler);
}

// Compute waits for the second transfer of a stream; while the first was in front of it, it is the first that tells.
TEST(Blame, ATransferThatQueuesIsToldByTheOneInFront) {
  Replicas r;
  r.costs.ps = {{"update", 0}};
  r.role.kernel(r.body, "k", r.compute, {}, r.ready);
  r.role.all_reduce(r.body, "first", r.data, 0, 10, {r.ready});
  r.role.all_reduce(r.body, "second", r.data, 0, 10, {}, r.reduced);
  r.role.kernel(r.body, "update", r.compute, {r.reduced});
  const Outcome outcome = r.run();
  EXPECT_EQ(outcome.step_time.ps(), 4000);
  EXPECT_EQ(share(outcome, Share::straggler), 2000 / 2);
  EXPECT_EQ(share(outcome, Share::exposed_data), 1000);
}

// A gather on a stream of its own, behind the all-reduce, and each op takes the host 100 to launch after it has seen
// the all-reduce's end: three waits in a chain, each called what it is.
TEST(Blame, AChainOfWaitsIsToldLinkByLink) {
  Replicas r;
  r.options.launch_cost = Time::from_ps(100);
  r.costs.ps = {{"update", 0}};
  r.program.groups.push_back(testing::group_of("tensor", program::GroupKind::tensor, Axis::tensor));
  const auto tensor = r.role.stream("tensor", StreamKind::tensor), host = r.role.stream("host", StreamKind::host);
  const EventId gathered = r.role.event("gathered");
  r.role.kernel(r.body, "k", r.compute, {}, r.ready);
  r.role.all_reduce(r.body, "reduce", r.data, 0, 10, {r.ready}, r.reduced);
  r.role.op(r.body, "sync", host, program::HostSync{}, {r.reduced});
  r.role.all_reduce(r.body, "gather", tensor, 1, 10, {}, gathered);
  r.role.kernel(r.body, "update", r.compute, {gathered});
  const Outcome outcome = r.run();
  // Launched at 100; the kernels end at 1100 and 3100, the all-reduce at 3600; the gather is launched at 3700.
  EXPECT_EQ(outcome.step_time.ps(), 4200);
  EXPECT_EQ(share(outcome, Share::straggler), 2000 / 2);
  EXPECT_EQ(share(outcome, Share::exposed_data), 500);
  EXPECT_EQ(share(outcome, Share::exposed_tensor), 500);
  EXPECT_EQ(share(outcome, Share::host), 100 + 100);
  EXPECT_EQ(share(outcome, Share::bubble) + share(outcome, Share::other), 0);
  // What is recorded of each op says the same: whose end it waited for, and how long it was only not launched.
  ASSERT_EQ(outcome.records.size(), 5u);
  const auto& [k, reduce, sync, gather, update] =
      std::tie(outcome.records[0], outcome.records[1], outcome.records[2], outcome.records[3], outcome.records[4]);
  EXPECT_EQ(k.queued_ps, 100);
  EXPECT_EQ(k.woken_by, -1) << "nothing was before it";
  EXPECT_EQ(reduce.queued_ps, 0);
  EXPECT_EQ(reduce.woken_by, r.compute);
  EXPECT_EQ(sync.queued_ps, 0);
  EXPECT_EQ(sync.woken_by, r.data);
  EXPECT_EQ(gather.queued_ps, 100);
  EXPECT_EQ(gather.woken_by, r.data) << "through the sync";
  EXPECT_EQ(update.queued_ps, 0);
  EXPECT_EQ(update.woken_by, tensor);
}

// 2000 until rank 1 has come, 300 of start-up, 500 that bytes move.
TEST(Blame, ATransfersTimeIsWaitingThenStartUpThenMoving) {
  Replicas r;
  r.model.groups = [](const auto&, std::int64_t) {
    collective::TransferPlan plan = testing::plan_of(500);
    plan.startup = Time::from_ps(300);
    return plan;
  };
  r.role.kernel(r.body, "k", r.compute, {}, r.ready);
  r.role.all_reduce(r.body, "reduce", r.data, 0, 10, {r.ready}, r.reduced);
  const Outcome outcome = r.run();
  ASSERT_EQ(outcome.records.size(), 2u);
  const result::OpRecord& reduce = outcome.records[1];
  EXPECT_EQ(reduce.start_ps, 1000);
  EXPECT_EQ(reduce.duration_ps, 2000 + 300 + 500);
  EXPECT_EQ(reduce.waited_ps, 2000);
  EXPECT_EQ(reduce.moving_ps, 500);
  EXPECT_EQ(outcome.records[0].moving_ps, -1) << "a kernel";
}

TEST(Blame, AMessageWithinARoleWaitsForAStraggler) {
  Replicas r;
  r.costs.ps = {{"update", 0}};
  r.role.kernel(r.body, "k", r.compute, {}, r.ready);
  r.role.op(r.body, "ring", r.data,
            program::PointToPoint{{{true, Axis::data, 1, 0, 10}, {false, Axis::data, -1, 0, 10}}}, {r.ready},
            r.reduced);
  r.role.kernel(r.body, "update", r.compute, {r.reduced});
  const Outcome outcome = r.run();
  EXPECT_EQ(share(outcome, Share::straggler), 2000 / 2);
  EXPECT_EQ(share(outcome, Share::exposed_data), 500);
}

// Two stages of two ranks meet in a group of all: who came last says what each waited for.
Outcome world(std::int64_t first_stage, std::int64_t second_stage, std::vector<plan::SlowRanks> slow) {
  program::Program program;
  program.groups = {{"norm", program::GroupKind::world, {Axis::data, Axis::pipeline}, {}}};
  for (int stage = 0; stage < 2; ++stage) {
    RoleBuilder role(stage);
    const auto compute = role.stream("compute", StreamKind::compute), norm = role.stream("norm", StreamKind::data);
    const EventId ready = role.event("ready"), reduced = role.event("reduced");
    const auto body = role.body("step");
    role.kernel(body, stage == 0 ? "a" : "b", compute, {}, ready);
    role.all_reduce(body, "norm", norm, 0, 10, {ready}, reduced);
    role.kernel(body, "update", compute, {reduced});
    role.slot(body);
    program.roles.push_back(role.build());
  }
  testing::TestCluster cluster(4);
  testing::TestModel model;
  model.groups = [](const auto&, std::int64_t) { return testing::plan_of(100); };
  testing::TestCosts costs;
  costs.ps = {{"a", first_stage}, {"b", second_stage}, {"update", 0}};
  Options options;
  options.steps = 1;
  options.noise.slow_ranks = std::move(slow);
  return simulate(program, testing::grid_of(1, 2, 2), cluster, model, costs, options);
}

TEST(Blame, InAGroupOfSeveralRolesTheLastToComeSays) {
  const Outcome stages = world(1000, 3000, {});
  EXPECT_EQ(share(stages, Share::bubble), 2000 / 2) << "ranks 0 and 1 wait for the other stage";
  EXPECT_EQ(share(stages, Share::straggler), 0);

  const Outcome slow = world(1000, 1000, {{{1}, 0, 3}});
  EXPECT_EQ(share(slow, Share::straggler), 2000 / 4) << "rank 0 waits for rank 1, of its role";
  EXPECT_EQ(share(slow, Share::bubble), 2 * 2000 / 4) << "ranks 2 and 3 for another stage";

  // Rank 1 is as late as the whole second stage: without it rank 0 would wait as long.
  const Outcome both = world(1000, 3000, {{{1}, 0, 3}});
  EXPECT_EQ(share(both, Share::straggler), 0);
  EXPECT_EQ(share(both, Share::bubble), 2000 / 4);
}

// Nothing follows the last kernels: the step ends with rank 1's, and rank 0 idles until then.
TEST(Blame, TheEndOfAStepIsWaitedForToo) {
  Replicas r;
  r.role.kernel(r.body, "k", r.compute);
  const Outcome outcome = r.run();
  EXPECT_EQ(outcome.step_time.ps(), 3000);
  EXPECT_EQ(share(outcome, Share::straggler), 2000 / 2);
}

}  // namespace
}  // namespace rehearse::engine
