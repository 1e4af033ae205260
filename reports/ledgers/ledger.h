// The accuracy ledger: measured against predicted, a row a published measurement, used or not and why not. Files:
// ledger.csv and ledger.json (schema rehearse.ledger/1). error = predicted / measured - 1.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "sim/result/result.h"

namespace rehearse::reports {

// A published measurement: which scenario was run, and one number of it.
struct Measurement {
  std::string id, scenario, metric, unit, source;
  double value = 0;
  int line = 0;  // in its file
};

// Columns id, scenario, metric, value, unit; source is optional. Throws InputError with every problem.
std::vector<Measurement> read_measurements(const std::string& file, std::string_view text);

struct LedgerRow {
  std::string id, metric, unit, scenario, source;
  bool used = false;
  std::string reason;  // why it is not used; empty if it is
  double measured = 0, predicted = 0, error = 0;
  double low = 0, high = 0;  // of the prediction, from the result's interval
  std::array<double, 4> coverage{};
  std::int64_t global_batch = 0;  // sequences or samples a step; 0: not known
};

// Metrics a result answers: iter_time_s, tokens_per_s, tokens_per_s_per_gpu, model_tflops_per_gpu,
// hardware_tflops_per_gpu, mfu, hfu. Units: s, ms; tokens/s; TFLOP/s; % or none. A metric or unit not known, or a value
// that is not positive, gives a row that is not used.
LedgerRow compare(const Measurement& measurement, const result::Result& r);
// A row that could not be simulated.
LedgerRow unused(const Measurement& measurement, std::string reason);

struct LedgerSummary {
  int used = 0, within_10_percent = 0, in_interval = 0;
  double mean_absolute_error = 0, mean_error = 0, worst_error = 0;  // worst: the largest in size, signed
};
LedgerSummary summarize(const std::vector<LedgerRow>& rows);

std::string ledger_table(const std::vector<LedgerRow>& rows);  // 80 columns
std::string ledger_csv(const std::vector<LedgerRow>& rows);
std::string ledger_json(const std::vector<LedgerRow>& rows);

}  // namespace rehearse::reports
