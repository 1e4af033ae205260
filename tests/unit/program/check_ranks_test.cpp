// Ranks against each other: a correct pair of stages broken in one place at a time, and schedules that wait in a
// circle.
#include <gtest/gtest.h>

#include "tests/unit/program/builder.h"

namespace rehearse::program {
namespace {

using testing::find_op;
using testing::grid_view;
using testing::has;
using testing::RoleBuilder;
using testing::text_of;
using testing::two_stages;

void expect_only(const std::vector<Violation>& found, const std::string& rule, const std::vector<std::string>& parts) {
  ASSERT_EQ(found.size(), 1U) << text_of(found);
  EXPECT_EQ(found[0].rule, rule) << found[0].message;
  for (const std::string& part : parts) EXPECT_TRUE(has(found[0].message, part)) << part << " in " << found[0].message;
}

// On 2 ranks, on 8 (tensor 2, data 2), and on 1,024.
TEST(CheckRanks, ACorrectStepHasNoViolation) {
  const Program p = two_stages();
  EXPECT_EQ(text_of(check_ranks(p, grid_view(1, 2))), "");
  EXPECT_EQ(text_of(check_ranks(p, grid_view(2, 2, 2))), "");
  EXPECT_EQ(text_of(check_ranks(p, grid_view(8, 2, 64))), "");
}

// Stage 1 forgets one of its two receives of the step's forwards: the second send has none. On tensor 2 the first rank
// of stage 1 is rank 2.
TEST(CheckRanks, MissingReceive) {
  Program p = two_stages();
  Body without = p.roles[1].bodies[0];
  without.ops.erase(without.ops.begin());
  p.roles[1].bodies.push_back(without);
  p.roles[1].slots[1].body = 3;
  expect_only(check_ranks(p, grid_view(2, 2)), "missing-receive",
              {"rank 0 (stage0) sends 2 times", "rank 2 (stage1)", "receives 1 times",
               "'send forward' (slot 1: forward micro-batch 1) has no receive"});
}

// Nobody sends back at all.
TEST(CheckRanks, MissingSend) {
  Program p = two_stages();
  testing::remove_op(p.roles[1], "send back");
  expect_only(check_ranks(p, grid_view(1, 2)), "missing-send",
              {"rank 1 (stage1) sends 0 times", "rank 0 (stage0)",
               "'receive back' (slot 2: backward micro-batch 0) has no send"});
}

// The same number of transfers on another channel is a send without receive and a receive without send.
TEST(CheckRanks, ChannelsDoNotMix) {
  Program p = two_stages();
  std::get<PointToPoint>(find_op(p.roles[0], "send forward").shape).legs[0].channel = 5;
  const auto found = check_ranks(p, grid_view(1, 2));
  ASSERT_EQ(found.size(), 2U) << text_of(found);
  EXPECT_EQ(found[0].rule, "missing-receive");
  EXPECT_TRUE(has(found[0].message, "channel 5")) << found[0].message;
  EXPECT_EQ(found[1].rule, "missing-send");
  EXPECT_TRUE(has(found[1].message, "'receive forward'")) << found[1].message;
}

TEST(CheckRanks, SizeMismatch) {
  Program p = two_stages();
  std::get<PointToPoint>(find_op(p.roles[1], "receive forward").shape).legs[0].elements = 4;
  expect_only(check_ranks(p, grid_view(1, 2)), "size-mismatch",
              {"rank 0 (stage0) sends 8 f32", "'send forward'", "rank 1 (stage1) receives 4 f32", "'receive forward'"});
}

// One rank gathers where the other reduces.
TEST(CheckRanks, CrossedCollectives) {
  Program p = two_stages();
  std::get<Collective>(find_op(p.roles[1], "norm reduce").shape).kind = CollectiveKind::broadcast;
  expect_only(
      check_ranks(p, grid_view(2, 2)), "crossed-collectives",
      {"call 0 on group world {0,1,2,3}", "rank 0 (stage0) calls all_reduce 'norm reduce' (slot 4: optimizer) of 1 f32",
       "rank 2 (stage1) calls broadcast 'norm reduce'"});
}

// Two collectives in one order on stage 0 and the other on stage 1, told apart by size.
TEST(CheckRanks, CollectivesInAnotherOrder) {
  Program p = two_stages();
  for (int stage = 0; stage < 2; ++stage) {
    auto& ops = p.roles[static_cast<std::size_t>(stage)].bodies[2].ops;
    Op other = find_op(p.roles[static_cast<std::size_t>(stage)], "norm reduce");
    other.name = "gradient reduce";
    other.records = -1;
    std::get<Collective>(other.shape).elements = 16;
    ops.insert(ops.begin() + (stage == 0 ? 2 : 3), other);
  }
  expect_only(check_ranks(p, grid_view(1, 2)), "crossed-collectives",
              {"rank 0 (stage0) calls all_reduce 'gradient reduce'", "of 16 f32",
               "rank 1 (stage1) calls all_reduce 'norm reduce'", "of 1 f32"});
}

// One role does not call at all.
TEST(CheckRanks, CollectiveThatAMemberNeverCalls) {
  Program p = two_stages();
  testing::remove_op(p.roles[1], "norm reduce");
  expect_only(check_ranks(p, grid_view(1, 2)), "crossed-collectives",
              {"rank 0 (stage0) calls all_reduce 'norm reduce'", "rank 1 (stage1) makes only 0 calls"});
}

// A group within one role (tensor) meets itself: stages may call different things on it.
TEST(CheckRanks, GroupsOfOneRoleNeedNoOtherRole) {
  Program p = two_stages();
  std::get<Collective>(find_op(p.roles[0], "norm reduce").shape).group = 1;
  testing::remove_op(p.roles[1], "norm reduce");
  EXPECT_EQ(text_of(check_ranks(p, grid_view(2, 2))), "");
}

// A gathered shard times the group is the whole: 16 elements over 2 ranks are shards of 8, not of 4.
TEST(CheckRanks, ShardThatDoesNotFitTheGroup) {
  RoleBuilder b("stage0");
  const StreamId s = b.stream("tensor");
  const BufferId x = b.buffer("x", {4}, Lifetime::slot), y = b.buffer("y", {16}, Lifetime::slot);
  const BodyId body = b.body("body");
  b.op(body, "make", Elementwise{ElementwiseFn::fill, 4}, s, {}, {x});
  b.op(body, "gather", Collective{CollectiveKind::all_gather, 0, 16}, s, {x}, {y}, {x, y});
  b.slot(body);
  Program p;
  p.groups = {{"tensor", GroupKind::tensor, {Axis::tensor}, {}}};
  p.roles = {b.role};
  EXPECT_EQ(text_of(check_ranks(p, grid_view(4, 1))), "");
  expect_only(check_ranks(p, grid_view(2, 1)), "bad-operands", {"all_gather 'gather'", "'x' with 4", "2 ranks"});
}

// Both stages send before they receive, on one stream: each waits for the other's receive.
TEST(CheckRanks, TwoStagesThatBothSendFirst) {
  Program p;
  for (int stage = 0; stage < 2; ++stage) {
    RoleBuilder b("stage" + std::to_string(stage), stage);
    const StreamId link = b.stream("link");
    const BufferId out = b.buffer("out", {8}, Lifetime::slot), in = b.buffer("in", {8}, Lifetime::slot);
    const BodyId body = b.body("swap");
    const int other = stage == 0 ? 1 : -1;
    b.op(body, "make", Elementwise{ElementwiseFn::fill, 8}, link, {}, {out});
    b.op(body, "give", testing::send_to(other, 8), link, {out}, {}, {out});
    b.op(body, "take", testing::receive_from(other, 8), link, {}, {in}, {in});
    b.slot(body, 0);
    p.roles.push_back(b.role);
  }
  expect_only(check_ranks(p, grid_view(1, 2)), "deadlock",
              {"rank 0 (stage0) waits in 'give' (slot 0: swap micro-batch 0) for rank 1 (stage1) to reach 'take'",
               "rank 1 (stage1) waits in 'give'", "Circle: rank 0 -> rank 1 -> rank 0"});
  // As one group op, started and finished together, it is an exchange.
  for (Role& role : p.roles) {
    auto& ops = role.bodies[0].ops;
    auto& legs = std::get<PointToPoint>(ops[1].shape).legs;
    legs.push_back(std::get<PointToPoint>(ops[2].shape).legs[0]);
    ops[1].writes = ops[2].writes;
    ops[1].releases.push_back(ops[2].releases[0]);
    ops.pop_back();
  }
  EXPECT_EQ(text_of(check_ranks(p, grid_view(1, 2))), "");
  EXPECT_EQ(text_of(check_role(p, 0)), "");
}

// Stage 0 sends both forwards before it receives, stage 1 returns the first before it takes the second: with one stream
// for both directions that is a circle; with a stream each it is not.
TEST(CheckRanks, ScheduleThatNeedsAStreamForEachDirection) {
  Program p = two_stages();
  std::swap(p.roles[1].slots[1], p.roles[1].slots[2]);
  expect_only(check_ranks(p, grid_view(2, 2)), "deadlock",
              {"rank 0 (stage0) waits in 'send forward' (slot 1: forward micro-batch 1) for rank 2 (stage1) to reach "
               "'receive forward' (slot 2: forward micro-batch 1)",
               "rank 2 (stage1) waits in 'send back' (slot 1: backward micro-batch 0) for rank 0 (stage0) to reach "
               "'receive back' (slot 2: backward micro-batch 0)"});
  for (Role& role : p.roles) {
    role.streams.push_back({"link back", StreamKind::pipeline});
    for (Op& op : role.bodies[1].ops)
      if (is_transfer(op)) op.stream = 3;
  }
  EXPECT_EQ(text_of(check_ranks(p, grid_view(2, 2))), "");
}

// A host that waits for the returned gradient before it issues the next forward holds the pipeline up for good.
TEST(CheckRanks, HostSyncHoldsBackWhatFollows) {
  Program p = two_stages();
  Role& first = p.roles[0];
  first.slots = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, -1}};
  first.streams.push_back({"host", StreamKind::host});
  Op sync;
  sync.name = "wait for gradient";
  sync.shape = HostSync{};
  sync.stream = 3;
  sync.waits = {0};
  first.bodies[1].ops.insert(first.bodies[1].ops.begin() + 1, sync);
  // Stage 1 wants both forwards before it returns anything.
  expect_only(check_ranks(p, grid_view(1, 2)), "deadlock",
              {"rank 0 (stage0) waits in 'receive back' (slot 1: backward micro-batch 0)",
               "rank 1 (stage1) waits in 'receive forward' (slot 1: forward micro-batch 1)"});
}

