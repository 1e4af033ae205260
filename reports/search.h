// What `rehearse plan` found, as text for a terminal and as JSON (rehearse.plan/1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/advice.h"
#include "reports/prices.h"
#include "reports/sweep_rows.h"

namespace rehearse::reports {

// The best plan with one key changed. step_ps 0: it does not fit.
struct KeyChange {
  std::string key, value;
  std::int64_t step_ps = 0;
};

// A plan of the space that no rule forbids. status: 0 too large, 1 bounded (step and bytes are at least so much),
// 2 simulated. `values`: which of each key's.
struct SearchPoint {
  int status = 0;
  std::int64_t step_ps = 0, bytes = 0;
  std::vector<std::uint16_t> values;
};

struct SearchReport {
  std::string scenario, objective;        // "step_time"
  std::vector<SweepAxis> keys;            // free ones
  std::vector<SweepRow> best;             // a value a key; best first
  std::vector<double> gpu_hours, joules;  // of a step of these; joules 0: not known
  // A simpler plan as good as the best, and what kinds the two are.
  std::optional<SweepRow> simplest;
  std::string simple_kind, best_kind;
  Advice advice;
  std::vector<SearchPoint> points;  // for search.json (search_file.h)
  std::vector<KeyChange> changes;
  std::vector<SweepRow> front;  // of time against memory, fastest first
  std::int64_t choices = 0, forbidden = 0, too_large = 0, bounded = 0, simulated = 0, open = 0;
  bool proven = false, by_time = false;                       // by_time: a limit of time ended it
  double open_from = 0;                                       // objective of no open plan is less
  std::vector<std::pair<std::string, std::int64_t>> reasons;  // why plans are forbidden
  // Nothing fits: the plan that needs least, of how much, and its GPUs.
  std::vector<std::string> smallest;
  std::int64_t smallest_bytes = 0, capacity_bytes = 0, gpus = 0;
  double wall_s = 0;
  double tokens = 0;  // 0: not given
  Price price;
};

// Added GPUs that give less than this much of what those before give are past the knee of a scaling curve.
inline constexpr double kKnee = 0.5;

// The best plan for each of several numbers of GPUs.
struct ScalingReport {
  std::vector<SearchReport> searches;  // one a number, ascending
  double days = 0;                     // in which the tokens are to be trained; 0: not given
};
// Where the curve of throughput over GPUs bends: the last number before an added GPU gives less than kKnee of what each
// of the GPUs before gives; nothing where none does. `gives`: what the first one past it gives.
struct Knee {
  std::int64_t gpus = 0, next = 0;
  double gives = 0;
};
std::optional<Knee> knee_of(const ScalingReport& r);
std::string scaling_text(ScalingReport r, std::size_t width = kWidth);
std::string scaling_json(const ScalingReport& r);

std::string search_text(const SearchReport& r, std::size_t width = kWidth);
std::string search_json(const SearchReport& r);

// A value of an objective as a user reads it: "16.1 s", "62.0 GB".
std::string objective_text(std::string_view objective, double value);

// Days, GPU-hours of a run of `tokens` tokens.
double days_of(double tokens, double tokens_per_s);

}  // namespace rehearse::reports
