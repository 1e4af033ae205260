// Derives a role's waits and releases from what its ops read and write.
//
// Waits. Two steps are walked in program order with a vector clock a stream: clock[s] counts the ops of stream s known
// to be done when an op starts. An op that conflicts with an earlier access on another stream (one of the two writes)
// and whose clock does not cover it gets a wait for that op's event. An event wait refers to the latest record before
// it, so one wait in the body serves every slot that runs it. Conflicts are found per buffer instance, views as their
// base, but for the parts of a base that is cut (Buffer::parts).
//
// Releases. A non-persistent instance is released by the op that touches it last in program order. All instances of a
// buffer must agree, which holds because slots of one body differ only in their micro-batch; check_accesses.cpp checks
// it.
#include <algorithm>
#include <array>
#include <set>
#include <span>
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

constexpr std::size_t kFewStreams = 12, kMaxStreams = 20;

// An operand by the base it lies in.
struct Based {
  BufferId base;
  int delta;          // of micro-batches
  Lifetime lifetime;  // the base's
  int first, last;    // of the base's parts
};

// Of each base, into how many parts it is cut.
std::vector<int> parts_of(const Role& role) {
  std::vector<int> parts(role.buffers.size(), 1);
  for (const Buffer& b : role.buffers)
    if (b.parts > 0) parts[static_cast<std::size_t>(b.base)] = b.parts;
  return parts;
}

// The operands of all ops of a role, found once for as often as ops are walked over.
class BasedOperands {
 public:
  explicit BasedOperands(const Role& role) : parts_(parts_of(role)) {
    for (const auto& body : role.bodies) {
      first_op_.push_back(reads_.size());
      for (const Op& op : body.ops) {
        reads_.push_back(all_.size());
        add(role, op.reads);
        writes_.push_back(all_.size());
        add(role, op.writes);
      }
    }
    reads_.push_back(all_.size());
  }

  std::span<const Based> reads(std::size_t body, std::size_t op) const {
    const std::size_t at = first_op_[body] + op;
    return {all_.data() + reads_[at], all_.data() + writes_[at]};
  }
  std::span<const Based> writes(std::size_t body, std::size_t op) const {
    const std::size_t at = first_op_[body] + op;
    return {all_.data() + writes_[at], all_.data() + reads_[at + 1]};
  }
  std::span<const Based> all(std::size_t body, std::size_t op) const {
    const std::size_t at = first_op_[body] + op;
    return {all_.data() + reads_[at], all_.data() + reads_[at + 1]};
  }

 private:
  void add(const Role& role, const std::vector<Operand>& operands) {
    for (const Operand& o : operands) {
      const Buffer& b = role.buffers[static_cast<std::size_t>(o.buffer)];
      const BufferId base = b.is_view() ? b.base : o.buffer;
      const Lifetime lifetime = role.buffers[static_cast<std::size_t>(base)].lifetime;
      if (b.parts > 0)
        all_.push_back({base, o.micro_batch_delta, lifetime, b.turn, b.turn});
      else
        all_.push_back({base, o.micro_batch_delta, lifetime, 0, parts_[static_cast<std::size_t>(base)] - 1});
    }
  }

  std::vector<int> parts_;
  std::vector<Based> all_;
  std::vector<std::size_t> reads_, writes_;  // by op, in all_; of reads one more at the end
  std::vector<std::size_t> first_op_;        // by body, in these two
};

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

// For roles of at most so many streams.
template <std::size_t kStreams>
class Orderer {
  using Clock = std::array<int, kStreams>;

 public:
  Orderer(Role& role, const BasedOperands& operands, const std::vector<Slot>& slots,
          const std::vector<std::pair<OpRef, OpRef>>& extra)
      : role_(role), operands_(operands), slots_(slots) {
    REHEARSE_CHECK(role.streams.size() <= kStreams, "{} streams", role.streams.size());
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
    parts_ = parts_of(role);
    std::size_t states = 0;
    for (std::size_t i = 0; i < role.buffers.size(); ++i) {
      const Buffer& b = role.buffers[i];
      first_state_.push_back(states);
      if (b.is_view()) continue;
      const std::size_t instances = b.lifetime == Lifetime::micro_batch ? static_cast<std::size_t>(micro_batches) : 1;
      states += instances * static_cast<std::size_t>(parts_[i]);
    }
    state_.resize(states);
  }

