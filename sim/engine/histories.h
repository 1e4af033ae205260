// What the streams and hosts of ranks did lately: what the waits of compute streams are told by. The rule is
// sim/account/blame.h's.
//
// A stream that begins an op after a wait takes over what the one that ended the wait did meanwhile (tell_by), so what
// is kept of a stream explains its whole time, however long the chain of waits. Only what a rank's compute stream may
// still ask for is kept: from the beginning of the wait it is in. So histories are a few stretches long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/result/result.h"

namespace rehearse::engine {

// Who ended a wait: a lane, a host (the Simulator numbers them on from the lanes), or:
using Teller = std::int32_t;
inline constexpr Teller kLaunch = -1;  // the op had not been launched
inline constexpr Teller kNobody = -2;

class Histories {
 public:
  void resize(std::size_t tellers) { all_.resize(tellers); }

  // Nothing more is to be told of the time before `now`.
  void begin(Teller of, std::int64_t now) { history(of).told = now; }
  // From what has been told of it up to `to` it was `share`. Nobody asks for what was before `since`.
  void tell(Teller of, result::Share share, std::int64_t to, std::int64_t since) {
    History& own = history(of);
    const std::int64_t from = std::max(own.told, since);
    own.told = std::max(own.told, to);
    if (from < to) own.add({share, from, to}, since);
  }
  // It waited for `by`.
  void tell_by(Teller of, Teller by, std::int64_t to, std::int64_t since) {
    History& own = history(of);
    const std::int64_t from = std::max(own.told, since);
    own.told = std::max(own.told, to);
    each(by, from, to, [&](result::Share share, std::int64_t begin, std::int64_t end) {
      own.add({share, begin, end}, since);
    });
  }
  // What `by` did in [from, to), in order; not known (or nobody): other.
  template <class Function>
  void each(Teller by, std::int64_t from, std::int64_t to, Function&& function) const {
    if (from >= to) return;
    if (by >= 0) {
      const std::vector<Stretch>& stretches = all_[static_cast<std::size_t>(by)].stretches;
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

 private:
  struct Stretch {
    result::Share share;
    std::int64_t from, to;
  };
  struct History {
    std::vector<Stretch> stretches;  // ascending
    std::int64_t told = 0;

    void add(const Stretch& stretch, std::int64_t since) {
      if (!stretches.empty() && stretches.back().to <= since) stretches.clear();
      if (!stretches.empty() && stretches.back().share == stretch.share && stretches.back().to == stretch.from)
        stretches.back().to = stretch.to;
      else
        stretches.push_back(stretch);
    }
  };
  History& history(Teller of) { return all_[static_cast<std::size_t>(of)]; }

  std::vector<History> all_;
};

}  // namespace rehearse::engine