// A ring over the context axis within one role: everyone sends first on one stream and nobody ever receives; the
// exchange as one op goes through on any ring.
TEST(CheckRanks, RingWithinOneRole) {
  RoleBuilder b("stage0");
  const StreamId s = b.stream("ring");
  const BufferId x = b.buffer("x", {8}, Lifetime::slot), y = b.buffer("y", {8}, Lifetime::slot);
  const BodyId body = b.body("ring");
  const Leg send{true, Axis::context, 1, 0, 8}, receive{false, Axis::context, -1, 0, 8};
  b.op(body, "make", Elementwise{ElementwiseFn::fill, 8}, s, {}, {x});
  b.op(body, "give", PointToPoint{{send}}, s, {x}, {}, {x});
  b.op(body, "take", PointToPoint{{receive}}, s, {}, {y}, {y});
  b.slot(body, 0);
  Program p;
  p.roles = {b.role};
  expect_only(check_ranks(p, grid_view(2, 1, 1, 4)), "deadlock",
              {"rank 0 (stage0) waits in 'give'", "rank 2 (stage0)"});
  auto& ops = p.roles[0].bodies[0].ops;
  ops[1].shape = PointToPoint{{send, receive}};
  ops[1].writes = ops[2].writes;
  ops[1].releases = {ops[1].reads[0], ops[2].releases[0]};
  ops.pop_back();
  EXPECT_EQ(text_of(check_ranks(p, grid_view(2, 1, 1, 4))), "");
  EXPECT_EQ(text_of(check_ranks(p, grid_view(1, 1, 1, 2))), "");
  std::get<PointToPoint>(ops[1].shape).legs[1].offset = 1;  // receives from where it sends to: nobody sends that way
  const auto found = check_ranks(p, grid_view(1, 1, 1, 4));
  ASSERT_EQ(found.size(), 2U) << text_of(found);
  EXPECT_EQ(found[0].rule, "missing-receive");
  EXPECT_EQ(found[1].rule, "missing-send");
  // On a ring of two, both neighbours are the same rank.
  EXPECT_EQ(text_of(check_ranks(p, grid_view(1, 1, 1, 2))), "");
}

