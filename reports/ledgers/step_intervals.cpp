// See step_intervals.h.
#include "reports/ledgers/step_intervals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "sim/base/csv_field.h"

namespace rehearse::reports {
namespace {

constexpr double kLowShare = 0.05, kHighShare = 0.95;
constexpr double kOtherRows = 10;  // what all other sources weigh beside a framework's own rows: a judgement

struct WeighedRatio {
  double ratio = 1, weight = 1;
};

// The least ratio that `share` of the weight is not above.
double weighed_quantile(std::vector<WeighedRatio> ratios, double share) {
  std::sort(ratios.begin(), ratios.end(), [](const auto& a, const auto& b) { return a.ratio < b.ratio; });
  double all = 0, sum = 0;
  for (const WeighedRatio& r : ratios) all += r.weight;
  for (const WeighedRatio& r : ratios) {
    sum += r.weight;
    if (sum >= share * all) return r.ratio;
  }
  return ratios.back().ratio;
}

struct StepRange {
  double low = 1, high = 1;
};

StepRange range_of_steps(const std::vector<WeighedRatio>& ratios) {
  return {std::min(1.0, weighed_quantile(ratios, kLowShare)), std::max(1.0, weighed_quantile(ratios, kHighShare))};
}

std::string table_line(const std::string& of, const std::string& name, StepRange range, std::size_t runs) {
  return fmt::format("{},{},{:.3f},{:.3f},{}\n", of, csv_field(name), std::floor(range.low * 1000) / 1000,
                     std::ceil(range.high * 1000) / 1000, runs);
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
  const auto ratio = [](const ThroughputRow& row) { return row.measured_s / row.predicted_s; };
  // Rows of the sources that are not in `left_out`, which weigh `weight` in all.
  const auto others = [&](const std::set<std::string>& left_out, double weight) {
    std::vector<WeighedRatio> ratios;
    const auto count = static_cast<double>(sources.size() - left_out.size());
    for (const auto& [source, members] : sources)
      if (!left_out.contains(source))
        for (const ThroughputRow* row : members)
          ratios.push_back({ratio(*row), weight / count / static_cast<double>(members.size())});
    return ratios;
  };
  std::string csv = "of,name,low,high,runs\n";
  StepRange widest;
  for (const auto& [source, members] : sources) {
    const std::vector<WeighedRatio> rest = others({source}, 1);
    csv += table_line("without source", source, range_of_steps(rest), rest.size());
    std::vector<WeighedRatio> own;
    for (const ThroughputRow* row : members) own.push_back({ratio(*row), 1});
    const StepRange range = range_of_steps(own);
    widest = {std::min(widest.low, range.low), std::max(widest.high, range.high)};
  }
  for (const auto& [framework, members] : frameworks) {
    std::set<std::string> own;
    for (const ThroughputRow* row : members) own.insert(row->source);
    std::vector<WeighedRatio> ratios;
    if (own.size() < sources.size()) ratios = others(own, kOtherRows);
    for (const ThroughputRow* row : members) ratios.push_back({ratio(*row), 1});
    csv += table_line("framework", framework, range_of_steps(ratios), members.size());
  }
  return csv + table_line("framework", "others", widest, 0);
}

}  // namespace rehearse::reports
