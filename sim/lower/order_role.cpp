// Derives a role's waits and releases from what its ops read and write.
//
// Waits. Two steps are walked in program order with a vector clock a stream: clock[s] counts the ops of stream s known to
// be done when an op starts. An op that conflicts with an earlier access on another stream (one of the two writes) and
// whose clock does not cover it gets a wait for that op's event. An event wait refers to the latest record before it, so
// one wait in the body serves every slot that runs it. Conflicts are found per buffer instance, views as their base.
//
// Releases. A non-persistent instance is released by the op that touches it last in program order. All instances of a
// buffer must agree, which holds because slots of one body differ only in their micro-batch; it is checked.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "sim/base/check.h"
#include "sim/lower/role_builder.h"

namespace rehearse::lower {
namespace {

using program::Buffer;
using program::Op;
using program::Role;
using program::Slot;
using program::StreamKind;

using Clock = std::vector<int>;

void join(Clock& into, const Clock& from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

struct Access {
  int stream = -1;
  int position = 0;  // how many ops of its stream were issued up to and including it
  OpRef op;
};

struct InstanceState {
  Access write;
  std::vector<Access> reads;  // since the last write, latest per stream
};

// (base buffer, what distinguishes its instances)
using InstanceKey = std::pair<BufferId, int>;

class Orderer {
 public:
  Orderer(Role& role, const std::vector<std::pair<OpRef, OpRef>>& extra) : role_(role), streams_(role.streams.size()) {
    for (const auto& [op, earlier] : extra) waits_[op].insert(earlier);
    clock_.assign(streams_, Clock(streams_, 0));
    host_.assign(streams_, 0);
    issued_.assign(streams_, 0);
  }

  void walk(const std::vector<Slot>& slots, int step) {
    for (std::size_t s = 0; s < slots.size(); ++s) {
      const auto& body = role_.bodies[static_cast<std::size_t>(slots[s].body)];
      for (std::size_t i = 0; i < body.ops.size(); ++i)
        visit({slots[s].body, static_cast<int>(i)}, slots[s], static_cast<int>(s), step);
    }
  }

  void write_events() {
    std::map<OpRef, program::EventId> events;
    for (const auto& [waiting, earlier_ops] : waits_) {
      for (const OpRef earlier : earlier_ops) {
        const auto [it, added] = events.emplace(earlier, static_cast<program::EventId>(role_.events.size()));
        if (added) {
          Op& recording = at(earlier);
          recording.records = it->second;
          const auto& body_name = role_.bodies[static_cast<std::size_t>(earlier.body)].name;
          role_.events.push_back({body_name + "/" + recording.name});
        }
        at(waiting).waits.push_back(it->second);
      }
    }
  }

 private:
  Op& at(OpRef ref) {
    return role_.bodies[static_cast<std::size_t>(ref.body)].ops[static_cast<std::size_t>(ref.op)];
  }

  InstanceKey key(const Operand& operand, const Slot& slot, int slot_index, int step) const {
    const Buffer& b = role_.buffers[static_cast<std::size_t>(operand.buffer)];
    const BufferId base = b.is_view() ? b.base : operand.buffer;
    const auto slots = static_cast<int>(1 << 20);
    switch (role_.buffers[static_cast<std::size_t>(base)].lifetime) {
      case Lifetime::persistent: return {base, 0};
      case Lifetime::step: return {base, step};
      case Lifetime::micro_batch: return {base, step * slots + slot.micro_batch + operand.micro_batch_delta};
      case Lifetime::slot: return {base, step * slots + slot_index};
    }
    return {base, 0};
  }

  void visit(OpRef ref, const Slot& slot, int slot_index, int step) {
    Op& op = at(ref);
    const auto stream = static_cast<std::size_t>(op.stream);
    Clock clock = clock_[stream];
    join(clock, host_);
    auto& waits = waits_[ref];
    for (const OpRef earlier : waits) join_latest(clock, earlier);
    const auto order_after = [&](const Access& access) {
      if (access.stream < 0 || access.position <= clock[static_cast<std::size_t>(access.stream)]) return;
      waits.insert(access.op);
      join_latest(clock, access.op);
    };
    for (const Operand& operand : op.reads) order_after(state_[key(operand, slot, slot_index, step)].write);
    for (const Operand& operand : op.writes) {
      const InstanceState& state = state_[key(operand, slot, slot_index, step)];
      order_after(state.write);
      for (const Access& read : state.reads) order_after(read);
    }
    const int position = ++issued_[stream];
    clock[stream] = position;
    const Access access{static_cast<int>(stream), position, ref};
    for (const Operand& operand : op.reads) note_read(state_[key(operand, slot, slot_index, step)], access);
    for (const Operand& operand : op.writes) state_[key(operand, slot, slot_index, step)] = {access, {}};
    if (role_.streams[stream].kind == StreamKind::host) join(host_, clock);
    latest_[ref] = clock;
    clock_[stream] = std::move(clock);
  }

  void join_latest(Clock& clock, OpRef op) const {
    const auto it = latest_.find(op);
    if (it != latest_.end()) join(clock, it->second);
  }

  static void note_read(InstanceState& state, const Access& access) {
    for (Access& read : state.reads)
      if (read.stream == access.stream) return void(read = access);
    state.reads.push_back(access);
  }

  Role& role_;
  std::size_t streams_;
  std::vector<Clock> clock_;
  Clock host_;
  std::vector<int> issued_;
  std::map<OpRef, std::set<OpRef>> waits_;
  std::map<OpRef, Clock> latest_;
  std::map<InstanceKey, InstanceState> state_;
};

void write_releases(Role& role, const std::vector<Slot>& slots) {
  struct LastUse {
    OpRef op;
    int slot = 0, micro_batch = 0;
  };
  std::map<InstanceKey, LastUse> last;
  for (std::size_t s = 0; s < slots.size(); ++s) {
    const auto& ops = role.bodies[static_cast<std::size_t>(slots[s].body)].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (const auto* operands : {&ops[i].reads, &ops[i].writes}) {
        for (const Operand& operand : *operands) {
          const Buffer& b = role.buffers[static_cast<std::size_t>(operand.buffer)];
          const BufferId base = b.is_view() ? b.base : operand.buffer;
          const Lifetime lifetime = role.buffers[static_cast<std::size_t>(base)].lifetime;
          if (lifetime == Lifetime::persistent) continue;
          const int mb = slots[s].micro_batch + operand.micro_batch_delta;
          const int instance = lifetime == Lifetime::micro_batch ? mb : lifetime == Lifetime::slot ? static_cast<int>(s) : 0;
          last[{base, instance}] = {{slots[s].body, static_cast<int>(i)}, static_cast<int>(s), mb};
        }
      }
    }
  }
  std::set<std::tuple<OpRef, BufferId, int>> releases;
  for (const auto& [instance, use] : last) {
    const bool by_micro_batch =
        role.buffers[static_cast<std::size_t>(instance.first)].lifetime == Lifetime::micro_batch;
    const int delta = by_micro_batch ? use.micro_batch - slots[static_cast<std::size_t>(use.slot)].micro_batch : 0;
    if (!releases.emplace(use.op, instance.first, delta).second) continue;
    role.bodies[static_cast<std::size_t>(use.op.body)].ops[static_cast<std::size_t>(use.op.op)].releases.push_back(
        {instance.first, delta});
  }
}

}  // namespace

void order_role(Role& role, const std::vector<Slot>& slots, const std::vector<std::pair<OpRef, OpRef>>& extra) {
  Orderer orderer(role, extra);
  for (int step = 0; step < 2; ++step) orderer.walk(slots, step);
  orderer.write_events();
  write_releases(role, slots);
}

}  // namespace rehearse::lower
