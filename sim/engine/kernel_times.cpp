// Durations of kernels by interference state; see kernel_times.h.
#include "sim/engine/kernel_times.h"

#include <fmt/format.h>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"

namespace rehearse::engine {

// A quarter of what int64 holds in picoseconds: sums of two stay below the engine's limit.
constexpr Time kLongest = Time::from_ps(INT64_MAX / 4);
constexpr Time kUnknown = Time::from_ps(-1);

BusyTime::Seconds BusyTime::seconds() const {
  Seconds sum;
  for (const auto& [kind, ps] : ps_) {
    const auto [coverage, low, high] = kind;
    const double seconds = static_cast<double>(ps) / static_cast<double>(kPicosecondsPerSecond);
    sum.by_coverage[static_cast<std::size_t>(coverage)] += seconds;
    sum.total += seconds;
    sum.low += seconds * low;
    sum.high += seconds * high;
  }
  return sum;
}

cost::Estimate KernelCosts::ask(const RoleCode& code, Position position, StateId state,
                                const cost::Interference& beside) {
  const std::int32_t kind = code.ops[position].kind;
  if (kind < 0 || !costs_.by_kind()) return costs_.kernel(*code.role, code.op(position), beside);
  known_.reach(state);
  std::vector<cost::Estimate>& of_kinds = known_[state];
  if (of_kinds.empty()) of_kinds.assign(kinds_, {kUnknown, {}, 1, 1});
  cost::Estimate& known = of_kinds[static_cast<std::size_t>(kind)];
  if (known.duration < Time()) known = costs_.kernel(*code.role, code.op(position), beside);
  return known;
}

KernelTable::KernelTable(const RoleCode& code, KernelCosts& costs, StateId state, const cost::Interference& beside)
    : code_(code),
      costs_(costs),
      state_(state),
      beside_(beside),
      duration_(code.ops.size(), kUnknown),
      before_(code.ops.size() + 1),
      busy_(code.ops.size()),
      run_changes_(code.ops.size() + 1),
      segment_duration_(code.segments.size(), kUnknown),
      segment_runs_(code.segments.size()),
      estimate_(code.ops.size()) {}

Time KernelTable::ask(Position position) {
  const program::Op& op = code_.op(position);
  const cost::Estimate estimate = costs_.ask(code_, position, state_, beside_);
  REHEARSE_CHECK(estimate.duration >= Time(), "{}: {} takes negative time", code_.role->name, op.name);
  estimate_[position] = estimate;
  return duration_[position] = estimate.duration;
}

Time KernelTable::sum_segment(SegmentId id) {
  Time sum;
  for (const Position position : code_.segments[id].ops) {
    before_[position] = sum;
    sum += kernel(position);
    if (sum > kLongest)
      throw InputError(
          Diagnostic{"", 0, 0, code_.op(position).name,
                     fmt::format("kernels up to here take {} without a pause, too long to simulate", format_time(sum)),
                     "is the device's rate or the size of the model wrong?"});
  }
  return segment_duration_[id] = sum;
}

void KernelTable::add_busy(BusyTime& sum) const {
  IdVector<Position, std::int64_t> runs(duration_.size());
  for (const SegmentId id : code_.segments.ids())
    for (const Position p : code_.segments[id].ops) runs[p] += segment_runs_[id];
  std::int64_t whole = 0;
  Int128 alike = 0;  // of positions up to here that are known equally well, which most are
  const cost::Estimate* known = nullptr;
  const auto add = [&] {
    if (alike > 0) sum.add(alike, static_cast<int>(known->coverage), known->low, known->high);
  };
  for (const Position p : runs.ids()) {
    whole += run_changes_[p];
    Int128 busy = busy_[p].ps();
    if (runs[p] + whole > 0) busy += static_cast<Int128>(duration_[p].ps()) * (runs[p] + whole);
    if (busy <= 0) continue;
    const cost::Estimate& estimate = estimate_[p];
    if (known == nullptr || estimate.coverage != known->coverage || estimate.low != known->low ||
        estimate.high != known->high) {
      add();
      alike = 0, known = &estimate;
    }
    alike += busy;
  }
  add();
}

KernelTable& KernelTimes::make_table(StateId id, const cost::Interference& value) {
  tables_.reach(id);
  tables_[id] = std::make_unique<KernelTable>(*code_, *costs_, id, value);
  return *tables_[id];
}

void KernelTimes::add_busy(BusyTime& sum) const {
  for (const auto& table : tables_)
    if (table) table->add_busy(sum);
}

}  // namespace rehearse::engine
