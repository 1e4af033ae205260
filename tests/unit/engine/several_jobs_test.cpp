// Jobs that share links: who is slowed, by how much, and what is reported. Times in picoseconds, links of 1 byte a
// picosecond.
#include <gtest/gtest.h>

#include "tests/unit/engine/machine.h"

namespace rehearse::engine {
namespace {

using testing::RoleBuilder;
using testing::StreamKind;

constexpr std::int64_t kLink = 1'000'000'000'000;

// A step: a kernel, then an all-reduce of all ranks that the next step's kernel waits for behind an update.
program::Program reducing() {
  RoleBuilder role;
  const auto compute = role.stream("compute", StreamKind::compute), data = role.stream("data", StreamKind::data);
  const auto body = role.body("step");
  const auto done = role.event("done"), reduced = role.event("reduced");
  role.kernel(body, "k", compute, {}, done);
  role.all_reduce(body, "reduce", data, 0, 10, {done}, reduced);
  role.kernel(body, "update", compute, {reduced}).phase = program::Phase::optimizer;
  role.slot(body);
  program::Program program;
  program.groups.push_back(testing::group_of("data", program::GroupKind::data, Axis::data));
  program.roles.push_back(role.build());
  return program;
}

// Two ranks that compute for `compute` and then put `bytes` on a link, which alone take as many picoseconds.
struct Pair {
  Pair(std::int64_t compute, std::int64_t bytes, cluster::ResourceId link) {
    costs.ps = {{"k", compute}};
    costs.otherwise = 0;
    model.groups = [=](const std::vector<int>& members, std::int64_t) {
      EXPECT_EQ(members, (std::vector<int>{0, 1})) << "a job's ranks are its own";
      return testing::plan_of(bytes, {{link, bytes}});
    };
  }
  Job job(Time start = {}, int repeats = 2) const {
    return {.program = program,
            .grid = grid,
            .collectives = model,
            .costs = costs,
            .name = "other",
            .start = start,
            .repeats = repeats};
  }
  Outcome simulated(const Options& options, const std::vector<Job>& beside = {}) const {
    return simulate(program, grid, cluster, model, costs, options, beside);
  }

