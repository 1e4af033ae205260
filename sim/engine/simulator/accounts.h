// What the time of the step reported went to: the breakdown of main streams, and the histories of all others and of
// hosts, by which waits of main streams are explained. Counts what is done besides.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/engine/breakdown.h"
#include "sim/engine/histories.h"
#include "sim/engine/ids.h"

namespace rehearse::engine {

class Accounts {
 public:
  Accounts(std::size_t streams, std::size_t ranks)
      : first_host_(static_cast<std::int32_t>(streams)),
        stands_for_(ranks, 1),
        breakdown_(ranks),
        histories_(streams + ranks) {}

  static Cause cause(StreamId stream) { return Cause(stream.value()); }
  Cause host(RankId rank) const { return Cause(first_host_ + rank.value()); }

  // How often what the rank does now counts in what is added up (rounds.h).
  std::int64_t stands_for(RankId rank) const { return stands_for_[rank]; }
  void set_stands_for(RankId rank, std::int64_t times) { stands_for_[rank] = times; }

  // The step reported begins.
  void open(Time now) { breakdown_.open(now); }
  Time opened() const { return breakdown_.from(); }  // Time::max(): not yet

  // A main stream did `share` in [from, to), or waited for `by`.
  void add(RankId rank, result::Share share, Time from, Time to) {
    breakdown_.add(rank, share, from, to, stands_for(rank));
  }
  void add_wait(RankId rank, Cause by, Time from, Time to) {
    histories_.each(by, from, to, [&](result::Share share, Time begin, Time end) { add(rank, share, begin, end); });
  }
  // Another stream, or a host.
  Histories& histories() { return histories_; }

  void count_ops(RankId rank, std::int64_t ops) { ops_ += ops * stands_for(rank); }
  std::int64_t ops() const { return ops_; }
  // Mean over the first ranks, ps, each counted `alike` times; they must have accounted for `window`.
  std::array<std::int64_t, result::kShares> mean(const std::vector<std::int64_t>& alike, Time window) const {
    return breakdown_.mean(alike, window);
  }

 private:
  std::int32_t first_host_;
  IdVector<RankId, std::int64_t> stands_for_;
  Breakdown breakdown_;
  Histories histories_;
  std::int64_t ops_ = 0;
};

}  // namespace rehearse::engine
