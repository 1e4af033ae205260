// Places that repeat, and the waits that follow from them, against a walk over every op of several steps.
#include "sim/program/link/places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <tuple>

#include "sim/program/link/instances.h"
#include "sim/program/memory_plan.h"
#include "tests/unit/program/builder.h"

namespace rehearse::program {
namespace {

using testing::RoleBuilder;

constexpr std::int64_t kAlignment = 16;

Elementwise any(std::int64_t n) {
  return {ElementwiseFn::copy, n};
}

ArenaPlaces places_of(const Role& role) {
  return place_buffers(role, resolve_waits(role), kAlignment);
}

// Forward and backward of micro-batches, an update at the end; what forward saves is read by backward, some of it on
// other streams.
struct Training {
  RoleBuilder b{"stage0"};
  StreamId compute = b.stream("compute"), data = b.stream("data", StreamKind::data);
  BufferId saved = b.buffer("saved", {64}, Lifetime::micro_batch), scratch = b.buffer("scratch", {16}, Lifetime::slot),
           gradient = b.buffer("gradient", {8}, Lifetime::slot);
  EventId made = b.event("made");
  BodyId forward = b.body("forward"), backward = b.body("backward");

  Training() {
    b.op(forward, "save", any(64), compute, {}, {saved}).records = made;
    b.op(forward, "send", any(64), data, {saved}, {}).waits = {made};
    b.op(forward, "use", any(16), compute, {saved}, {scratch}, {scratch});
    b.op(backward, "gradient", any(8), compute, {saved}, {gradient}, {gradient, saved});
  }
  // `ahead` forwards before the first backward.
  void schedule(int micro_batches, int ahead) {
    for (int m = 0; m < micro_batches + ahead; ++m) {
      if (m < micro_batches) b.slot(forward, m);
      if (m >= ahead) b.slot(backward, m - ahead);
    }
  }
};

TEST(Places, ARingHasAsManyPlacesAsInstancesLiveAtOnce) {
  for (const int micro_batches : {3, 10, 1000}) {
    Training t;
    t.schedule(micro_batches, 2);
    const ArenaPlaces places = places_of(t.b.role);
    const Place& saved = places.places[static_cast<std::size_t>(t.saved)];
    EXPECT_EQ(saved.ring, 3);
    EXPECT_EQ(saved.of(4), saved.offset + 256);
    EXPECT_EQ(places.places[static_cast<std::size_t>(t.scratch)].ring, 1);
    // The slots' buffers never live together, so they share a place.
    EXPECT_EQ(places.arena_bytes, 3 * 256 + 64);
    EXPECT_EQ(places.arena_bytes, memory_peak(t.b.role, kAlignment).peak_bytes);
  }
}

// Forward writes where the message of three micro-batches before lay.
TEST(Places, ARingWaitsForWhoUsedTheSamePlace) {
  Training t;
  t.schedule(10, 2);
  const ArenaPlaces places = places_of(t.b.role);
  const auto waits = places.waits(t.forward, 0);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0], (ReuseWait{ReuseWait::Which::same_place, t.data, t.forward, 1, 3, 0, 0}));
  EXPECT_TRUE(places.waits(t.forward, 2).empty()) << "its own stream's";
  EXPECT_TRUE(places.waits(t.backward, 0).empty());
}

TEST(Places, ThereIsNoWaitForWhatAnEventAlreadyTells) {
  Training t;
  const EventId sent = t.b.event("sent");
  t.b.role.bodies[static_cast<std::size_t>(t.forward)].ops[1].records = sent;
  t.b.role.bodies[static_cast<std::size_t>(t.forward)].ops[0].waits = {sent};  // of the slot before
  t.schedule(10, 2);
  EXPECT_TRUE(places_of(t.b.role).waits(t.forward, 0).empty());
}