// A group of the first and last stage alone, called by the middle one.
TEST(CheckRanks, CallerThatIsNoMember) {
  Program p = two_stages();
  p.groups[0].pipeline_only = {0};
  const auto found = check_ranks(p, grid_view(1, 2));
  ASSERT_EQ(found.size(), 1U) << text_of(found);
  EXPECT_EQ(found[0].rule, "bad-reference");
  EXPECT_TRUE(has(found[0].message, "rank 1 (stage1) calls 'norm reduce' on group world {0}")) << found[0].message;
}

// Three stages whose middle one wants to receive from the last before the last has anything: a circle of two, with the
// first stage stuck behind it.
TEST(CheckRanks, StuckRanksOutsideTheCircleAreNamedToo) {
  Program p;
  p.micro_batches = 1;
  const std::vector<std::vector<std::pair<bool, int>>> legs = {
      {{true, 1}}, {{false, 1}, {false, -1}, {true, 1}}, {{false, -1}, {true, -1}}};
  for (int stage = 0; stage < 3; ++stage) {
    RoleBuilder b("stage" + std::to_string(stage), stage);
    const StreamId s = b.stream("link");
    const BufferId x = b.buffer("x", {8}, Lifetime::persistent, BufferClass::activation, Init::Kind::zeros);
    const BodyId body = b.body("body");
    for (const auto& [send, offset] : legs[static_cast<std::size_t>(stage)]) {
      const std::string name = (send ? "send" : "receive") + std::to_string(offset);
      if (send)
        b.op(body, name, testing::send_to(offset, 8), s, {x}, {});
      else
        b.op(body, name, testing::receive_from(offset, 8), s, {}, {x});
    }
    b.slot(body, 0);
    p.roles.push_back(b.role);
  }
  expect_only(check_ranks(p, grid_view(1, 3)), "deadlock",
              {"rank 0 (stage0) waits in 'send1'", "rank 1 (stage1) waits in 'receive1'",
               "rank 2 (stage2) waits in 'receive-1'"});
  EXPECT_TRUE(has(check_ranks(p, grid_view(1, 3))[0].message, "Circle: rank 1 -> rank 2 -> rank 1") ||
              has(check_ranks(p, grid_view(1, 3))[0].message, "Circle: rank 2 -> rank 1 -> rank 2"));
}

