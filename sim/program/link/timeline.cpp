// Two steps are walked in program order with positions counted since the first step's beginning; what the second walk
// finds is the pattern of every step (in the first step, waits on the step before are met). The instances' places
// follow plan_memory: its placements are in the order in which the walk meets first writes.
#include "sim/program/link/timeline.h"

#include <algorithm>
#include <array>
#include <optional>

#include "sim/base/check.h"
#include "sim/program/link/instances.h"
#include "sim/program/link/waits.h"

namespace rehearse::program {
namespace {

constexpr std::size_t kMaxStreams = 16;
using Positions = std::array<std::int64_t, kMaxStreams>;  // by stream; 0: none

void join(Positions& into, const Positions& from) {
  for (std::size_t s = 0; s < kMaxStreams; ++s) into[s] = std::max(into[s], from[s]);
}

// Which streams touched each stretch of the arena last, and when. Stretches end where any placement does.
class ArenaUse {
 public:
  explicit ArenaUse(const MemoryPlan& plan) {
    for (const auto& p : plan.placements) {
      bounds_.push_back(p.offset);
      bounds_.push_back(p.offset + p.bytes);
    }
    std::sort(bounds_.begin(), bounds_.end());
    bounds_.erase(std::unique(bounds_.begin(), bounds_.end()), bounds_.end());
    touched_.resize(bounds_.size());
  }
  void leave(const Placement& p, const Positions& touches) {
    for (std::size_t i = index(p.offset); i < index(p.offset + p.bytes); ++i) join(touched_[i], touches);
  }
  Positions before(const Placement& p) const {
    Positions all{};
    for (std::size_t i = index(p.offset); i < index(p.offset + p.bytes); ++i) join(all, touched_[i]);
    return all;
  }

 private:
  std::size_t index(std::int64_t offset) const {
    return static_cast<std::size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), offset) - bounds_.begin());
  }
  std::vector<std::int64_t> bounds_;
  std::vector<Positions> touched_;
};

class TimelineMaker {
 public:
  TimelineMaker(const Role& role, const std::function<int(Axis)>& axis_size)
      : role_(role), instances_(role), waits_(resolve_waits(role)) {
    REHEARSE_CHECK(role.streams.size() <= kMaxStreams, "{}: {} streams", role.name, role.streams.size());
    out_.role = &role;
    out_.calls = number_calls(role, axis_size);
    out_.memory = plan_memory(role, kArenaAlignment);
    out_.streams.resize(role.streams.size());
    for (const Slot& s : role.slots)
      for (const Op& op : body_of(s).ops) ++per_step_[static_cast<std::size_t>(op.stream)];
    live_.assign(instances_.size(), -1);
    touches_.resize(out_.memory.placements.size());
    started_.resize(role.bodies.size());
  }

  Timeline make() {
    place_persistent();
    ArenaUse history(out_.memory);
    for (step_ = 0; step_ < 2; ++step_) walk(history);
    mark_awaited();
    mark_loss();
    return std::move(out_);
  }

 private:
  const Body& body_of(const Slot& s) const { return role_.bodies[static_cast<std::size_t>(s.body)]; }
  const Buffer& buffer(BufferId id) const { return role_.buffers[static_cast<std::size_t>(id)]; }
  const Placement& placement(int index) const { return out_.memory.placements[static_cast<std::size_t>(index)]; }

  void place_persistent() {
    out_.persistent.assign(role_.buffers.size(), -1);
    for (; cursor_ < out_.memory.placements.size(); ++cursor_) {
      const auto& p = out_.memory.placements[cursor_];
      if (buffer(p.buffer).lifetime != Lifetime::persistent) break;
      out_.persistent[static_cast<std::size_t>(p.buffer)] = p.offset;
      live_[instances_.first(p.buffer)] = static_cast<int>(cursor_);
    }
    first_transient_ = cursor_;
  }

  int& live(const Operand& operand, const Slot& slot) { return live_[instances_.of(operand, slot)]; }

  void walk(ArenaUse& history) {
    cursor_ = first_transient_;
    for (int s = 0; s < static_cast<int>(role_.slots.size()); ++s) {
      const Slot& slot = role_.slots[static_cast<std::size_t>(s)];
      for (std::size_t b = 0; b < role_.buffers.size(); ++b)
        if (role_.buffers[b].lifetime == Lifetime::slot) live_[instances_.first(static_cast<BufferId>(b))] = -1;
      const auto& ops = body_of(slot).ops;
      slot_start_ = issued_;
      for (int i = 0; i < static_cast<int>(ops.size()); ++i)
        visit(s, slot, i, ops[static_cast<std::size_t>(i)], history);
      started_[static_cast<std::size_t>(slot.body)] = slot_start_;
    }
  }

