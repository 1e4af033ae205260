// Peaks by hand on small roles, and the peak and the arena against a plain walk, op by op, on random roles.
#include "sim/program/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "sim/program/describe.h"
#include "tests/unit/program/builder.h"

namespace rehearse::program {
namespace {

using testing::RoleBuilder;
constexpr auto kActivation = static_cast<std::size_t>(BufferClass::activation);
constexpr auto kParameter = static_cast<std::size_t>(BufferClass::parameter);
constexpr auto kWorkspace = static_cast<std::size_t>(BufferClass::workspace);

Op& touch(RoleBuilder& b, BodyId body, const std::string& name, std::vector<BufferId> writes,
          std::vector<BufferId> releases) {
  return b.op(body, name, HostSync{}, 0, {}, std::move(writes), std::move(releases));
}

// Forward saves 40 bytes a micro-batch, backward frees them; with m forwards before the first backward the peak is m *
// 40 on top of 400 of parameters, plus the 8 bytes of workspace that each backward takes.
TEST(MemoryPeak, GPipeHoldsEveryMicroBatch) {
  for (const int m : {1, 2, 7}) {
    RoleBuilder b("stage0");
    b.buffer("w", {100}, Lifetime::persistent, BufferClass::parameter);
    const BufferId saved = b.buffer("saved", {10}, Lifetime::micro_batch);
    const BufferId scratch = b.buffer("scratch", {2}, Lifetime::slot, BufferClass::workspace);
    const BodyId forward = b.body("forward"), backward = b.body("backward");
    touch(b, forward, "save", {saved}, {});
    touch(b, backward, "grad", {scratch}, {saved, scratch});
    for (int i = 0; i < m; ++i) b.slot(forward, i);
    for (int i = 0; i < m; ++i) b.slot(backward, i);
    const MemoryPeak peak = memory_peak(b.role);
    EXPECT_EQ(peak.peak_bytes, 400 + 40 * m + 8);
    EXPECT_EQ(peak.at_peak[kParameter], 400);
    EXPECT_EQ(peak.at_peak[kActivation], 40 * m);
    EXPECT_EQ(peak.at_peak[kWorkspace], 8);
    EXPECT_EQ(peak.where, "backward micro-batch 0: grad");
  }
}

// One forward, one backward in turn: never more than one micro-batch lives, whatever their number.
TEST(MemoryPeak, AlternatingHoldsOne) {
  RoleBuilder b("stage0");
  const BufferId saved = b.buffer("saved", {10}, Lifetime::micro_batch);
  const BodyId forward = b.body("forward"), backward = b.body("backward");
  touch(b, forward, "save", {saved}, {});
  touch(b, backward, "grad", {}, {saved});
  for (int i = 0; i < 50; ++i) {
    b.slot(forward, i);
    b.slot(backward, i);
  }
  EXPECT_EQ(memory_peak(b.role).peak_bytes, 40);
  EXPECT_EQ(memory_peak(b.role).where, "forward micro-batch 0: save");
}

// A write through a view brings its base to life: 400 bytes, not the view's 40.
TEST(MemoryPeak, ViewsLiveInTheirBase) {
  RoleBuilder b("stage0");
  const BufferId base = b.buffer("base", {100}, Lifetime::step);
  const BufferId part = b.view("part", base, 20, 10);
  const BodyId body = b.body("body");
  touch(b, body, "write", {part}, {});
  touch(b, body, "again", {base}, {part});
  b.slot(body);
  EXPECT_EQ(memory_peak(b.role).peak_bytes, 400);
}

// The classes' highest may come at different moments: 40 of activation first, 20 of workspace later.
TEST(MemoryPeak, HighestOfAClassIsItsOwn) {
  RoleBuilder b("stage0");
  const BufferId a = b.buffer("a", {10}, Lifetime::slot);
  const BufferId w = b.buffer("w", {5}, Lifetime::slot, BufferClass::workspace);
  const BodyId body = b.body("body");
  touch(b, body, "first", {a}, {a});
  touch(b, body, "second", {w}, {w});
  b.slot(body);
  const MemoryPeak peak = memory_peak(b.role);
  EXPECT_EQ(peak.peak_bytes, 40);
  EXPECT_EQ(peak.at_peak[kWorkspace], 0);
  EXPECT_EQ(peak.highest[kWorkspace], 20);
}

// Instances are rounded up to the alignment one by one: two of 40 bytes take 512 at 256.
TEST(MemoryPeak, AlignmentRoundsEachInstance) {
  RoleBuilder b("stage0");
  const BufferId x = b.buffer("x", {10}, Lifetime::slot), y = b.buffer("y", {10}, Lifetime::slot);
  const BodyId body = b.body("body");
  touch(b, body, "both", {x, y}, {x, y});
  b.slot(body);
  EXPECT_EQ(memory_peak(b.role, 256).peak_bytes, 512);
}

// A kernel's own memory is beside what it writes and what it releases, 40 + 20 + 100, and gone with the next op, 20 +
// 8: whether the op writes, releases, or touches nothing at all.
TEST(MemoryPeak, AKernelsOwnMemoryIsThereWhileItRuns) {
  RoleBuilder b("stage0");
  const BufferId saved = b.buffer("saved", {10}, Lifetime::slot), result = b.buffer("result", {5}, Lifetime::slot);
  const BufferId scratch = b.buffer("scratch", {2}, Lifetime::slot, BufferClass::workspace);
  const BodyId body = b.body("body");
  touch(b, body, "save", {saved}, {});
  touch(b, body, "attention", {result}, {saved});
  touch(b, body, "idle", {}, {});
  touch(b, body, "last", {scratch}, {result, scratch});
  b.slot(body);
  const auto of = [&](const std::string& name) {
    return memory_peak(b.role, 1, false, [name](const Op& op) { return op.name == name ? 100 : 0; });
  };
  EXPECT_EQ(memory_peak(b.role).peak_bytes, 60);
  const MemoryPeak peak = of("attention");
  EXPECT_EQ(peak.peak_bytes, 160);
  EXPECT_EQ(peak.at_peak[kActivation], 60);
  EXPECT_EQ(peak.at_peak[kWorkspace], 100);
  EXPECT_EQ(peak.highest[kWorkspace], 100);
  EXPECT_EQ(peak.where, "body: attention");
  EXPECT_EQ(of("save").peak_bytes, 140);
  EXPECT_EQ(of("idle").peak_bytes, 120);
  EXPECT_EQ(of("last").peak_bytes, 128);
  EXPECT_EQ(of("last").highest[kWorkspace], 108);
}

// What the definition says, op by op.
struct PlainWalk {
  explicit PlainWalk(const Role& r, std::int64_t alignment) : role(r) {
    std::int64_t total = 0;
    std::array<std::int64_t, kBufferClasses> live{};
    const auto size = [&](BufferId b) {
      const std::int64_t bytes = role.buffers[static_cast<std::size_t>(b)].bytes();
      return (bytes + alignment - 1) / alignment * alignment;
    };
    for (BufferId b = 0; b < static_cast<BufferId>(role.buffers.size()); ++b) {
      const Buffer& buffer = role.buffers[static_cast<std::size_t>(b)];
      if (buffer.is_view() || buffer.lifetime != Lifetime::persistent) continue;
      live[static_cast<std::size_t>(buffer.cls)] += size(b);
      total += size(b);
    }
    peak = {live, live, total, "persistent buffers"};
    std::map<std::tuple<BufferId, int>, bool> alive;  // buffer, instance
    for (int s = 0; s < static_cast<int>(role.slots.size()); ++s) {
      const Slot& slot = role.slots[static_cast<std::size_t>(s)];
      const auto change = [&](const Operand& o, bool to) {
        const BufferId named = o.buffer;
        const Buffer& view = role.buffers[static_cast<std::size_t>(named)];
        const BufferId b = view.is_view() ? view.base : named;
        const Buffer& buffer = role.buffers[static_cast<std::size_t>(b)];
        if (buffer.lifetime == Lifetime::persistent) return;
        int instance = -1;
        if (buffer.lifetime == Lifetime::micro_batch) instance = slot.micro_batch + o.micro_batch_delta;
        if (buffer.lifetime == Lifetime::slot) instance = s;
        bool& now = alive[{b, instance}];
        if (now == to) return;
        now = to;
        live[static_cast<std::size_t>(buffer.cls)] += to ? size(b) : -size(b);
        total += to ? size(b) : -size(b);
      };
      for (const Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops) {
        for (const Operand& w : op.writes) change(w, true);
        if (total > peak.peak_bytes) peak = {live, peak.highest, total, slot_text(role, slot) + ": " + op.name};
        for (std::size_t c = 0; c < kBufferClasses; ++c) peak.highest[c] = std::max(peak.highest[c], live[c]);
        for (const Operand& r2 : op.releases) change(r2, false);
      }
    }
  }

