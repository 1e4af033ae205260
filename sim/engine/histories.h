// What the streams and hosts of ranks did lately: what the waits of compute streams are explained by. The rule is
// sim/account/blame.h's.
//
// A stream that begins an op after a wait takes over what the one that ended the wait did meanwhile (waited), so what
// is kept of a stream explains its whole time, however long the chain of waits. Only what a rank's compute stream may
// still ask for is kept: from the beginning of the wait it is in. So histories are a few stretches long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/ids.h"
#include "sim/result/result.h"

namespace rehearse::engine {

// Who ended a wait: a stream, a host (Accounts numbers these on from the streams), or:
using Cause = Id<struct CauseTag>;
inline constexpr Cause kLaunch{-1};  // the op had not been launched
inline constexpr Cause kNobody{-2};

class Histories {
 public:
  explicit Histories(std::size_t causes) : all_(causes) {}

  // Nothing more is to be said of the time before `now`.
  void begin(Cause of, Time now) { all_[of].known_to = now; }
  // From where its history ends up to `to` it was `share`. Nobody asks for what was before `since`, now or later.
  void spent(Cause of, result::Share share, Time to, Time since) {
    if (to <= since) return;
    History& own = all_[of];
    const Time from = std::max(own.known_to, since);
    own.known_to = std::max(own.known_to, to);
    if (from < to) own.add({share, from, to}, since);
  }
  // It waited for `by`.
  void waited(Cause of, Cause by, Time to, Time since) {
    if (to <= since) return;
    History& own = all_[of];
    const Time from = std::max(own.known_to, since);
    own.known_to = std::max(own.known_to, to);
    each(by, from, to, [&](result::Share share, Time begin, Time end) { own.add({share, begin, end}, since); });
  }
  // What `by` did in [from, to), in order; not known (or nobody): other.
  template <class Function>
  void each(Cause by, Time from, Time to, Function&& function) const {
    if (from >= to) return;
    if (by.exists()) {
      const std::vector<Stretch>& stretches = all_[by].stretches;
      auto next = stretches.end();
      while (next != stretches.begin() && std::prev(next)->to > from) --next;
      for (; next != stretches.end() && next->from < to; ++next) {
        if (from < next->from) function(result::Share::other, from, next->from);
        function(next->share, std::max(from, next->from), std::min(to, next->to));
        from = next->to;
      }
    }
    if (from < to) function(by == kLaunch ? result::Share::host : result::Share::other, from, to);
  }

  // What may still be asked for, nothing of it before `since` (simulator/shown_state.h).
  template <class Visitor>
  void show(Cause of, Time since, Visitor& visitor) const {
    const History& own = all_[of];
    visitor.thing();
    visitor.recent(std::max(own.known_to, since));
    for (const Stretch& stretch : own.stretches) {
      if (stretch.to <= since) continue;
      visitor.same(stretch.share);
      visitor.recent(std::max(stretch.from, since));
      visitor.recent(stretch.to);
    }
  }
  // All of it was later by so much.
  void move(Cause of, Time by) {
    History& own = all_[of];
    own.known_to = own.known_to + by;
    for (Stretch& stretch : own.stretches) stretch.from = stretch.from + by, stretch.to = stretch.to + by;
  }

 private:
  struct Stretch {
    result::Share share;
    Time from, to;
  };
  struct History {
    std::vector<Stretch> stretches;  // ascending
    Time known_to;

    void add(const Stretch& stretch, Time since) {
      if (!stretches.empty() && stretches.back().to <= since) stretches.clear();
      if (!stretches.empty() && stretches.back().share == stretch.share && stretches.back().to == stretch.from)
        stretches.back().to = stretch.to;
      else
        stretches.push_back(stretch);
    }
  };

  IdVector<Cause, History> all_;
};

}  // namespace rehearse::engine
