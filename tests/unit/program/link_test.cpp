// What the linker derives of a role: numbers of transfer calls, and of all ranks: whose calls match.
#include "sim/program/link/link.h"

#include <gtest/gtest.h>

#include "sim/base/check.h"
#include "sim/program/link/instances.h"
#include "tests/unit/program/builder.h"

namespace rehearse::program::testing {
namespace {

// The number, in the first step, of an op's call (of its `leg`) in a slot.
std::int64_t number(const Role& role, const RoleCalls& calls, int slot, int op, std::size_t leg = 0) {
  const BodyId body = role.slots[static_cast<std::size_t>(slot)].body;
  return calls.number(calls.of(body, op)[leg], 0, slot);
}

// Two calls on one group from different streams of a body that runs twice, one on another group between them.
TEST(Link, NumbersTheCallsOfEachGroupInProgramOrderOverSlots) {
  RoleBuilder b("stage0");
  const auto compute = b.stream("compute"), data = b.stream("data", StreamKind::data);
  const auto x = b.buffer("x", {4}, Lifetime::persistent, BufferClass::parameter, Init::Kind::zeros);
  const auto body = b.body("body"), unused = b.body("unused");
  b.op(body, "first", Collective{CollectiveKind::all_reduce, 1, 4}, data, {x}, {x});
  b.op(body, "other", Collective{CollectiveKind::all_reduce, 0, 4}, data, {x}, {x});
  b.op(body, "second", Collective{CollectiveKind::all_reduce, 1, 4}, compute, {x}, {x});
  b.op(unused, "never", send_to(1, 4), compute, {x});
  b.slot(body);
  b.slot(body);
  const RoleCalls calls = number_calls(b.role, grid_view(2, 1).size);
  EXPECT_EQ(number(b.role, calls, 0, 0), 0);
  EXPECT_EQ(number(b.role, calls, 0, 2), 1);
  EXPECT_EQ(number(b.role, calls, 1, 0), 2);
  EXPECT_EQ(number(b.role, calls, 1, 2), 3);
  EXPECT_EQ(number(b.role, calls, 1, 1), 1);
  ASSERT_EQ(calls.sequences.size(), 3u);
  EXPECT_EQ(calls.sequences[0].per_step, 4);
  EXPECT_EQ(calls.sequences[1].per_step, 2);
  EXPECT_EQ(calls.sequences[2].per_step, 0);
  EXPECT_EQ(calls.number(calls.of(body, 0)[0], 3, 1), 3 * 4 + 2);  // of the fourth step
}

// On two stages the next one and the one before are the same rank, so its messages are one sequence.
TEST(Link, MessagesToTheSameRankAreOneSequenceAChannel) {
  RoleBuilder b("stage0");
  const auto link = b.stream("link", StreamKind::pipeline);
  const auto x = b.buffer("x", {4}, Lifetime::persistent, BufferClass::parameter, Init::Kind::zeros);
  const auto body = b.body("body");
  b.op(body, "on", send_to(1, 4), link, {x});
  b.op(body, "back", send_to(-1, 4), link, {x});
  b.op(body, "other channel", send_to(1, 4, 7), link, {x});
  b.op(body, "receive", receive_from(1, 4), link, {}, {x});
  b.slot(body);
  const RoleCalls two = number_calls(b.role, grid_view(1, 2).size), three = number_calls(b.role, grid_view(1, 3).size);
  EXPECT_EQ(two.sequences.size(), 3u);
  EXPECT_EQ(number(b.role, two, 0, 1), 1);
  EXPECT_EQ(three.sequences.size(), 4u);
  EXPECT_EQ(number(b.role, three, 0, 1), 0);
}

TEST(Link, RanksOfAGroupAndBothEndsOfAChannelShareAProcessGroup) {
  const Program program = two_stages();
  const GridView grid = grid_view(2, 2);  // ranks 0, 1 are stage 0, ranks 2, 3 stage 1
  const Link linked = link(program, grid);
  const auto group_of = [&](int rank, const auto& wanted) {
    const auto& sequences = linked.calls[static_cast<std::size_t>(grid.role(rank))].sequences;
    for (std::size_t s = 0; s < sequences.size(); ++s)
      if (wanted(sequences[s])) return linked.groups.of(rank, static_cast<std::int32_t>(s));
    return -1;
  };
  const auto world = [](const CallSequence& s) { return s.group == 0; };
  const auto sends = [](const CallSequence& s) { return s.group < 0 && s.send; };
  const auto receives = [](const CallSequence& s) { return s.group < 0 && !s.send; };
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(group_of(rank, world), group_of(0, world));
  EXPECT_EQ(linked.groups[group_of(0, world)].ranks, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(group_of(0, sends), group_of(2, receives));
  EXPECT_EQ(group_of(3, sends), group_of(1, receives));
  EXPECT_NE(group_of(0, sends), group_of(1, sends));
  EXPECT_EQ(linked.groups[group_of(3, sends)].ranks, (std::vector<int>{3, 1}));
}

// A view is its base; of a micro-batch buffer the slot's micro-batch and the operand's distance say which.
TEST(Link, AnOperandMeansOneInstanceOfItsBase) {
  RoleBuilder b("stage0");
  const auto body = b.body("body");
  const auto kept = b.buffer("kept", {8}, Lifetime::persistent, BufferClass::parameter, Init::Kind::zeros);
  const auto part = b.view("part", kept, 4, 4);
  const auto x = b.buffer("x", {4}, Lifetime::micro_batch);
  const auto last = b.buffer("last", {4}, Lifetime::slot);
  for (const int m : {0, 1, 2}) b.slot(body, m);
  const BufferInstances instances(b.role);
  EXPECT_EQ(instances.size(), 1u + 3u + 1u);
  EXPECT_EQ(instances.of({part, 0}, b.role.slots[1]), instances.of({kept, 0}, b.role.slots[2]));
  EXPECT_EQ(instances.first(part), instances.first(kept));
  EXPECT_EQ(instances.of({x, 0}, b.role.slots[2]), instances.first(x) + 2);
  EXPECT_EQ(instances.of({x, -1}, b.role.slots[2]), instances.first(x) + 1);
  EXPECT_EQ(instances.of({last, 0}, b.role.slots[2]), instances.first(last));
  EXPECT_THROW(instances.of({x, 1}, b.role.slots[2]), InternalError);
}

// One body records, itself and another wait: before the record in the body, after it, and on the recorder's own stream.
TEST(Link, AWaitRefersToTheLatestRecordBeforeItInProgramOrder) {
  RoleBuilder b("stage0");
  const auto compute = b.stream("compute"), data = b.stream("data", StreamKind::data);
  const auto x = b.buffer("x", {4}, Lifetime::persistent, BufferClass::parameter, Init::Kind::zeros);
  const auto event = b.event("done"), never = b.event("never");
  const Elementwise fill{ElementwiseFn::fill, 4};
  const auto records = b.body("records"), other = b.body("other"), unused = b.body("unused");
  b.op(records, "early", fill, data, {}, {x}).waits = {event};
  b.op(records, "record", fill, compute, {}, {x}).records = event;
  b.op(records, "late", fill, data, {}, {x}).waits = {event};
  b.op(records, "own stream", fill, compute, {}, {x}).waits = {event};
  b.op(other, "elsewhere", fill, data, {}, {x}).waits = {event, never};
  b.op(unused, "no slot", fill, compute, {}, {x}).records = never;
  for (const BodyId body : {other, records, records, other}) b.slot(body);
  const RoleWaits waits = resolve_waits(b.role);
  ASSERT_EQ(waits.of(records, 0).size(), 1u);
  EXPECT_FALSE(waits.of(records, 0)[0].same_slot);
  EXPECT_EQ(waits.of(records, 0)[0].op, 1);
  EXPECT_EQ(waits.of(records, 0)[0].stream, compute);
  ASSERT_EQ(waits.of(records, 2).size(), 1u);
  EXPECT_TRUE(waits.of(records, 2)[0].same_slot);
  EXPECT_TRUE(waits.of(records, 3).empty());
  ASSERT_EQ(waits.of(other, 0).size(), 1u);
  EXPECT_EQ(waits.of(other, 0)[0].body, records);

  const StepOrder order(b.role);
  EXPECT_EQ(order.latest(0, records), -2);  // the last but one slot of the step before
  EXPECT_EQ(order.latest(1, records), -2);
  EXPECT_EQ(order.latest(2, records), 1);
  EXPECT_EQ(order.latest(3, records), 2);
  EXPECT_EQ(order.latest(0, other), -1);
  EXPECT_EQ(order.latest(3, other), 0);
  EXPECT_EQ(order.runs_before(3, records), 2);
}

}  // namespace
}  // namespace rehearse::program::testing
