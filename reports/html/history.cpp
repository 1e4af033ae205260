// See history.h.
#include "reports/html/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "reports/html/text.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports::html {
namespace {

using result::StepHistory;
using result::StoredResult;

constexpr double kPicosecond = 1e-12;
constexpr double kFigure = 1100, kEdge = 70, kMargin = 20, kHigh = 170;  // of a figure
constexpr std::size_t kMostPoints = 1000;                                // of a curve
constexpr std::int64_t kWindow = result::kLossWindow;
constexpr double kMarked = 1.05;  // a straggler computes so much longer than the ranks' median, a judgement
constexpr std::array<std::string_view, 4> kCurves = {"line-1", "line-2", "line-3", "line-4"};

struct StepCurve {
  std::string name;
  std::vector<double> x, y;  // of several neighbours the last step, and the largest y
};

// Of long runs neighbours are joined.
StepCurve curve_of(const std::string& name, const StepHistory& h, const std::vector<std::int64_t>& ps) {
  StepCurve curve{name, {}, {}};
  const std::size_t each = (ps.size() + kMostPoints - 1) / kMostPoints;
  for (std::size_t s = 0; s < ps.size(); s += each) {
    const auto begin = ps.begin() + static_cast<std::ptrdiff_t>(s);
    const auto end = ps.begin() + static_cast<std::ptrdiff_t>(std::min(ps.size(), s + each));
    curve.x.push_back(static_cast<double>(h.first_step) + static_cast<double>(end - ps.begin() - 1));
    curve.y.push_back(static_cast<double>(*std::max_element(begin, end)) * kPicosecond);
  }
  return curve;
}

std::string mark(double x, double y, const std::string& text, std::string_view anchor) {
  return fmt::format("<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", coordinate(x),
                     coordinate(y), anchor, escape(text));
}

std::string seconds_of(double s) {
  return s == 0 ? "0" : format_time(Time::from_seconds(s));
}

// Seconds from 0 against steps.
std::string curves_figure(const std::vector<StepCurve>& curves, const std::string& label) {
  double first = INFINITY, last = 1, most = 0;
  for (const StepCurve& c : curves)
    for (std::size_t i = 0; i < c.x.size(); ++i)
      first = std::min(first, c.x[i]), last = std::max(last, c.x[i]), most = std::max(most, c.y[i]);
  if (last <= first || most <= 0) return "";
  const auto x_of = [&](double x) { return kEdge + (kFigure - kEdge - kMargin) * (x - first) / (last - first); };
  const auto y_of = [&](double y) { return kHigh - (kHigh - 10) * y / most; };
  std::string out = fmt::format("<svg class=\"figure\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                                coordinate(kFigure), coordinate(kHigh + 30), escape(label));
  for (const double share : {0.0, 0.5, 1.0}) {
    const double y = y_of(share * most);
    out += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n", coordinate(kEdge),
                       coordinate(kFigure - kMargin), coordinate(y), coordinate(y));
    out += mark(kEdge - 8, y + 4, seconds_of(share * most), "end");
  }
  out += mark(kEdge, kHigh + 18, fmt::format("step {}", first), "start");
  out += mark(kFigure - kMargin, kHigh + 18, fmt::format("step {}", last), "end");
  for (std::size_t c = 0; c < curves.size(); ++c) {
    std::string points;
    for (std::size_t i = 0; i < curves[c].x.size(); ++i)
      points += fmt::format("{},{} ", coordinate(x_of(curves[c].x[i])), coordinate(y_of(curves[c].y[i])));
    out += fmt::format("<polyline class=\"line {}\" points=\"{}\"/>\n", kCurves[c % kCurves.size()], points);
  }
  return out + "</svg>\n";
}

// Of one run: a bar a rank, of those beyond a number the ones that computed longest.
std::string ranks_figure(const StepHistory& h) {
  constexpr std::size_t kMostBars = 16;
  constexpr double kRow = 22, kBars = 700, kNames = 160;
  const auto steps = static_cast<double>(h.step_ps.size());
  if (h.computed.empty()) return "";
  std::vector<std::size_t> ranks(h.computed.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = r;
  std::vector<std::int64_t> sorted = h.computed;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t upper = sorted.size() / 2, lower = (sorted.size() - 1) / 2;
  const double median = (static_cast<double>(sorted[lower]) + static_cast<double>(sorted[upper])) / 2,
               most = static_cast<double>(sorted.back());
  if (most <= 0) return "";
  const bool cut = ranks.size() > kMostBars;
  if (cut) {
    std::stable_sort(ranks.begin(), ranks.end(), [&](auto a, auto b) { return h.computed[a] > h.computed[b]; });
    ranks.resize(kMostBars);
  }
  std::string out = fmt::format(
      "<svg class=\"figure\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Compute by rank, mean of a step\">\n",
      coordinate(kFigure), coordinate(kRow * static_cast<double>(ranks.size()) + 6));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t r = ranks[i];
    const auto computed = static_cast<double>(h.computed[r]);
    const bool straggler = h.computed.size() > 1 && computed == most && computed > kMarked * median;
    const double y = kRow * static_cast<double>(i);
    out += mark(0, y + 15, fmt::format("rank {}", r), "start");
    out += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n",
                       straggler ? "straggler" : "forward", coordinate(kNames), coordinate(y + 2),
                       coordinate(kBars * computed / most), coordinate(kRow - 6));
    std::string text = seconds_of(computed * kPicosecond / steps);
    if (straggler)
      text += fmt::format(": the straggler, {:.3g} times the median; slowest in {} of {} steps", computed / median,
                          h.slowest[r], h.step_ps.size());
    if (straggler)
      out += fmt::format("<text class=\"inside on-straggler\" x=\"{}\" y=\"{}\">{}</text>\n",
                         coordinate(kNames + kBars / 2), coordinate(y + 15), escape(text));
    else
      out += mark(kNames + kBars * computed / most + 8, y + 15, text, "start");
  }
  out += "</svg>\n";
  if (cut)
    out +=
        fmt::format("<p class=\"note\">The {} of {} ranks that computed longest.</p>\n", kMostBars, h.computed.size());
  return out;
}

