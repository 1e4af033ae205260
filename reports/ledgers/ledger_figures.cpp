// See ledger_figures.h.
#include "reports/ledgers/ledger_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "reports/html/text.h"
#include "reports/ledgers/ledger_marks.h"
#include "reports/text.h"

namespace rehearse::reports::html {
namespace {

constexpr double kBand = 0.1;
constexpr double kSmallWidth = 520, kSmallHeight = 340;

// Ticks 1, 3, 10, 30, ... between two positive values.
std::vector<double> log_ticks(double low, double high) {
  std::vector<double> out;
  for (int power = static_cast<int>(std::floor(std::log10(low))); std::pow(10.0, power) <= high; ++power)
    for (const double factor : {1.0, 3.0})
      if (const double tick = factor * std::pow(10.0, power); tick >= low && tick <= high) out.push_back(tick);
  return out;
}

std::string legend_of(const SoftwareLooks& looks, double x, double y) {
  std::string out;
  for (const auto& [software, count] : looks.counts()) {
    const std::string words = fmt::format("{} ({})", clip(software, 34), count);
    out += looks.mark(software, x, y - 4, words) + svg_text(x + 11, y, "start", words);
    y += 18;
  }
  return out;
}

std::string percent_text(double share) {
  return fmt::format("{:.1f}%", share * 100);
}

// What a residual figure shows a row over.
double property(const ThroughputRow& row, Over over) {
  switch (over) {
    case Over::seq_len:
      return row.seq_len;
    case Over::gpus:
      return row.gpus;
    case Over::mfu:
      return row.mfu;
  }
  return 0;
}

struct OverWords {
  std::string_view id, title, axis, description;
};
OverWords words_of(Over over) {
  switch (over) {
    case Over::seq_len:
      return {"by-length", "Error by sequence length", "tokens a sequence", "sequence length"};
    case Over::gpus:
      return {"by-gpus", "Error by GPUs", "GPUs", "number of GPUs"};
    case Over::mfu:
      break;
  }
  return {"by-mfu", "Error by measured MFU", "MFU of the measured step", "MFU that was measured"};
}

// Powers of two between the two, not more than `most`.
std::vector<double> doubling_ticks(double low, double high, std::size_t most) {
  for (double factor = 2;; factor *= 2) {
    std::vector<double> out;
    for (double tick = std::exp2(std::ceil(std::log2(low))); tick <= high; tick *= factor) out.push_back(tick);
    if (out.size() <= most) return out;
  }
}

std::string tick_text(Over over, double value) {
  if (over == Over::mfu) return fmt::format("{:.0f}%", value * 100);
  return over == Over::seq_len && value >= 1024 ? fmt::format("{:g}K", value / 1024) : grouped(value);
}

}  // namespace

std::string_view ledger_figure_style() {
  return R"(.lf-figure { font-family: system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
.lf-paper { fill: #ffffff; } .lf-frame { fill: none; stroke: #b4bcc6; } .lf-grid { stroke: #e3e7ec; }
.lf-band { fill: #5a6675; opacity: .13; } .lf-one { stroke: #5a6675; stroke-width: 1.2; } .lf-nine { stroke: #1c2430; stroke-width: 1.6; }
.lf-text { fill: #1c2430; font-size: 12.5px; } .lf-axis { fill: #4b5665; font-size: 12.5px; } .lf-head { fill: #1c2430; font-size: 16px; font-weight: 650; }
.lf-m { stroke: #ffffff; stroke-width: .7; } .lf-m:hover { stroke: #1c2430; stroke-width: 2; }
.lf-0 { fill: #0072b2; } .lf-1 { fill: #d55e00; } .lf-2 { fill: #009e73; } .lf-3 { fill: #c2558f; } .lf-4 { fill: #d98f00; }
.lf-5 { fill: #3aa0dc; } .lf-6 { fill: #7b52ab; } .lf-7 { fill: #6a8f00; } .lf-8 { fill: #8a5a1c; } .lf-9 { fill: #1c2430; }
.lf-in { stroke: #0072b2; stroke-width: 1.3; } .lf-out { stroke: #d55e00; stroke-width: 2.2; } .lf-track { fill: #e3e7ec; } .lf-bar { fill: #0072b2; }
@media screen and (prefers-color-scheme: dark) {
.lf-paper { fill: #12161c; } .lf-frame { stroke: #4b5665; } .lf-grid { stroke: #262e38; } .lf-band { fill: #9aa7b6; opacity: .17; } .lf-one { stroke: #9aa7b6; }
.lf-nine { stroke: #ffffff; } .lf-text, .lf-head { fill: #e6eaf0; } .lf-axis { fill: #a9b4c2; } .lf-m { stroke: #12161c; } .lf-m:hover { stroke: #ffffff; }
.lf-0 { fill: #3d9bd9; } .lf-1 { fill: #f0803c; } .lf-2 { fill: #23b78f; } .lf-3 { fill: #e08ab8; } .lf-4 { fill: #e6b03c; }
.lf-5 { fill: #9bd6f7; } .lf-6 { fill: #b497e0; } .lf-7 { fill: #a4c639; } .lf-8 { fill: #c79356; } .lf-9 { fill: #f4f6f9; }
.lf-in { stroke: #3d9bd9; } .lf-out { stroke: #f0803c; } .lf-track { fill: #262e38; } .lf-bar { fill: #3d9bd9; }
}
)";
}

std::string predicted_measured_figure(const std::vector<ThroughputRow>& rows, bool standalone) {
  const LedgerRows used = used_rows(rows);
  if (used.empty()) return "";
  constexpr double kFigureWidth = 720, kPlot = 560, kLeft = 64;
  const double top = standalone ? 40 : 12;  // room for a heading
  double low = used.front()->measured_s, high = low;
  for (const ThroughputRow* row : used) {
    low = std::min({low, row->measured_s, row->predicted_s});
    high = std::max({high, row->measured_s, row->predicted_s});
  }
  low /= 1.25, high *= 1.25;
  const double right = kFigureWidth - 16, bottom = top + kPlot;
  const Scale x{low, high, kLeft, right, true}, y{low, high, bottom, top, true};
  const ErrorSummary s = summarize(used);
  const std::string title = fmt::format("Predicted against measured step time of {} published runs", s.n);
  std::string out = open_svg(
      "predicted-measured", kFigureWidth, bottom + 48, title,
      fmt::format(
          "Each mark is a run; both axes are logarithmic, in seconds. Mean error {}, median {}, {} of {} inside "
          "their predicted intervals. The band is within 10% of the measured time.",
          percent_text(s.mean), percent_text(s.median), s.inside, s.n),
      standalone);
  if (standalone)
    out += fmt::format("<style>\n{}</style>\n", ledger_figure_style()) +
           svg_rectangle(0, 0, kFigureWidth, bottom + 48, "lf-paper") + svg_text(kLeft, 24, "start", title, "lf-head");
  // The band as a polygon: parallel to the diagonal on these axes, cut at the frame.
  const double over = low * (1 + kBand), under = low / (1 - kBand);
  out +=
      fmt::format("<path class=\"lf-band\" d=\"M{} {}L{} {}L{} {}L{} {}L{} {}L{} {}z\"/>\n", coordinate(kLeft),
                  coordinate(bottom), coordinate(kLeft), coordinate(y.at(over)), coordinate(x.at(high / (1 + kBand))),
                  coordinate(top), coordinate(right), coordinate(top), coordinate(right),
                  coordinate(y.at(high * (1 - kBand))), coordinate(x.at(under)), coordinate(bottom));
  for (const double tick : log_ticks(low, high)) {
    out += svg_line(x.at(tick), top, x.at(tick), bottom, "lf-grid") +
           svg_line(kLeft, y.at(tick), right, y.at(tick), "lf-grid");
    out += svg_text(x.at(tick), bottom + 17, "middle", short_number(tick), "lf-axis") +
           svg_text(kLeft - 7, y.at(tick) + 4, "end", short_number(tick), "lf-axis");
  }
  out += svg_line(kLeft, bottom, right, top, "lf-one") + svg_rectangle(kLeft, top, right - kLeft, kPlot, "lf-frame");
  out += svg_text((kLeft + right) / 2, bottom + 38, "middle", "measured step, seconds", "lf-axis");
  out += fmt::format(
      "<text class=\"lf-axis\" transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">predicted "
      "step, seconds</text>\n",
      coordinate(top + kPlot / 2));
  const SoftwareLooks looks(used);
  out += "<g class=\"lf-runs\">\n";
  for (const ThroughputRow* row : used)
    out += looks.mark(row->software, x.at(row->measured_s), y.at(row->predicted_s), row_title(*row));
  out += "</g>\n" + legend_of(looks, kLeft + 16, top + 24);
  const double note = bottom - 16;
  out += svg_text(right - 12, note - 36, "end",
                  fmt::format("mean error {}, median {}", percent_text(s.mean), percent_text(s.median)));
  out += svg_text(right - 12, note - 18, "end", fmt::format("{} of {} inside their intervals", s.inside, s.n));
  out += svg_text(right - 12, note, "end", "band: within 10%");
  return out + "</svg>\n";
}

std::string residual_figure(const std::vector<ThroughputRow>& rows, Over over) {
  LedgerRows used = used_rows(rows);
  std::erase_if(used, [&](const ThroughputRow* row) { return !(property(*row, over) > 0); });
  if (used.empty()) return "";
  double low = property(*used.front(), over), high = low, least = -0.25, most = 0.25;
  for (const ThroughputRow* row : used) {
    low = std::min(low, property(*row, over)), high = std::max(high, property(*row, over));
    least = std::min(least, row->error()), most = std::max(most, row->error());
  }
  const bool doubling = over != Over::mfu;
  least = std::floor(least * 4) / 4, most = std::ceil(most * 4) / 4;
  if (doubling)
    low /= 1.5, high *= 1.5;
  else
    low = std::floor(low * 10) / 10, high = std::ceil(high * 10) / 10;
  constexpr double kLeft = 58, kTop = 12, kRightEdge = kSmallWidth - 24, kBottom = kSmallHeight - 46;
  const Scale x{low, high, kLeft, kRightEdge, doubling}, y{least, most, kBottom, kTop, false};
  const OverWords words = words_of(over);
  std::string out =
      open_svg(words.id, kSmallWidth, kSmallHeight, std::string(words.title),
               fmt::format("Predicted over measured step time, minus 1, of {} runs against their {}; runs of different "
                           "software are drawn a little apart.",
                           used.size(), words.description));
  out += svg_rectangle(kLeft, y.at(kBand), kRightEdge - kLeft, y.at(-kBand) - y.at(kBand), "lf-band");
  for (double tick = least; tick <= most + 1e-9; tick += 0.25)
    out += svg_line(kLeft, y.at(tick), kRightEdge, y.at(tick), "lf-grid") +
           svg_text(kLeft - 7, y.at(tick) + 4, "end", std::abs(tick) < 1e-9 ? "0" : fmt::format("{:+.0f}%", tick * 100),
                    "lf-axis");
  std::vector<double> ticks;
  if (doubling)
    ticks = doubling_ticks(low, high, 8);
  else
    for (double tick = low; tick <= high + 1e-9; tick += 0.1) ticks.push_back(tick);
  for (const double tick : ticks)
    out += svg_line(x.at(tick), kTop, x.at(tick), kBottom, "lf-grid") +
           svg_text(x.at(tick), kBottom + 17, "middle", tick_text(over, tick), "lf-axis");
  out += svg_line(kLeft, y.at(0), kRightEdge, y.at(0), "lf-one") +
         svg_rectangle(kLeft, kTop, kRightEdge - kLeft, kBottom - kTop, "lf-frame");
  out += svg_text((kLeft + kRightEdge) / 2, kBottom + 38, "middle", words.axis, "lf-axis");
  const SoftwareLooks looks(used_rows(rows));
  // Lengths and counts are few: what lies on one line is spread by software.
  const double apart = doubling ? 22.0 / std::max(1, looks.size()) : 0;
  for (const ThroughputRow* row : used) {
    const double aside = apart * (looks.place(row->software) - (looks.size() - 1) / 2.0);
    out += looks.mark(row->software, x.at(property(*row, over)) + aside, y.at(row->error()), row_title(*row));
  }
  return out + "</svg>\n";
}

std::string coverage_figure(const std::vector<ThroughputRow>& rows) {
  std::map<std::string, LedgerRows> software;
  for (const ThroughputRow* row : used_rows(rows)) software[row->software].push_back(row);
  if (software.empty()) return "";
  constexpr double kStep = 36, kRightEdge = kSmallWidth - 12;
  const double height = kStep * static_cast<double>(software.size()) + 26, bottom = height - 22;
  const Scale x{0, 1, 4, kRightEdge, false};
  std::string out =
      open_svg("coverage", kSmallWidth, height, "Runs inside their predicted intervals",
               "A bar a software: the share of its runs whose measured step time lies inside the predicted "
               "interval; the upright line is at 90%.");
  double y = 0;
  for (const auto& [name, members] : software) {
    const ErrorSummary s = summarize(members);
    out += svg_text(4, y + 14, "start", clip(name, 40)) +
           svg_text(kRightEdge, y + 14, "end", fmt::format("{} of {}", s.inside, s.n), "lf-axis");
    out += svg_rectangle(4, y + 19, kRightEdge - 4, 9, "lf-track") +
           svg_rectangle(4, y + 19, (kRightEdge - 4) * s.inside / s.n, 9, "lf-bar");
    out += svg_line(x.at(0.9), y + 18, x.at(0.9), y + 31, "lf-nine");
    y += kStep;
  }
  for (const double tick : {0.0, 0.5, 0.9})
    out +=
        svg_text(x.at(tick), bottom + 16, tick > 0 ? "middle" : "start", fmt::format("{:.0f}%", tick * 100), "lf-axis");
  return out + "</svg>\n";
}

std::string interval_figure(const std::vector<ThroughputRow>& rows) {
  LedgerRows used = used_rows(rows);
  if (used.empty()) return "";
  std::stable_sort(used.begin(), used.end(),
                   [](const ThroughputRow* a, const ThroughputRow* b) { return a->error() < b->error(); });
  double low = 0.5, high = 1.5;
  for (const ThroughputRow* row : used)
    low = std::min(low, row->low_s / row->measured_s), high = std::max(high, row->high_s / row->measured_s);
  constexpr double kLeft = 58, kTop = 12, kRightEdge = kSmallWidth - 24, kBottom = kSmallHeight - 46;
  low /= 1.05, high *= 1.05;
  const Scale x{-1, static_cast<double>(used.size()), kLeft, kRightEdge, false}, y{low, high, kBottom, kTop, true};
  const ErrorSummary s = summarize(used);
  std::string out =
      open_svg("intervals", kSmallWidth, kSmallHeight, "Predicted interval of every run over its measured time",
               fmt::format("A line a run, sorted by error: {} of {} cross 1 and are inside; the others are drawn "
                           "thicker, in orange.",
                           s.inside, s.n));
  for (const double tick : {0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0})
    if (tick > low && tick < high)
      out += svg_line(kLeft, y.at(tick), kRightEdge, y.at(tick), "lf-grid") +
             svg_text(kLeft - 7, y.at(tick) + 4, "end", fmt::format("{:g}", tick), "lf-axis");
  for (std::size_t i = 0; i < used.size(); ++i) {
    const ThroughputRow& row = *used[i];
    const double at = x.at(static_cast<double>(i)), from = y.at(row.low_s / row.measured_s);
    double to = y.at(row.high_s / row.measured_s);
    if (from - to < 2) to = from - 2;  // an interval of one point is still seen
    out += fmt::format("<path class=\"{}\" d=\"M{} {}V{}\"><title>{}</title></path>\n",
                       row.inside() ? "lf-in" : "lf-out", coordinate(at), coordinate(from), coordinate(to),
                       escape(fmt::format("{}, interval {} to {} s", row_title(row), short_number(row.low_s),
                                          short_number(row.high_s))));
  }
  out += svg_line(kLeft, y.at(1), kRightEdge, y.at(1), "lf-one") +
         svg_rectangle(kLeft, kTop, kRightEdge - kLeft, kBottom - kTop, "lf-frame");
  out += svg_text((kLeft + kRightEdge) / 2, kBottom + 24, "middle", "runs, by error", "lf-axis");
  return out + "</svg>\n";
}

}  // namespace rehearse::reports::html
