// See scaling.h. The speed-up of N GPUs is their best plan's throughput over that of the fewest GPUs' best plan, the
// efficiency that over the ratio of the GPUs: reports/sweep_rows.h has the same for sweeps.
#include "reports/html/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <vector>

#include "reports/html/frame.h"
#include "reports/html/plan_json.h"
#include "reports/html/space.h"
#include "reports/html/text.h"
#include "reports/text.h"

namespace rehearse::reports::html {
namespace {

using ScalingJson = PlanJson;

constexpr double kCurveWidth = 1100, kCurveLeft = 70, kCurveRight = 40, kCurveTop = 16, kCurveHeight = 300,
                 kCurveBottom = 44;

struct ScalingPoint {
  ScalingJson plan;  // as plans.json has one
  double gpus = 0, speed_up = 1, efficiency = 1;
};

constexpr double kMostSpeedUp = 1e6;  // of a file that anyone may have written

// Of each number of GPUs that has a plan, the fewest first.
std::vector<ScalingPoint> scaling_points(const ScalingJson& answer) {
  std::vector<ScalingPoint> points;
  for (const ScalingJson& search : answer.at("searches"))
    if (!search.at("plans").empty()) {
      points.push_back({search.at("plans").at(0), 0, 1, 1});
      points.back().gpus = std::clamp(points.back().plan.at("gpus").get<double>(), 1.0, kMostSpeedUp);
    }
  std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.gpus < b.gpus; });
  const auto speed = [](const ScalingPoint& p) { return p.plan.at("tokens_per_s").get<double>(); };
  for (ScalingPoint& p : points) {
    const double speed_up = speed(points.front()) > 0 ? speed(p) / speed(points.front()) : 0;
    p.speed_up = speed_up >= 0 ? std::min(speed_up, kMostSpeedUp) : 0;
    p.efficiency = p.speed_up * points.front().gpus / p.gpus;
  }
  return points;
}

// A curve over the numbers of GPUs, which stand on a logarithmic axis.
class Curve {
 public:
  Curve(const std::vector<ScalingPoint>& points, std::string_view label)
      : first_(points.front().gpus), last_(points.back().gpus) {
    out_ = fmt::format("<svg class=\"figure\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kCurveWidth,
                       kCurveHeight, escape(label));
    for (const ScalingPoint& p : points)
      text(x_of(p.gpus), kCurveHeight - kCurveBottom + 16, grouped(p.gpus), "middle");
    text(kCurveWidth / 2, kCurveHeight - 6, "GPUs, logarithmic", "middle");
  }

  double x_of(double gpus) const {
    const double share = last_ > first_ ? std::log(gpus / first_) / std::log(last_ / first_) : 0.5;
    return kCurveLeft + (kCurveWidth - kCurveLeft - kCurveRight) * share;
  }
  // `share` of the axis' height, from its foot.
  static double y_of(double share) {
    return kCurveHeight - kCurveBottom - (kCurveHeight - kCurveBottom - kCurveTop) * std::clamp(share, 0.0, 1.0);
  }

  void text(double x, double y, const std::string& words, std::string_view anchor) {
    out_ += fmt::format("<text class=\"label small\" text-anchor=\"{}\" x=\"{}\" y=\"{}\">{}</text>\n", anchor,
                        coordinate(x), coordinate(y), escape(words));
  }
  void across(double share, const std::string& words) {
    out_ += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n", kCurveLeft,
                        kCurveWidth - kCurveRight, coordinate(y_of(share)), coordinate(y_of(share)));
    text(kCurveLeft - 8, y_of(share) + 4, words, "end");
  }
  // The numbers of GPUs with the knee's mark.
  void knee(double gpus) {
    out_ += fmt::format("<line class=\"limit\" x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\"/>\n", coordinate(x_of(gpus)),
                        kCurveTop, kCurveHeight - kCurveBottom);
    text(x_of(gpus) + 6, kCurveTop + 10, "the knee", "start");
  }
  void line(std::string_view style, const std::vector<std::pair<double, double>>& gpus_and_share) {
    out_ += fmt::format("<polyline class=\"line {}\" points=\"", style);
    for (const auto& [gpus, share] : gpus_and_share)
      out_ += fmt::format("{},{} ", coordinate(x_of(gpus)), coordinate(y_of(share)));
    out_ += "\"/>\n";
  }
  void dot(double gpus, double share, const std::string& words) {
    out_ += fmt::format("<circle class=\"plan-2\" cx=\"{}\" cy=\"{}\" r=\"4\"><title>{}</title></circle>\n",
                        coordinate(x_of(gpus)), coordinate(y_of(share)), escape(words));
  }
  std::string figure() && { return std::move(out_) + "</svg>\n"; }

 private:
  double first_, last_;
  std::string out_;
};

