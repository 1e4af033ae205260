// See places.h. The largest ring finds its place first, and so on, each at the lowest offset where nothing lies that
// ever lives beside it, or, for pace, that would have to be waited for too soon (reuse_lag.h).
#include "sim/program/link/places.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "sim/program/link/lifetimes.h"
#include "sim/program/link/reuse_lag.h"

namespace rehearse::program {
namespace {

// The ops of a body that touch a buffer on one stream, by the micro-batch delta of the operand.
struct Touches {
  BodyId body;
  StreamId stream;
  int delta;
  std::vector<std::int32_t> ops;  // ascending
};

// A buffer by where it lies, with the furthest end of those before it and its own.
struct Lying {
  BufferId buffer;
  std::int64_t offset, end, furthest;
};

// Parts of the least arena that it may be larger: for streams to drift apart (any lag), and for two places used in turn
// where there would be one. Judgements: more than the first nobody would give for what is rarely waited for; without
// the second nothing of what the place holds can move during the kernels that make the next.
constexpr int kPartForDrift = 32;
constexpr int kPartForTurns = 8;

class Placer {
 public:
  Placer(const Role& role, const RoleWaits& waits, std::int64_t alignment)
      : role_(role),
        waits_(waits),
        alignment_(alignment),
        lifetimes_(lifetimes_of(role)),
        lags_(reuse_lags(role, waits, lifetimes_)) {}

  ArenaPlaces place() {
    find_touches();
    out_.places.resize(role_.buffers.size());
    place_persistent(false);
    place_others(false);
    out_.host_begin = round_up(out_.arena_bytes);
    const std::int64_t device = std::exchange(out_.arena_bytes, out_.host_begin);
    place_persistent(true);
    place_others(true);
    out_.host_bytes = std::exchange(out_.arena_bytes, device) - out_.host_begin;
    for (BufferId b = 0; b < buffers(); ++b)
      if (buffer(b).is_view()) place_of(b) = place_of(buffer(b).base);
    find_waits();
    return std::move(out_);
  }

 private:
  // By stream: the last of its ops in the slot that is known to be done; -1: none. The host's is the last.
  using Known = std::vector<std::int32_t>;

  BufferId buffers() const { return static_cast<BufferId>(role_.buffers.size()); }
  const Buffer& buffer(BufferId id) const { return role_.buffers[static_cast<std::size_t>(id)]; }
  BufferId base(BufferId id) const { return buffer(id).is_view() ? buffer(id).base : id; }
  Place& place_of(BufferId id) { return out_.places[static_cast<std::size_t>(id)]; }
  bool transient(BufferId id) const { return !buffer(id).is_view() && buffer(id).lifetime != Lifetime::persistent; }

  std::int64_t round_up(std::int64_t bytes) const { return (bytes + alignment_ - 1) / alignment_ * alignment_; }

  // Of one of the two memories, from `arena_bytes` on.
  void place_persistent(bool on_host) {
    for (BufferId b = 0; b < buffers(); ++b) {
      if (buffer(b).is_view() || buffer(b).on_host != on_host) continue;
      Place& place = place_of(b);
      place.bytes = round_up(buffer(b).bytes());
      place.ring = lifetimes_.ring[static_cast<std::size_t>(b)];
      if (transient(b)) continue;
      place.offset = out_.arena_bytes;
      out_.arena_bytes += place.bytes;
    }
  }

  // First each at the lowest offset, which says what the arena needs. Then with as much lag as a little more allows; if
  // that is none for some of them, with a lag of 1 wherever the most that is given for it allows that.
  void place_others(bool on_host) {
    const std::int64_t begin = out_.arena_bytes, first = on_host ? out_.host_begin : 0;
    std::vector<BufferId> order;
    for (BufferId b = 0; b < buffers(); ++b)
      if (transient(b) && buffer(b).on_host == on_host && place_of(b).bytes > 0) order.push_back(b);
    if (order.empty()) return;
    std::stable_sort(order.begin(), order.end(), [&](BufferId a, BufferId b) { return size(a) > size(b); });
    const Layout least = place_all(order, begin, 0, 0);
    const auto most = [&](int part) { return least.end + (least.end - first) / part; };
    Layout chosen = place_all(order, begin, kEnoughLag, most(kPartForDrift));
    if (chosen.least_lag == 0 || chosen.end > most(kPartForDrift)) {
      chosen = place_all(order, begin, 1, most(kPartForTurns));
      if (chosen.end > most(kPartForTurns)) chosen = least;
    }
    out_.places = chosen.places;
    out_.arena_bytes = chosen.end;
  }

