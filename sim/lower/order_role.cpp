// Derives a role's waits and releases from what its ops read and write.
//
// Waits. Two steps are walked in program order with a vector clock a stream: clock[s] counts the ops of stream s known
// to be done when an op starts. An op that conflicts with an earlier access on another stream (one of the two writes)
// and whose clock does not cover it gets a wait for that op's event. An event wait refers to the latest record before
// it, so one wait in the body serves every slot that runs it. Conflicts are found per buffer instance, views as their
// base.
//
// Releases. A non-persistent instance is released by the op that touches it last in program order. All instances of a
// buffer must agree, which holds because slots of one body differ only in their micro-batch; check_accesses.cpp checks
// it.
#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/lower/role_builder.h"

namespace rehearse::lower {
namespace {

using program::Buffer;
using program::Op;
using program::Role;
using program::Slot;
using program::StreamKind;

constexpr std::size_t kMaxStreams = 20;
using Clock = std::array<int, kMaxStreams>;

void join(Clock& into, const Clock& from) {
  for (std::size_t i = 0; i < kMaxStreams; ++i) into[i] = std::max(into[i], from[i]);
}

struct Access {
  int stream = -1;
  int position = 0;  // how many ops of its stream were issued up to and including it
  int op = -1;       // index over all bodies
};

// Accesses of one buffer instance and of those before it in its place.
struct InstanceState {
  Access write;
  std::vector<Access> reads;  // since the last write, latest per stream
};

class Orderer {
 public:
  Orderer(Role& role, const std::vector<Slot>& slots, const std::vector<std::pair<OpRef, OpRef>>& extra)
      : role_(role), slots_(slots) {
    REHEARSE_CHECK(role.streams.size() <= kMaxStreams, "{} streams", role.streams.size());
    int ops = 0, micro_batches = 1;
    for (const auto& body : role.bodies) {
      first_op_.push_back(ops);
      for (std::size_t i = 0; i < body.ops.size(); ++i)
        refs_.push_back({static_cast<BodyId>(first_op_.size()) - 1, static_cast<int>(i)});
      ops += static_cast<int>(body.ops.size());
    }
    for (const Slot& slot : slots) micro_batches = std::max(micro_batches, slot.micro_batch + 1);
    waits_.resize(refs_.size());
    latest_.resize(refs_.size(), Clock{});
    for (const auto& [op, earlier] : extra) add_wait(index(op), index(earlier));
    state_.resize(role.buffers.size());
    for (std::size_t b = 0; b < role.buffers.size(); ++b)
      state_[b].resize(role.buffers[b].lifetime == Lifetime::micro_batch ? static_cast<std::size_t>(micro_batches) : 1);
  }

  void walk() {
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      check_interrupt();
      const auto body = static_cast<std::size_t>(slots_[s].body);
      for (std::size_t i = 0; i < role_.bodies[body].ops.size(); ++i)
        visit(first_op_[body] + static_cast<int>(i), role_.bodies[body].ops[i], slots_[s]);
    }
  }

  void write_events() {
    for (std::size_t waiting = 0; waiting < waits_.size(); ++waiting) {
      std::sort(waits_[waiting].begin(), waits_[waiting].end());
      for (const int earlier : waits_[waiting]) {
        Op& recording = at(earlier);
        if (recording.records < 0) {
          recording.records = static_cast<program::EventId>(role_.events.size());
          const auto body = static_cast<std::size_t>(refs_[static_cast<std::size_t>(earlier)].body);
          role_.events.push_back({role_.bodies[body].name + "/" + recording.name});
        }
        at(static_cast<int>(waiting)).waits.push_back(recording.records);
      }
    }
  }

 private:
  int index(OpRef ref) const { return first_op_[static_cast<std::size_t>(ref.body)] + ref.op; }
  Op& at(int op) {
    const OpRef ref = refs_[static_cast<std::size_t>(op)];
    return role_.bodies[static_cast<std::size_t>(ref.body)].ops[static_cast<std::size_t>(ref.op)];
  }

  void add_wait(int op, int earlier) {
    auto& waits = waits_[static_cast<std::size_t>(op)];
    if (std::find(waits.begin(), waits.end(), earlier) == waits.end()) waits.push_back(earlier);
  }

  InstanceState& state(const Operand& operand, const Slot& slot) {
    const Buffer& b = role_.buffers[static_cast<std::size_t>(operand.buffer)];
    const BufferId base = b.is_view() ? b.base : operand.buffer;
    const Lifetime lifetime = role_.buffers[static_cast<std::size_t>(base)].lifetime;
    const int micro_batch = lifetime == Lifetime::micro_batch ? slot.micro_batch + operand.micro_batch_delta : 0;
    // Instances that follow one another (slots, steps) lie in the same memory, so what was done with one orders the
    // first write of the next.
    return state_[static_cast<std::size_t>(base)][static_cast<std::size_t>(micro_batch)];
  }

