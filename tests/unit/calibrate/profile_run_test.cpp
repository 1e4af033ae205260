// Programs profiled without their transfers: what is performed, and what the table of kernels learns.
#include "calibrate/profile_run.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "calibrate/profile_targets.h"
#include "calibrate/statistics.h"
#include "calibrate/switching.h"
#include "sim/base/diagnostics.h"
#include "tests/support/lowered.h"
#include "tests/support/small_gpt.h"

namespace rehearse::calibrate {
namespace {

Target small(const std::vector<std::string>& assignments = {}) {
  Target target = make_target(scenario_from(kSmallGpt, assignments));
  target.threads = 1;
  return target;
}

std::size_t ops_of_step(const program::Role& role) {
  return static_cast<std::size_t>(sum_over_step(role, [](const auto&, const auto&) { return 1; }));
}

TEST(ProfileRun, EveryOpOfEveryStepIsTimedThoughNobodyElseTakesPart) {
  const Target target = small();
  // Rank 0 is of the first stage, rank 2 of the second: whom they send to and reduce with is not there.
  ProfileRequest request{target.scenario, target.program, target.grid, {0, 2}, 1};
  request.steps = 5;
  request.seconds = 60;
  const ProfileRun done = profile(request, Budget(60, {}));
  EXPECT_GE(done.whole_steps, 4);
  std::map<std::pair<int, int>, std::set<std::pair<int, int>>> ops;  // by rank and step: slot, op
  for (const auto& r : done.records) {
    EXPECT_TRUE((ops[{r.rank, r.step}].insert({r.slot, r.op}).second)) << "an op was done twice";
    EXPECT_GE(r.duration_ps, 0);
  }
  std::set<int> ranks;
  for (const auto& r : done.records) ranks.insert(r.rank);
  EXPECT_EQ(ranks, (std::set<int>{0, 2}));
  for (const int rank : {0, 2}) {
    const auto& role = target.program.roles[static_cast<std::size_t>(target.grid.coordinate(rank, Axis::pipeline))];
    for (int step = 0; step < done.whole_steps; ++step) EXPECT_EQ((ops[{rank, step}].size()), ops_of_step(role));
  }
}

TEST(ProfileRun, ItEndsWithTheBudgetInTheMiddleOfAStep) {
  const Target target = small();
  ProfileRequest request{target.scenario, target.program, target.grid, {0}, 1};
  request.steps = request.least = 1'000'000'000;  // years
  const ProfileRun done = profile(request, Budget(0.05, {}));
  EXPECT_LT(done.whole_steps, 1'000'000'000);
}

TEST(ProfileRun, ItDoesTheLeastNumberOfStepsWhateverItsShare) {
  const Target target = small();
  ProfileRequest request{target.scenario, target.program, target.grid, {0}, 1};
  request.seconds = 0;
  EXPECT_GE(profile(request, Budget(60, {})).whole_steps, request.least);
}

TEST(ProfileRun, WhatThePollThrowsEndsIt) {
  const Target target = small();
  ProfileRequest request{target.scenario, target.program, target.grid, {0}, 1};
  request.steps = request.least = 1'000'000'000;
  EXPECT_THROW(profile(request, Budget(60, [] { throw std::out_of_range("interrupted"); })), std::out_of_range);
}

TEST(ProfileRun, AVocabularyBelowTheTextsBytesIsNoHindrance) {
  const Target target = small({"model.vocab=64"});
  ProfileRequest request{target.scenario, target.program, target.grid, {0, 2}, 1};
  request.seconds = 0;
  EXPECT_GE(profile(request, Budget(60, {})).whole_steps, 1);
}

// A decode step of two replicas, of 8 sequences behind so many tokens each.
Target decoding(std::int64_t cached) {
  plan::Scenario s =
      scenario_from(kSmallGpt, {"cluster.gpus=2", "plan={micro_batch: 8}", "model.dropout=0",
                                "training.global_batch=16", "training.seq_len=1", "model.max_seq_len=4096"});
  s.plan.forward_only = true, s.plan.cached_tokens = cached;
  Target target = make_target(s);
  target.threads = 1, target.generates = true;
  return target;
}

double median_of_attention(const Target& target) {
  ProfileRequest request{target.scenario, target.program, target.grid, {0, 1}, 1};
  request.steps = request.least = 9, request.generates = true, request.seconds = 60;
  std::vector<double> times;
  std::set<int> ranks;
  for (const auto& r : profile(request, Budget(60, {})).records) {
    const auto& op =
        target.program.roles.front().bodies[static_cast<std::size_t>(r.body)].ops[static_cast<std::size_t>(r.op)];
    if (!std::holds_alternative<program::Attention>(op.shape)) continue;
    ranks.insert(r.rank);
    times.push_back(static_cast<double>(r.duration_ps));
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1}));
  return median(times);
}

// Attention of one token reads what is cached, 200 times as much of which takes tens of times as long.
TEST(ProfileRun, ADecodeStepReadsItsCache) {
  EXPECT_GT(median_of_attention(decoding(4000)), 10 * median_of_attention(decoding(20)));
}

TEST(ProgramWalks, AsManyRanksAsCoresOfAllRolesThenOneOfEachAlone) {
  const Target target = small();
  const auto runs = plan_runs(target, 2);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].ranks, (std::vector<int>{0, 2}));
  EXPECT_EQ(runs[0].busy, 2);
  EXPECT_EQ(runs[1].ranks, std::vector<int>{0});
  EXPECT_EQ(runs[1].busy, 1);
  EXPECT_EQ(runs[2].ranks, std::vector<int>{2});
}

