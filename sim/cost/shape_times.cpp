#include "sim/cost/shape_times.h"

#include <cmath>

#include "sim/cost/cost.h"
#include "sim/program/describe.h"

namespace rehearse::cost {
namespace {

double at(const std::map<double, double>& points, double x) {
  if (points.empty() || x <= 0) return 0;
  const auto above = points.lower_bound(x);
  if (above == points.end()) return points.rbegin()->second;
  const bool first = above == points.begin();
  const double x0 = first ? 0 : std::prev(above)->first, y0 = first ? 0 : std::prev(above)->second;
  return std::lerp(y0, above->second, (x - x0) / (above->first - x0));
}

}  // namespace

ShapeTimes::ShapeTimes(const std::vector<ShapePoint>& points) {
  for (const ShapePoint& p : points)
    if (!p.held_out)
      times_[{p.kind, p.shape, p.operands, p.dtype}] = {p.sustained > 0 ? p.sustained : p.seconds, p.sustained > 0};
}

std::optional<ShapeTimes::Time> ShapeTimes::find(const program::Role& role, const program::Op& op) const {
  if (times_.empty()) return std::nullopt;
  const auto found = times_.find(
      {std::string(program::kind_name(op.shape)), program::shape_text(role, op), operand_types(role, op), op.dtype});
  if (found == times_.end()) return std::nullopt;
  return found->second;
}

InterferenceTable::InterferenceTable(const std::vector<InterferencePoint>& points,
                                     const std::function<double(const InterferencePoint&)>& modelled) {
  std::map<double, std::pair<double, int>> sms, bandwidth;
  for (const InterferencePoint& p : points) {
    const double log_factor = std::log(p.slowdown / modelled(p));
    auto& [sum, count] = p.bandwidth_taken > 0 ? bandwidth[p.bandwidth_taken] : sms[p.sms_held];
    sum += log_factor, ++count;
  }
  for (const auto& [x, mean] : sms) by_sms_[x] = mean.first / mean.second;
  for (const auto& [x, mean] : bandwidth) by_bandwidth_[x] = mean.first / mean.second;
}

double InterferenceTable::correction(const Interference& beside) const {
  return std::exp(at(by_sms_, beside.sms_held) + at(by_bandwidth_, static_cast<double>(beside.bandwidth_taken)));
}

}  // namespace rehearse::cost