  void visit(int s, const Slot& slot, int index, const Op& op, ArenaUse& history) {
    const auto stream = static_cast<std::size_t>(op.stream);
    Positions needed = after_sync_;
    for (const EventWait& wait : waits_.of(slot.body, index)) add_wait(wait, needed);
    const std::int64_t position = ++issued_[stream];
    Positions reuse{};
    for (const Operand& w : op.writes) begin_instance(w, slot, reuse, history);
    std::size_t first_place = out_.places.size();
    for (const auto* operands : {&op.reads, &op.writes})
      for (const Operand& operand : *operands) {
        const int where = live(operand, slot);
        REHEARSE_CHECK(where >= 0, "{}: '{}' uses '{}' before it exists", role_.name, op.name,
                       buffer(operand.buffer).name);
        touches_[static_cast<std::size_t>(where)][stream] = position;
        if (step_ == 1) out_.places.push_back({placement(where).offset, operand.buffer});
      }
    if (step_ == 1) emit(s, slot, index, op, needed, reuse, first_place);
    if (std::holds_alternative<HostSync>(op.shape)) after_sync_[stream] = position;
    for (const Operand& r : op.releases) {
      int& where = live(r, slot);
      if (where < 0 || buffer(instances_.base(r.buffer)).lifetime == Lifetime::persistent) continue;
      history.leave(placement(where), touches_[static_cast<std::size_t>(where)]);
      where = -1;
    }
  }

  // The recording op is as far into its stream's ops of the slot as it is in its body.
  void add_wait(const EventWait& wait, Positions& needed) const {
    const auto& start = wait.same_slot ? std::optional(slot_start_) : started_[static_cast<std::size_t>(wait.body)];
    if (!start) return;
    const auto& ops = role_.bodies[static_cast<std::size_t>(wait.body)].ops;
    const auto stream = static_cast<std::size_t>(ops[static_cast<std::size_t>(wait.op)].stream);
    const auto in_body = std::count_if(ops.begin(), ops.begin() + wait.op + 1,
                                       [&](const Op& op) { return static_cast<std::size_t>(op.stream) == stream; });
    needed[stream] = std::max(needed[stream], (*start)[stream] + in_body);
  }

  void begin_instance(const Operand& w, const Slot& slot, Positions& reuse, const ArenaUse& history) {
    int& where = live(w, slot);
    if (where >= 0) return;
    where = static_cast<int>(cursor_++);
    REHEARSE_CHECK(placement(where).buffer == instances_.base(w.buffer), "{}: placements out of program order",
                   role_.name);
    touches_[static_cast<std::size_t>(where)] = {};
    join(reuse, history.before(placement(where)));
  }

  void emit(int s, const Slot& slot, int index, const Op& op, const Positions& needed, const Positions& reuse,
            std::size_t first_place) {
    OpInstance i{s, slot.body, index, op.stream, 0};
    auto& own = out_.streams[static_cast<std::size_t>(op.stream)];
    own.push_back(static_cast<std::int32_t>(out_.instances.size()));
    i.position = static_cast<std::int64_t>(own.size());
    i.first_wait = out_.waits.size();
    i.first_reuse = out_.reuse_waits.size();
    for (std::size_t t = 0; t < role_.streams.size(); ++t) {
      const std::int64_t last = std::max(needed[t], reuse[t]);
      if (last == 0 || t == static_cast<std::size_t>(op.stream)) continue;
      out_.waits.push_back({static_cast<std::int32_t>(t), last - per_step_[t]});
      if (reuse[t] > needed[t]) out_.reuse_waits.push_back(out_.waits.back());
    }
    i.last_wait = out_.waits.size();
    i.last_reuse = out_.reuse_waits.size();
    i.first_place = first_place;
    out_.instances.push_back(i);
  }

  void mark_awaited() {
    for (const StreamWait& wait : out_.waits)
      out_.instances[static_cast<std::size_t>(&out_.awaited(wait) - out_.instances.data())].awaited = true;
  }

  void mark_loss() {
    for (BufferId b = 0; b < static_cast<BufferId>(role_.buffers.size()); ++b)
      if (buffer(b).name == "loss") out_.loss = b;
    if (out_.loss < 0) return;
    const auto writes_loss = [&](const OpInstance& i) {
      const auto& writes = out_.op(i).writes;
      return std::any_of(writes.begin(), writes.end(), [&](const Operand& w) { return w.buffer == out_.loss; });
    };
    const auto last = std::find_if(out_.instances.rbegin(), out_.instances.rend(), writes_loss);
    REHEARSE_CHECK(last != out_.instances.rend(), "{}: nothing writes the loss", role_.name);
    last->ends_loss = true;
  }

  const Role& role_;
  const BufferInstances instances_;
  Timeline out_;
  int step_ = 0;
  std::size_t cursor_ = 0, first_transient_ = 0;
  std::vector<int> live_;           // by instance: placement; -1: none
  std::vector<Positions> touches_;  // by placement
  Positions per_step_{}, issued_{}, after_sync_{};
  const RoleWaits waits_;
  Positions slot_start_{};                         // issued_ when the slot began
  std::vector<std::optional<Positions>> started_;  // by body, of its latest slot before
};

}  // namespace

Timeline make_timeline(const Role& role, const std::function<int(Axis)>& axis_size) {
  return TimelineMaker(role, axis_size).make();
}

}  // namespace rehearse::program