std::string words_of(const ScalingPoint& p) {
  return fmt::format("{} GPUs: {}, {:.3g} times as fast, efficiency {}", grouped(p.gpus),
                     space_seconds(p.plan.at("step_time_s").get<double>()), p.speed_up, percent(p.efficiency));
}

// Both axes logarithmic: ideal scaling is a straight line.
std::string speed_up_figure(const std::vector<ScalingPoint>& points, double knee) {
  const double ideal = points.back().gpus / points.front().gpus;
  double low = 1, high = ideal;
  for (const ScalingPoint& p : points)
    if (p.speed_up > 0) low = std::min(low, p.speed_up), high = std::max(high, p.speed_up);
  const auto share = [&](double speed_up) {
    return high > low && speed_up > 0 ? std::log(speed_up / low) / std::log(high / low) : 0;
  };
  Curve curve(points, "Speed-up over the fewest GPUs");
  for (double tick = 1; tick <= high * 1.0001; tick *= 2) curve.across(share(tick), fmt::format("{:g}x", tick));
  if (knee > 0) curve.knee(knee);
  curve.line("line-1", {{points.front().gpus, share(1)}, {points.back().gpus, share(ideal)}});
  std::vector<std::pair<double, double>> along;
  for (const ScalingPoint& p : points) along.emplace_back(p.gpus, share(p.speed_up));
  curve.line("line-2", along);
  for (const ScalingPoint& p : points) curve.dot(p.gpus, share(p.speed_up), words_of(p));
  return legend({{"line-2", "the best plan's"}, {"line-1", "ideal: as the GPUs"}}) + std::move(curve).figure();
}

std::string efficiency_figure(const std::vector<ScalingPoint>& points, double knee) {
  double high = 1;
  for (const ScalingPoint& p : points) high = std::max(high, p.efficiency);
  Curve curve(points, "Efficiency");
  for (const double tick : {0.0, 0.25, 0.5, 0.75, 1.0}) curve.across(tick / high, percent(tick));
  if (knee > 0) curve.knee(knee);
  std::vector<std::pair<double, double>> along;
  for (const ScalingPoint& p : points) along.emplace_back(p.gpus, p.efficiency / high);
  curve.line("line-2", along);
  for (const ScalingPoint& p : points) {
    curve.dot(p.gpus, p.efficiency / high, words_of(p));
    const std::string_view anchor = &p == &points.front() ? "start" : &p == &points.back() ? "end" : "middle";
    curve.text(curve.x_of(p.gpus), Curve::y_of(p.efficiency / high) + 18, percent(p.efficiency), anchor);
  }
  return std::move(curve).figure();
}

std::string value_of(const ScalingPoint& p, const std::string& key) {
  return p.plan.at("plan").contains(key) ? p.plan.at("plan").at(key).get<std::string>() : "-";
}

