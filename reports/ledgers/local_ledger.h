// The accuracy ledger of the machine at hand: plans that were simulated from its calibration and then performed on it,
// a row each, as a table, CSV and JSON (schema rehearse.local_ledger/1). error = simulated / measured - 1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/batch.h"
#include "sim/result/result.h"

namespace rehearse::reports {

struct LocalPlan {
  std::string id, scenario;              // scenario: a path next to the list
  std::vector<std::string> assignments;  // KEY=VALUE
};
// Reads a list of plans (scenarios/local/plans.yaml). Throws InputError with every problem.
std::vector<LocalPlan> read_local_plans(const std::string& file);

struct LocalRow {
  std::string id, reason;  // reason: why it was not performed; empty if it was
  std::int64_t ranks = 0;
  bool oversubscribed = false;  // more threads than cores
  double measured_s = 0, measured_low_s = 0, measured_high_s = 0, simulated_s = 0, low_s = 0, high_s = 0;
  Batch batch;
  std::int64_t measured_bytes = 0, simulated_bytes = 0;  // largest peak of a rank
  // How many times slower the machine was while the plan was performed than while it was calibrated (sim/base/pace.h);
  // 1 where that is not known.
  double drift = 1;
  double time_error() const { return simulated_s / measured_s - 1; }
  double error_without_drift() const { return simulated_s * drift / measured_s - 1; }
  bool inside() const { return measured_s >= low_s && measured_s <= high_s; }
  double memory_error() const { return static_cast<double>(simulated_bytes) / static_cast<double>(measured_bytes) - 1; }
};
LocalRow local_row(const std::string& id, const result::Result& simulated, const result::Result& measured,
                   bool oversubscribed);

struct LocalSummary {
  int plans = 0;
  double median_error = 0, worst_error = 0, worst_memory_error = 0;  // of absolute errors; worst ones signed
  double median_without_drift = 0, worst_without_drift = 0;
  double median_drift = 1;
  int inside = 0;  // plans whose measured step lies inside the simulated interval
};
// Over the rows that were performed and are, or are not, oversubscribed.
LocalSummary summarize(const std::vector<LocalRow>& rows, bool oversubscribed);

std::string local_ledger_table(const std::vector<LocalRow>& rows);  // 80 columns
std::string local_ledger_csv(const std::vector<LocalRow>& rows);
std::string local_ledger_json(const std::vector<LocalRow>& rows);

}  // namespace rehearse::reports