// Gradients one after the other, each sent away by another stream while the next is computed: in the least arena all
// would lie in one place, and each would wait until the one before has gone. Beside much larger buffers there is room
// for two places; then the third waits for the first.
TEST(Places, WhatIsStillBeingSentIsLeftAloneWhereThatCostsLittle) {
  for (const bool room : {false, true}) {
    RoleBuilder b("stage0");
    const StreamId compute = b.stream("compute"), data = b.stream("data", StreamKind::data);
    const BodyId body = b.body("body");
    if (room) b.buffer("parameters", {2048}, Lifetime::persistent);
    for (int i = 0; i < 3; ++i) {
      const std::string number = std::to_string(i);
      const BufferId gradient = b.buffer("gradient" + number, {64}, Lifetime::slot);
      const EventId made = b.event("made" + number);
      b.op(body, "compute" + number, any(64), compute, {}, {gradient}).records = made;
      b.op(body, "send" + number, any(64), data, {gradient}, {}, {gradient}).waits = {made};
    }
    b.slot(body);
    // The update waits for the last of them, so the next step begins with none under way.
    const EventId sent = b.event("sent");
    b.role.bodies[static_cast<std::size_t>(body)].ops.back().records = sent;
    const BodyId update = b.body("update");
    b.op(update, "update", any(1), compute).waits = {sent};
    b.slot(update);
    const ArenaPlaces places = places_of(b.role);
    const std::vector<Place> gradients(places.places.end() - 3, places.places.end());
    EXPECT_EQ(gradients[0].offset == gradients[1].offset, !room);
    EXPECT_EQ(places.arena_bytes, room ? 8192 + 2 * 256 : 256);
    ASSERT_EQ(places.waits(body, 4).size(), 1u);
    EXPECT_EQ(places.waits(body, 4)[0], (ReuseWait{ReuseWait::Which::same_slot, data, body, room ? 1 : 3}));
  }
}

// Between what one body sends and what the next one writes lies nothing that waits for the send: with room they lie
// apart, however few the ops between; the body's own next output waits for the send by its event.
TEST(Places, WhatIsSentAtASlotsEndIsLeftAloneInTheNextSlot) {
  for (const bool room : {false, true}) {
    RoleBuilder b("stage0");
    const StreamId compute = b.stream("compute"), out = b.stream("send", StreamKind::pipeline);
    const BodyId backward = b.body("backward"), forward = b.body("forward");
    if (room) b.buffer("parameters", {2048}, Lifetime::persistent);
    const BufferId gradient = b.buffer("gradient", {64}, Lifetime::slot),
                   scratch = b.buffer("scratch", {64}, Lifetime::slot);
    const EventId made = b.event("made"), sent = b.event("sent");
    Op& compute_op = b.op(backward, "compute", any(64), compute, {}, {gradient});
    compute_op.records = made;
    compute_op.waits = {sent};
    Op& send = b.op(backward, "send", any(64), out, {gradient}, {}, {gradient});
    send.waits = {made};
    send.records = sent;
    b.op(forward, "use", any(64), compute, {}, {scratch}, {scratch});
    for (const int m : {0, 1, 2}) {
      b.slot(backward, m);
      b.slot(forward, m);
    }
    const ArenaPlaces places = places_of(b.role);
    EXPECT_EQ(places.places.end()[-1].offset != places.places.end()[-2].offset, room);
    EXPECT_EQ(places.waits(forward, 0).empty(), room);
    EXPECT_TRUE(places.waits(backward, 0).empty());
  }
}

// What backward last read is still being sent away when forward writes into the ring again: one place more.
TEST(Places, ARingHasOnePlaceMoreForWhatIsStillBeingSent) {
  for (const bool room : {false, true}) {
    Training t;
    const EventId used = t.b.event("used");
    t.b.op(t.backward, "away", any(64), t.data, {t.saved}, {}, {t.saved}).waits = {used};
    Op& last = t.b.role.bodies[static_cast<std::size_t>(t.backward)].ops[0];
    last.records = used;
    last.releases = {{t.gradient}};
    if (room) t.b.buffer("parameters", {8192}, Lifetime::persistent);
    for (int m = 0; m < 10; ++m) {
      if (m >= 2) t.b.slot(t.backward, m - 2);
      t.b.slot(t.forward, m);
    }
    for (const int m : {8, 9}) t.b.slot(t.backward, m);
    EXPECT_EQ(places_of(t.b.role).places[static_cast<std::size_t>(t.saved)].ring, room ? 3 : 2);
  }
}

