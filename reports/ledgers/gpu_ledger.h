// The accuracy ledger of one GPU: plans simulated from its calibration, then performed on it: step time, memory, and
// the kernels of each class, a row a plan, as a table, CSV and JSON (schema rehearse.gpu_ledger/1). error = simulated /
// measured - 1.
#pragma once

#include <string>
#include <vector>

#include "reports/difference.h"
#include "reports/ledgers/local_ledger.h"

namespace rehearse::reports {

struct ClassTimes {
  std::string name;  // kernel_class()
  double simulated_s = 0, measured_s = 0;
  double error() const { return simulated_s / measured_s - 1; }
};
struct GpuRow {
  LocalRow step;
  double exact = 0;  // share of the simulated time from exact measurements
  std::vector<ClassTimes> classes;
};
// `d`: the simulated result first, the measured one second.
GpuRow gpu_row(const std::string& id, const Difference& d);

struct GpuSummary {
  int plans = 0;
  double median_error = 0, worst_error = 0, worst_memory_error = 0;  // of steps; worst ones signed
  // Of classes that take at least a twentieth of a step's kernels.
  double worst_class_error = 0;
  std::string worst_class;  // "norm of gpt2-124m"
};
GpuSummary summarize(const std::vector<GpuRow>& rows);

std::string gpu_ledger_table(const std::vector<GpuRow>& rows);
std::string gpu_ledger_csv(const std::vector<GpuRow>& rows);
std::string gpu_ledger_json(const std::vector<GpuRow>& rows);

}  // namespace rehearse::reports
