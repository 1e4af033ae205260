// Offsets of every buffer instance of a step in one arena: persistent buffers first, then instances in program order,
// each at the lowest offset where it fits among those alive (first fit). A released instance's room is free for the
// next op in program order: who runs streams side by side orders that op after the released instance's last use. The
// walk visits every op instance; it is meant for roles that are performed, which are small.
#include <algorithm>
#include <iterator>
#include <map>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/program/link/instances.h"
#include "sim/program/memory_plan.h"

namespace rehearse::program {
namespace {

class Arena {
 public:
  // Reserves `bytes` at the lowest offset with room.
  std::int64_t take(std::int64_t bytes) {
    if (bytes == 0) return 0;
    auto gap = gaps_.begin();
    while (gap->second < bytes) ++gap;
    const auto [offset, room] = *gap;
    gaps_.erase(gap);
    if (room > bytes) gaps_.emplace(offset + bytes, room - bytes);
    size_ = std::max(size_, offset + bytes);
    return offset;
  }

  void give_back(std::int64_t offset, std::int64_t bytes) {
    if (bytes == 0) return;
    auto after = gaps_.lower_bound(offset);
    if (after != gaps_.end() && offset + bytes == after->first) {
      bytes += after->second;
      after = gaps_.erase(after);
    }
    if (after != gaps_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == offset) {
        before->second += bytes;
        return;
      }
    }
    gaps_.emplace(offset, bytes);
  }

  std::int64_t size() const { return size_; }

 private:
  // Offset -> room, never touching; the last one has room for anything.
  std::map<std::int64_t, std::int64_t> gaps_ = {{0, INT64_MAX / 2}};
  std::int64_t size_ = 0;
};

class ArenaWalk {
 public:
  ArenaWalk(const Role& role, std::int64_t alignment)
      : role_(role), alignment_(alignment), instances_(role), live_(instances_.size(), -1) {}

  MemoryPlan run() {
    for (BufferId b = 0; b < static_cast<BufferId>(role_.buffers.size()); ++b)
      if (!buffer(b).is_view() && buffer(b).lifetime == Lifetime::persistent) place(b, -1, -1);
    for (int s = 0; s < static_cast<int>(role_.slots.size()); ++s) {
      check_interrupt();
      const Slot& slot = role_.slots[static_cast<std::size_t>(s)];
      for (std::size_t b = 0; b < role_.buffers.size(); ++b)
        if (role_.buffers[b].lifetime == Lifetime::slot) live_[instances_.first(static_cast<BufferId>(b))] = -1;
      for (const Op& op : role_.bodies[static_cast<std::size_t>(slot.body)].ops) {
        for (const Operand& w : op.writes) write(w, slot, s);
        for (const Operand& r : op.releases) release(r, slot);
      }
    }
    plan_.arena_bytes = arena_.size();
    return std::move(plan_);
  }

 private:
  const Buffer& buffer(BufferId id) const { return role_.buffers[static_cast<std::size_t>(id)]; }
  // The placement of the operand's instance, -1 if it does not live.
  int& live(const Operand& operand, const Slot& slot) { return live_[instances_.of(operand, slot)]; }

  int place(BufferId base, int micro_batch, int slot) {
    const std::int64_t bytes = (buffer(base).bytes() + alignment_ - 1) / alignment_ * alignment_;
    plan_.placements.push_back({base, micro_batch, slot, arena_.take(bytes), bytes});
    return static_cast<int>(plan_.placements.size()) - 1;
  }

  void write(const Operand& operand, const Slot& slot, int s) {
    const BufferId base = instances_.base(operand.buffer);
    const Lifetime lifetime = buffer(base).lifetime;
    if (lifetime == Lifetime::persistent) return;
    int& where = live(operand, slot);
    if (where >= 0) return;
    where = place(base, lifetime == Lifetime::micro_batch ? slot.micro_batch + operand.micro_batch_delta : -1,
                  lifetime == Lifetime::slot ? s : -1);
  }

  void release(const Operand& operand, const Slot& slot) {
    const BufferId base = instances_.base(operand.buffer);
    if (buffer(base).lifetime == Lifetime::persistent) return;
    int& where = live(operand, slot);
    if (where < 0) return;
    const Placement& p = plan_.placements[static_cast<std::size_t>(where)];
    arena_.give_back(p.offset, p.bytes);
    where = -1;
  }

  const Role& role_;
  const std::int64_t alignment_;
  const BufferInstances instances_;
  std::vector<int> live_;  // by instance
  Arena arena_;
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan plan_memory(const Role& role, std::int64_t alignment) {
  REHEARSE_CHECK(alignment >= 1, "alignment {} is not positive", alignment);
  return ArenaWalk(role, alignment).run();
}

}  // namespace rehearse::program
