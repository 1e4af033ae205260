// See reuse_lag.h. Each stream has a vector clock: of each stream, how many of its ops are known to be done.
//
// Of rounds of slots that repeat (repetition.h) most are left out. Once a round has moved every clock on as far as its
// streams have gone, or not at all, so does every later one, and ops of later rounds have the same past as those of
// this one; what is noted of them depends on that past as far as it is looked at. So from the first round on that looks
// no further back than to where rounds began to be alike, all note the same, and the rest is left out. If something
// later looks back to where ops are missing, the walk is done again with every round.
#include "sim/program/link/reuse_lag.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/program/link/repetition.h"

namespace rehearse::program {
namespace {

constexpr std::int32_t kMostRecent = 512;  // ops of a stream that are looked at; a power of 2
// With the host; multiples of what one instruction takes.
constexpr std::size_t kFewStreams = 12, kSomeStreams = 16, kManyStreams = 20;

// For roles of at most so many streams with the host.
template <std::size_t kStreams>
class LagWalk {
 public:
  // `repeats`: rounds that need not all be walked; none: all slots are.
  LagWalk(const Role& role, const RoleWaits& waits, const Lifetimes& lifetimes, const Repetition& repeats)
      : role_(role), waits_(waits), lifetimes_(lifetimes), repeats_(repeats), streams_(role.streams.size()) {
    REHEARSE_CHECK(streams_ < kStreams, "{}: {} streams", role.name, streams_);
    pairs_.resize(role.buffers.size());
    place_of_.assign(role.buffers.size(), kNowhere);
    out_.own.assign(role.buffers.size(), kEnoughLag);
    last_.resize(streams_ + 1);
    recent_ = std::make_unique_for_overwrite<Issued[]>((streams_ + 1) * kMostRecent);
    most_bytes_.resize(streams_ + 1);
    for (const Body& body : role.bodies) {
      first_op_.push_back(operands_.size());
      for (const Op& op : body.ops) operands_.push_back(operands_of(op));
    }
    latest_.resize(operands_.size());
    alike_since_.fill(kNowhere);
    missing_.fill(kNowhere);
  }

  // None if ops were looked for that had been left out.
  std::optional<ReuseLags> walk() {
    const auto slots = static_cast<std::int32_t>(role_.slots.size());
    for (int step = 0; step < 2; ++step)
      for (std::int32_t s = 0; s < slots; ++s) {
        check_interrupt();
        if (const std::int32_t done = repeats_.rounds_before(s); done >= 0) s += begin_round(done) * repeats_.period;
        if (s == slots) break;
        const Slot& slot = role_.slots[static_cast<std::size_t>(s)];
        const auto body = static_cast<std::size_t>(slot.body);
        for (std::size_t i = 0; i < role_.bodies[body].ops.size(); ++i) visit(slot, static_cast<std::int32_t>(i));
        if (lost_) return std::nullopt;
      }
    for (const std::vector<Pair>& others : pairs_) {
      ReuseLags::Others& all = out_.of.emplace_back();
      all.reserve(others.size());
      for (const Pair& pair : others) all.emplace_back(pair.other, pair.lag);
      std::sort(all.begin(), all.end());
    }
    return std::move(out_);
  }

 private:
  using Clock = std::array<std::int32_t, kStreams>;  // by stream; the host's comes after those of the role
  static constexpr std::int32_t kNowhere = INT32_MIN;
  // Of an op, which is looked at many times.
  struct Operands {
    std::int64_t bytes = 0;
    std::size_t first = 0, last = 0;  // in passing_
  };
  struct Issued {
    const Operands* operands;
    int micro_batch;
    Clock known;  // when it began
  };

  // All clocks when a round begins.
  struct Round {
    std::vector<Clock> last, latest;
    Clock issued;
  };

  // After `done` rounds of the step: how many are left out.
  std::int32_t begin_round(std::int32_t done) {
    if (done == 0) {
      at_repetition_ = issued_;
      alike_since_.fill(kNowhere);
      alike_ = left_out_ = false;
    }
    if (left_out_) return 0;
    if (!alike_) {
      Round now{last_, latest_, issued_};
      if (done > 0 && moved_alike(now)) {
        alike_ = true;
        for (std::size_t s = 0; s <= streams_; ++s)
          if (issued_[s] > round_.issued[s]) alike_since_[s] = round_.issued[s];
      } else {
        round_ = std::move(now);
      }
    } else if (!looked_before_) {
      return leave_out(repeats_.times - done);
    }
    looked_before_ = false;
    return 0;
  }

  // What has been issued since rounds are alike stands for the last rounds.
  std::int32_t leave_out(std::int32_t rounds) {
    left_out_ = true;
    alike_ = false;
    if (rounds == 0) return 0;
    for (std::size_t s = 0; s <= streams_; ++s) {
      if (alike_since_[s] == kNowhere) continue;
      missing_[s] = alike_since_[s];
      for (std::int32_t number = issued_[s]; number > missing_[s] && kept(s, number); --number)
        recent(s, number).micro_batch += rounds * repeats_.advance;
    }
    alike_since_.fill(kNowhere);
    return rounds;
  }

