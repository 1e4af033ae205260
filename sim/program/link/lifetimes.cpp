// See lifetimes.h.
#include "sim/program/link/lifetimes.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/program/body_changes.h"

namespace rehearse::program {
namespace {

void insert(BufferSet& set, BufferId id) {
  set[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(id) % 64);
}
void erase(BufferSet& set, BufferId id) {
  set[static_cast<std::size_t>(id) / 64] &= ~(std::uint64_t{1} << (static_cast<std::size_t>(id) % 64));
}
void join(BufferSet& into, const BufferSet& from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] |= from[i];
}

// Births of micro-batch buffers beside which instances of the same buffer live.
struct RingUse {
  int delta;
  std::vector<int> states;  // of other micro-batches that hold one
  std::vector<int> deltas;  // of the body's own that do
  std::vector<BufferId> buffers;
  int most = 1;  // consecutive micro-batches, over all slots
};

// What a body does when it begins in given states.
struct Run {
  std::vector<int> outcome;  // states at the end: step, then one a delta
  std::vector<RingUse> rings;
};

class LifetimeWalk {
 public:
  explicit LifetimeWalk(const Role& role) : role_(role), empty_((role.buffers.size() + 63) / 64, 0) {
    for (const Body& body : role.bodies) bodies_.push_back(changes_of(role, body));
    out_.beside.assign(role.buffers.size(), empty_);
    out_.ring.assign(role.buffers.size(), 1);
    intern(empty_);
  }

  Lifetimes walk() {
    int micro_batches = 0;
    for (const Slot& slot : role_.slots) micro_batches = std::max(micro_batches, slot.micro_batch + 1);
    std::vector<int> state(static_cast<std::size_t>(micro_batches), 0);
    int step_state = 0;
    for (const Slot& slot : role_.slots) {
      check_interrupt();
      const std::vector<int>& deltas = bodies_[static_cast<std::size_t>(slot.body)].deltas;
      std::vector<int> key{slot.body, step_state};
      for (const int delta : deltas) {
        const int m = slot.micro_batch + delta;
        REHEARSE_CHECK(m >= 0 && m < micro_batches, "{}: micro-batch {} of {}", role_.name, m, micro_batches);
        key.push_back(state[static_cast<std::size_t>(m)]);
        leave(state[static_cast<std::size_t>(m)], m);
      }
      for (const auto& [other, ids] : in_state_) key.push_back(other);
      Run& run = run_of(key);
      for (RingUse& ring : run.rings) note(ring, slot.micro_batch);
      step_state = run.outcome[0];
      for (std::size_t i = 0; i < deltas.size(); ++i) {
        const int m = slot.micro_batch + deltas[i];
        state[static_cast<std::size_t>(m)] = run.outcome[i + 1];
        if (run.outcome[i + 1] != 0) in_state_[run.outcome[i + 1]].insert(m);
      }
    }
    for (const auto& [key, run] : runs_)
      for (const RingUse& ring : run.rings)
        for (const BufferId id : ring.buffers) {
          int& most = out_.ring[static_cast<std::size_t>(id)];
          most = std::max(most, ring.most);
        }
    keep_what_stays(step_state, micro_batches);
    order_births();
    for (std::size_t b = 0; b < out_.beside.size(); ++b)
      for (std::size_t word = 0; word < empty_.size(); ++word)
        for (std::uint64_t bits = out_.beside[b][word]; bits != 0; bits &= bits - 1)
          insert(out_.beside[64 * word + static_cast<std::size_t>(std::countr_zero(bits))], static_cast<BufferId>(b));
    return std::move(out_);
  }

 private:
  int intern(const BufferSet& set) {
    const auto [entry, fresh] = state_ids_.emplace(set, static_cast<int>(states_.size()));
    if (fresh) states_.push_back(set);
    return entry->second;
  }

  void leave(int state, int micro_batch) {
    const auto ids = in_state_.find(state);
    if (ids == in_state_.end()) return;
    ids->second.erase(micro_batch);
    if (ids->second.empty()) in_state_.erase(ids);
  }

  Run& run_of(const std::vector<int>& key) {
    const auto known = runs_.find(key);
    return known != runs_.end() ? known->second : runs_.emplace(key, work_out(key)).first->second;
  }

