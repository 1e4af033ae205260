// Rounds of slots that repeat: where they are, and that walks which leave most of them out find what walks over all do,
// on random roles of a pipeline.
#include "sim/program/link/repetition.h"

#include <gtest/gtest.h>

#include <random>

#include "sim/program/check_parts.h"
#include "sim/program/link/reuse_lag.h"
#include "tests/unit/program/builder.h"

namespace rehearse::program {
namespace {

using testing::RoleBuilder;
using testing::text_of;

// 1F1B: `ahead` forwards, then a forward and a backward in turn, then the backwards that are left, then the optimizer.
void add_slots(RoleBuilder& b, int micro_batches, int ahead) {
  for (int m = 0; m < ahead; ++m) b.slot(0, m);
  for (int m = 0; m < micro_batches; ++m) {
    if (m + ahead < micro_batches) b.slot(0, m + ahead);
    b.slot(1, m);
  }
  b.slot(2);
}

RoleBuilder three_bodies() {
  RoleBuilder b("stage");
  for (const char* name : {"forward", "backward", "optimizer"}) b.body(name);
  return b;
}

TEST(Repetition, TheRoundsOf1F1B) {
  RoleBuilder b = three_bodies();
  add_slots(b, 20, 3);
  const Repetition r = repetition_of(b.role);
  EXPECT_EQ(r.first, 3);
  EXPECT_EQ(r.period, 2);
  EXPECT_EQ(r.times, 17);
  EXPECT_EQ(r.advance, 1);
  EXPECT_EQ(r.rounds_before(3), 0);
  EXPECT_EQ(r.rounds_before(4), -1) << "within a round";
  EXPECT_EQ(r.rounds_before(3 + 34), 17);
  EXPECT_EQ(r.rounds_before(3 + 36), -1) << "behind the last";
}

// Micro-batches 0 to 2 have been touched before; those from 17 on are touched afterwards.
TEST(Repetition, WhatMicroBatchesTellApartIsNotLeftOut) {
  RoleBuilder b = three_bodies();
  add_slots(b, 20, 3);
  const Repetition r = repetition_of(b.role);
  EXPECT_EQ(r.most_left_out(3), 0) << "the third round's backward is of micro-batch 2";
  EXPECT_EQ(r.most_left_out(4), 13);
}

// All forwards before all backwards: each micro-batch is touched again later.
TEST(Repetition, NothingOfGPipeIsLeftOut) {
  RoleBuilder b = three_bodies();
  for (const int body : {0, 1})
    for (int m = 0; m < 20; ++m) b.slot(body, m);
  const Repetition r = repetition_of(b.role);
  EXPECT_EQ(r.period, 1);
  for (int done = 1; done <= r.times; ++done) EXPECT_EQ(r.most_left_out(done), 0) << done;
}

TEST(Repetition, FewSlotsDoNotRepeat) {
  RoleBuilder b = three_bodies();
  add_slots(b, 3, 1);
  EXPECT_EQ(repetition_of(b.role).times, 0);
}

class RandomRole {
 public:
  // Up to so many waits are forgotten.
  RandomRole(unsigned seed, int forgotten) : random_(seed), b_(three_bodies()) {
    for (int s = 0; s < 3; ++s) b_.stream("s" + std::to_string(s), s == 0 ? StreamKind::compute : StreamKind::tensor);
    gradient_ = b_.buffer("gradient", {8}, Lifetime::persistent, BufferClass::gradient, Init::Kind::zeros);
    std::vector<BufferId> kept;
    for (int i = 0; i < 3; ++i) kept.push_back(buffer(Lifetime::micro_batch));
    fill(0, kept, {});
    fill(1, {}, kept);
    op(2, {gradient_}, {gradient_}, {});
    order(forgotten);
    add_slots(b_, 20 + below(20), 1 + below(5));
  }