  const Role& role;
  MemoryPeak peak;
};

// A role with any touches in any order: instances that are never freed, freed twice, written again after, reached from
// other micro-batches, and through views.
Role random_role(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  RoleBuilder b("stage0");
  const int micro_batches = 1 + below(5);
  const int buffers = 3 + below(8);
  for (int i = 0; i < buffers; ++i)
    b.buffer("b" + std::to_string(i), {below(40)}, static_cast<Lifetime>(below(4)),
             static_cast<BufferClass>(below(kBufferClasses)));
  for (int i = 0; i < 3; ++i) b.view("v" + std::to_string(i), below(buffers), 0, 0);
  const int bodies = 1 + below(4);
  std::vector<std::pair<int, int>> reach;  // lowest and highest delta of a body
  for (int i = 0; i < bodies; ++i) {
    const BodyId body = b.body("body" + std::to_string(i));
    reach.emplace_back(0, 0);
    for (int o = below(8); o >= 0; --o) {
      Op& op = touch(b, body, "op" + std::to_string(o), {}, {});
      const auto operand = [&] {
        const BufferId id = below(buffers + 3);
        const Buffer& named = b.role.buffers[static_cast<std::size_t>(id)];
        const Buffer& base = named.is_view() ? b.role.buffers[static_cast<std::size_t>(named.base)] : named;
        const int delta = base.lifetime == Lifetime::micro_batch ? below(3) - 1 : 0;
        reach.back().first = std::min(reach.back().first, delta);
        reach.back().second = std::max(reach.back().second, delta);
        return Operand{id, delta};
      };
      for (int w = below(4); w > 0; --w) op.writes.push_back(operand());
      for (int r = below(4); r > 0; --r) op.releases.push_back(operand());
    }
  }
  b.slot(b.body("nothing"), micro_batches - 1);
  for (int s = below(30); s > 0; --s) {
    const int body = below(bodies), m = below(micro_batches);
    const auto [lowest, highest] = reach[static_cast<std::size_t>(body)];
    if (m + lowest >= 0 && m + highest < micro_batches) b.slot(body, m);
  }
  return b.role;
}

// The peak, its classes and its place equal those of the plain walk on 3,000 random roles.
TEST(MemoryPeak, EqualsThePlainWalk) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    const Role role = random_role(seed);
    const std::int64_t alignment = seed % 2 == 0 ? 1 : 64;
    const MemoryPeak expected = PlainWalk(role, alignment).peak;
    const MemoryPeak peak = memory_peak(role, alignment);
    ASSERT_EQ(peak.peak_bytes, expected.peak_bytes) << "seed " << seed;
    ASSERT_EQ(peak.at_peak, expected.at_peak) << "seed " << seed;
    ASSERT_EQ(peak.highest, expected.highest) << "seed " << seed;
    ASSERT_EQ(peak.where, expected.where) << "seed " << seed;
  }
}

}  // namespace
}  // namespace rehearse::program
