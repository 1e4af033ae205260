// What is kept of each plan of a sweep, and how it is shown: a table, CSV, JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/diagnostics.h"
#include "sim/result/result.h"

namespace rehearse::cli {

struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
};

enum class SweepStatus : unsigned char { fits, does_not_fit, infeasible };

struct SweepRow {
  std::vector<std::string> values;  // one an axis
  std::string directory;            // of its result, below the output; "" if there is none
  SweepStatus status = SweepStatus::infeasible;
  std::vector<Diagnostic> problems;  // why it is infeasible
  // Of the result.
  std::int64_t step_time_ps = 0, peak_bytes = 0, memory_bytes = 0;
  double mfu = 0, tokens_per_s = 0, bubble = 0, exposed = 0, low_s = 0, high_s = 0;
  std::string limit, limited_by;  // a word, and the sentence
};

void fill(SweepRow& row, const result::Result& r);

// 80 columns wide; what cannot be is explained below the table.
std::string sweep_table(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows);
std::string sweep_csv(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows);
std::string sweep_json(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows);

}  // namespace rehearse::cli
