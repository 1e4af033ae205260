// The reported step and its breakdown, and the learning rate's course.
#include "execute/measure.h"

#include <gtest/gtest.h>

#include <numeric>

#include "execute/history.h"
#include "execute/rank/kernel_call.h"
#include "sim/account/blame.h"

namespace rehearse::execute {
namespace {

using result::Share;

Shares shares(std::int64_t compute, std::int64_t bubble) {
  Shares s{};
  s[static_cast<std::size_t>(Share::compute)] = compute;
  s[static_cast<std::size_t>(Share::bubble)] = bubble;
  return s;
}

TEST(Measure, TheStepIsTheMedianOfTheSlowestRankAfterTwoStepsOfWarmUp) {
  // Slowest rank: 900, 900, then 50, 30, 40.
  const StepShares all = {{shares(900, 0), shares(900, 0), shares(50, 0), shares(30, 0), shares(30, 3)},
                          {shares(1, 0), shares(1, 0), shares(20, 0), shares(20, 10), shares(20, 20)}};
  plan::Scenario scenario;
  scenario.training.global_batch = 8;
  scenario.training.seq_len = 10;
  result::Result r;
  r.ranks = 2;
  add_times(all, scenario, 0, r);
  EXPECT_EQ(r.step_time_ps, 40);
  EXPECT_EQ(std::accumulate(r.breakdown_ps.begin(), r.breakdown_ps.end(), std::int64_t{0}), 40);
  EXPECT_EQ(r.breakdown_ps[static_cast<std::size_t>(Share::compute)], 26);  // mean 25, and what rounding left
  EXPECT_EQ(r.breakdown_ps[static_cast<std::size_t>(Share::bubble)], 11);
  EXPECT_EQ(r.breakdown_ps[static_cast<std::size_t>(Share::other)], 3);  // the first rank was 7 quicker
  EXPECT_DOUBLE_EQ(r.tokens_per_s, 80 / 40e-12);
}

// Two stages of two replicas: ranks 0 and 1 are of one role.
TEST(Measure, WhoCameLateIsAStragglerIfItHasOurRole) {
  const plan::RankGrid grid{{1, 1, 1, 2, 2}, {Axis::tensor, Axis::context, Axis::expert, Axis::data, Axis::pipeline}};
  program::Program program;
  program.groups = {{"data", program::GroupKind::data, {Axis::data}, {}},
                    {"norm", program::GroupKind::world, {Axis::data, Axis::pipeline}, {}}};
  const auto collective = [](program::GroupId group) {
    program::Op op;
    op.shape = program::Collective{program::CollectiveKind::all_reduce, group, 1};
    return op;
  };
  EXPECT_EQ(late_share(program, grid, 0, collective(0), 1), Share::straggler);
  EXPECT_EQ(late_share(program, grid, 0, collective(1), 1), Share::straggler);
  EXPECT_EQ(late_share(program, grid, 0, collective(1), 2), Share::bubble);
  EXPECT_EQ(late_share(program, grid, 0, collective(0), -1), Share::straggler);
  EXPECT_EQ(late_share(program, grid, 0, collective(1), -1), Share::bubble);
  const auto send = [](Axis axis) {
    program::Op op;
    op.shape = program::PointToPoint{{{true, axis, 1, 0, 1}}};
    return op;
  };
  EXPECT_EQ(late_share(program, grid, 0, send(Axis::pipeline), -1), Share::bubble);
  EXPECT_EQ(late_share(program, grid, 0, send(Axis::data), -1), Share::straggler);
}

// A send is called by the axis it goes along, in both interpreters.
TEST(Measure, AMessageIsOfItsAxis) {
  program::Program program;
  program::Role role;
  role.streams = {{"compute", program::StreamKind::compute}, {"ring", program::StreamKind::pipeline}};
  program::Op op;
  op.stream = 1;
  op.shape = program::PointToPoint{{{true, Axis::context, 1, 0, 1}}};
  EXPECT_EQ(account::share_of_op(program, role, op), Share::exposed_context);
  op.shape = program::PointToPoint{{{true, Axis::pipeline, 1, 0, 1}}};
  EXPECT_EQ(account::share_of_op(program, role, op), Share::exposed_pipeline);
}

TEST(LearningRate, WarmsUpThenStays) {
  plan::Training t;
  t.lr = 1;
  t.warmup_steps = 4;
  EXPECT_DOUBLE_EQ(learning_rate(t, 0, 100), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(t, 3, 100), 1);
  EXPECT_DOUBLE_EQ(learning_rate(t, 99, 100), 1);
}

TEST(LearningRate, FallsAlongACosineToATenth) {
  plan::Training t;
  t.lr = 1;
  t.lr_schedule = "cosine";
  EXPECT_DOUBLE_EQ(learning_rate(t, 0, 101), 1);
  EXPECT_DOUBLE_EQ(learning_rate(t, 50, 101), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(t, 100, 101), 0.1);
}

}  // namespace
}  // namespace rehearse::execute
