// Ranks that wait for one another because of where they write: named by the static check, and helped by copies of sends
// where sends are to blame.
#include <gtest/gtest.h>

#include "sim/program/link/send_slots.h"
#include "tests/unit/program/builder.h"

namespace rehearse::program {
namespace {

using testing::grid_view;
using testing::has;
using testing::RoleBuilder;
using testing::text_of;

Elementwise some(std::int64_t n) {
  return {ElementwiseFn::copy, n};
}

std::vector<Violation> check(const Program& program, const Arenas& arenas) {
  return check_memory_reuse(program, grid_view(1, 2), arenas.by_role(), arenas.send_slots);
}

// Each stage sends one value away and then receives another on another stream, stage 0 what stage 1 sends and the other
// way round: in any order of events both go on. `one_place`: what is received lies where what is sent lay.
struct Exchange {
  Program program;
  Arenas arenas;

  explicit Exchange(bool one_place) {
    for (const int stage : {0, 1}) {
      RoleBuilder b("stage" + std::to_string(stage), stage);
      const StreamId compute = b.stream("compute"), out = b.stream("out", StreamKind::pipeline),
                     in = b.stream("in", StreamKind::pipeline);
      const BufferId sent = b.buffer("sent", {64}, Lifetime::slot), got = b.buffer("got", {64}, Lifetime::slot);
      const EventId made = b.event("made"), here = b.event("here");
      const BodyId body = b.body("body");
      b.op(body, "make", some(64), compute, {}, {sent}).records = made;
      b.op(body, "send", PointToPoint{{{true, Axis::pipeline, 1, stage, 64}}}, out, {sent}, {}, {sent}).waits = {made};
      b.op(body, "receive", PointToPoint{{{false, Axis::pipeline, 1, 1 - stage, 64}}}, in, {}, {got}).records = here;
      b.op(body, "use", some(64), compute, {got}, {}, {got}).waits = {here};
      b.slot(body);
      program.roles.push_back(b.role);
      ArenaPlaces& places = arenas.places.emplace_back();
      places.places = {{0, 256}, {one_place ? 0 : 256, 256}};
      places.first_op = {0};
      places.first_wait = {0, 0, 0, 0, 0};
      if (!one_place) continue;
      places.all_waits = {{ReuseWait::Which::same_slot, out, body, 1}};
      places.first_wait = {0, 0, 0, 1, 1};
    }
  }
};

TEST(MemoryReuse, PlacesOfTheirOwnHoldNobodyUp) {
  const Exchange two(false);
  EXPECT_EQ(text_of(check_ranks(two.program, grid_view(1, 2))), "");
  EXPECT_EQ(text_of(check(two.program, two.arenas)), "");
}

// Both receive only after they have sent, and nobody takes what is sent.
TEST(MemoryReuse, ACircleIsNamedWithTheMemoryThatItGoesThrough) {
  const Exchange one(true);
  EXPECT_EQ(text_of(check_ranks(one.program, grid_view(1, 2))), "") << "by events alone they go on";
  const std::vector<Violation> found = check(one.program, one.arenas);
  ASSERT_EQ(found.size(), 1U) << text_of(found);
  EXPECT_EQ(found[0].rule, "reuse-deadlock");
  for (const char* part :
       {"rank 0 (stage0) waits in 'send' (slot 0: body) for rank 1 (stage1) to reach 'receive' (slot 0: body)",
        "rank 1 (stage1) writes in 'receive' (slot 0: body) where memory is in use until 'send' (slot 0: body) is done",
        "Circle: rank 0 -> rank 1 -> rank 0"})
    EXPECT_TRUE(has(found[0].message, part)) << part << " in " << found[0].message;
}

// A copy, or a buffered message, frees the place at once.
TEST(MemoryReuse, SendsFromCopiesBreakTheCircle) {
  Exchange one(true);
  const SendSlots slots = send_slots(one.program, one.arenas.by_role(), grid_view(1, 2), true);
  EXPECT_EQ(slots.slots, 1);
  EXPECT_TRUE(slots.drains);
  for (const int sends : {1, kBufferedSends}) {
    one.arenas.send_slots = sends;
    EXPECT_EQ(text_of(check(one.program, one.arenas)), "");
  }
}

// Two reductions on two streams, which the ranks issue in different orders. The result of the second lies where the
// input of the first lay.
TEST(MemoryReuse, CopiesOfSendsDoNotHelpCollectives) {
  Program program;
  program.groups.push_back({"pair", GroupKind::pipeline, {Axis::pipeline}, {}});
  program.groups.push_back({"other pair", GroupKind::pipeline, {Axis::pipeline}, {}});
  Arenas arenas;
  for (const int stage : {0, 1}) {
    RoleBuilder b("stage" + std::to_string(stage), stage);
    const StreamId streams[] = {b.stream("first"), b.stream("second")};
    const BodyId body = b.body("body");
    for (const int g : {stage, 1 - stage}) {
      const BufferId sum = b.buffer("sum" + std::to_string(g), {64}, Lifetime::slot);
      b.op(body, "reduce" + std::to_string(g), Collective{CollectiveKind::all_reduce, g, 64}, streams[g], {}, {sum},
           {sum});
    }
    b.slot(body);
    program.roles.push_back(b.role);
    ArenaPlaces& places = arenas.places.emplace_back();
    places.places = {{0, 256}, {0, 256}};
    places.all_waits = {{ReuseWait::Which::same_slot, streams[stage], body, 0}};
    places.first_op = {0};
    places.first_wait = {0, 0, 1};
  }
  const SendSlots slots = send_slots(program, arenas.by_role(), grid_view(1, 2), true);
  EXPECT_FALSE(slots.drains);
  EXPECT_EQ(slots.slots, 0);
  const std::vector<Violation> found = check(program, arenas);
  ASSERT_EQ(found.size(), 1U) << text_of(found);
  EXPECT_TRUE(has(found[0].message, "'reduce1' (slot 0: body)")) << found[0].message;
}

// What a wait refers to was done in the step before.
TEST(MemoryReuse, WaitsForTheStepBeforeAreMet) {
  Exchange one(true);
  for (ArenaPlaces& places : one.arenas.places) places.all_waits[0].which = ReuseWait::Which::latest;
  EXPECT_EQ(text_of(check(one.program, one.arenas)), "");
}

// A receive that nobody sends to: the execution stops there, with and without copies.
TEST(MemoryReuse, AMissingSendStopsTheExecution) {
  Exchange two(false);
  testing::remove_op(two.program.roles[0], "send");
  two.arenas.places[0].first_wait.pop_back();
  EXPECT_FALSE(send_slots(two.program, two.arenas.by_role(), grid_view(1, 2), true).drains);
  EXPECT_FALSE(send_slots(two.program, two.arenas.by_role(), grid_view(1, 2), false).drains);
}

}  // namespace
}  // namespace rehearse::program