// Two stages that reduce together at the end of a step: one in every step, the other in every fourth alone.
Program reducing(std::int64_t every_of_first, std::int64_t every_of_second) {
  Program p;
  p.groups.push_back({"world", GroupKind::world, {Axis::pipeline}, {}});
  for (const auto& [name, every] : {std::pair{"stage0", every_of_first}, {"stage1", every_of_second}}) {
    RoleBuilder b(name, static_cast<int>(p.roles.size()));
    const StreamId data = b.stream("data", StreamKind::data);
    const BufferId x = b.buffer("x", {64}, Lifetime::persistent, BufferClass::parameter, Init::Kind::zeros);
    const BodyId outer = b.body("outer");
    b.op(outer, "mean", Collective{CollectiveKind::all_reduce, 0, 64}, data, {x}, {x});
    b.slot(outer);
    b.role.bodies.back().every = every;
    p.roles.push_back(b.role);
  }
  return p;
}

TEST(CheckRanks, CallsThatAreNotInEveryStepAreSoOnEverySide) {
  EXPECT_EQ(text_of(check_ranks(reducing(4, 4), grid_view(1, 2))), "");
  expect_only(check_ranks(reducing(4, 1), grid_view(1, 2)), "crossed-collectives",
              {"rank 0 (stage0) calls all_reduce", "every 4 steps", "rank 1 (stage1)"});
  expect_only(check_ranks(reducing(4, 2), grid_view(1, 2)), "crossed-collectives", {"every 4 steps", "every 2 steps"});
}

TEST(CheckRanks, WhatIsNotOfEveryStepComesLastAndLeavesNothingForOthers) {
  Program late = reducing(4, 4);
  for (Role& role : late.roles) {
    role.bodies.push_back({"step", {}});
    role.slots.push_back({1, -1});
  }
  const auto found = check_ranks(late, grid_view(1, 2));
  ASSERT_EQ(found.size(), 2U) << text_of(found);
  EXPECT_EQ(found[0].rule, "bad-reference");
  EXPECT_TRUE(has(found[0].message, "a slot of body step, which is run every 1 steps, comes behind"))
      << found[0].message;
  Program kept = reducing(4, 4);
  for (Role& role : kept.roles) role.buffers[0].lifetime = Lifetime::step;
  const auto lost = check_ranks(kept, grid_view(1, 2));
  ASSERT_FALSE(lost.empty());
  EXPECT_TRUE(has(lost[0].message, "writes 'x', which lives for a step, in every 4 steps alone")) << lost[0].message;
  EXPECT_TRUE(has(text_of(check_ranks(reducing(0, 0), grid_view(1, 2))), "body outer is run every 0 steps"));
}

}  // namespace
}  // namespace rehearse::program
