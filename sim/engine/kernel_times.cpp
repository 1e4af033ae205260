// Durations of kernels by interference state; see kernel_times.h.
#include "sim/engine/kernel_times.h"

#include <fmt/format.h>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"

namespace rehearse::engine {

// A quarter of what int64 holds in picoseconds: sums of two stay below the engine's limit.
constexpr std::int64_t kLongest = INT64_MAX / 4;

void BusyTime::add(std::int64_t ps, int coverage, double low, double high) {
  const double seconds = Time::from_ps(ps).seconds();
  by_coverage_s[static_cast<std::size_t>(coverage)] += seconds;
  total_s += seconds;
  low_s += seconds * low;
  high_s += seconds * high;
}

KernelTable::KernelTable(const RoleCode& code, const cost::CostModel& costs, const cost::Interference& beside)
    : code_(code),
      costs_(costs),
      beside_(beside),
      duration_(code.ops.size(), -1),
      before_(code.ops.size() + 1, 0),
      busy_(code.ops.size(), 0),
      run_changes_(code.ops.size() + 1, 0),
      item_duration_(code.items.size(), -1),
      item_runs_(code.items.size(), 0),
      estimate_(code.ops.size()) {}

std::int64_t KernelTable::ask(std::int32_t position) {
  const program::Op& op = code_.op(position);
  const cost::Estimate estimate = costs_.kernel(*code_.role, op, beside_);
  REHEARSE_CHECK(estimate.duration >= Time(), "{}: {} takes negative time", code_.role->name, op.name);
  estimate_[static_cast<std::size_t>(position)] = estimate;
  return duration_[static_cast<std::size_t>(position)] = estimate.duration.ps();
}

std::int64_t KernelTable::sum_item(std::int32_t index) {
  const Item& item = code_.items[static_cast<std::size_t>(index)];
  std::int64_t sum = 0;
  for (std::int32_t position = item.first; position < item.last; ++position) {
    before_[static_cast<std::size_t>(position)] = sum;
    sum += kernel(position);
    if (sum > kLongest)
      throw InputError(Diagnostic{"", 0, 0, code_.op(position).name,
                                  fmt::format("kernels up to here take {} without a pause, too long to simulate",
                                              format_time(Time::from_ps(sum))),
                                  "is the device's rate or the size of the model wrong?"});
  }
  return item_duration_[static_cast<std::size_t>(index)] = sum;
}

void KernelTable::add_busy(BusyTime& sum) const {
  std::vector<std::int64_t> runs(duration_.size(), 0);
  for (std::size_t index = 0; index < code_.items.size(); ++index) {
    const Item& item = code_.items[index];
    for (auto p = static_cast<std::size_t>(item.first); p < static_cast<std::size_t>(item.last); ++p)
      runs[p] += item_runs_[index];
  }
  std::int64_t whole = 0;
  for (std::size_t p = 0; p < runs.size(); ++p) {
    whole += run_changes_[p];
    const std::int64_t busy = busy_[p] + (runs[p] + whole == 0 ? 0 : (runs[p] + whole) * duration_[p]);
    const cost::Estimate& estimate = estimate_[p];
    if (busy > 0) sum.add(busy, static_cast<int>(estimate.coverage), estimate.low, estimate.high);
  }
}

KernelTable& KernelTimes::make_table(std::size_t index, const cost::Interference& value) {
  if (index >= tables_.size()) tables_.resize(index + 1);
  tables_[index] = std::make_unique<KernelTable>(*code_, *costs_, value);
  return *tables_[index];
}

void KernelTimes::add_busy(BusyTime& sum) const {
  for (const auto& table : tables_)
    if (table) table->add_busy(sum);
}

}  // namespace rehearse::engine
