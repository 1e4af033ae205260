// How long the kernels of a role take in each interference state, asked of the cost model once and kept in flat arrays
// by position (code.h); and how long they ran, by state, for the coverage of the result. Kernels and items that ran
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
  void add(std::int64_t ps, int coverage, double low, double high);
};

// The kernels of a role in one state.
class KernelTable {
 public:
  KernelTable(const RoleCode& code, const cost::CostModel& costs, const cost::Interference& beside);

  // Duration in ps of the kernel at a position.
  std::int64_t kernel(std::int32_t position) {
    const std::int64_t known = duration_[static_cast<std::size_t>(position)];
    return known >= 0 ? known : ask(position);
  }
  // Of all kernels of an item.
  std::int64_t item(std::int32_t index) {
    const std::int64_t known = item_duration_[static_cast<std::size_t>(index)];
    return known >= 0 ? known : sum_item(index);
  }
  // Of the kernels of an item before a position; item() must have been asked for it.
  std::int64_t before(std::int32_t position) const { return before_[static_cast<std::size_t>(position)]; }

  // What ran here: an item as a whole; the kernels [first, last) as a whole; a kernel for some time.
  void count_item(std::int32_t index) { ++item_runs_[static_cast<std::size_t>(index)]; }
  void count_kernels(std::int32_t first, std::int32_t last) {
    ++run_changes_[static_cast<std::size_t>(first)];
    --run_changes_[static_cast<std::size_t>(last)];
  }
  void count_time(std::int32_t position, std::int64_t ps) { busy_[static_cast<std::size_t>(position)] += ps; }
  void add_busy(BusyTime& sum) const;

 private:
  std::int64_t ask(std::int32_t position);
  std::int64_t sum_item(std::int32_t index);

  const RoleCode& code_;
  const cost::CostModel& costs_;
  cost::Interference beside_;
  std::vector<std::int64_t> duration_, before_, busy_;  // by position
  std::vector<std::int64_t> run_changes_;               // by position: whole runs, as differences to the one before
  std::vector<std::int64_t> item_duration_, item_runs_;
  std::vector<cost::Estimate> estimate_;  // by position
};

class KernelTimes {
 public:
  KernelTimes(const RoleCode& code, const cost::CostModel& costs) : code_(&code), costs_(&costs) {}

  // The table stays where it is.
  KernelTable& in_state(StateId id, const InterferenceStates& states) {
    const auto index = static_cast<std::size_t>(id);
    if (index < tables_.size() && tables_[index]) return *tables_[index];
    return make_table(index, states.value(id));
  }
  void add_busy(BusyTime& sum) const;

 private:
  KernelTable& make_table(std::size_t index, const cost::Interference& value);

  const RoleCode* code_;
  const cost::CostModel* costs_;
  std::vector<std::unique_ptr<KernelTable>> tables_;  // by state
};

}  // namespace rehearse::engine
