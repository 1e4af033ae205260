// The static picture of a timeline: the compute row of each stage, a column a pixel, coloured by what took most of the
// pixel's time; a column that was mostly idle stays empty, so that bubbles show as gaps.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "reports/html/text.h"
#include "reports/html/timeline.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports::html {
namespace {

constexpr int kStreamLabel = 90, kPixels = 900, kRight = 110;

// Per pixel of a row the class that was busy longest, "" where less than half of it was busy.
std::vector<std::string> dominant(const result::StoredResult& run, const Row& row, std::int64_t axis_ps) {
  const double per_pixel = static_cast<double>(axis_ps) / kPixels;
  std::vector<std::map<std::string, double>> busy(kPixels);
  for (const Bar& bar : row.bars) {
    const std::string style = phase_class(run.texts[bar.text]);
    const double start = static_cast<double>(bar.start_ps) / per_pixel;
    const double end = static_cast<double>(bar.start_ps + bar.duration_ps) / per_pixel;
    for (int x = std::max(0, static_cast<int>(start)); x < kPixels && x < end; ++x)
      busy[static_cast<std::size_t>(x)][style] += std::min(end, x + 1.0) - std::max(start, static_cast<double>(x));
  }
  std::vector<std::string> out(kPixels);
  for (std::size_t x = 0; x < kPixels; ++x) {
    double all = 0, most = 0;
    for (const auto& [style, time] : busy[x]) {
      all += time;
      if (time > most) out[x] = style;
      most = std::max(most, time);
    }
    if (all < 0.5) out[x].clear();
  }
  return out;
}

std::string row_figure(const std::vector<std::string>& pixels, double y, double height) {
  std::map<std::string, std::string> paths;
  for (std::size_t x = 0; x < pixels.size();) {
    std::size_t end = x + 1;
    while (end < pixels.size() && pixels[end] == pixels[x]) ++end;
    if (!pixels[x].empty())
      paths[pixels[x]] +=
          fmt::format("M{} {}h{}v{}h-{}z", kStreamLabel + x, coordinate(y), end - x, coordinate(height), end - x);
    x = end;
  }
  std::string out;
  for (const auto& [style, path] : paths) out += fmt::format("<path class=\"{}\" d=\"{}\"/>\n", style, path);
  return out;
}

// 1, 2 or 5 times a power of ten picoseconds, four to ten of which make the axis.
std::int64_t tick_step(std::int64_t axis_ps) {
  for (std::int64_t power = 1;; power *= 10)
    for (const std::int64_t factor : {1, 2, 5})
      if (axis_ps / (factor * power) < 10) return factor * power;
}

}  // namespace

std::string timeline_figure(const result::StoredResult& run, const Timeline& timeline, std::int64_t axis_ps) {
  const auto rows = std::count_if(timeline.rows.begin(), timeline.rows.end(), is_compute);
  if (rows == 0 || axis_ps <= 0) return "";
  const double height = rows > 24 ? 10 : 18, gap = rows > 24 ? 1 : 3;
  const double bottom = static_cast<double>(rows) * (height + gap);
  std::string out = fmt::format(
      "<svg class=\"figure\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Timeline of the compute stream of {} "
      "stages\">\n",
      kStreamLabel + kPixels + kRight, coordinate(bottom + 24), rows);
  double y = 0;
  for (const Row& row : timeline.rows) {
    if (!is_compute(row)) continue;
    out +=
        fmt::format("<text class=\"label\" x=\"0\" y=\"{}\">stage {}</text>\n", coordinate(y + height - 4), row.stage);
    out += fmt::format("<rect class=\"ground\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", kStreamLabel,
                       coordinate(y), kPixels, coordinate(height));
    out += row_figure(dominant(run, row, axis_ps), y, height);
    out += fmt::format("<text class=\"label\" x=\"{}\" y=\"{}\">idle {}</text>\n", kStreamLabel + kPixels + 8,
                       coordinate(y + height - 4), percent(idle_share(timeline, row)));
    y += height + gap;
  }
  const std::int64_t step = tick_step(axis_ps);
  for (std::int64_t tick = 0; tick <= axis_ps; tick += step)
    out += fmt::format("<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                       coordinate(kStreamLabel + kPixels * (static_cast<double>(tick) / static_cast<double>(axis_ps))),
                       coordinate(bottom + 16), tick == 0 ? "0" : format_time(Time::from_ps(tick)));
  return out + "</svg>\n";
}

}  // namespace rehearse::reports::html
