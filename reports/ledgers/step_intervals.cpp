// See step_intervals.h.
#include "reports/ledgers/step_intervals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "sim/base/csv_field.h"

namespace rehearse::reports {
namespace {

constexpr double kLowShare = 0.05, kHighShare = 0.95;
constexpr double kOtherRows = 10;  // what all other sources weigh beside a framework's own rows: a judgement

struct WeighedRow {
  const ThroughputRow* row = nullptr;
  double weight = 1;
};

double ratio(const ThroughputRow& row) {
  return row.measured_s / row.predicted_s;
}
double kernels_low(const ThroughputRow& row) {
  return row.kernels_low;
}
double kernels_high(const ThroughputRow& row) {
  return row.kernels_high;
}

// The least value that `share` of the weight is not above.
double weighed_quantile(const std::vector<WeighedRow>& rows, double (*value)(const ThroughputRow&), double share) {
  std::vector<std::pair<double, double>> weights;  // of values
  double all = 0, sum = 0;
  for (const WeighedRow& each : rows) {
    weights.emplace_back(value(*each.row), each.weight);
    all += each.weight;
  }
  std::sort(weights.begin(), weights.end());
  for (const auto& [of, weight] : weights) {
    sum += weight;
    if (sum >= share * all) return of;
  }
  return weights.back().first;
}

struct StepRange {
  double low = 1, high = 1, kernels_low = 1, kernels_high = 1;
};

StepRange range_of_steps(const std::vector<WeighedRow>& rows) {
  return {std::min(1.0, weighed_quantile(rows, ratio, kLowShare)),
          std::max(1.0, weighed_quantile(rows, ratio, kHighShare)),
          std::min(1.0, weighed_quantile(rows, kernels_low, kLowShare)),
          std::max(1.0, weighed_quantile(rows, kernels_high, kHighShare))};
}

std::string table_line(const std::string& of, const std::string& name, StepRange range, std::size_t runs) {
  return fmt::format("{},{},{:.3f},{:.3f},{:.3f},{:.3f},{}\n", of, csv_field(name), std::floor(range.low * 1000) / 1000,
                     std::ceil(range.high * 1000) / 1000, range.kernels_low, range.kernels_high, runs);
}

}  // namespace

std::string step_intervals_csv(const std::vector<ThroughputRow>& rows) {
  std::map<std::string, std::vector<const ThroughputRow*>> sources, frameworks;
  for (const ThroughputRow& row : rows) {
    if (!row.used) continue;
    sources[row.source].push_back(&row);
    frameworks[row.framework].push_back(&row);
  }
  if (sources.size() < 2) return "";
  // Rows of the sources that are not in `left_out`, which weigh `weight` in all.
  const auto others = [&](const std::set<std::string>& left_out, double weight) {
    std::vector<WeighedRow> rest;
    const auto count = static_cast<double>(sources.size() - left_out.size());
    for (const auto& [source, members] : sources)
      if (!left_out.contains(source))
        for (const ThroughputRow* row : members)
          rest.push_back({row, weight / count / static_cast<double>(members.size())});
    return rest;
  };
  std::string csv = "of,name,low,high,kernels_low,kernels_high,runs\n";
  // Of all sources alike; its own range gives way to that of the sources that are furthest off.
  StepRange widest = range_of_steps(others({}, 1));
  for (const auto& [source, members] : sources) {
    const std::vector<WeighedRow> rest = others({source}, 1);
    csv += table_line("without source", source, range_of_steps(rest), rest.size());
    std::vector<WeighedRow> own;
    for (const ThroughputRow* row : members) own.push_back({row, 1});
    const StepRange range = range_of_steps(own);
    widest.low = std::min(widest.low, range.low), widest.high = std::max(widest.high, range.high);
  }
  for (const auto& [framework, members] : frameworks) {
    std::set<std::string> own;
    for (const ThroughputRow* row : members) own.insert(row->source);
    std::vector<WeighedRow> together;
    if (own.size() < sources.size()) together = others(own, kOtherRows);
    for (const ThroughputRow* row : members) together.push_back({row, 1});
    csv += table_line("framework", framework, range_of_steps(together), members.size());
  }
  return csv + table_line("framework", "others", widest, 0);
}

}  // namespace rehearse::reports
