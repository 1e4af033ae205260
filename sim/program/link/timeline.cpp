// Two steps are walked in program order with positions counted since the first step's beginning; what the second walk
// finds is the pattern of every step (in the first step, waits on the step before are met).
#include "sim/program/link/timeline.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/program/link/reuse_order.h"
#include "sim/program/link/waits.h"

namespace rehearse::program {
namespace {

constexpr std::size_t kMaxStreams = 20;
using Positions = std::array<std::int64_t, kMaxStreams>;  // by stream; 0: none

class TimelineMaker {
 public:
  TimelineMaker(const Role& role, const std::function<int(Axis)>& axis_size)
      : role_(role), waits_(resolve_waits(role)) {
    REHEARSE_CHECK(role.streams.size() <= kMaxStreams, "{}: {} streams", role.name, role.streams.size());
    out_.role = &role;
    out_.calls = number_calls(role, axis_size);
    out_.memory = place_buffers(role, waits_, kArenaAlignment);
    out_.streams.resize(role.streams.size());
    for (const Slot& s : role.slots)
      for (const Op& op : body_of(s).ops) ++per_step_[static_cast<std::size_t>(op.stream)];
    for (const Body& body : role.bodies) {
      Positions ops{};
      std::vector<std::int64_t>& positions = in_body_.emplace_back();
      for (const Op& op : body.ops) positions.push_back(++ops[static_cast<std::size_t>(op.stream)]);
    }
    order_.emplace(role, &out_.memory);
    starts_.resize(role.slots.size());
  }

  Timeline make() {
    for (const Buffer& b : role_.buffers) {
      const bool persistent = !b.is_view() && b.lifetime == Lifetime::persistent;
      out_.persistent.push_back(persistent ? out_.memory.places[out_.persistent.size()].offset : -1);
    }
    for (step_ = 0; step_ < 2; ++step_)
      for (std::size_t s = 0; s < role_.slots.size(); ++s) walk(static_cast<std::int32_t>(s));
    mark_awaited();
    mark_loss();
    return std::move(out_);
  }

 private:
  const Body& body_of(const Slot& s) const { return role_.bodies[static_cast<std::size_t>(s.body)]; }
  const Buffer& buffer(BufferId id) const { return role_.buffers[static_cast<std::size_t>(id)]; }

  void walk(std::int32_t s) {
    check_interrupt();
    const Slot& slot = role_.slots[static_cast<std::size_t>(s)];
    slot_start_ = issued_;
    const auto& ops = body_of(slot).ops;
    for (std::size_t i = 0; i < ops.size(); ++i) visit(s, slot, static_cast<std::int32_t>(i), ops[i]);
    starts_[static_cast<std::size_t>(s)] = slot_start_;
  }

  void visit(std::int32_t s, const Slot& slot, std::int32_t index, const Op& op) {
    const auto stream = static_cast<std::size_t>(op.stream);
    Positions needed = after_sync_;
    for (const EventWait& wait : waits_.of(slot.body, index))
      add_wait(wait.same_slot ? s : order_->latest(s, wait.body), s, wait.body, wait.op, needed);
    for (const ReuseWait& wait : out_.memory.waits(slot.body, index))
      add_wait(order_->slot_of(wait, s), s, wait.body, wait.op, needed);
    const std::int64_t position = ++issued_[stream];
    if (step_ == 1) emit(s, slot, index, op, needed);
    if (std::holds_alternative<HostSync>(op.shape)) after_sync_[stream] = position;
  }

  // The op waited for in a slot (as StepOrder::latest, of the slot `now`) is as far into its stream's ops of the slot
  // as it is in its body.
  void add_wait(std::int32_t slot, std::int32_t now, BodyId body, std::int32_t op, Positions& needed) const {
    if (slot == kNoSlot || (slot < 0 && step_ == 0)) return;
    const auto b = static_cast<std::size_t>(body), o = static_cast<std::size_t>(op);
    const auto stream = static_cast<std::size_t>(role_.bodies[b].ops[o].stream);
    const auto of = static_cast<std::size_t>(slot < 0 ? slot + static_cast<std::int32_t>(starts_.size()) : slot);
    const Positions& start = slot == now ? slot_start_ : starts_[of];
    needed[stream] = std::max(needed[stream], start[stream] + in_body_[b][o]);
  }

  void emit(std::int32_t s, const Slot& slot, std::int32_t index, const Op& op, const Positions& needed) {
    OpInstance i{s, slot.body, index, op.stream, 0};
    auto& own = out_.streams[static_cast<std::size_t>(op.stream)];
    own.push_back(static_cast<std::int32_t>(out_.instances.size()));
    i.position = static_cast<std::int64_t>(own.size());
    i.first_wait = out_.waits.size();
    for (std::size_t t = 0; t < role_.streams.size(); ++t)
      if (needed[t] != 0 && t != static_cast<std::size_t>(op.stream))
        out_.waits.push_back({static_cast<std::int32_t>(t), needed[t] - per_step_[t]});
    i.last_wait = out_.waits.size();
    i.first_place = out_.places.size();
    for (const auto* operands : {&op.reads, &op.writes})
      for (const Operand& o : *operands)
        out_.places.push_back(
            {out_.memory.places[static_cast<std::size_t>(o.buffer)].of(slot.micro_batch + o.micro_batch_delta),
             o.buffer});
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
      return std::any_of(writes.begin(), writes.end(), [&](const Operand& w) {
        return w.buffer == out_.loss || (buffer(w.buffer).is_view() && buffer(w.buffer).base == out_.loss);
      });
    };
    const auto last = std::find_if(out_.instances.rbegin(), out_.instances.rend(), writes_loss);
    REHEARSE_CHECK(last != out_.instances.rend(), "{}: nothing writes the loss", role_.name);
    last->ends_loss = true;
  }

  const Role& role_;
  const RoleWaits waits_;
  Timeline out_;
  std::vector<std::vector<std::int64_t>> in_body_;  // by body and op: its position in its stream's ops of the body
  int step_ = 0;
  Positions per_step_{}, issued_{}, after_sync_{};
  Positions slot_start_{};         // issued_ when the slot began
  std::vector<Positions> starts_;  // the same of each slot's latest execution
  std::optional<ReuseOrder> order_;
};

}  // namespace

Timeline make_timeline(const Role& role, const std::function<int(Axis)>& axis_size) {
  return TimelineMaker(role, axis_size).make();
}

}  // namespace rehearse::program
