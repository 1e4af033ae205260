// What is kept of each plan of a sweep, and how it is shown: a table (sweep_table.cpp), CSV, JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reports/batch.h"
#include "reports/text.h"
#include "sim/base/diagnostics.h"
#include "sim/result/result.h"

namespace rehearse::reports {

struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
};

enum class SweepStatus : unsigned char { fits, does_not_fit, infeasible };

// How a row's GPUs and batch (tokens or samples a step) compare with the reference's:
//   none    as many GPUs
//   strong  other GPUs, the same batch
//   weak    the batch has grown or shrunk as the GPUs have
//   mixed   neither
enum class Scaling : unsigned char { none, strong, weak, mixed };

struct SweepRow {
  std::vector<std::string> values;  // one an axis
  std::string directory;            // of its result, below the output; "" if there is none
  SweepStatus status = SweepStatus::infeasible;
  std::vector<Diagnostic> problems;  // why it is infeasible
  // Of the result.
  std::string framework;
  bool framework_chosen = false;  // automatically
  std::int64_t gpus = 0;
  Batch batch;
  std::int64_t step_time_ps = 0, peak_bytes = 0, memory_bytes = 0;
  double mfu = 0, tokens_per_s = 0, bubble = 0, exposed = 0, low_s = 0, high_s = 0;
  std::string limit, limited_by;   // a word, and the sentence
  std::string sought;              // of a search by cost or energy: how much
  std::string cost;                // of a search: what its report says a cost is
  std::vector<std::string> notes;  // result::Note's texts
  // Of all rows, by set_scaling().
  bool reference = false;
  Scaling scaling = Scaling::none;
  double speed_up = 0, efficiency = 0;
};

void fill(SweepRow& row, const result::Result& r);

// Fills the last fields of every row that can be. The reference is the row with the fewest GPUs, the first of several,
// among those that fit (if none does, among those that can be):
//   speed_up   = tokens_per_s / tokens_per_s of the reference    (samples, where the model has no tokens)
//   efficiency = speed_up / (gpus / gpus of the reference)
// With the same batch that is strong scaling's T_1 / T_N and T_1 / (N T_N), with a batch that grows as the GPUs do weak
// scaling's N T_1 / T_N and T_1 / T_N.
void set_scaling(std::vector<SweepRow>& rows);
std::string_view scaling_name(const SweepRow& row);  // "reference", "none", "strong", ...

// At most `width` columns wide, however many keys are swept and however long their values are: where there is no room,
// keys are named by letters with a legend above, then the least important columns are left out with a note that says
// which; where even that is too wide, a plan takes two lines. What cannot be is explained below the table. Plans that a
// search answers with all fit: in place of that they have their steps' intervals and their costs.
enum class TableOf : unsigned char { sweep, search };
std::string sweep_table(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows,
                        std::size_t width = kWidth, TableOf kind = TableOf::sweep);
std::string sweep_csv(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows);
std::string sweep_json(const std::vector<SweepAxis>& axes, const std::vector<SweepRow>& rows);

}  // namespace rehearse::reports