  void visit(int op_index, const Op& op, const Slot& slot) {
    const auto stream = static_cast<std::size_t>(op.stream);
    Clock clock = clock_[stream];
    join(clock, host_);
    for (const int earlier : waits_[static_cast<std::size_t>(op_index)])
      join(clock, latest_[static_cast<std::size_t>(earlier)]);
    const auto order_after = [&](const Access& access) {
      if (access.stream < 0 || access.position <= clock[static_cast<std::size_t>(access.stream)]) return;
      add_wait(op_index, access.op);
      join(clock, latest_[static_cast<std::size_t>(access.op)]);
    };
    for (const Operand& operand : op.reads) order_after(state(operand, slot).write);
    for (const Operand& operand : op.writes) {
      const InstanceState& s = state(operand, slot);
      order_after(s.write);
      for (const Access& read : s.reads) order_after(read);
    }
    clock[stream] = ++issued_[stream];
    const Access access{static_cast<int>(stream), issued_[stream], op_index};
    for (const Operand& operand : op.reads) note_read(state(operand, slot), access);
    for (const Operand& operand : op.writes) {
      InstanceState& s = state(operand, slot);
      s.write = access;
      s.reads.clear();
    }
    if (role_.streams[stream].kind == StreamKind::host) join(host_, clock);
    latest_[static_cast<std::size_t>(op_index)] = clock_[stream] = clock;
  }

  static void note_read(InstanceState& state, const Access& access) {
    for (Access& read : state.reads)
      if (read.stream == access.stream) return void(read = access);
    state.reads.push_back(access);
  }

  Role& role_;
  const std::vector<Slot>& slots_;
  std::vector<int> first_op_;  // of each body, in the index over all bodies
  std::vector<OpRef> refs_;
  std::array<Clock, kMaxStreams> clock_{};
  Clock host_{};
  std::array<int, kMaxStreams> issued_{};
  std::vector<std::vector<int>> waits_;  // of each op: the ops whose events it waits for
  std::vector<Clock> latest_;            // after each op's latest instance; zero if there was none
  std::vector<std::vector<InstanceState>> state_;
};

// The op whose launch the host is at when the device has come past `op`: a queue of the compute stream's launches
// later, or the last.
std::size_t behind_queue(const Role& role, const std::vector<Op>& ops, std::size_t op) {
  std::int64_t launches = 0;
  while (op + 1 < ops.size() && launches < kQueuedLaunches) {
    const Op& next = ops[++op];
    if (role.streams[static_cast<std::size_t>(next.stream)].kind == StreamKind::compute) launches += next.launches;
  }
  return op;
}

void write_releases(Role& role, const std::vector<Slot>& slots, const std::set<BufferId>& held) {
  struct LastUse {
    OpRef op;
    int slot = 0, micro_batch = 0;
  };
  // By base buffer: of each micro-batch's instance, the step's, or, since slots of a body go alike, each body's.
  std::vector<std::vector<LastUse>> last(role.buffers.size());
  const std::vector<char> is_held = [&] {
    std::vector<char> flags(role.buffers.size(), 0);
    for (const BufferId id : held) flags[static_cast<std::size_t>(id)] = 1;
    return flags;
  }();
  for (std::size_t s = 0; s < slots.size(); ++s) {
    check_interrupt();
    const auto& ops = role.bodies[static_cast<std::size_t>(slots[s].body)].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (const auto* operands : {&ops[i].reads, &ops[i].writes}) {
        for (const Operand& operand : *operands) {
          const Buffer& b = role.buffers[static_cast<std::size_t>(operand.buffer)];
          const auto base = static_cast<std::size_t>(b.is_view() ? b.base : operand.buffer);
          const Lifetime lifetime = role.buffers[base].lifetime;
          if (lifetime == Lifetime::persistent) continue;
          const int mb = slots[s].micro_batch + operand.micro_batch_delta;
          const auto instance = static_cast<std::size_t>(lifetime == Lifetime::micro_batch ? mb
                                                         : lifetime == Lifetime::slot      ? slots[s].body
                                                                                           : 0);
          const std::size_t until = is_held[base] != 0 && lifetime == Lifetime::slot ? behind_queue(role, ops, i) : i;
          if (instance >= last[base].size()) last[base].resize(instance + 1);
          last[base][instance] = {{slots[s].body, static_cast<int>(until)}, static_cast<int>(s), mb};
        }
      }
    }
  }
  std::set<std::pair<OpRef, int>> releases;  // of one buffer
  for (std::size_t base = 0; base < last.size(); ++base) {
    releases.clear();
    for (const LastUse& use : last[base]) {
      if (!use.op.valid()) continue;
      const bool by_micro_batch = role.buffers[base].lifetime == Lifetime::micro_batch;
      const int delta = by_micro_batch ? use.micro_batch - slots[static_cast<std::size_t>(use.slot)].micro_batch : 0;
      if (!releases.emplace(use.op, delta).second) continue;
      role.bodies[static_cast<std::size_t>(use.op.body)].ops[static_cast<std::size_t>(use.op.op)].releases.push_back(
          {static_cast<BufferId>(base), delta});
    }
  }
}

}  // namespace

void order_role(Role& role, const std::vector<Slot>& slots, const std::vector<std::pair<OpRef, OpRef>>& extra,
                const std::set<BufferId>& held) {
  Orderer orderer(role, slots, extra);
  orderer.walk();
  orderer.walk();
  orderer.write_events();
  write_releases(role, slots, held);
}

}  // namespace rehearse::lower