// The lowest mean over the window that a run comes to; nothing if it has none.
std::optional<double> lowest(const StepHistory& h) {
  std::optional<double> least;
  for (const double mean : result::mean_losses(h, kWindow))
    if (std::isfinite(mean) && (!least || mean < *least)) least = mean;
  return least;
}

// The lowest loss that all runs reach, to four digits, up: what a table shows is what was asked for.
std::optional<double> lowest_of_all(const std::vector<const StoredResult*>& runs) {
  std::optional<double> target;
  for (const StoredResult* run : runs) {
    if (run->result.source != "measured") continue;
    const std::optional<double> least = lowest(run->history);
    if (!least) return {};
    if (!target || *least > *target) target = least;
  }
  if (!target) return {};
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(std::max(std::abs(*target), 1e-12))));
  return std::ceil(*target * scale) / scale;
}

// When each run came to a loss: the one asked for, or the lowest that all reach.
std::string to_one_loss(const std::vector<const StoredResult*>& runs, const std::vector<std::string>& names,
                        std::optional<double> asked) {
  const std::optional<double> target = asked ? asked : lowest_of_all(runs);
  if (!target) return "";
  std::vector<std::vector<std::string>> rows = {{"run", "step", "time", "ranks", "rank-hours"}};
  bool resumed = false;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i]->result.source != "measured") continue;
    const result::TimeToLoss when = result::time_to_loss(runs[i]->history, *target, kWindow);
    const std::string ranks = grouped(static_cast<double>(runs[i]->result.ranks));
    if (when.steps < 0) {
      if (!asked) return "";
      rows.push_back({names[i], "not reached", "-", ranks, "-"});
      continue;
    }
    const double seconds = static_cast<double>(when.ps) * kPicosecond;
    const std::int64_t first = runs[i]->history.first_step;
    std::string time = seconds_of(seconds);
    if (first > 1) time += fmt::format(" since step {}", first), resumed = true;
    rows.push_back({names[i], grouped(static_cast<double>(when.steps)), time, ranks,
                    compact(seconds / 3600 * static_cast<double>(runs[i]->result.ranks))});
  }
  if (rows.size() == 1) return "";
  const char* which = asked             ? "The loss that was asked for."
                      : runs.size() > 1 ? "The lowest loss that all of these runs reach."
                                        : "The lowest loss of the run.";
  return fmt::format(
      "<h3>Time to a loss of {:.4g}</h3>\n{}<p class=\"note\">{} Losses are means over {} steps.{}</p>\n", *target,
      table(rows), which, kWindow,
      resumed ? " Of a run that was resumed, the steps before are in no time and no hours." : "");
}

}  // namespace

std::string history_section(const std::vector<StoredResult>& runs, const std::vector<std::string>& names,
                            std::optional<double> target) {
  std::vector<const StoredResult*> shown;
  std::vector<std::string> shown_names;
  std::vector<StepCurve> steps, since;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const StepHistory& h = runs[i].history;
    if (h.step_ps.size() < 2) continue;
    shown.push_back(&runs[i]), shown_names.push_back(names[i]);
    steps.push_back(curve_of(names[i], h, h.step_ps));
    since.push_back(curve_of(names[i], h, h.end_ps));
  }
  if (shown.empty()) return "";
  std::vector<Key> keys;
  for (std::size_t i = 0; i < shown.size(); ++i) keys.push_back({kCurves[i % kCurves.size()], shown_names[i]});
  std::string out = shown.size() > 1 ? legend(keys) : "";
  out += "<h3>Time of each step, of the slowest rank</h3>\n" + curves_figure(steps, "Time of each step");
  out += "<h3>Time since the beginning</h3>\n" + curves_figure(since, "Time since the beginning");
  for (std::size_t i = 0; i < shown.size(); ++i)
    if (!shown[i]->history.computed.empty())
      out += fmt::format("<h3>Compute by rank, mean of a step{}</h3>\n{}",
                         shown.size() > 1 ? ": " + escape(shown_names[i]) : "", ranks_figure(shown[i]->history));
  return out + to_one_loss(shown, shown_names, target);
}

}  // namespace rehearse::reports::html
