// A correct step broken in one place at a time: each mistake is found, by its rule, and named by role, op and buffer.
#include <gtest/gtest.h>

#include "tests/unit/program/builder.h"

namespace rehearse::program {
namespace {

using testing::find_op;
using testing::has;
using testing::RoleBuilder;
using testing::text_of;
using testing::two_stages;

// Exactly one violation of `rule`, whose message has every part.
void expect_only_of_role(const std::vector<Violation>& found, const std::string& rule,
                         const std::vector<std::string>& parts) {
  ASSERT_EQ(found.size(), 1U) << text_of(found);
  EXPECT_EQ(found[0].rule, rule) << found[0].message;
  for (const std::string& part : parts) EXPECT_TRUE(has(found[0].message, part)) << part << " in " << found[0].message;
}

TEST(CheckRole, ACorrectStepHasNoViolation) {
  const Program p = two_stages();
  for (RoleId r = 0; r < 2; ++r) EXPECT_EQ(text_of(check_role(p, r)), "");
}

// An operand beyond the buffers is reported alone: nothing else can be looked up.
TEST(CheckRole, BufferOutOfRange) {
  Program p = two_stages();
  find_op(p.roles[0], "up").reads[0].buffer = 99;
  expect_only_of_role(check_role(p, 0), "bad-reference", {"stage0", "'up' of body forward", "buffer 99"});
}

// forward of micro-batch 1 with a delta of 1 is micro-batch 2 of 2.
TEST(CheckRole, MicroBatchOutOfRange) {
  Program p = two_stages();
  find_op(p.roles[0], "load").writes[0].micro_batch_delta = 1;
  expect_only_of_role(check_role(p, 0), "bad-reference", {"'load'", "slot 1", "'x' of micro-batch 2"});
}

TEST(CheckRole, DeltaOnABufferWithoutMicroBatches) {
  Program p = two_stages();
  find_op(p.roles[0], "up").reads[1].micro_batch_delta = -1;
  expect_only_of_role(check_role(p, 0), "bad-reference", {"'up'", "'weight'", "no instance a micro-batch"});
}

TEST(CheckRole, ViewBeyondItsBase) {
  Program p = two_stages();
  RoleBuilder b("x");
  b.role = p.roles[0];
  b.view("half", 0, 10, 8);
  p.roles[0] = b.role;
  expect_only_of_role(check_role(p, 0), "bad-reference", {"'half'", "[10, 18)", "'weight', which has 16"});
}

TEST(CheckRole, TwoOpsRecordOneEvent) {
  Program p = two_stages();
  find_op(p.roles[0], "load").records = find_op(p.roles[0], "up").records;
  expect_only_of_role(check_role(p, 0), "event-recorded-twice", {"stage0", "'load'", "'up'", "'computed'"});
}

// An update that waits for something nobody records would start at once.
TEST(CheckRole, UnrecordedEvent) {
  Program p = two_stages();
  p.roles[0].events.push_back({"gathered"});
  find_op(p.roles[0], "update").waits = {4};
  expect_only_of_role(check_role(p, 0), "unrecorded-event", {"stage0", "'update' of body optimizer", "'gathered'"});
}

// k = 3 does not fit operands of 8 and 16 elements; both are named.
TEST(CheckRole, GemmOperandsOfTheWrongSize) {
  Program p = two_stages();
  std::get<Gemm>(find_op(p.roles[0], "up").shape).k = 3;
  const auto found = check_role(p, 0);
  ASSERT_EQ(found.size(), 2U) << text_of(found);
  EXPECT_EQ(found[0].rule, "bad-operands");
  EXPECT_TRUE(has(found[0].message, "gemm 'up'") && has(found[0].message, "'x' with 8 elements")) << found[0].message;
  EXPECT_TRUE(has(found[1].message, "'weight' with 16 elements")) << found[1].message;
}

// A product that accumulates must read what it adds to.
TEST(CheckRole, AccumulatingGemmThatDoesNotReadC) {
  Program p = two_stages();
  find_op(p.roles[0], "weight gradient").reads.pop_back();
  expect_only_of_role(check_role(p, 0), "bad-operands", {"'weight gradient'", "reads 2 buffers; its kind reads 3"});
}

// What an epilogue reads and writes besides.
TEST(CheckRole, EpiloguesWithoutTheirOperands) {
  const auto with = [](Epilogue epilogue) {
    Program p = two_stages();
    std::get<Gemm>(find_op(p.roles[0], "weight gradient").shape).epilogue = epilogue;
    return check_role(p, 0);
  };
  expect_only_of_role(with(Epilogue::gelu), "bad-operands",
                      {"'weight gradient'", "writes 1 buffers; its kind writes 2"});
  expect_only_of_role(with(Epilogue::gelu_backward), "bad-operands",
                      {"'weight gradient'", "reads 3 buffers; its kind reads 4"});
  expect_only_of_role(with(Epilogue::bias_gradient), "bad-operands",
                      {"'weight gradient'", "reads 3 buffers; its kind reads 4"});
}

// Of the 8 elements of x: pieces of 2, two apart in twos, 4 apart; then one place too far on either side.
TEST(CheckRole, StridedCopyOutsideItsBuffers) {
  const auto with = [](Strides from, Strides to) {
    Program p = two_stages();
    Op& op = find_op(p.roles[0], "load");  // writes x
    op.reads = op.writes;
    op.shape = StridedCopy{2, 2, 2, from, to};
    return check_role(p, 0);
  };
  const auto about_pieces = [](const std::vector<Violation>& found) {
    std::string text;
    for (const Violation& v : found)
      if (v.rule == "bad-operands") text += v.message + "\n";
    return text;
  };
  const Strides within{4, 2, 0};
  EXPECT_EQ(about_pieces(with(within, within)), "");
  EXPECT_TRUE(has(about_pieces(with({4, 2, 1}, within)), "reads elements 1 to 9 of 'x', which has 8"));
  EXPECT_TRUE(has(about_pieces(with(within, {5, 2, 0})), "writes elements 0 to 9 of 'x', which has 8"));
  EXPECT_TRUE(has(about_pieces(with(within, {4, -2, 0})), "writes elements -2 to 6 of 'x', which has 8"));
  EXPECT_EQ(about_pieces(with(within, {4, -2, 2})), "");
}

// A coefficient that undoes a loss scale must be told it.
TEST(CheckRole, ScaledCoefficientThatDoesNotReadTheScale) {
  Program p = two_stages();
  std::get<ClipCoefficient>(find_op(p.roles[0], "clip").shape).scaled = true;
  expect_only_of_role(check_role(p, 0), "bad-operands", {"'clip'", "reads 1 buffers; its kind reads 2"});
}

TEST(CheckRole, LegLargerThanItsBuffer) {
  Program p = two_stages();
  std::get<PointToPoint>(find_op(p.roles[0], "send forward").shape).legs[0].elements = 9;
  expect_only_of_role(check_role(p, 0), "bad-operands", {"send 'send forward'", "'y' with 8 elements"});
}

TEST(CheckRole, CollectiveOfAnotherType) {
  Program p = two_stages();
  find_op(p.roles[0], "norm reduce").dtype = DType::bf16;
  expect_only_of_role(check_role(p, 0), "bad-operands", {"all_reduce 'norm reduce'"});
}

// Without its load, x is read by both its users in each of two micro-batches.
TEST(CheckRole, ReadBeforeWrite) {
  Program p = two_stages();
  testing::remove_op(p.roles[0], "load");
  const auto found = check_role(p, 0);
  ASSERT_EQ(found.size(), 3U) << text_of(found);
  EXPECT_EQ(found[0].rule, "read-before-write");
  EXPECT_EQ(
      found[0].message,
      "stage0: 'up' (slot 0: forward micro-batch 0) reads 'x' of micro-batch 0 before any op writes it (the first "
      "of 2)");
  EXPECT_EQ(found[1].rule, "read-before-write");
  EXPECT_EQ(found[2].rule, "release-before-write");
}

// A persistent buffer without initial values is no exception: in the first step the product and the update read
// nothing.
TEST(CheckRole, PersistentBufferWithoutInitialValues) {
  Program p = two_stages();
  p.roles[0].buffers[0].init.kind = Init::Kind::none;
  const auto found = check_role(p, 0);
  ASSERT_EQ(found.size(), 2U) << text_of(found);
  EXPECT_EQ(found[0].rule, "read-before-write");
  EXPECT_TRUE(has(found[0].message, "'up' (slot 0") && has(found[0].message, "'weight'")) << found[0].message;
  EXPECT_TRUE(has(found[1].message, "'update' (slot 4: optimizer) reads 'weight'")) << found[1].message;
}

// y is freed by "up" itself, then sent: the send touches freed memory, and frees it a second time.
TEST(CheckRole, UseAfterFree) {
  Program p = two_stages();
  Op& up = find_op(p.roles[0], "up");
  up.releases = {up.writes[0]};
  const auto found = check_role(p, 0);
  ASSERT_EQ(found.size(), 2U) << text_of(found);
  EXPECT_EQ(found[0].rule, "use-after-free");
  EXPECT_TRUE(has(found[0].message,
                  "stage0: 'send forward' (slot 0: forward micro-batch 0) reads 'y' of micro-batch 0 "
                  "after 'up' (slot 0: forward micro-batch 0) released it"))
      << found[0].message;
  EXPECT_EQ(found[1].rule, "double-release");
  EXPECT_TRUE(has(found[1].message, "'send forward'")) << found[1].message;
}

// Micro-batch buffers that nobody releases are alive when the step ends; slot buffers when their slot does.
TEST(CheckRole, Leaks) {
  Program p = two_stages();
  find_op(p.roles[0], "weight gradient").releases.pop_back();
  expect_only_of_role(check_role(p, 0), "leak", {"stage0", "'x' of micro-batch 0", "the first of 2"});
  p = two_stages();
  find_op(p.roles[1], "send back").releases.clear();
  expect_only_of_role(check_role(p, 1), "leak", {"stage1", "slot 2 (backward micro-batch 0)", "'dx'"});
}

// The product starts without waiting for what the other stream receives into x.
TEST(CheckRole, RaceAcrossStreams) {
  Program p = two_stages();
  find_op(p.roles[1], "up").waits.clear();
  const auto found = check_role(p, 1);
  ASSERT_GE(found.size(), 1U);
  EXPECT_EQ(found[0].rule, "unordered-access");
  EXPECT_TRUE(has(found[0].message,
                  "stage1: 'up' (slot 0: forward micro-batch 0) on stream compute reads 'x' of micro-batch 0, which "
                  "'receive forward' (slot 0: forward micro-batch 0) on stream link writes"))
      << found[0].message;
}

// A write must wait for reads too: the all-reduce's result is overwritten while it may still be read elsewhere.
TEST(CheckRole, WriteThatDoesNotWaitForAReader) {
  RoleBuilder b("stage0");
  const StreamId compute = b.stream("compute"), copy = b.stream("copy");
  const BufferId x = b.buffer("x", {4}, Lifetime::persistent, BufferClass::activation, Init::Kind::zeros);
  const BufferId y = b.buffer("y", {4}, Lifetime::persistent, BufferClass::activation, Init::Kind::zeros);
  const BodyId body = b.body("body");
  const EventId read = b.event("read"), filled = b.event("filled");
  Op& save = b.op(body, "save", Elementwise{ElementwiseFn::copy, 4}, copy, {x}, {y});
  save.records = read;
  save.waits = {filled};
  b.op(body, "refill", Elementwise{ElementwiseFn::fill, 4}, compute, {}, {x}).records = filled;
  b.slot(body);
  Program p;
  p.roles = {b.role};
  expect_only_of_role(
      check_role(p, 0), "unordered-access",
      {"'refill' (slot 0: body) on stream compute writes 'x'", "'save' (slot 0: body) on stream copy reads"});
  find_op(p.roles[0], "refill").waits = {read};
  EXPECT_EQ(text_of(check_role(p, 0)), "");
}

// The weight is written last in a step on one stream and read first in the next on another: only a second step shows
// it.
TEST(CheckRole, RaceAcrossTheBorderOfSteps) {
  RoleBuilder b("stage0");
  const StreamId compute = b.stream("compute"), data = b.stream("data");
  const BufferId w = b.buffer("w", {4}, Lifetime::persistent, BufferClass::parameter, Init::Kind::normal);
  const BufferId y = b.buffer("y", {4}, Lifetime::slot);
  const BodyId body = b.body("body");
  const EventId used = b.event("used"), gathered = b.event("gathered");
  b.op(body, "use", Elementwise{ElementwiseFn::copy, 4}, compute, {w}, {y}, {y}).records = used;
  Op& gather = b.op(body, "gather", Elementwise{ElementwiseFn::scale, 4}, data, {w}, {w});
  gather.waits = {used};
  gather.records = gathered;
  b.slot(body);
  Program p;
  p.roles = {b.role};
  expect_only_of_role(check_role(p, 0), "unordered-access", {"'use'", "'gather'", "'w'", "two steps"});
  find_op(p.roles[0], "use").waits = {gathered};
  EXPECT_EQ(text_of(check_role(p, 0)), "");
}

// Buckets of one flat buffer on two streams do not conflict; the whole buffer conflicts with either.
TEST(CheckRole, DisjointViewsDoNotConflict) {
  RoleBuilder b("stage0");
  const StreamId compute = b.stream("compute"), data = b.stream("data");
  const BufferId flat = b.buffer("flat", {8}, Lifetime::persistent, BufferClass::gradient, Init::Kind::zeros);
  const BufferId low = b.view("low", flat, 0, 4), high = b.view("high", flat, 4, 4);
  const BodyId body = b.body("body");
  b.op(body, "accumulate", Elementwise{ElementwiseFn::fill, 4}, compute, {}, {low});
  b.op(body, "reduce", Elementwise{ElementwiseFn::scale, 4}, data, {high}, {high});
  b.slot(body);
  Program p;
  p.roles = {b.role};
  EXPECT_EQ(text_of(check_role(p, 0)), "");
  Op& reduce = find_op(p.roles[0], "reduce");
  reduce.reads[0].buffer = reduce.writes[0].buffer = flat;
  reduce.shape = Elementwise{ElementwiseFn::scale, 8};
  const auto found = check_role(p, 0);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].rule, "unordered-access");
  EXPECT_TRUE(has(found[0].message, "'flat'")) << found[0].message;
}