  std::int64_t size(BufferId b) const {
    const Place& place = out_.places[static_cast<std::size_t>(b)];
    return place.bytes * place.ring;
  }

  struct Placed {
    BufferId buffer;
    std::int64_t offset, end;
  };
  struct Layout {
    std::vector<Place> places;
    std::int64_t end;
    int least_lag;
  };

  // Each with as much lag, up to `lag`, as lets it end before `most`.
  Layout place_all(const std::vector<BufferId>& order, std::int64_t begin, int lag, std::int64_t most) {
    std::vector<Placed> placed;  // by offset
    Layout layout{{}, begin, lag};
    for (const BufferId b : order) {
      std::int64_t offset = -1;
      int found = lag;
      for (; found > 0; found /= 2) {
        place_of(b).ring = rounds(b, found);
        offset = lowest(b, placed, apart(b, found), begin);
        if (offset + size(b) <= most) break;
      }
      if (found == 0) {
        place_of(b).ring = rounds(b, 0);
        offset = lowest(b, placed, lifetimes_.beside[static_cast<std::size_t>(b)], begin);
      }
      place_of(b).offset = offset;
      layout.least_lag = std::min(layout.least_lag, found);
      layout.end = std::max(layout.end, place_of(b).end());
      const Placed own{b, place_of(b).offset, place_of(b).end()};
      placed.insert(std::upper_bound(placed.begin(), placed.end(), own,
                                     [](const Placed& x, const Placed& y) { return x.offset < y.offset; }),
                    own);
    }
    layout.places = out_.places;
    return layout;
  }

  // Of a ring, so that what is written next is not waited for too soon.
  int rounds(BufferId b, int lag) const {
    const auto i = static_cast<std::size_t>(b);
    return lifetimes_.ring[i] + (lags_.own[i] < lag ? 1 : 0);
  }

  BufferSet apart(BufferId b, int lag) const {
    BufferSet set = lifetimes_.beside[static_cast<std::size_t>(b)];
    for (const auto& [other, least] : lags_.of[static_cast<std::size_t>(b)])
      if (least < lag) set[static_cast<std::size_t>(other) / 64] |= std::uint64_t{1} << (other % 64);
    return set;
  }

  // The lowest offset where nothing of `apart` lies.
  std::int64_t lowest(BufferId b, const std::vector<Placed>& placed, const BufferSet& apart, std::int64_t begin) const {
    const std::int64_t bytes = size(b);
    std::int64_t offset = begin;
    for (const Placed& other : placed) {
      if (!contains(apart, other.buffer)) continue;
      if (other.offset >= offset + bytes) break;
      offset = std::max(offset, other.end);
    }
    return offset;
  }

  void find_touches() {
    touches_.resize(role_.buffers.size());
    std::vector<char> used(role_.bodies.size(), 0);
    for (const Slot& slot : role_.slots) used[static_cast<std::size_t>(slot.body)] = 1;
    for (std::size_t body = 0; body < role_.bodies.size(); ++body)
      for (std::size_t i = 0; used[body] != 0 && i < role_.bodies[body].ops.size(); ++i) {
        const Op& op = role_.bodies[body].ops[i];
        for (const auto* operands : {&op.reads, &op.writes})
          for (const Operand& o : *operands)
            if (transient(base(o.buffer)))
              add_touch(touches_[static_cast<std::size_t>(base(o.buffer))], static_cast<BodyId>(body), stream_of(op),
                        o.micro_batch_delta, static_cast<std::int32_t>(i));
      }
    for (BufferId b = 0; b < buffers(); ++b)
      if (!touches_[static_cast<std::size_t>(b)].empty()) touched_.push_back(b);
  }