  // Whether since the last round began every number either has stood still, at what was issued when the repetition
  // began or less, or has moved on with its stream.
  bool moved_alike(const Round& now) const {
    const auto alike = [&](const std::vector<Clock>& was, const std::vector<Clock>& is) {
      for (std::size_t i = 0; i < is.size(); ++i)
        for (std::size_t s = 0; s <= streams_; ++s) {
          const std::int32_t before = was[i][s], after = is[i][s];
          const bool stands = after == before && after <= at_repetition_[s];
          const bool moves = after - before == now.issued[s] - round_.issued[s] && before >= at_repetition_[s];
          if (!stands && !moves) return false;
        }
      return true;
    };
    return alike(round_.last, now.last) && alike(round_.latest, now.latest);
  }

  // The op of the stream with this number was looked at, or would have been next.
  void looked(std::size_t stream, std::int32_t number) {
    if (number <= alike_since_[stream]) looked_before_ = true;
    if (number <= missing_[stream]) lost_ = true;
  }

  std::size_t index(StreamId stream) const {
    return stream == kHostStream ? streams_ : static_cast<std::size_t>(stream);
  }
  Operands operands_of(const Op& op) {
    Operands all{0, passing_.size(), 0};
    for (const auto* operands : {&op.reads, &op.writes})
      for (const Operand& o : *operands) {
        const Buffer& b = role_.buffers[static_cast<std::size_t>(o.buffer)];
        const BufferId base = b.is_view() ? b.base : o.buffer;
        all.bytes += b.bytes();
        if (role_.buffers[static_cast<std::size_t>(base)].lifetime != Lifetime::persistent)
          passing_.push_back({base, o.micro_batch_delta});
      }
    all.last = passing_.size();
    return all;
  }
  std::span<const Operand> passing(const Issued& use) const {
    return {passing_.data() + use.operands->first, passing_.data() + use.operands->last};
  }
  bool keeps(const Issued& use, BufferId buffer) const {
    for (const Operand& o : passing(use))
      if (o.buffer == buffer) return true;
    return false;
  }
  bool computes(std::size_t stream) const {
    return stream < streams_ && role_.streams[stream].kind == StreamKind::compute;
  }
  void join(Clock& into, const Clock& from) const {
    for (std::size_t s = 0; s < kStreams; ++s) into[s] = std::max(into[s], from[s]);
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
    if (issued_[streams_] > 0) join(known, last_[streams_]);
    for (const EventWait& wait : waits_.of(slot.body, i)) join(known, latest_[place(wait.body, wait.op)]);
    for (const Birth& birth : lifetimes_.births(slot.body, i))
      note(birth, slot.micro_batch + birth.micro_batch_delta, own, known, bytes);
    most_bytes_[own] = std::max(most_bytes_[own], bytes);
    const std::int32_t number = ++issued_[own];
    recent(own, number) = {&operands, slot.micro_batch, known};
    known[own] = number;
    last_[own] = latest_[place(slot.body, i)] = known;
  }

  // The op of a stream with that number, if it is among the last.
  Issued& recent(std::size_t stream, std::int32_t number) {
    return recent_[stream * kMostRecent + static_cast<std::size_t>(number) % kMostRecent];
  }
  const Issued& recent(std::size_t stream, std::int32_t number) const {
    return recent_[stream * kMostRecent + static_cast<std::size_t>(number) % kMostRecent];
  }
  bool kept(std::size_t stream, std::int32_t number) const {
    return number > 0 && number > issued_[stream] - kMostRecent;
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
    const std::int64_t enough = kEnoughLag * std::max<std::int64_t>(bytes, 1);
    std::int32_t seen = issued_[own], number = issued_[s];
    for (; number > known[s] && kept(s, number); --number) {
      const Issued* const use = &recent(s, number);
      for (; seen > use->known[own] && later < enough; --seen) later += bytes_of(own, seen);
      if (later >= enough) break;
      note(birth, micro_batch, *use, static_cast<int>(later / std::max<std::int64_t>(bytes, 1)));
      if (alike_ && alike_since_[s] == kNowhere && keeps(*use, birth.buffer)) looked_before_ = true;
    }
    looked(own, seen);
    looked(s, number);
  }

  void note_transfers(const Birth& birth, int micro_batch, std::size_t own, std::size_t s, const Clock& known) {
    std::int64_t all = 0, alike = 0;  // bytes of later ones; of those that wait for no later op of the own stream
    std::int32_t waited_for = INT32_MAX, number = issued_[s];
    for (; number > known[s] && kept(s, number); --number) {
      const Issued* const use = &recent(s, number);
      if (use->known[own] < waited_for) waited_for = use->known[own], alike = 0;
      if (all - alike >= kEnoughLag * most_bytes_[s]) break;
      const std::int64_t lag = (all - alike) / std::max<std::int64_t>(use->operands->bytes, 1);
      if (lag < kEnoughLag) note(birth, micro_batch, *use, static_cast<int>(lag));
      if (alike_ && alike_since_[s] == kNowhere && keeps(*use, birth.buffer)) looked_before_ = true;
      all += use->operands->bytes;
      alike += use->operands->bytes;
    }
    looked(s, number);
  }

