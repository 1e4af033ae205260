// See reuse_lag.h. Each stream has a vector clock: of each stream, how many of its ops are known to be done.
#include "sim/program/link/reuse_lag.h"

#include <algorithm>
#include <array>
#include <deque>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"

namespace rehearse::program {
namespace {

constexpr std::size_t kMostRecent = 512;  // ops of a stream that are looked at
constexpr std::size_t kMostStreams = 17;  // with the host

class LagWalk {
 public:
  LagWalk(const Role& role, const RoleWaits& waits, const Lifetimes& lifetimes)
      : role_(role), waits_(waits), lifetimes_(lifetimes), streams_(role.streams.size()) {
    REHEARSE_CHECK(streams_ < kMostStreams, "{}: {} streams", role.name, streams_);
    out_.of.resize(role.buffers.size());
    out_.own.assign(role.buffers.size(), kEnoughLag);
    last_.resize(streams_ + 1);
    recent_.resize(streams_ + 1);
    most_bytes_.resize(streams_ + 1);
    for (const Body& body : role.bodies) {
      first_op_.push_back(operands_.size());
      for (const Op& op : body.ops) operands_.push_back(operands_of(op));
    }
    latest_.resize(operands_.size());
  }

  ReuseLags walk() {
    for (int step = 0; step < 2; ++step)
      for (const Slot& slot : role_.slots) {
        check_interrupt();
        const auto body = static_cast<std::size_t>(slot.body);
        for (std::size_t i = 0; i < role_.bodies[body].ops.size(); ++i) visit(slot, static_cast<std::int32_t>(i));
      }
    return std::move(out_);
  }

 private:
  using Clock = std::array<std::int32_t, kMostStreams>;  // by stream; the host's comes after those of the role
  // Of an op, which is looked at many times.
  struct Operands {
    std::int64_t bytes = 0;
    std::vector<Operand> passing;  // those that are not persistent; of views their bases
  };
  struct Issued {
    const Operands* operands;
    int micro_batch;
    Clock known;  // when it began
  };

  std::size_t index(StreamId stream) const {
    return stream == kHostStream ? streams_ : static_cast<std::size_t>(stream);
  }
  Operands operands_of(const Op& op) const {
    Operands all;
    for (const auto* operands : {&op.reads, &op.writes})
      for (const Operand& o : *operands) {
        const Buffer& b = role_.buffers[static_cast<std::size_t>(o.buffer)];
        const BufferId base = b.is_view() ? b.base : o.buffer;
        all.bytes += b.bytes();
        if (role_.buffers[static_cast<std::size_t>(base)].lifetime != Lifetime::persistent)
          all.passing.push_back({base, o.micro_batch_delta});
      }
    return all;
  }
  bool computes(std::size_t stream) const {
    return stream < streams_ && role_.streams[stream].kind == StreamKind::compute;
  }
  void join(Clock& into, const Clock& from) const {
    for (std::size_t s = 0; s <= streams_; ++s) into[s] = std::max(into[s], from[s]);
  }
  std::size_t place(BodyId body, std::int32_t op) const {
    return first_op_[static_cast<std::size_t>(body)] + static_cast<std::size_t>(op);
  }

  void visit(const Slot& slot, std::int32_t i) {
    const Op& op = role_.bodies[static_cast<std::size_t>(slot.body)].ops[static_cast<std::size_t>(i)];
    const std::size_t own = index(stream_of(op));
    const Operands& operands = operands_[place(slot.body, i)];
    const std::int64_t bytes = operands.bytes;
    Clock known = last_[own];
    join(known, last_[streams_]);
    for (const EventWait& wait : waits_.of(slot.body, i)) join(known, latest_[place(wait.body, wait.op)]);
    for (auto birth = lifetimes_.births.lower_bound({slot.body, i, 0, INT32_MIN});
         birth != lifetimes_.births.end() && birth->body == slot.body && birth->op == i; ++birth)
      note(*birth, slot.micro_batch + birth->micro_batch_delta, own, known, bytes);
    most_bytes_[own] = std::max(most_bytes_[own], bytes);
    recent_[own].push_back({&operands, slot.micro_batch, known});
    if (recent_[own].size() > kMostRecent) recent_[own].pop_front();
    known[own] = ++issued_[own];
    last_[own] = latest_[place(slot.body, i)] = known;
  }

