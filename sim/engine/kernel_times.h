// How long the kernels of a role take in each interference state, asked of the cost model once and kept in flat arrays
// by position (code.h); and how long they ran, by state, for the coverage of the result. Kernels and segments that ran
// whole in one state are only counted; time is multiplied out at the end, so the sums are exact integers and no hot
// loop adds up.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/engine/code.h"
#include "sim/engine/interference.h"
#include "sim/engine/wide.h"

namespace rehearse::engine {

// Device busy time by coverage, and its error interval. Times of one coverage and interval are summed up as integers,
// so that what is added in which order, and how often at once, makes no difference.
class BusyTime {
 public:
  void add(Int128 ps, int coverage, double low, double high) { ps_[{coverage, low, high}] += ps; }
  struct Seconds {
    std::array<double, cost::kCoverages> by_coverage{};
    double low = 0, high = 0, total = 0;
  };
  Seconds seconds() const;

 private:
  std::map<std::tuple<int, double, double>, Int128> ps_;
};

// What one cost model says of a program's kernels, by kind where it goes by kinds.
class KernelCosts {
 public:
  KernelCosts(const cost::CostModel& costs, std::size_t kinds) : costs_(costs), kinds_(kinds) {}
  cost::Estimate ask(const RoleCode& code, Position position, StateId state, const cost::Interference& beside);

 private:
  const cost::CostModel& costs_;
  const std::size_t kinds_;
  IdVector<StateId, std::vector<cost::Estimate>> known_;  // by kind; a negative duration: not asked yet
};

// The kernels of a role in one state.
class KernelTable {
 public:
  KernelTable(const RoleCode& code, KernelCosts& costs, StateId state, const cost::Interference& beside);

  // Duration of a kernel.
  Time kernel(Position position) {
    const Time known = duration_[position];
    return known >= Time() ? known : ask(position);
  }
  // Of all kernels of a segment.
  Time segment(SegmentId id) {
    const Time known = segment_duration_[id];
    return known >= Time() ? known : sum_segment(id);
  }
  // Of the kernels of a segment before a position; segment() must have been asked for it.
  Time before(Position position) const { return before_[position]; }

  // What ran here on so many ranks: a segment as a whole; the kernels [first, last) as a whole; a kernel for some time.
  void count_segment(SegmentId id, std::int64_t ranks) { segment_runs_[id] += ranks; }
  void count_kernels(Position first, Position last, std::int64_t ranks) {
    run_changes_[first] += ranks;
    run_changes_[last] -= ranks;
  }
  void count_time(Position position, Time time, std::int64_t ranks) { busy_[position] += time * ranks; }
  void add_busy(BusyTime& sum) const;

 private:
  Time ask(Position position);
  Time sum_segment(SegmentId id);

  const RoleCode& code_;
  KernelCosts& costs_;
  StateId state_;
  cost::Interference beside_;
  IdVector<Position, Time> duration_, before_, busy_;
  IdVector<Position, std::int64_t> run_changes_;  // whole runs, as differences to the one before
  IdVector<SegmentId, Time> segment_duration_;
  IdVector<SegmentId, std::int64_t> segment_runs_;
  IdVector<Position, cost::Estimate> estimate_;
};

class KernelTimes {
 public:
  KernelTimes(const RoleCode& code, KernelCosts& costs) : code_(&code), costs_(&costs) {}

  // The table stays where it is.
  KernelTable& in_state(StateId id, const InterferenceStates& states) {
    if (id.index() < tables_.size() && tables_[id]) return *tables_[id];
    return make_table(id, states.value(id));
  }
  void add_busy(BusyTime& sum) const;

 private:
  KernelTable& make_table(StateId id, const cost::Interference& value);

  const RoleCode* code_;
  KernelCosts* costs_;
  IdVector<StateId, std::unique_ptr<KernelTable>> tables_;
};

}  // namespace rehearse::engine