  program::Program program = reducing();
  plan::RankGrid grid = testing::grid_of(1, 2, 1);
  testing::TestCosts costs;
  testing::TestModel model;
  testing::TestCluster cluster{4, {kLink, kLink}};
};

std::vector<std::int64_t> lengths(const std::vector<Time>& ends) {
  std::vector<std::int64_t> list;
  for (std::size_t i = 0; i < ends.size(); ++i) list.push_back((ends[i] - (i > 0 ? ends[i - 1] : Time())).ps());
  return list;
}

Options of(int steps) {
  Options options;
  options.steps = steps;
  options.recorded_ranks = {0};
  return options;
}

TEST(SeveralJobs, TwoThatSendTogetherEachGetHalfOfTheLink) {
  const Pair one(1000, 500, 0), other(1000, 500, 0);
  EXPECT_EQ(one.simulated(of(2)).step_time.ps(), 1000 + 500);
  const Outcome both = one.simulated(of(2), {other.job()});
  EXPECT_EQ(both.step_time.ps(), 1000 + 2 * 500) << "alone 1500";
  EXPECT_EQ(lengths(both.job_step_ends[0]), (std::vector<std::int64_t>{2000, 2000}));
  EXPECT_EQ(lengths(both.job_step_ends[1]), (std::vector<std::int64_t>{2000, 2000}));
  EXPECT_EQ(lengths(repeat_alone(other.job(), one.cluster, of(2))), (std::vector<std::int64_t>{1500, 1500}));
}

TEST(SeveralJobs, OneThatSendsLongerHasTheLinkToItselfAfterwards) {
  // 300 and 900 bytes from 1000 on: 600 ps of halves, then 600 bytes more alone.
  const Pair one(1000, 300, 0), other(1000, 900, 0);
  const Outcome both = one.simulated(of(2), {other.job()});
  EXPECT_EQ(both.job_step_ends[0][0].ps(), 1000 + 600);
  EXPECT_EQ(both.job_step_ends[1][0].ps(), 1000 + 600 + 600);
}

TEST(SeveralJobs, OnLinksOfTheirOwnNeitherIsAnyDifferent) {
  const Pair one(1000, 500, 0), other(700, 300, 1);
  const Outcome alone = one.simulated(of(3)), both = one.simulated(of(3), {other.job({}, 3)});
  EXPECT_EQ(both.step_time, alone.step_time);
  EXPECT_EQ(both.step_ends, alone.step_ends);
  EXPECT_EQ(both.breakdown_ps, alone.breakdown_ps);
  EXPECT_EQ(both.coverage_busy_s, alone.coverage_busy_s);
  EXPECT_EQ(both.link_bytes[0], alone.link_bytes[0]);
  ASSERT_EQ(both.records.size(), alone.records.size());
  for (std::size_t i = 0; i < alone.records.size(); ++i) {
    EXPECT_EQ(both.records[i].start_ps, alone.records[i].start_ps);
    EXPECT_EQ(both.records[i].duration_ps, alone.records[i].duration_ps);
  }
  const auto& ends = both.job_step_ends[1];
  EXPECT_EQ(ends, repeat_alone(other.job({}, static_cast<int>(ends.size())), one.cluster, of(3)));
}

TEST(SeveralJobs, AStartLaterByTheTimeOneComputesKeepsThemApartForGood) {
  const Pair one(500, 500, 0), other(500, 500, 0);
  const Outcome both = one.simulated(of(4), {other.job(Time::from_ps(500), 4)});
  for (const auto& ends : both.job_step_ends)
    for (std::size_t i = 1; i < ends.size(); ++i) EXPECT_EQ((ends[i] - ends[i - 1]).ps(), 1000);
  EXPECT_EQ(both.job_step_ends[1][0].ps(), 500 + 1000);
}

TEST(SeveralJobs, TheShortOneRepeatsUntilTheLongOneHasDoneItsSteps) {
  const Pair one(90, 10, 0), other(9900, 100, 1);
  const Outcome both = one.simulated(of(2), {other.job()});
  EXPECT_EQ(both.step_time.ps(), 100);
  EXPECT_EQ(both.job_step_ends[1].size(), 2u);
  EXPECT_EQ(both.job_step_ends[0].size(), 200u) << "2 * 10000 / 100";
  EXPECT_EQ(both.step_ends.size(), 2u) << "of the steps that are reported";
  const Outcome long_one = other.simulated(of(2), {one.job()});
  EXPECT_EQ(long_one.job_step_ends[1].size(), 200u);
}

TEST(SeveralJobs, OneThatTheOthersWouldWaitForTooLongIsRefused) {
  const Pair one(0, 1, 0), other(1'000'000, 1, 1);
  EXPECT_THROW(one.simulated(of(2), {other.job()}), InputError);
}

TEST(SeveralJobs, LinksNameTheUsersOfEach) {
  const Pair one(1000, 300, 0), other(1000, 500, 0);
  const Outcome both = one.simulated(of(2), {other.job()});
  ASSERT_FALSE(both.links.busiest.empty());
  std::vector<std::string> names;
  for (const auto& user : both.links.busiest[0].users) names.push_back(user.name);
  EXPECT_EQ(names, (std::vector<std::string>{"other: data all_reduce", "data all_reduce"}));
}

TEST(SeveralJobs, EachHasItsOwnSlowRanksAndJitter) {
  const Pair one(1000, 500, 0), other(1000, 500, 1);
  Job noisy = other.job();
  noisy.noise.slow_ranks.push_back({{1}, 0, 2.0});
  const Outcome both = one.simulated(of(2), {noisy});
  EXPECT_EQ(both.step_time.ps(), 1500);
  EXPECT_TRUE(both.slow_ranks.empty());
  EXPECT_EQ(both.job_step_ends[1][0].ps(), 2 * 1000 + 500);
}

TEST(SeveralJobs, AJobThatCannotGoOnIsADeadlock) {
  const Pair one(1000, 500, 0);
  program::Program program;
  for (int stage = 0; stage < 2; ++stage) {
    RoleBuilder role(stage);
    const auto compute = role.stream("compute", StreamKind::compute), send = role.stream("p2p", StreamKind::pipeline);
    const auto body = role.body("step");
    const auto sent = role.event("sent");
    if (stage == 0) role.message(body, "send", send, true, 1, 0, 10, {}, sent);  // which nobody receives
    role.kernel(body, "k", compute, {sent});
    role.slot(body);
    program.roles.push_back(role.build());
  }
  const plan::RankGrid grid = testing::grid_of(1, 1, 2);
  const Job stuck{.program = program, .grid = grid, .collectives = one.model, .costs = one.costs, .name = "other"};
  try {
    repeat_alone(stuck, one.cluster, of(2));
    FAIL() << "a send without a receive";
  } catch (const Deadlock& deadlock) {
    EXPECT_NE(std::string(deadlock.what()).find("rank 1 to receive"), std::string::npos) << deadlock.what();
  }
}

}  // namespace
}  // namespace rehearse::engine
