// What a stream of a rank did lately, in real time: what the compute stream's waits are attributed by, by the rule of
// sim/account/blame.h (sim/engine/histories.h keeps the same of simulated streams). The stream's thread adds to it when
// it publishes an op, under the rank's mutex, and forgets what the compute stream will not ask for any more.
#pragma once

#include <algorithm>
#include <deque>

#include "execute/transport/communicator.h"
#include "sim/result/result.h"

namespace rehearse::execute {

struct Stretch {
  result::Share share;
  Clock::time_point from, to;
};

class History {
 public:
  // Stretches are added in the order of time.
  void add(const Stretch& s) {
    if (!stretches_.empty() && stretches_.back().share == s.share && stretches_.back().to == s.from)
      stretches_.back().to = s.to;
    else if (s.from < s.to)
      stretches_.push_back(s);
  }
  void forget(Clock::time_point before) {
    while (!stretches_.empty() && stretches_.front().to <= before) stretches_.pop_front();
  }
  std::size_t size() const { return stretches_.size(); }

  // What is known of [from, to), in order: function(share, begin, end).
  template <class Function>
  void each(Clock::time_point from, Clock::time_point to, Function&& function) const {
    auto next = stretches_.end();
    while (next != stretches_.begin() && std::prev(next)->to > from) --next;
    for (; next != stretches_.end() && next->from < to; ++next)
      function(next->share, std::max(from, next->from), std::min(to, next->to));
  }

 private:
  std::deque<Stretch> stretches_;
};

}  // namespace rehearse::execute