// A role whose instances are all released, with any streams, events, lifetimes and order of slots.
Role random_training(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  RoleBuilder b("stage0");
  const int streams = 2 + below(3), chunks = 1 + below(2), micro_batches = 1 + below(9);
  for (int s = 0; s < streams; ++s) b.stream("s" + std::to_string(s));
  std::vector<BodyId> forward, backward;
  std::vector<BufferId> step;
  std::vector<EventId> events;
  const auto op = [&](BodyId body, const std::vector<BufferId>& alive) -> Op& {
    Op& made = b.op(body, "op" + std::to_string(b.role.bodies[static_cast<std::size_t>(body)].ops.size()), any(1),
                    below(streams));
    if (below(2) == 0) events.push_back(made.records = b.event("e"));
    for (int w = below(3); w > 0 && !events.empty(); --w)
      made.waits.push_back(events[static_cast<std::size_t>(below(static_cast<int>(events.size())))]);
    for (int r = below(3); r > 0 && !alive.empty(); --r)
      made.reads.push_back({alive[static_cast<std::size_t>(below(static_cast<int>(alive.size())))]});
    return made;
  };
  const auto fill = [&](BodyId body, std::vector<BufferId> alive, std::vector<BufferId> last, bool saves) {
    std::vector<BufferId> saved, own;
    for (int o = 1 + below(6); o > 0; --o) {
      Op& made = op(body, alive);
      for (int w = below(3); w > 0; --w) {
        const auto lifetime = saves && below(2) == 0 ? Lifetime::micro_batch : Lifetime::slot;
        const BufferId id = b.buffer("b", {below(40)}, lifetime);
        made.writes.push_back({id});
        (lifetime == Lifetime::slot ? own : saved).push_back(id);
        alive.push_back(id);
      }
      if (!own.empty() && below(2) == 0) {
        const auto gone = own.begin() + below(static_cast<int>(own.size()));
        made.releases.push_back({*gone});
        alive.erase(std::find(alive.begin(), alive.end(), *gone));
        own.erase(gone);
      }
    }
    own.insert(own.end(), last.begin(), last.end());
    while (!own.empty()) {
      Op& made = op(body, alive);
      for (int n = 1 + below(3); n > 0 && !own.empty(); --n) {
        made.releases.push_back({own.back()});
        alive.erase(std::find(alive.begin(), alive.end(), own.back()));
        own.pop_back();
      }
    }
    return saved;
  };
  for (int i = below(3); i > 0; --i) step.push_back(b.buffer("step", {below(40)}, Lifetime::step));
  for (int c = 0; c < chunks; ++c) {
    forward.push_back(b.body("forward" + std::to_string(c)));
    Op& first = op(forward.back(), {});
    for (const BufferId id : step) first.writes.push_back({id});
    const std::vector<BufferId> saved = fill(forward.back(), step, {}, true);
    backward.push_back(b.body("backward" + std::to_string(c)));
    std::vector<BufferId> alive = saved;
    alive.insert(alive.end(), step.begin(), step.end());
    fill(backward.back(), alive, saved, false);
  }
  const BodyId update = b.body("update");
  fill(update, step, step, false);
  // Any order in which a chunk's backward comes after its forward.
  std::vector<std::pair<int, int>> open, left;
  for (int m = 0; m < micro_batches; ++m)
    for (int c = 0; c < chunks; ++c) left.emplace_back(c, m);
  if (below(3) == 0) std::shuffle(left.begin(), left.end(), random);
  std::reverse(left.begin(), left.end());
  const int ahead = 1 + below(2 * micro_batches);
  while (!left.empty() || !open.empty()) {
    const bool forwards = !left.empty() && (static_cast<int>(open.size()) < ahead || below(4) == 0);
    if (!forwards && open.empty()) continue;
    if (forwards) {
      const auto [c, m] = left.back();
      left.pop_back();
      open.emplace_back(c, m);
      b.slot(forward[static_cast<std::size_t>(c)], m);
      continue;
    }
    const std::size_t at = below(3) == 0 ? static_cast<std::size_t>(below(static_cast<int>(open.size()))) : 0;
    b.slot(backward[static_cast<std::size_t>(open[at].first)], open[at].second);
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
  }
  b.slot(update);
  return b.role;
}

// Walks steps op by op. What an op knows to be done: of each stream the ops up to a number, counted since the run
// began; by the order of its stream, events and reuse waits, and by what those knew.
class FullWalk {
 public:
  FullWalk(const Role& role, unsigned seed)
      : role_(role), seed_(seed), waits_(resolve_waits(role)), instances_(role), places_(places_of(role)) {
    alive_.assign(instances_.size(), 0);
    users_.resize(static_cast<std::size_t>(places_.arena_bytes / kAlignment), Known(role.streams.size(), 0));
    owner_.assign(users_.size(), -1);
    last_.assign(role.streams.size(), Known(role.streams.size(), 0));
  }

  void walk(int steps) {
    for (int step = 0; step < steps; ++step)
      for (const Slot& slot : role_.slots) {
        done_.emplace_back();
        slots_.push_back(slot);
        for (std::size_t i = 0; i < role_.bodies[static_cast<std::size_t>(slot.body)].ops.size(); ++i)
          visit(slot, static_cast<std::int32_t>(i));
      }
  }
  std::int64_t needed = 0;  // waits for memory that the walk found

 private:
  using Known = std::vector<std::int64_t>;  // by stream

