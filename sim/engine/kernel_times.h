// How long the kernels of a role take in each interference state, asked of the cost model once and kept in flat arrays
// by position (code.h); and how long they ran, by state, for the coverage of the result. Kernels and segments that ran
// whole in one state are only counted; time is multiplied out at the end, so the sums are exact integers and no hot
// loop adds up.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/engine/code.h"
#include "sim/engine/interference.h"

namespace rehearse::engine {

// Device busy time by coverage, and its error interval.
struct BusyTime {
  std::array<double, cost::kCoverages> by_coverage_s{};
  double low_s = 0, high_s = 0, total_s = 0;
  void add(Time time, int coverage, double low, double high);
};

// The kernels of a role in one state.
class KernelTable {
 public:
  KernelTable(const RoleCode& code, const cost::CostModel& costs, const cost::Interference& beside);

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

  // What ran here: a segment as a whole; the kernels [first, last) as a whole; a kernel for some time.
  void count_segment(SegmentId id) { ++segment_runs_[id]; }
  void count_kernels(Position first, Position last) {
    ++run_changes_[first];
    --run_changes_[last];
  }
  void count_time(Position position, Time time) { busy_[position] += time; }
  void add_busy(BusyTime& sum) const;

 private:
  Time ask(Position position);
  Time sum_segment(SegmentId id);

  const RoleCode& code_;
  const cost::CostModel& costs_;
  cost::Interference beside_;
  IdVector<Position, Time> duration_, before_, busy_;
  IdVector<Position, std::int64_t> run_changes_;  // whole runs, as differences to the one before
  IdVector<SegmentId, Time> segment_duration_;
  IdVector<SegmentId, std::int64_t> segment_runs_;
  IdVector<Position, cost::Estimate> estimate_;
};

class KernelTimes {
 public:
  KernelTimes(const RoleCode& code, const cost::CostModel& costs) : code_(&code), costs_(&costs) {}

  // The table stays where it is.
  KernelTable& in_state(StateId id, const InterferenceStates& states) {
    if (id.index() < tables_.size() && tables_[id]) return *tables_[id];
    return make_table(id, states.value(id));
  }
  void add_busy(BusyTime& sum) const;

 private:
  KernelTable& make_table(StateId id, const cost::Interference& value);

  const RoleCode* code_;
  const cost::CostModel* costs_;
  IdVector<StateId, std::unique_ptr<KernelTable>> tables_;
};

}  // namespace rehearse::engine