  Program program() && {
    Program p;
    p.micro_batches = 0;
    for (const Slot& slot : b_.role.slots) p.micro_batches = std::max(p.micro_batches, slot.micro_batch + 1);
    p.roles.push_back(std::move(b_.role));
    return p;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  BufferId buffer(Lifetime lifetime) {
    return b_.buffer("b" + std::to_string(count_++), {8 * (1 + below(4))}, lifetime);
  }
  void op(BodyId body, const std::vector<BufferId>& reads, const std::vector<BufferId>& writes,
          const std::vector<BufferId>& releases) {
    const std::string name = "op" + std::to_string(count_++);
    const EventId event = b_.event(name);
    b_.op(body, name, Elementwise{}, below(3), reads, writes, releases).records = event;
  }
  // Writes what is kept for the backward, with buffers of the slot between; releases what was.
  void fill(BodyId body, const std::vector<BufferId>& kept, const std::vector<BufferId>& used) {
    std::vector<BufferId> slot;
    for (int i = 0; i < 2 + below(4); ++i) {
      std::vector<BufferId> reads, writes;
      if (!slot.empty()) reads.push_back(slot[static_cast<std::size_t>(below(static_cast<int>(slot.size())))]);
      if (!used.empty()) reads.push_back(used[static_cast<std::size_t>(below(3))]);
      if (below(3) == 0) (below(2) == 0 ? reads : writes).push_back(gradient_);
      slot.push_back(buffer(Lifetime::slot));
      writes.push_back(slot.back());
      op(body, reads, writes, {});
    }
    for (const BufferId keep : kept) op(body, {slot.back()}, {keep}, {});
    std::vector<BufferId> over = slot;
    over.insert(over.end(), used.begin(), used.end());
    op(body, over, {}, over);
  }
  // Every op waits for all that it must not overtake; then some of these waits are forgotten.
  void order(int most_forgotten) {
    std::vector<Op*> ops;
    for (Body& body : b_.role.bodies)
      for (Op& op : body.ops) ops.push_back(&op);
    for (Op* op : ops)
      for (const Op* other : ops)
        if (op->stream != other->stream && conflict(*op, *other)) op->waits.push_back(other->records);
    for (int forgotten = below(most_forgotten + 1); forgotten > 0; --forgotten) {
      Op& op = *ops[static_cast<std::size_t>(below(static_cast<int>(ops.size())))];
      if (!op.waits.empty()) op.waits.erase(op.waits.begin() + below(static_cast<int>(op.waits.size())));
    }
  }
  static bool touches(const std::vector<Operand>& operands, BufferId buffer) {
    return std::any_of(operands.begin(), operands.end(), [&](const Operand& o) { return o.buffer == buffer; });
  }
  static bool conflict(const Op& a, const Op& b) {
    for (const Operand& o : a.writes)
      if (touches(b.reads, o.buffer) || touches(b.writes, o.buffer)) return true;
    for (const Operand& o : a.reads)
      if (touches(b.writes, o.buffer)) return true;
    return false;
  }

  std::mt19937 random_;
  RoleBuilder b_;
  BufferId gradient_ = -1;
  int count_ = 0;
};

TEST(Repetition, AWalkThatLeavesRoundsOutFindsAMistakeOrNone) {
  int broken = 0, right = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    const Program p = RandomRole(seed, 2).program();
    ViolationList all, some;
    walk_accesses(p, 0, {}, all);
    walk_accesses(p, 0, repetition_of(p.roles[0]), some);
    const std::vector<Violation> every = all.take();
    ASSERT_EQ(every.empty(), some.take().empty()) << "seed " << seed << ": " << text_of(every);
    ViolationList told;
    check_accesses(p, 0, told);
    ASSERT_EQ(text_of(told.take()), text_of(every)) << "seed " << seed;
    ++(every.empty() ? right : broken);
  }
  EXPECT_GT(broken, 40);
  EXPECT_GT(right, 40);
}

TEST(Repetition, AWalkThatLeavesRoundsOutFindsTheSameLags) {
  int walked = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    const Program p = RandomRole(seed, 60).program();
    const Role& role = p.roles[0];
    const RoleWaits waits = resolve_waits(role);
    const Lifetimes lifetimes = lifetimes_of(role);
    const auto some = walk_lags(role, waits, lifetimes, repetition_of(role));
    if (!some) continue;
    ++walked;
    const auto all = walk_lags(role, waits, lifetimes, {});
    ASSERT_EQ(some->of, all->of) << "seed " << seed;
    ASSERT_EQ(some->own, all->own) << "seed " << seed;
  }
  EXPECT_GT(walked, 200);
}

}  // namespace
}  // namespace rehearse::program