TEST(ProgramWalks, RolesThatDoNotFitTogetherAreWalkedInTurn) {
  const auto runs = plan_runs(small(), 1);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].ranks, std::vector<int>{0});
  EXPECT_EQ(runs[1].ranks, std::vector<int>{2});
  for (const auto& w : runs) EXPECT_EQ(w.busy, 1);
}

TEST(ProgramWalks, ThreadsOfARankCountAsBusyCores) {
  Target target = small();
  target.threads = 2;
  const auto runs = plan_runs(target, 4);
  EXPECT_EQ(runs[0].ranks.size(), 2u);
  EXPECT_EQ(runs[0].busy, 4);
  EXPECT_EQ(runs[1].busy, 2);
  target.threads = 8;  // more than there are cores
  EXPECT_EQ(plan_runs(target, 4)[0].busy, 4);
}

TEST(ProgramWalks, TheTableHoldsEveryKernelOfTheProgramOnceWithItsWork) {
  const Target target = small();
  Learnt learnt;
  const ProfileReport report = profile_targets({target}, 2, 0.1, Budget(60, {}), learnt);
  EXPECT_TRUE(report.shortfalls.empty());
  std::set<KernelKey> expected;
  for (const program::Role& role : target.program.roles)
    for (const program::Body& body : role.bodies)
      for (const program::Op& op : body.ops)
        if (is_kernel(op))
          for (const int busy : {1, 2}) expected.insert(key_of(role, op, 1, busy));
  const auto kernels = learnt.times.all(cost::Origin::program);
  EXPECT_EQ(kernels.size(), expected.size());
  for (const auto& k : kernels) {
    EXPECT_TRUE(expected.contains({k.kind, k.shape, k.dtype, k.threads, k.busy})) << k.kind << " " << k.shape;
    EXPECT_GT(k.mean, 0);
    EXPECT_GT(k.time.p10, 0);
    EXPECT_LE(k.time.p10, k.time.p90);
    EXPECT_NE(k.kind, "all_reduce");
    EXPECT_NE(k.kind, "send");
    EXPECT_EQ(k.flops > 0, k.kind == "gemm" || k.kind.starts_with("flash")) << k.kind;
  }
  EXPECT_FALSE(learnt.gaps.empty());
}

TEST(ProgramWalks, WhatIsKnownIsNotWalkedAgain) {
  const Target target = small();
  Learnt learnt;
  profile_targets({target}, 2, 0.1, Budget(60, {}), learnt);
  for (const PlannedRun& w : plan_runs(target, 2)) EXPECT_FALSE(adds_to(learnt.times, w));
  const auto before = learnt.times.all(cost::Origin::program);
  profile_targets({target}, 2, 0.1, Budget(60, {}), learnt);
  const auto after = learnt.times.all(cost::Origin::program);
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].repetitions, after[i].repetitions);
}

TEST(ProgramWalks, TheFirstStepIsLeftOutOfWhatWasDoneAgain) {
  const Target target = small();
  const PlannedRun planned{&target, {0}, 1, 1};
  ProfileRun made;
  const std::int32_t body = target.program.roles[0].slots[0].body;
  for (const auto& [step, us] : {std::pair{0, 900}, {1, 10}, {2, 14}, {3, 12}})
    made.records.push_back({0, step, 0, body, 0, step * 1'000'000'000LL, us * 1'000'000LL});
  Learnt learnt;
  learn(planned, made, learnt);
  const auto all = learnt.times.all(cost::Origin::program);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].repetitions, 3);
  EXPECT_NEAR(all[0].mean, 12e-6, 1e-12);
}

TEST(ProgramWalks, MorePrecisionsAndRanksThanHereAreWalked) {
  for (const char* precision : {"bf16", "fp16"}) {
    const Target half = make_target(scenario_from(kSmallGpt, {"training.precision=" + std::string(precision)}));
    EXPECT_FALSE(plan_runs(half, 2).empty());
  }
  const Target wide = make_target(scenario_from(kSmallGpt, {"cluster.gpus=256", "training.global_batch=64"}));
  EXPECT_EQ(plan_runs(wide, 2)[0].ranks.size(), 2u);
}

TEST(Switching, WakingAndDispatchingTakeTime) {
  const Switching s = measure_switching(0.05, Budget(60, {}));
  EXPECT_GT(s.wake_s, 0);
  EXPECT_GT(s.dispatch_s, 0);
  EXPECT_LT(s.dispatch_s, 1);
}

TEST(Switching, IsMeasuredEvenIfNothingIsLeftOfTheBudget) {
  const Switching s = measure_switching(0, Budget(0, {}));
  EXPECT_GT(s.wake_s, 0);
}

}  // namespace
}  // namespace rehearse::calibrate