  static void add_touch(std::vector<Touches>& all, BodyId body, StreamId stream, int delta, std::int32_t op) {
    for (Touches& t : all)
      if (t.body == body && t.stream == stream && t.delta == delta) {
        if (t.ops.back() != op) t.ops.push_back(op);
        return;
      }
    all.push_back({body, stream, delta, {op}});
  }

  void order_touched() {
    for (const BufferId b : touched_)
      if (place_of(b).bytes > 0) by_offset_.push_back({b, place_of(b).offset, place_of(b).end(), 0});
    std::sort(by_offset_.begin(), by_offset_.end(), [](const Lying& a, const Lying& b) { return a.offset < b.offset; });
    std::int64_t end = 0;
    for (Lying& lying : by_offset_) lying.furthest = end = std::max(end, lying.end);
    overlaps_.assign((role_.buffers.size() + 63) / 64, 0);
  }

  // Touched buffers with bytes of the place, by number.
  void find_overlapping(const Place& place) {
    overlapping_.clear();
    std::fill(overlaps_.begin(), overlaps_.end(), 0);
    auto at = std::partition_point(by_offset_.begin(), by_offset_.end(),
                                   [&](const Lying& lying) { return lying.offset < place.end(); });
    while (at != by_offset_.begin() && (--at)->furthest > place.offset)
      if (at->end > place.offset)
        overlaps_[static_cast<std::size_t>(at->buffer) / 64] |= std::uint64_t{1} << (at->buffer % 64);
    for (std::size_t word = 0; word < overlaps_.size(); ++word)
      for (std::uint64_t bits = overlaps_[word]; bits != 0; bits &= bits - 1)
        overlapping_.push_back(static_cast<BufferId>(64 * word + static_cast<std::size_t>(std::countr_zero(bits))));
  }

  // What the op must wait for that writes an instance first, but for what is known to be done and what others imply.
  void add_reuse(const Birth& birth, StreamId own, const Known& known) {
    const Place& place = out_.places[static_cast<std::size_t>(birth.buffer)];
    find_overlapping(place);
    for (const BufferId other : overlapping_) {
      const bool ring = other == birth.buffer && place.ring > 1;
      for (const Touches& t : touches_[static_cast<std::size_t>(other)]) {
        if (t.stream == own) continue;
        const std::int32_t done = known[index(t.stream)];
        if (t.body == birth.body && t.ops.front() < birth.op) {
          const std::int32_t op = *std::prev(std::lower_bound(t.ops.begin(), t.ops.end(), birth.op));
          if (op > done) need_latest(latest_here_, {ReuseWait::Which::same_slot, t.stream, t.body, op});
        } else if (done < 0 && ring) {
          needed_.push_back({ReuseWait::Which::same_place, t.stream, t.body, t.ops.back(), place.ring,
                             birth.micro_batch_delta, t.delta});
        } else if (done < 0) {
          need_latest(latest_before_, {ReuseWait::Which::latest, t.stream, t.body, t.ops.back()});
        }
      }
    }
  }

  // Of a stream's ops of a body the last implies the others. `at`: where in `needed_` it is, by stream and body.
  void need_latest(std::vector<std::int32_t>& at, const ReuseWait& wait) {
    std::int32_t& place = at[index(wait.stream) * role_.bodies.size() + static_cast<std::size_t>(wait.body)];
    const bool known = place >= 0 && place < static_cast<std::int32_t>(needed_.size()) &&
                       needed_[static_cast<std::size_t>(place)].which == wait.which &&
                       needed_[static_cast<std::size_t>(place)].stream == wait.stream &&
                       needed_[static_cast<std::size_t>(place)].body == wait.body;
    if (known && needed_[static_cast<std::size_t>(place)].op >= wait.op) return;
    place = static_cast<std::int32_t>(needed_.size());
    needed_.push_back(wait);
  }

  void find_waits() {
    order_touched();
    latest_here_.assign((role_.streams.size() + 1) * role_.bodies.size(), -1);
    latest_before_ = latest_here_;
    for (std::size_t b = 0; b < role_.bodies.size(); ++b) {
      out_.first_op.push_back(out_.first_wait.size());
      begin_body();
      asked_.assign(role_.streams.size() + 1, {});
      for (std::size_t i = 0; i < role_.bodies[b].ops.size(); ++i) {
        out_.first_wait.push_back(out_.all_waits.size());
        find_waits(static_cast<BodyId>(b), static_cast<std::int32_t>(i));
      }
    }
    out_.first_wait.push_back(out_.all_waits.size());
  }