  void walk() {
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      check_interrupt();
      const auto body = static_cast<std::size_t>(slots_[s].body);
      for (std::size_t i = 0; i < role_.bodies[body].ops.size(); ++i) visit(body, i, slots_[s]);
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

  // Of the parts that an operand covers.
  std::span<InstanceState> states(const Based& operand, const Slot& slot) {
    const int micro_batch = operand.lifetime == Lifetime::micro_batch ? slot.micro_batch + operand.delta : 0;
    // Instances that follow one another (slots, steps) lie in the same memory, so what was done with one orders the
    // first write of the next.
    const auto base = static_cast<std::size_t>(operand.base);
    const int part = micro_batch * parts_[base] + operand.first;
    return {&state_[first_state_[base] + static_cast<std::size_t>(part)],
            static_cast<std::size_t>(operand.last - operand.first + 1)};
  }

  static void join(Clock& into, const Clock& from) {
    for (std::size_t i = 0; i < kStreams; ++i) into[i] = std::max(into[i], from[i]);
  }

  void visit(std::size_t body, std::size_t i, const Slot& slot) {
    const Op& op = role_.bodies[body].ops[i];
    const int op_index = first_op_[body] + static_cast<int>(i);
    const auto stream = static_cast<std::size_t>(op.stream);
    Clock clock = clock_[stream];
    if (host_waited_) join(clock, host_);
    for (const int earlier : waits_[static_cast<std::size_t>(op_index)])
      join(clock, latest_[static_cast<std::size_t>(earlier)]);
    const auto order_after = [&](const Access& access) {
      if (access.stream < 0 || access.position <= clock[static_cast<std::size_t>(access.stream)]) return;
      add_wait(op_index, access.op);
      join(clock, latest_[static_cast<std::size_t>(access.op)]);
    };
    for (const Based& operand : operands_.reads(body, i))
      for (const InstanceState& s : states(operand, slot)) order_after(s.write);
    for (const Based& operand : operands_.writes(body, i))
      for (const InstanceState& s : states(operand, slot)) {
        order_after(s.write);
        for (const Access& read : s.reads) order_after(read);
      }
    clock[stream] = ++issued_[stream];
    const Access access{static_cast<int>(stream), issued_[stream], op_index};
    for (const Based& operand : operands_.reads(body, i))
      for (InstanceState& s : states(operand, slot)) note_read(s, access);
    for (const Based& operand : operands_.writes(body, i))
      for (InstanceState& s : states(operand, slot)) {
        s.write = access;
        s.reads.clear();
      }
    if (role_.streams[stream].kind == StreamKind::host) {
      host_waited_ = true;
      join(host_, clock);
    }
    latest_[static_cast<std::size_t>(op_index)] = clock_[stream] = clock;
  }

  static void note_read(InstanceState& state, const Access& access) {
    for (Access& read : state.reads)
      if (read.stream == access.stream) return void(read = access);
    state.reads.push_back(access);
  }

  Role& role_;
  const BasedOperands& operands_;
  const std::vector<Slot>& slots_;
  std::vector<int> first_op_;  // of each body, in the index over all bodies
  std::vector<OpRef> refs_;
  std::array<Clock, kMaxStreams> clock_{};
  Clock host_{};
  bool host_waited_ = false;  // else its clock is zeros
  std::array<int, kStreams> issued_{};
  std::vector<std::vector<int>> waits_;  // of each op: the ops whose events it waits for
  std::vector<Clock> latest_;            // after each op's latest instance; zero if there was none
  std::vector<InstanceState> state_;
  std::vector<int> parts_;                // by base buffer
  std::vector<std::size_t> first_state_;  // by base buffer, in state_: by micro-batch, then by part
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

void write_releases(Role& role, const BasedOperands& operands, const std::vector<Slot>& slots,
                    const std::set<BufferId>& held) {
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
  // From the last slot's last op on, so that the first seen of an instance is its last use.
  for (std::size_t s = slots.size(); s-- > 0;) {
    check_interrupt();
    const auto body = static_cast<std::size_t>(slots[s].body);
    const auto& ops = role.bodies[body].ops;
    for (std::size_t i = ops.size(); i-- > 0;) {
      for (const Based& operand : operands.all(body, i)) {
        if (operand.lifetime == Lifetime::persistent) continue;
        const auto base = static_cast<std::size_t>(operand.base);
        const int mb = slots[s].micro_batch + operand.delta;
        const auto instance = operand.lifetime == Lifetime::micro_batch ? static_cast<std::size_t>(mb)
                              : operand.lifetime == Lifetime::slot      ? body
                                                                        : 0;
        if (instance >= last[base].size()) last[base].resize(instance + 1);
        if (last[base][instance].op.valid()) continue;
        const std::size_t until =
            is_held[base] != 0 && operand.lifetime == Lifetime::slot ? behind_queue(role, ops, i) : i;
        last[base][instance] = {{slots[s].body, static_cast<int>(until)}, static_cast<int>(s), mb};
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
  const BasedOperands operands(role);
  const auto order = [](auto orderer) {
    orderer.walk();
    orderer.walk();
    orderer.write_events();
  };
  if (role.streams.size() <= kFewStreams)
    order(Orderer<kFewStreams>(role, operands, slots, extra));
  else
    order(Orderer<kMaxStreams>(role, operands, slots, extra));
  write_releases(role, operands, slots, held);
}

}  // namespace rehearse::lower