  // key: body, step state, states of its deltas, states of other micro-batches.
  Run work_out(const std::vector<int>& key) {
    const BodyChanges& body = bodies_[static_cast<std::size_t>(key[0])];
    std::vector<BufferSet> live{empty_};
    for (std::size_t i = 1; i < 2 + body.deltas.size(); ++i) live.push_back(states_[static_cast<std::size_t>(key[i])]);
    const std::vector<int> others(key.begin() + static_cast<std::ptrdiff_t>(live.size()), key.end());
    BufferSet elsewhere = empty_;
    for (const int state : others) join(elsewhere, states_[static_cast<std::size_t>(state)]);
    Run run;
    for (const BodyChange& c : body.changes) {
      BufferSet& own = live[static_cast<std::size_t>(c.domain)];
      if (c.release) erase(own, c.buffer);
      if (c.release || contains(own, c.buffer)) continue;
      BufferSet& beside = out_.beside[static_cast<std::size_t>(c.buffer)];
      join(beside, elsewhere);
      for (const BufferSet& set : live) join(beside, set);
      const int delta = c.domain >= 2 ? body.deltas[static_cast<std::size_t>(c.domain - 2)] : 0;
      out_.all_births.push_back({key[0], c.op, c.buffer, delta});
      if (c.domain >= 2) add_ring(run, body, c, live, others);
      insert(own, c.buffer);
    }
    for (std::size_t i = 1; i < live.size(); ++i) run.outcome.push_back(intern(live[i]));
    return run;
  }

  void add_ring(Run& run, const BodyChanges& body, const BodyChange& c, const std::vector<BufferSet>& live,
                const std::vector<int>& others) const {
    RingUse use{body.deltas[static_cast<std::size_t>(c.domain - 2)], {}, {}, {c.buffer}};
    for (const int state : others)
      if (contains(states_[static_cast<std::size_t>(state)], c.buffer)) use.states.push_back(state);
    for (std::size_t d = 0; d < body.deltas.size(); ++d)
      if (contains(live[d + 2], c.buffer)) use.deltas.push_back(body.deltas[d]);
    if (use.states.empty() && use.deltas.empty()) return;
    for (RingUse& known : run.rings)
      if (known.delta == use.delta && known.states == use.states && known.deltas == use.deltas)
        return known.buffers.push_back(c.buffer);
    run.rings.push_back(std::move(use));
  }

  void note(RingUse& ring, int micro_batch) const {
    int first = micro_batch + ring.delta, last = first;
    for (const int delta : ring.deltas)
      first = std::min(first, micro_batch + delta), last = std::max(last, micro_batch + delta);
    for (const int state : ring.states) {
      const std::set<int>& ids = in_state_.at(state);
      first = std::min(first, *ids.begin()), last = std::max(last, *ids.rbegin());
    }
    ring.most = std::max(ring.most, last - first + 1);
  }

  void order_births() {
    std::vector<Birth>& all = out_.all_births;
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    std::size_t next = 0;
    for (std::size_t body = 0; body < role_.bodies.size(); ++body) {
      out_.first_op.push_back(out_.first_birth.size());
      for (std::size_t op = 0; op < role_.bodies[body].ops.size(); ++op) {
        out_.first_birth.push_back(next);
        while (next < all.size() && all[next].body == static_cast<BodyId>(body) &&
               all[next].op == static_cast<std::int32_t>(op))
          ++next;
      }
    }
    out_.first_birth.push_back(next);
  }

  // What lives at the end of the step does so in the next: beside everything, each micro-batch's in a place of its own.
  void keep_what_stays(int step_state, int micro_batches) {
    BufferSet stays = states_[static_cast<std::size_t>(step_state)];
    for (const auto& [state, ids] : in_state_) join(stays, states_[static_cast<std::size_t>(state)]);
    for (BufferId b = 0; b < static_cast<BufferId>(role_.buffers.size()); ++b) {
      if (!contains(stays, b)) continue;
      for (BufferId other = 0; other < static_cast<BufferId>(role_.buffers.size()); ++other)
        insert(out_.beside[static_cast<std::size_t>(b)], other);
      if (role_.buffers[static_cast<std::size_t>(b)].lifetime == Lifetime::micro_batch)
        out_.ring[static_cast<std::size_t>(b)] = micro_batches;
    }
  }

  const Role& role_;
  const BufferSet empty_;
  std::vector<BodyChanges> bodies_;
  std::vector<BufferSet> states_;
  std::map<BufferSet, int> state_ids_;
  std::map<int, std::set<int>> in_state_;  // micro-batches that hold anything, by state
  std::map<std::vector<int>, Run> runs_;
  Lifetimes out_;
};

}  // namespace

Lifetimes lifetimes_of(const Role& role) {
  return LifetimeWalk(role).walk();
}

}  // namespace rehearse::program