  void note(const Birth& birth, int micro_batch, const Issued& use, int lag) {
    for (const Operand& o : passing(use))
      note(birth, micro_batch, o.buffer, use.micro_batch + o.micro_batch_delta, lag);
  }

  std::int64_t bytes_of(std::size_t stream, std::int32_t number) const {
    return kept(stream, number) ? recent(stream, number).operands->bytes : 0;
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
    lower(birth.buffer, used, lag);
  }

  // Both ways alike.
  void lower(BufferId born, BufferId used, int lag) {
    look_up(born);
    std::vector<Pair>& own = pairs_[static_cast<std::size_t>(born)];
    std::vector<Pair>& others = pairs_[static_cast<std::size_t>(used)];
    std::int32_t& place = place_of_[static_cast<std::size_t>(used)];
    if (place == kNowhere) {
      place = static_cast<std::int32_t>(own.size());
      own.push_back({used, lag, static_cast<std::int32_t>(others.size())});
      others.push_back({born, lag, place});
      return;
    }
    Pair& pair = own[static_cast<std::size_t>(place)];
    if (lag >= pair.lag) return;
    pair.lag = others[static_cast<std::size_t>(pair.mirrored)].lag = lag;
  }

  // Many uses are looked at for one buffer that is born, so where its pairs are is kept by the other's number.
  void look_up(BufferId born) {
    if (born == looked_up_) return;
    if (looked_up_ >= 0)
      for (const Pair& pair : pairs_[static_cast<std::size_t>(looked_up_)])
        place_of_[static_cast<std::size_t>(pair.other)] = kNowhere;
    looked_up_ = born;
    const std::vector<Pair>& own = pairs_[static_cast<std::size_t>(born)];
    for (std::size_t i = 0; i < own.size(); ++i)
      place_of_[static_cast<std::size_t>(own[i].other)] = static_cast<std::int32_t>(i);
  }

  const Role& role_;
  const RoleWaits& waits_;
  const Lifetimes& lifetimes_;
  const Repetition repeats_;
  const std::size_t streams_;
  ReuseLags out_;
  // Of a buffer: another, their lag, and where among that one's the same is said of this one.
  struct Pair {
    BufferId other;
    int lag;
    std::int32_t mirrored;
  };
  std::vector<std::vector<Pair>> pairs_;  // by buffer
  BufferId looked_up_ = -1;
  std::vector<std::int32_t> place_of_;  // by buffer: where it is among the pairs of the one looked up
  std::vector<std::size_t> first_op_;   // by body, in the next two
  std::vector<Operands> operands_;
  std::vector<Operand> passing_;  // of all ops those that are not persistent; of views their bases
  std::vector<Clock> latest_;     // after each op's latest execution; zeros: there was none
  std::vector<Clock> last_;       // by stream, after its last op
  Clock issued_{};
  std::unique_ptr<Issued[]> recent_;       // by stream, its last ops, each where its number says
  std::vector<std::int64_t> most_bytes_;   // by stream, of any of its ops
  Round round_{};                          // until rounds are alike: when the last one began
  bool alike_ = false, left_out_ = false;  // the step's rounds are; of them some have been
  bool looked_before_ = false;             // in this round, to where rounds were not alike yet
  bool lost_ = false;                      // ops were looked for that are missing
  Clock at_repetition_{};                  // issued when the step's repetition began
  Clock alike_since_{};                    // issued when rounds were alike; kNowhere: the stream does not move in them
  Clock missing_{};                        // before ops with later numbers some have been left out
};

}  // namespace

std::optional<ReuseLags> walk_lags(const Role& role, const RoleWaits& waits, const Lifetimes& lifetimes,
                                   const Repetition& repeats) {
  if (role.streams.size() < kFewStreams) return LagWalk<kFewStreams>(role, waits, lifetimes, repeats).walk();
  if (role.streams.size() < kSomeStreams) return LagWalk<kSomeStreams>(role, waits, lifetimes, repeats).walk();
  return LagWalk<kManyStreams>(role, waits, lifetimes, repeats).walk();
}

ReuseLags reuse_lags(const Role& role, const RoleWaits& waits, const Lifetimes& lifetimes) {
  if (const Repetition repeats = repetition_of(role); repeats.times > 0)
    if (std::optional<ReuseLags> lags = walk_lags(role, waits, lifetimes, repeats)) return *std::move(lags);
  return *walk_lags(role, waits, lifetimes, {});
}

}  // namespace rehearse::program