  // All that other streams may still be at when the instance is first written, by an op of `bytes`.
  void note(const Birth& birth, int micro_batch, std::size_t own, const Clock& known, std::int64_t bytes) {
    for (std::size_t s = 0; s < streams_; ++s) {
      if (s == own || issued_[s] == known[s]) continue;
      if (computes(s) && !computes(own))
        note_kernels(birth, micro_batch, own, s, known, bytes);
      else
        note_transfers(birth, micro_batch, own, s, known);
    }
  }

  void note_kernels(const Birth& birth, int micro_batch, std::size_t own, std::size_t s, const Clock& known,
                    std::int64_t bytes) {
    std::int64_t later = 0;  // bytes of the own stream's that the kernels need not have waited for
    std::int32_t seen = issued_[own], number = issued_[s];
    for (auto use = recent_[s].rbegin(); use != recent_[s].rend() && number > known[s]; ++use, --number) {
      for (; seen > use->known[own]; --seen) later += bytes_of(own, seen);
      const std::int64_t lag = later / std::max<std::int64_t>(bytes, 1);
      if (lag >= kEnoughLag) return;
      note(birth, micro_batch, *use, static_cast<int>(lag));
    }
  }

  void note_transfers(const Birth& birth, int micro_batch, std::size_t own, std::size_t s, const Clock& known) {
    std::int64_t all = 0, alike = 0;  // bytes of later ones; of those that wait for no later op of the own stream
    std::int32_t waited_for = INT32_MAX, number = issued_[s];
    for (auto use = recent_[s].rbegin(); use != recent_[s].rend() && number > known[s]; ++use, --number) {
      if (use->known[own] < waited_for) waited_for = use->known[own], alike = 0;
      if (all - alike >= kEnoughLag * most_bytes_[s]) return;
      const std::int64_t lag = (all - alike) / std::max<std::int64_t>(use->operands->bytes, 1);
      if (lag < kEnoughLag) note(birth, micro_batch, *use, static_cast<int>(lag));
      all += use->operands->bytes;
      alike += use->operands->bytes;
    }
  }

  void note(const Birth& birth, int micro_batch, const Issued& use, int lag) {
    for (const Operand& o : use.operands->passing)
      note(birth, micro_batch, o.buffer, use.micro_batch + o.micro_batch_delta, lag);
  }

  std::int64_t bytes_of(std::size_t stream, std::int32_t number) const {
    const std::size_t back = static_cast<std::size_t>(issued_[stream] - number);
    return back < recent_[stream].size() ? recent_[stream][recent_[stream].size() - 1 - back].operands->bytes : 0;
  }

  void note(const Birth& birth, int micro_batch, BufferId used, int used_micro_batch, int lag) {
    if (used == birth.buffer) {
      const Lifetime lifetime = role_.buffers[static_cast<std::size_t>(used)].lifetime;
      const int ring = lifetimes_.ring[static_cast<std::size_t>(used)];
      if (lifetime != Lifetime::micro_batch || (micro_batch - used_micro_batch) % ring != 0) return;
      int& least = out_.own[static_cast<std::size_t>(used)];
      least = std::min(least, lag);
      return;
    }
    const auto [known, fresh] = out_.of[static_cast<std::size_t>(birth.buffer)].try_emplace(used, lag);
    if (!fresh && known->second <= lag) return;
    known->second = out_.of[static_cast<std::size_t>(used)][birth.buffer] = lag;  // both ways alike
  }

  const Role& role_;
  const RoleWaits& waits_;
  const Lifetimes& lifetimes_;
  const std::size_t streams_;
  ReuseLags out_;
  std::vector<std::size_t> first_op_;  // by body, in the next two
  std::vector<Operands> operands_;
  std::vector<Clock> latest_;  // after each op's latest execution; zeros: there was none
  std::vector<Clock> last_;    // by stream, after its last op
  Clock issued_{};
  std::vector<std::deque<Issued>> recent_;  // by stream, its last ops
  std::vector<std::int64_t> most_bytes_;    // by stream, of any of its ops
};

}  // namespace

ReuseLags reuse_lags(const Role& role, const RoleWaits& waits, const Lifetimes& lifetimes) {
  return LagWalk(role, waits, lifetimes).walk();
}

}  // namespace rehearse::program