  void visit(const Slot& slot, std::int32_t i) {
    const Op& op = role_.bodies[static_cast<std::size_t>(slot.body)].ops[static_cast<std::size_t>(i)];
    Known known = last_[static_cast<std::size_t>(op.stream)];
    for (const EventWait& wait : waits_.of(slot.body, i))
      learn(known, wait.same_slot ? slots_.size() - 1 : latest(wait.body, [](const Slot&) { return true; }), wait.op);
    for (const ReuseWait& wait : places_.waits(slot.body, i)) {
      const auto same = [&](const Slot& s) {
        return wait.which != ReuseWait::Which::same_place ||
               (s.micro_batch + wait.touched) % wait.ring == (slot.micro_batch + wait.written) % wait.ring;
      };
      learn(known, wait.which == ReuseWait::Which::same_slot ? slots_.size() - 1 : latest(wait.body, same), wait.op);
    }
    for (const Operand& w : op.writes) begin(w, slot, op, known);
    const std::int64_t number = ++issued_[op.stream];
    for (const auto* operands : {&op.reads, &op.writes})
      for (const Operand& o : *operands)
        each_unit(o, slot, [&](std::size_t unit) {
          std::int64_t& last = users_[unit][static_cast<std::size_t>(op.stream)];
          last = std::max(last, number);
        });
    known[static_cast<std::size_t>(op.stream)] = number;
    last_[static_cast<std::size_t>(op.stream)] = known;
    done_.back()[i] = known;
    for (const Operand& r : op.releases) {
      alive_[instances_.of(r, slot)] = 0;
      each_unit(r, slot, [&](std::size_t unit) { owner_[unit] = -1; });
    }
  }

  template <class Wanted>
  std::optional<std::size_t> latest(BodyId body, Wanted&& wanted) const {
    for (std::size_t s = slots_.size() - 1; s-- > 0;)
      if (slots_[s].body == body && wanted(slots_[s])) return s;
    return {};
  }
  void learn(Known& known, std::optional<std::size_t> slot, std::int32_t op) const {
    if (!slot) return;
    const Known& theirs = done_[*slot].at(op);
    for (std::size_t s = 0; s < known.size(); ++s) known[s] = std::max(known[s], theirs[s]);
  }

  void begin(const Operand& w, const Slot& slot, const Op& op, const Known& known) {
    const std::size_t instance = instances_.of(w, slot);
    if (std::exchange(alive_[instance], 1) != 0) return;
    each_unit(w, slot, [&](std::size_t unit) {
      ASSERT_EQ(owner_[unit], -1) << "seed " << seed_ << ": two instances in one place";
      owner_[unit] = static_cast<int>(instance);
      for (std::size_t s = 0; s < known.size(); ++s) {
        if (s == static_cast<std::size_t>(op.stream)) continue;
        needed += users_[unit][s] > 0;
        ASSERT_GE(known[s], users_[unit][s]) << "seed " << seed_ << ": stream " << s << " may still use it";
      }
      std::fill(users_[unit].begin(), users_[unit].end(), 0);
    });
  }

  template <class Function>
  void each_unit(const Operand& o, const Slot& slot, Function&& function) const {
    const Place& place = places_.places[static_cast<std::size_t>(o.buffer)];
    const std::int64_t from = place.of(std::max(slot.micro_batch + o.micro_batch_delta, 0)) / kAlignment;
    for (std::int64_t unit = from; unit < from + place.bytes / kAlignment; ++unit)
      function(static_cast<std::size_t>(unit));
  }

  const Role& role_;
  const unsigned seed_;
  const RoleWaits waits_;
  const BufferInstances instances_;
  const ArenaPlaces places_;
  std::vector<char> alive_;                          // by instance
  std::vector<Known> users_;                         // by stretch of the arena: ops that used it last
  std::vector<int> owner_;                           // by stretch: the instance that lives there
  std::vector<Known> last_;                          // by stream: what its last op knows
  std::vector<Slot> slots_;                          // so far
  std::vector<std::map<std::int32_t, Known>> done_;  // by slot, of its ops
  std::map<StreamId, std::int64_t> issued_;
};

// Users are forgotten when a place gets a new owner, who waited for them: whoever waits for the new one's users knows
// of the old ones' too.
TEST(Places, NothingLivesTogetherAndWaitsCoverThoseOfAFullWalk) {
  std::int64_t needed = 0;
  for (unsigned seed = 0; seed < 2000 && !HasFatalFailure(); ++seed) {
    const Role role = random_training(seed);
    FullWalk walk(role, seed);
    walk.walk(3);
    needed += walk.needed;
    ASSERT_GE(places_of(role).arena_bytes, memory_peak(role, kAlignment).peak_bytes) << "seed " << seed;
  }
  EXPECT_GT(needed, 10000);
}

}  // namespace
}  // namespace rehearse::program
