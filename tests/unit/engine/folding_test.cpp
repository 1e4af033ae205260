// Folding: which ranks are one, what splits them, and that nothing but the number of ranks simulated tells a folded
// simulation from one of every rank. Random plans on shipped topologies are compared by tests/fuzz/plans.cpp.
#include "sim/engine/folding/folding.h"

#include <gtest/gtest.h>

#include <set>

#include "sim/base/check.h"
#include "sim/collective/steps.h"
#include "sim/engine/folding/reasons.h"
#include "tests/unit/engine/stand_in.h"

namespace rehearse::engine {
namespace {

// Everything of an outcome but how much was simulated.
std::string text_of(const Outcome& o) {
  std::string text = fmt::format("{} {} {} {} {} {} {} {}\n", o.step_time.ps(), o.ops, o.busy_low_s, o.busy_high_s,
                                 o.busy_s, o.transfer_memory_bytes, o.port_bytes, o.links.bytes);
  for (const Time end : o.step_ends) text += fmt::format("ends {}\n", end.ps());
  for (const auto& ends : o.job_step_ends)
    for (const Time end : ends) text += fmt::format("job ends {}\n", end.ps());
  for (const std::int64_t share : o.breakdown_ps) text += fmt::format("share {}\n", share);
  for (const double busy : o.coverage_busy_s) text += fmt::format("coverage {}\n", busy);
  for (const std::int64_t bytes : o.link_bytes) text += fmt::format("link {}\n", bytes);
  for (const result::LinkUse& l : o.links.busiest) {
    text += fmt::format("{} {} {} {} {} {} {} {} {} of {}\n", l.name, l.kind, l.alike, l.bytes, l.busy_ps, l.first_ps,
                        l.last_ps, l.window_from_ps, l.window_bytes, o.links.used);
    for (const result::LinkUser& user : l.users) text += fmt::format("  {} {}\n", user.name, user.bytes);
  }
  for (const result::CollectiveUse& c : o.collectives)
    text += fmt::format("{} {} {} {} {} {}\n", c.kind, c.group, c.ranks, c.nodes, c.count, c.mean_ps);
  for (const result::OpRecord& r : o.records)
    text += fmt::format("{} {} {} {} {} {} {} {} {} {}\n", r.rank, r.slot, r.body, r.op, r.start_ps, r.duration_ps,
                        r.waited_ps, r.queued_ps, r.woken_by, r.moving_ps);
  return text;
}

testing::StandIn twelve_ranks() {
  return {.tensor = 2, .data = 3, .stages = 2, .layers = 2, .micro_batches = 4, .kernels_per_block = 2};
}

class FoldedStep : public ::testing::Test {
 protected:
  Outcome run(const Options& options) const {
    return simulate(size_.program(), size_.grid(), size_.cluster(), model_, size_.costs(), options);
  }
  // How many ranks are simulated; compares with every rank.
  std::int64_t simulated(Options options) const {
    const Outcome folded = run(options);
    options.fold = false;
    const Outcome all = run(options);
    EXPECT_EQ(all.ranks_simulated, size_.grid().ranks());
    EXPECT_EQ(text_of(folded), text_of(all));
    return folded.ranks_simulated;
  }