// A row a number of GPUs: the keys in which the plans differ, then what each comes to.
std::string scaling_table(const std::vector<ScalingPoint>& points) {
  std::vector<std::string> keys;
  std::set<std::string> seen;
  for (const ScalingPoint& p : points)
    for (const auto& [key, value] : p.plan.at("plan").items()) {
      const bool differs = std::any_of(points.begin(), points.end(), [&, k = key](const ScalingPoint& other) {
        return value_of(other, k) != value_of(points.front(), k);
      });
      if (differs && seen.insert(key).second) keys.push_back(key);
    }
  std::vector<std::pair<const char*, std::function<std::string(const ScalingPoint&)>>> columns{
      {"step", [](const auto& p) { return space_seconds(p.plan.at("step_time_s").template get<double>()); }},
      {"interval",
       [](const auto& p) {
         const ScalingJson& i = p.plan.at("interval_s");
         return space_seconds(i.at(0).get<double>()) + " to " + space_seconds(i.at(1).get<double>());
       }},
      {"MFU", [](const auto& p) { return percent(p.plan.at("mfu").template get<double>()); }},
      {"peak memory",
       [](const auto& p) { return space_bytes(p.plan.at("memory").at("peak_bytes").template get<double>()); }},
      {"speed-up", [](const auto& p) { return fmt::format("{:.3g}", p.speed_up); }},
      {"efficiency", [](const auto& p) { return percent(p.efficiency); }}};
  const auto cost = [&](const char* name, const char* title, bool whole) {
    if (!points.front().plan.at("cost").contains(name)) return;
    columns.emplace_back(title, [name, whole](const ScalingPoint& p) {
      const double value = p.plan.at("cost").at(name).get<double>();
      return whole ? grouped(value) : fmt::format("{:.3g}", value);
    });
  };
  cost("days", "days", false);
  cost("gpu_hours", "GPU-hours", true);
  cost("dollars", "dollars", true);
  std::vector<std::vector<std::string>> rows{{"GPUs"}};
  for (const std::string& key : keys) rows[0].push_back(leaf_of(key));
  for (const auto& [title, cell] : columns) rows[0].emplace_back(title);
  for (const ScalingPoint& p : points) {
    std::vector<std::string> row{grouped(p.gpus)};
    for (const std::string& key : keys) row.push_back(value_of(p, key));
    for (const auto& [title, cell] : columns) row.push_back(cell(p));
    rows.push_back(std::move(row));
  }
  return "<div class=\"scroll\">" + table(rows) + "</div>\n";
}

std::string scaling_lines(const ScalingJson& answer, const std::vector<ScalingPoint>& points, double knee) {
  const double first = points.front().plan.at("global_batch").get<double>();
  const bool same = std::all_of(points.begin(), points.end(), [&](const ScalingPoint& p) {
    return p.plan.at("global_batch").get<double>() == first;
  });
  std::string text = same ? "Strong scaling: the batch stays." : "The batch grows with the GPUs: weak scaling.";
  text += knee > 0
              ? fmt::format(" The knee is at {} GPUs: each added one gives less than half of what each before gives.",
                            grouped(knee))
              : " No knee: added GPUs give at least half of what those before give.";
  if (answer.contains("fewest_gpus"))
    text += answer.at("fewest_gpus").is_null()
                ? fmt::format(" None is done in {:.4g} days.", answer.at("days").get<double>())
                : fmt::format(" The fewest GPUs that are done in {:.4g} days: {}.", answer.at("days").get<double>(),
                              grouped(answer.at("fewest_gpus").get<double>()));
  for (const ScalingJson& search : answer.at("searches"))
    if (!search.at("search").at("proven").get<bool>()) {
      text += " Not all are proven: a limit ended a search.";
      break;
    }
  return "<p>" + escape(text) + "</p>\n";
}

template <class Read>
auto read_scaling(const SearchFile& scaling, const Read& read) {
  return read_fields(scaling, "rehearse.plan_scaling/1", "rehearse plan SCENARIO --gpus A,B,... -o DIR", read);
}

}  // namespace

std::string scaling_sections(const SearchFile& scaling) {
  return read_scaling(scaling, [](const ScalingJson& answer) {
    const std::vector<ScalingPoint> points = scaling_points(answer);
    if (points.empty()) return section("scaling", "Over numbers of GPUs", "<p>No plan fits in memory.</p>\n");
    const double knee =
        answer.contains("knee_gpus") && answer.at("knee_gpus").is_number() ? answer.at("knee_gpus").get<double>() : 0;
    const std::string body = scaling_lines(answer, points, knee) + "<h3>Speed-up over " + grouped(points.front().gpus) +
                             " GPUs</h3>\n" + speed_up_figure(points, knee) + "<h3>Efficiency</h3>\n" +
                             efficiency_figure(points, knee) + scaling_table(points);
    return section("scaling", "The best plan for each number of GPUs", body);
  });
}

std::string scaling_title(const SearchFile& scaling) {
  return read_scaling(scaling, [](const ScalingJson& answer) {
    if (answer.at("searches").empty()) return std::string("scaling");
    return answer.at("searches").at(0).at("scenario").template get<std::string>() + ": scaling";
  });
}

}  // namespace rehearse::reports::html