  std::size_t index(StreamId stream) const {
    return stream == kHostStream ? role_.streams.size() : static_cast<std::size_t>(stream);
  }

  void begin_body() {
    known_.assign(role_.streams.size() + 1, Known(role_.streams.size() + 1, -1));
    after_ops_.clear();
  }

  // It has waited for an op of the slot: what that one knew it knows too.
  void learn(Known& known, StreamId stream, std::int32_t done) const {
    const std::int32_t* const theirs = after_ops_.data() + static_cast<std::size_t>(done) * known.size();
    for (std::size_t s = 0; s < known.size(); ++s) known[s] = std::max(known[s], theirs[s]);
    known[index(stream)] = std::max(known[index(stream)], done);
  }

  void find_waits(BodyId body, std::int32_t i) {
    const Op& op = role_.bodies[static_cast<std::size_t>(body)].ops[static_cast<std::size_t>(i)];
    const std::size_t own = index(stream_of(op));
    Known& known = known_[own];
    for (const EventWait& wait : waits_.of(body, i))
      if (wait.same_slot)
        learn(known, wait.stream, wait.op);
      else
        asked_[own].push_back({ReuseWait::Which::latest, wait.stream, wait.body, wait.op});
    needed_.clear();
    for (const Birth& birth : lifetimes_.births(body, i))
      if (out_.places[static_cast<std::size_t>(birth.buffer)].bytes > 0) add_reuse(birth, stream_of(op), known);
    // Those of this slot first, the latest of them before others: they imply the rest of their streams.
    const auto before = [](const ReuseWait& a, const ReuseWait& b) {
      return std::pair(a.which, -a.op) < std::pair(b.which, -b.op);
    };
    if (needed_.size() > 1) std::stable_sort(needed_.begin(), needed_.end(), before);
    for (const ReuseWait& wait : needed_) {
      if (implied(wait, known, asked_[own])) continue;
      out_.all_waits.push_back(wait);
      if (wait.which == ReuseWait::Which::same_slot)
        learn(known, wait.stream, wait.op);
      else
        asked_[own].push_back(wait);
    }
    after_ops_.insert(after_ops_.end(), known.begin(), known.end());
  }

  bool implied(const ReuseWait& wait, const Known& known, const std::vector<ReuseWait>& asked) const {
    const std::int32_t done = known[index(wait.stream)];
    if (wait.which == ReuseWait::Which::same_slot) return done >= wait.op;
    if (done >= 0) return true;  // and so is whatever its stream did before the slot
    return std::any_of(asked.begin(), asked.end(), [&](const ReuseWait& a) {
      if (a.stream != wait.stream || a.body != wait.body || a.op < wait.op) return false;
      return a.which == ReuseWait::Which::latest ||
             (a.ring == wait.ring && a.written == wait.written && a.touched == wait.touched && a.which == wait.which);
    });
  }

  const Role& role_;
  const RoleWaits& waits_;
  const std::int64_t alignment_;
  const Lifetimes lifetimes_;
  const ReuseLags lags_;
  ArenaPlaces out_;
  std::vector<std::vector<Touches>> touches_;  // by buffer
  std::vector<BufferId> touched_;              // those that have any
  std::vector<Lying> by_offset_;               // of these those that lie anywhere
  // Of the body being looked at: by stream what its next op knows; by op what it knew, one after the other; by stream
  // what its ops have waited for in earlier slots.
  std::vector<Known> known_;
  std::vector<std::int32_t> after_ops_;
  std::vector<std::vector<ReuseWait>> asked_;
  // Of the op being looked at.
  std::vector<BufferId> overlapping_;
  BufferSet overlaps_;
  std::vector<ReuseWait> needed_;
  std::vector<std::int32_t> latest_here_, latest_before_;  // by stream and body; see need_latest
};

}  // namespace

ArenaPlaces place_buffers(const Role& role, const RoleWaits& waits, std::int64_t alignment) {
  return Placer(role, waits, alignment).place();
}

}  // namespace rehearse::program
