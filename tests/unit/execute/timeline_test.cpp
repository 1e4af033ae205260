// What an op of a step waits for: events by CUDA's rule, host syncs, and whoever touched its memory before.
#include "execute/timeline.h"

#include <gtest/gtest.h>

#include "tests/unit/program/builder.h"

namespace rehearse::execute {
namespace {

using program::BufferClass;
using program::Elementwise;
using program::ElementwiseFn;
using program::Lifetime;
using program::StreamKind;
using program::testing::RoleBuilder;

const plan::RankGrid kOneRank({1, 1, 1, 1, 1}, {Axis::tensor, Axis::context, Axis::expert, Axis::data, Axis::pipeline});

Elementwise fill(std::int64_t n) {
  return {ElementwiseFn::fill, n};
}
Elementwise copy(std::int64_t n) {
  return {ElementwiseFn::copy, n};
}

const Instance& instance(const Timeline& t, const std::string& op, int slot) {
  for (const Instance& i : t.instances)
    if (i.slot == slot && t.op(i).name == op) return i;
  throw std::out_of_range(op);
}

// "stream:position" of every wait, in order.
std::string waits(const Timeline& t, const std::string& op, int slot) {
  const Instance& i = instance(t, op, slot);
  std::string text;
  for (std::size_t w = i.first_wait; w < i.last_wait; ++w)
    text += (text.empty() ? "" : " ") + std::to_string(t.waits[w].stream) + ":" + std::to_string(t.waits[w].position);
  return text;
}

TEST(Timeline, AWaitIsForTheLatestRecordBeforeItInProgramOrder) {
  RoleBuilder b("stage0");
  const auto compute = b.stream("compute"), data = b.stream("data", StreamKind::data);
  const auto x = b.buffer("x", {4}, Lifetime::persistent, BufferClass::parameter, program::Init::Kind::zeros);
  const auto event = b.event("done");
  const auto body = b.body("body");
  b.op(body, "early", fill(4), data, {}, {x}).waits = {event};
  b.op(body, "record", fill(4), compute, {}, {x}).records = event;
  b.op(body, "late", fill(4), data, {}, {x}).waits = {event};
  b.slot(body);
  b.slot(body);
  const Timeline t = make_timeline(b.role, kOneRank);
  // Two records a step: the early wait of the first slot is for the second record of the step before.
  EXPECT_EQ(waits(t, "early", 0), "0:0");
  EXPECT_EQ(waits(t, "late", 0), "0:1");
  EXPECT_EQ(waits(t, "early", 1), "0:1");
  EXPECT_EQ(waits(t, "late", 1), "0:2");
  EXPECT_TRUE(instance(t, "record", 0).awaited);
  EXPECT_FALSE(instance(t, "late", 0).awaited);
}

TEST(Timeline, NothingLaterStartsBeforeAHostSyncIsDone) {
  RoleBuilder b("stage0");
  const auto compute = b.stream("compute"), host = b.stream("host", StreamKind::host);
  const auto x = b.buffer("x", {4}, Lifetime::persistent, BufferClass::parameter, program::Init::Kind::zeros);
  const auto body = b.body("body");
  b.op(body, "before", fill(4), compute, {}, {x});
  b.op(body, "sync", program::HostSync{}, host);
  b.op(body, "after", fill(4), compute, {}, {x});
  b.slot(body);
  const Timeline t = make_timeline(b.role, kOneRank);
  EXPECT_EQ(waits(t, "after", 0), "1:1");
  EXPECT_EQ(waits(t, "before", 0), "1:0");  // the sync of the step before
}

// Two buffers of a slot in the same bytes: the first write of the second waits for the first's last reader on the other
// stream, and in the next step the first one's write for the second one's reader.
TEST(Timeline, AnInstanceWaitsForWhoTouchedItsMemoryBefore) {
  RoleBuilder b("stage0");
  const auto compute = b.stream("compute"), data = b.stream("data", StreamKind::data);
  const auto first = b.buffer("first", {4}, Lifetime::slot), second = b.buffer("second", {4}, Lifetime::slot);
  const auto sink = b.buffer("sink", {4}, Lifetime::persistent, BufferClass::parameter, program::Init::Kind::zeros);
  const auto made = b.event("made"), again = b.event("again");
  const auto body = b.body("body");
  b.op(body, "write_first", fill(4), compute, {}, {first}).records = made;
  b.op(body, "read_first", copy(4), data, {first}, {sink}, {first}).waits = {made};
  b.op(body, "write_second", fill(4), compute, {}, {second}).records = again;
  b.op(body, "read_second", copy(4), data, {second}, {sink}, {second}).waits = {again};
  b.slot(body);
  const Timeline t = make_timeline(b.role, kOneRank);
  ASSERT_EQ(t.places[instance(t, "write_first", 0).first_place].offset,
            t.places[instance(t, "write_second", 0).first_place].offset);
  EXPECT_EQ(waits(t, "read_first", 0), "0:1");
  EXPECT_EQ(waits(t, "write_second", 0), "1:1");
  EXPECT_EQ(waits(t, "write_first", 0), "1:0");
}

TEST(Timeline, MicroBatchesHavePlacesOfTheirOwnAndCallsAreNumbered) {
  RoleBuilder b("stage0");
  const auto compute = b.stream("compute");
  const auto x = b.buffer("x", {16}, Lifetime::micro_batch);
  const auto forward = b.body("forward"), backward = b.body("backward");
  b.op(forward, "write", fill(16), compute, {}, {x});
  b.op(backward, "sum", program::Collective{program::CollectiveKind::all_reduce, 3, 16}, compute, {x}, {x}, {x});
  for (const int m : {0, 1}) b.slot(forward, m);
  for (const int m : {1, 0}) b.slot(backward, m);
  const Timeline t = make_timeline(b.role, kOneRank);
  const auto offset = [&](const std::string& op, int slot) {
    return t.places[instance(t, op, slot).first_place].offset;
  };
  EXPECT_NE(offset("write", 0), offset("write", 1));
  EXPECT_EQ(offset("write", 0), offset("sum", 3));
  EXPECT_EQ(offset("write", 1), offset("sum", 2));
  EXPECT_EQ(t.call_number(instance(t, "sum", 2), 0, 0), 0);
  EXPECT_EQ(t.call_number(instance(t, "sum", 3), 0, 0), 1);
  EXPECT_EQ(t.call_number(instance(t, "sum", 2), 0, 5), 10);
}

}  // namespace
}  // namespace rehearse::execute