  testing::StandIn size_ = twelve_ranks();
  testing::TestModel model_ = size_.model();
};

TEST_F(FoldedStep, RanksOfAStageAreOne) {
  EXPECT_EQ(simulated({}), 2);
}

TEST_F(FoldedStep, OpsOfAnyRankCanBeAskedFor) {
  Options options;
  options.recorded_ranks = {0, 1, 4, 7, 11};
  EXPECT_EQ(simulated(options), 2);
  std::set<std::int32_t> ranks;
  for (const result::OpRecord& record : run(options).records) ranks.insert(record.rank);
  EXPECT_EQ(ranks, (std::set<std::int32_t>{0, 1, 4, 7, 11}));
}

// Rank 0 of stage 0 is slow: its tensor partner waits for it, other replicas do once a step, and of the other stage the
// two that it sends to and receives from are told apart from the other replicas, the one from the other.
TEST_F(FoldedStep, ASlowRankSplitsWhatItMust) {
  Options options;
  options.noise.slow_ranks = {{{0}, 0, 1.5}};
  EXPECT_EQ(simulated(options), 8) << "of each stage: it, its partner, and those of other replicas opposite to either";
}

TEST_F(FoldedStep, ADegradedLinkSplitsWhatItMustAndASlowGroupOfLinksNothing) {
  Options options;
  options.noise.links = {{"r0", 1, 0.25, {}, 1}};  // NVLink out of device 0
  EXPECT_EQ(simulated(options), 4) << "tensor groups are slow as a whole; of each stage that replica and the others";
  options.noise.links = {{"r*", 1, 0.5, {}, 1}};
  EXPECT_EQ(simulated(options), 2) << "all links alike";
}

TEST_F(FoldedStep, LinksThatFlapAreEachTheirOwn) {
  Options options;
  options.noise.links = {{"r*", 1, 0.3, Time::from_us(700), 0.5}};
  EXPECT_EQ(simulated(options), 12) << "the moments are drawn for each";
  options.noise.links[0].resources = "r47";  // NIC in of device 11
  EXPECT_LT(simulated(options), 12);
}

TEST_F(FoldedStep, WhatIsDrawnByRankOrCallFoldsNothing) {
  Options options;
  options.noise.kernels = 0.1;
  EXPECT_EQ(simulated(options), 12);
  options.noise = {};
  options.noise.transfers = 0.1;
  EXPECT_EQ(simulated(options), 12);
  options.noise = {};
  options.noise.rank_step = {1, 1.2};
  EXPECT_EQ(simulated(options), 12);
}

TEST_F(FoldedStep, AnUnevenNetworkSplitsWhatItMust) {
  model_.messages = [inside = model_.messages](int from, int to, std::int64_t bytes) {
    collective::TransferPlan plan = inside(from, to, bytes);
    if (from == 2 || to == 2) plan.startup = plan.startup + Time::from_us(3);  // a longer way
    return plan;
  };
  EXPECT_EQ(simulated({}), 8);
}

// Once the pipeline is full every round of a forward and a backward goes as the one before it, so that twice as many
// micro-batches bring no more events; --fold off goes through all of them.
class LeftOutRounds : public FoldedStep {
 protected:
  // Transfers that hold nothing of their devices: with what they hold stages as even as these come into step only after
  // many rounds.
  void SetUp() override {
    model_.groups = [inside = model_.groups](const std::vector<int>& members, std::int64_t bytes) {
      return holding_nothing(inside(members, bytes));
    };
    model_.messages = [inside = model_.messages](int from, int to, std::int64_t bytes) {
      return holding_nothing(inside(from, to, bytes));
    };
  }
  static collective::TransferPlan holding_nothing(collective::TransferPlan plan) {
    plan.sms = 0, plan.memory_bytes = 0;
    return plan;
  }
  std::int64_t events(int micro_batches, const Options& options) {
    size_.micro_batches = micro_batches;
    EXPECT_LT(simulated(options), size_.grid().ranks());
    return run(options).events;
  }
  void expect_left_out(const Options& options) {
    const std::int64_t once = events(48, options), twice = events(96, options);
    EXPECT_LT(twice, once + once / 4) << size_.stages << " stages";
  }
};

TEST_F(LeftOutRounds, LeaveNoTrace) {
  for (const int stages : {1, 2})
    for (const bool recorded : {false, true}) {
      size_ = {.tensor = 2, .data = 2, .stages = stages, .layers = 2, .micro_batches = 48, .kernels_per_block = 2};
      Options options;
      options.steps = 3;
      if (recorded) options.recorded_ranks = {0, 1, 3};
      expect_left_out(options);
    }
}

TEST_F(LeftOutRounds, LeaveNoTraceWhereOpsAreLaunched) {
  Options options;
  options.recorded_ranks = {0, 11};
  options.launch_cost = Time::from_us(2);
  expect_left_out(options);
  options.launch_cost = Time::from_us(2000);  // every op is late, ever less so or more
  (void)events(48, options);
}

// One of three replicas has a longer way between its stages, so its rounds take longer and all ranks together never
// come back to one state: its rounds and those of the others are left out apart.
TEST_F(LeftOutRounds, OfReplicasOnUnlikeLinksAreLeftOutApart) {
  model_.messages = [inside = model_.messages](int from, int to, std::int64_t bytes) {
    collective::TransferPlan plan = inside(from, to, bytes);
    if (from == 2 || to == 2) plan.startup = plan.startup + Time::from_us(3);
    return plan;
  };
  for (const bool recorded : {false, true}) {
    Options options;
    options.steps = 3;
    if (recorded) options.recorded_ranks = {0, 2, 3, 8, 11};
    expect_left_out(options);
  }
  Options together;
  together.rounds = Options::Rounds::unlike;
  EXPECT_LT(2 * run({}).events, run(together).events);
}

// The same replicas with a trunk that carries five messages at once: the two that are alike send four, the third two
// more. As it may meet the others there while their rounds are left out, nothing is left out apart. Where one of its
// two messages begins 700 us after the other, which takes 120 us, five are the most there ever are.
TEST_F(LeftOutRounds, OfReplicasThatMeetAreNotLeftOutApart) {
  using namespace testing::stand_in;
  for (const int us : {1, 3, 20, 100, 700}) {
    model_ = size_.model();
    SetUp();
    model_.messages = [us, inside = model_.messages](int from, int to, std::int64_t bytes) {
      collective::TransferPlan plan = inside(from, to, bytes);
      if (from == 2 || to == 2) plan.startup = plan.startup + Time::from_us(us);
      plan.activities[0].uses = {{port(0, nic_in), bytes / 5}};
      return plan;
    };
    Options together;
    together.rounds = Options::Rounds::unlike;
    const std::int64_t apart = events(96, {});
    if (us < 700)
      EXPECT_EQ(apart, run(together).events) << us << " us";
    else
      EXPECT_LT(apart * 4, run(together).events);
  }
}

// Messages of twelve devices, each out of its own port and into another's.
class Routed final : public testing::TestCluster {
 public:
  Routed() : TestCluster(12, std::vector<std::int64_t>(48, testing::stand_in::kNic)) {}
  cluster::Route route(int from, int to) const override {
    using namespace testing::stand_in;
    return {{port(from, nic_out), port(to, nic_in)}, {}, true, {}};
  }
};

// The state of collectives that go message by message is not compared.
TEST_F(LeftOutRounds, AreNoneWhereCollectivesGoMessageByMessage) {
  size_.micro_batches = 24;
  const Routed cluster;
  model_.groups = [&](const std::vector<int>& members, std::int64_t bytes) {
    collective::TransferPlan plan;
    collective::Steps steps =
        collective::steps_of(cluster, collective::group_of(cluster, members), program::CollectiveKind::all_reduce,
                             collective::Algorithm::ring, bytes);
    collective::set_times(steps, cluster, 1, false, Time::from_us(1));
    plan.steps = std::make_shared<const collective::Steps>(std::move(steps));
    return plan;
  };
  EXPECT_EQ(simulated({}), 12) << "the rings are not alike, message by message";
}

// Stage 0 begins a round while stage 1 waits for the second of two messages, the first of which it has already: what
// the wait was for is known from before what is left out.
TEST(LeftOutRound, ComesInTheMidstOfAWait) {
  program::Program program;
  testing::RoleBuilder first(0), second(1);
  const auto c0 = first.stream("compute", testing::StreamKind::compute),
             p0 = first.stream("pipeline", testing::StreamKind::pipeline);
  const auto c1 = second.stream("compute", testing::StreamKind::compute),
             p1 = second.stream("pipeline", testing::StreamKind::pipeline);
  const auto out = first.event("out"), in = second.event("in");
  const auto b0 = first.body("forward"), b1 = second.body("forward");
  first.kernel(b0, "f", c0, {}, out);
  first.message(b0, "send", p0, true, 1, 0, 10, {out});
  first.message(b0, "send again", p0, true, 1, 0, 10);
  first.kernel(b0, "g", c0);
  second.message(b1, "receive", p1, false, -1, 0, 10);
  second.message(b1, "receive again", p1, false, -1, 0, 10, {}, in);
  second.kernel(b1, "h", c1, {in});
  for (int i = 0; i < 40; ++i) first.slot(b0, i), second.slot(b1, i);
  program.roles = {first.build(), second.build()};
  testing::TestCosts costs;
  costs.ps = {{"f", 600}, {"g", 600}, {"h", 200}};
  testing::TestModel model;
  model.messages = [](int, int, std::int64_t) { return testing::plan_of(500); };
  const testing::TestCluster cluster(2);
  Options options;
  const Outcome left_out = simulate(program, testing::grid_of(1, 1, 2), cluster, model, costs, options);
  options.fold = false;
  const Outcome all = simulate(program, testing::grid_of(1, 1, 2), cluster, model, costs, options);
  EXPECT_LT(left_out.events * 3, all.events);
  EXPECT_EQ(text_of(left_out), text_of(all));
}

// Eight ranks that share one link two by two: the pairs are alike, and each gets half of the link.
TEST_F(FoldedStep, SharesOfALinkCountAllThatAreAlike) {
  model_.groups = [](const std::vector<int>& members, std::int64_t bytes) {
    return testing::plan_of(bytes, {{members.front() % 2, bytes}});  // of all groups two links
  };
  EXPECT_LE(simulated({}), 4);
  const Outcome folded = run({});
  ASSERT_FALSE(folded.links.busiest.empty());
  model_.groups = [](const std::vector<int>& members, std::int64_t bytes) {
    return testing::plan_of(bytes, {{members.front() * testing::stand_in::kPortsPerDevice, bytes}});  // one each
  };
  EXPECT_LT(run({}).step_time, folded.step_time) << "sharing costs time";
}

// Every class of a role but the first says what tells it from that one.
TEST_F(FoldedStep, ReasonsNameTheCause) {
  const testing::TestCosts costs = size_.costs();
  const program::Program program = size_.program();
  const plan::RankGrid grid = size_.grid();
  const testing::TestCluster cluster = size_.cluster();
  const auto report = [&](const Options& options) {
    const Job job{.program = program, .grid = grid, .collectives = model_, .costs = costs, .noise = options.noise};
    return report_folding(job, cluster, options, {});
  };
  const auto reasons = [&](const Options& options) {
    std::string all;
    std::set<std::string> roles;
    for (const RankClass& one : report(options).classes) {
      EXPECT_EQ(one.why.empty(), roles.insert(one.role).second) << one.role << ": " << one.why;
      all += one.why + "\n";
    }
    return all;
  };
  Options options;
  EXPECT_EQ(report(options).classes.size(), 2u);
  EXPECT_EQ(report(options).classes[1].ranks, (std::vector<int>{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(reasons(options), "\n\n");

  options.noise.slow_ranks = {{{0}, 0, 1.5}};
  EXPECT_EQ(report(options).classes.size(), 8u);
  EXPECT_NE(reasons(options).find("rank 2 and rank 0 are not equally fast"), std::string::npos) << reasons(options);
  options.noise.slow_ranks.clear();
  options.noise.links = {{"r0", 1, 0.25, {}, 1}};
  EXPECT_NE(reasons(options).find("its group tensor crosses r"), std::string::npos) << reasons(options);
  EXPECT_NE(reasons(options).find("whose capacity noise changes"), std::string::npos) << reasons(options);
  options.noise.links.clear();
  model_.messages = [inside = model_.messages](int from, int to, std::int64_t bytes) {
    collective::TransferPlan plan = inside(from, to, bytes);
    if (from == 2 || to == 2) plan.startup = plan.startup + Time::from_us(3);
    return plan;
  };
  EXPECT_NE(reasons(options).find("has 8 us of latency, not 5 us"), std::string::npos) << reasons(options);

  options.noise.kernels = 0.1;
  EXPECT_EQ(report(options).nothing, "noise.kernels is drawn for each rank");
  EXPECT_TRUE(report(options).classes.empty());
}

TEST_F(FoldedStep, JobsOnTheSameLinksAreFoldedTogether) {
  const testing::TestCosts costs = size_.costs();
  const program::Program program = size_.program();
  const plan::RankGrid grid = size_.grid();
  const testing::TestCluster cluster = size_.cluster();
  const auto both = [&](bool fold) {
    Options options;
    options.fold = fold;
    const Job other{.program = program, .grid = grid, .collectives = model_, .costs = costs, .name = "other"};
    return simulate(program, grid, cluster, model_, costs, options, {other});
  };
  const Outcome folded = both(true), all = both(false);
  EXPECT_EQ(folded.ranks_simulated, 2);
  EXPECT_EQ(text_of(folded), text_of(all));
  EXPECT_GT(folded.step_time, run({}).step_time) << "on the same links";
}

// Each rank hands its message to the next of a ring and receives from the one before: all alike, a rank's own message
// stands for the one that it gets.
TEST(Folding, ARingOfMessagesIsOneRank) {
  testing::RoleBuilder role;
  const auto compute = role.stream("compute", testing::StreamKind::compute),
             ring = role.stream("ring", testing::StreamKind::context);
  const auto body = role.body("step");
  const auto ready = role.event("ready"), got = role.event("got");
  role.kernel(body, "k", compute, {}, ready);
  role.op(body, "pass", ring, program::PointToPoint{{{true, Axis::data, 1, 0, 50}, {false, Axis::data, 5, 0, 50}}},
          {ready}, got);
  role.kernel(body, "use", compute, {got});
  role.slot(body, 0);
  program::Program program;
  program.roles.push_back(role.build());
  const plan::RankGrid grid = testing::grid_of(1, 6, 1);
  testing::TestModel model;
  model.messages = [](int from, int, std::int64_t bytes) { return testing::plan_of(bytes, {{from, bytes}}); };
  const testing::TestCluster cluster(6, std::vector<std::int64_t>(6, 1'000'000'000'000));
  Options options;
  const Outcome folded = simulate(program, grid, cluster, model, testing::TestCosts(), options);
  options.fold = false;
  EXPECT_EQ(folded.ranks_simulated, 1);
  EXPECT_EQ(text_of(folded), text_of(simulate(program, grid, cluster, model, testing::TestCosts(), options)));
}

TEST(Folding, ADeadlockNamesTheRanksAllTheSame) {
  program::Program program;  // both stages receive before they send
  for (int stage = 0; stage < 2; ++stage) {
    testing::RoleBuilder role(stage);
    const auto stream = role.stream("messages", testing::StreamKind::pipeline);
    const auto body = role.body("step");
    role.message(body, "receive", stream, false, 1, 1 - stage, 10);
    role.message(body, "send", stream, true, 1, stage, 10);
    role.slot(body);
    program.roles.push_back(role.build());
  }
  std::string messages[2];
  for (const bool fold : {true, false}) {
    Options options;
    options.fold = fold;
    try {
      (void)simulate(program, testing::grid_of(1, 4, 2), testing::TestCluster(8), testing::TestModel(),
                     testing::TestCosts(), options);
      ADD_FAILURE() << "it is stuck";
    } catch (const Deadlock& deadlock) {
      messages[fold ? 0 : 1] = deadlock.what();
    }
  }
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_NE(messages[0].find("rank 0"), std::string::npos) << messages[0];
}

// Of three alike activities that each put their bytes on two of six alike resources every resource carries one.
TEST(FoldedNetwork, ALoadIsThatOfAllWhoAreAlike) {
  const testing::TestCluster cluster(1, std::vector<std::int64_t>(6, 1'000'000'000'000));
  EventQueue queue;
  ResourceClasses classes{{0, 0, 0, 0, 0, 0}, {0}, {6}};
  Network network(cluster, queue, 0, classes);
  const collective::Activity activity{{{0, 500}, {3, 500}}, Time::from_ps(1000)};
  network.start(network.define(activity, 3), 1, Time());
  network.settle(Time());
  EXPECT_EQ(network.flow(4), 500'000'000'000);
  network.start(network.define(activity, 9), 2, Time());  // three on each
  network.settle(Time());
  EXPECT_EQ(network.flow(2), 1'000'000'000'000) << "four times a half: shared";
  EXPECT_THROW(network.define(activity, 4), InternalError) << "8 uses of 6 resources: not alike";
}

}  // namespace
}  // namespace rehearse::engine