// A wait reaches over streams: copy waits for tensor, which waited for compute. So does a host sync, for every stream.
TEST(CheckRole, OrderIsTransitive) {
  RoleBuilder b("stage0");
  const StreamId compute = b.stream("compute"), tensor = b.stream("tensor"), copy = b.stream("copy");
  const BufferId x = b.buffer("x", {4}, Lifetime::slot);
  const BufferId z = b.buffer("z", {4}, Lifetime::slot);
  const BodyId body = b.body("body");
  const EventId one = b.event("one"), two = b.event("two");
  b.op(body, "make", Elementwise{ElementwiseFn::fill, 4}, compute, {}, {x}).records = one;
  Op& relay = b.op(body, "relay", Elementwise{ElementwiseFn::fill, 4}, tensor, {}, {z}, {z});
  relay.waits = {one};
  relay.records = two;
  b.op(body, "use", Elementwise{ElementwiseFn::scale, 4}, copy, {x}, {x}, {x}).waits = {two};
  b.slot(body);
  Program p;
  p.roles = {b.role};
  EXPECT_EQ(text_of(check_role(p, 0)), "");
  find_op(p.roles[0], "use").waits.clear();
  EXPECT_EQ(check_role(p, 0).at(0).rule, "unordered-access");
  Op& sync = find_op(p.roles[0], "relay");
  sync.shape = HostSync{};
  sync.writes.clear();
  sync.releases.clear();
  EXPECT_EQ(text_of(check_role(p, 0)), "");
}

// The wait sees the record before it, not a later one: in slot 1 the receive of that slot is issued after the use.
TEST(CheckRole, AWaitIsForTheLatestRecordBeforeIt) {
  Program p = two_stages();
  auto& ops = p.roles[1].bodies[0].ops;
  std::swap(ops[0], ops[1]);
  const auto found = check_role(p, 1);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].rule, "read-before-write");
  EXPECT_TRUE(has(found[0].message, "'up'")) << found[0].message;
}

}  // namespace
}  // namespace rehearse::program
