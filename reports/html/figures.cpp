// See figures.h. Colours are CSS classes of reports/page/style.css; what is too narrow for its words has them in a
// <title> and in the table below the figure.
#include "reports/html/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "reports/html/text.h"
#include "reports/limits.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports::html {
namespace {

using result::Result;
using result::StageMemory;

constexpr double kWidth = 1100, kLabel = 210, kBarWidth = 770;

struct ShareStyle {
  std::string_view style, name;
};
constexpr std::array<ShareStyle, result::kShares> kShareStyles = {
    {{"forward", "compute"},
     {"tensor", "exposed tensor communication"},
     {"context", "exposed context communication"},
     {"expert", "exposed expert communication"},
     {"data", "exposed data communication"},
     {"pipeline", "exposed pipeline communication"},
     {"input", "waiting for training examples"},
     {"straggler", "waiting for slower ranks of the same stage"},
     {"bubble", "bubble"},
     {"optimizer", "optimizer"},
     {"host", "host"},
     {"other", "other"}}};

struct MemoryClass {
  std::int64_t StageMemory::*bytes;
  std::string_view style, name;
};
constexpr std::array<MemoryClass, 7> kMemory = {{{&StageMemory::parameters, "m-parameters", "parameters"},
                                                 {&StageMemory::gradients, "m-gradients", "gradients"},
                                                 {&StageMemory::optimizer, "m-optimizer", "optimizer state"},
                                                 {&StageMemory::activations, "m-activations", "activations"},
                                                 {&StageMemory::workspace, "m-workspace", "workspace"},
                                                 {&StageMemory::communication, "m-communication", "communication"},
                                                 {&StageMemory::framework, "m-framework", "framework"}}};

std::string segment(double x, double y, double width, double height, std::string_view style, const std::string& title,
                    const std::string& inside) {
  std::string out =
      fmt::format("<g><title>{}</title><rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                  escape(title), style, coordinate(x), coordinate(y), coordinate(width), coordinate(height));
  if (static_cast<double>(inside.size()) * 7 + 8 < width)
    out += fmt::format("<text class=\"inside on-{}\" x=\"{}\" y=\"{}\">{}</text>", style, coordinate(x + width / 2),
                       coordinate(y + height / 2 + 4), escape(inside));
  return out + "</g>\n";
}

std::string words(double x, double y, const std::string& text, std::string_view anchor = "start") {
  return fmt::format("<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", coordinate(x),
                     coordinate(y), anchor, escape(text));
}

std::string open_figure(double height, const std::string& label) {
  return fmt::format("<svg class=\"figure\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                     coordinate(kWidth), coordinate(height), escape(label));
}

std::string breakdown_bar(const Result& r, double y, double height, double scale) {
  std::string out;
  double x = kLabel;
  for (std::size_t i = 0; i < result::kShares; ++i) {
    const std::int64_t ps = std::max<std::int64_t>(r.breakdown_ps[i], 0);
    if (ps == 0) continue;
    const double width = static_cast<double>(ps) * scale;
    const std::string share = percent(share_of(r, static_cast<result::Share>(i)));
    out += segment(x, y, width, height, kShareStyles[i].style,
                   fmt::format("{}: {}, {}", kShareStyles[i].name, format_time(Time::from_ps(ps)), share),
                   width > 90 && i == 0 ? fmt::format("compute {}", share) : share);
    x += width;
  }
  return out;
}

std::string breakdown_table(const std::vector<result::StoredResult>& runs, const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> rows = {{"share of the step"}};
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  for (std::size_t i = 0; i < result::kShares; ++i) {
    std::vector<std::string> row = {std::string(kShareStyles[i].name)};
    const auto share = static_cast<result::Share>(i);
    if (std::none_of(runs.begin(), runs.end(), [&](const auto& run) { return result::has_share(run.result, share); }))
      continue;
    for (const auto& run : runs)
      row.push_back(!run.result.late_ranks_known && result::needs_common_clock(share)
                        ? std::string(kUnknownShare)
                        : fmt::format("{}, {}", percent(share_of(run.result, share)),
                                      format_time(Time::from_ps(run.result.breakdown_ps[i]))));
    rows.push_back(std::move(row));
  }
  return details("Numbers", table(rows));
}

bool same_memory(const StageMemory& a, const StageMemory& b) {
  return a.device == b.device &&
         std::all_of(kMemory.begin(), kMemory.end(), [&](const MemoryClass& c) { return a.*c.bytes == b.*c.bytes; });
}

// `limit`: where the line of the capacity is, which what is written beside the bar keeps off.
std::string memory_bar(const StageMemory& stage, double y, double height, double scale, double limit) {
  std::string out;
  double x = kLabel;
  for (const MemoryClass& c : kMemory) {
    const std::int64_t bytes = std::max<std::int64_t>(stage.*c.bytes, 0);
    if (bytes == 0) continue;
    const double width = static_cast<double>(bytes) * scale;
    const std::string amount = format_bytes(Bytes(bytes));
    out += segment(x, y, width, height, c.style, fmt::format("{}: {}", c.name, amount), amount);
    x += width;
  }
  const std::string on = stage.device.empty() ? "" : " on " + stage.device;
  const std::string text = format_bytes(Bytes(stage.peak)) + on;
  const bool crossed = x <= limit && limit <= x + 12 + 7 * static_cast<double>(text.size());
  return out + words((crossed ? limit : x) + 8, y + height / 2 + 4, text);
}

std::string memory_table(const Result& r) {
  std::vector<std::vector<std::string>> rows = {{"stage"}};
  for (const MemoryClass& c : kMemory) rows[0].emplace_back(c.name);
  rows[0].insert(rows[0].end(), {"peak", "at"});
  const bool mixed = !r.stages.empty() && !r.stages.front().device.empty();
  if (mixed) rows[0].emplace_back("device");
  for (const StageMemory& stage : r.stages) {
    std::vector<std::string> row = {fmt::format("{}", stage.stage)};
    for (const MemoryClass& c : kMemory) row.push_back(format_bytes(Bytes(stage.*c.bytes)));
    row.push_back(format_bytes(Bytes(stage.peak)));
    row.push_back(stage.where);
    if (mixed)
      row.push_back(fmt::format("{}, of {}", stage.device, format_bytes(Bytes(stage.capacity - stage.headroom))));
    rows.push_back(std::move(row));
  }
  return details("Numbers", table(rows));
}

// A round step of which about four fit into `range`: 1, 2 or 5 times a power of ten.
double round_step(double range) {
  const double power = std::pow(10.0, std::floor(std::log10(range / 4)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (range / 4 <= factor * power) return factor * power;
  return 10 * power;
}

}  // namespace

std::string breakdown_figure(const std::vector<result::StoredResult>& runs, const std::vector<std::string>& names) {
  std::int64_t longest = 1;
  for (const auto& run : runs) longest = std::max(longest, run.result.step_time_ps);
  constexpr double kHeight = 28, kGap = 12;
  std::string out =
      open_figure(static_cast<double>(runs.size()) * (kHeight + kGap), "Where the step goes, mean over ranks");
  std::array<bool, result::kShares> used{};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Result& r = runs[i].result;
    const double y = static_cast<double>(i) * (kHeight + kGap), scale = kBarWidth / static_cast<double>(longest);
    out += words(0, y + kHeight / 2 + 4, clip(names[i], 30));
    out += breakdown_bar(r, y, kHeight, scale);
    out += words(kLabel + static_cast<double>(r.step_time_ps) * scale + 8, y + kHeight / 2 + 4,
                 format_time(Time::from_ps(r.step_time_ps)));
    for (std::size_t s = 0; s < result::kShares; ++s) used[s] |= r.breakdown_ps[s] > 0;
  }
  std::vector<Key> keys;
  for (std::size_t s = 0; s < result::kShares; ++s)
    if (used[s]) keys.push_back({kShareStyles[s].style, kShareStyles[s].name});
  return legend(keys) + out + "</svg>\n" + breakdown_table(runs, names);
}

std::string memory_figure(const Result& r) {
  const StageMemory* worst = largest_stage(r);
  if (worst == nullptr || worst->peak <= 0) return "<p class=\"note\">This result has no memory.</p>\n";
  const bool capacity_shown = r.memory_capacity > 0 && r.memory_capacity <= 20 * worst->peak;
  const double scale =
      (kBarWidth - 60) / static_cast<double>(std::max(worst->peak, capacity_shown ? r.memory_capacity : 0));
  constexpr double kHeight = 20, kGap = 6;
  const double limit = capacity_shown ? kLabel + static_cast<double>(usable_memory(r).count()) * scale : 2 * kWidth;
  std::string bars;
  double y = capacity_shown ? 22 : 0;
  for (std::size_t i = 0; i < r.stages.size(); y += kHeight + kGap) {
    std::size_t end = i + 1;
    while (end < r.stages.size() && same_memory(r.stages[i], r.stages[end])) ++end;
    bars += words(0, y + kHeight / 2 + 4,
                  end - i == 1 ? fmt::format("stage {}", r.stages[i].stage)
                               : fmt::format("stages {}–{}", r.stages[i].stage, r.stages[end - 1].stage));
    bars += memory_bar(r.stages[i], y, kHeight, scale, limit);
    i = end;
  }
  std::string out =
      open_figure(y, fmt::format("Memory of a {} at its peak, by stage and class", device_noun(r))) + bars;
  if (capacity_shown) {
    out += fmt::format("<line class=\"limit\" x1=\"{0}\" x2=\"{0}\" y1=\"16\" y2=\"{1}\"/>\n", coordinate(limit),
                       coordinate(y));
    const char* what = r.memory_headroom > 0 ? "capacity less headroom " : "capacity ";
    out += words(limit, 12, what + format_bytes(usable_memory(r)), limit > kWidth - 160 ? "end" : "middle");
  }
  out += "</svg>\n";
  if (!capacity_shown && r.memory_capacity > 0)
    out += fmt::format("<p class=\"note\">The device has {}, far beyond this scale.</p>\n",
                       escape(format_bytes(Bytes(r.memory_capacity))));
  std::vector<Key> keys;
  for (const MemoryClass& c : kMemory)
    if (std::any_of(r.stages.begin(), r.stages.end(), [&](const StageMemory& s) { return s.*c.bytes > 0; }))
      keys.push_back({c.style, c.name});
  return legend(keys) + out + memory_table(r);
}

namespace {

struct LossCurve {
  std::string name;
  std::vector<double> x, loss;
};

// Losses against what their x are, from `from` to `to` in words.
std::string loss_curves(const std::vector<LossCurve>& curves, const std::string& title, double first,
                        const std::string& from, const std::function<std::string(double)>& to) {
  constexpr double kLeft = 60, kRight = 20, kTop = 10, kBottom = 210;
  double low = INFINITY, high = -INFINITY, last = first;
  for (const LossCurve& curve : curves)
    for (std::size_t i = 0; i < curve.x.size(); ++i)
      if (std::isfinite(curve.loss[i]))
        low = std::min(low, curve.loss[i]), high = std::max(high, curve.loss[i]), last = std::max(last, curve.x[i]);
  if (last <= first || !(low <= high)) return "";
  if (high == low) high = low + 1;
  const auto x_of = [&](double x) { return kLeft + (kWidth - kLeft - kRight) * (x - first) / (last - first); };
  const auto y_of = [&](double loss) { return kBottom - (kBottom - kTop) * (loss - low) / (high - low); };
  std::string out = open_figure(kBottom + 30, title);
  const double step = round_step(high - low);
  for (double tick = std::ceil(low / step) * step; tick <= high; tick += step) {
    out += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n", kLeft, kWidth - kRight,
                       coordinate(y_of(tick)), coordinate(y_of(tick)));
    out += words(kLeft - 8, y_of(tick) + 4, fmt::format("{:.3g}", tick), "end");
  }
  out += words(kLeft, kBottom + 18, from) + words(kWidth - kRight, kBottom + 18, to(last), "end");
  constexpr std::array<std::string_view, 4> kLines = {"line-1", "line-2", "line-3", "line-4"};
  std::vector<Key> keys;
  for (const LossCurve& curve : curves) {
    std::string points;
    for (std::size_t i = 0; i < curve.x.size(); ++i)
      if (std::isfinite(curve.loss[i]))
        points += fmt::format("{},{} ", coordinate(x_of(curve.x[i])), coordinate(y_of(curve.loss[i])));
    if (points.empty()) continue;
    keys.push_back({kLines[keys.size() % kLines.size()], curve.name});
    out += fmt::format("<polyline class=\"line {}\" points=\"{}\"/>\n", keys.back().style, points);
  }
  return (keys.size() > 1 ? legend(keys) : "") + out + "</svg>\n";
}

}  // namespace

std::string loss_figure(const std::vector<result::StoredResult>& runs, const std::vector<std::string>& names) {
  std::vector<LossCurve> by_step, by_time;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::vector<double>& loss = runs[i].result.loss;
    const result::StepHistory& h = runs[i].history;
    LossCurve steps{names[i], {}, loss}, time{names[i], {}, {}};
    for (std::size_t s = 0; s < loss.size(); ++s) {
      steps.x.push_back(static_cast<double>(s) + 1);
      if (const auto end = h.end_of(static_cast<std::int64_t>(s) + 1))
        time.x.push_back(static_cast<double>(*end) * 1e-12), time.loss.push_back(loss[s]);
    }
    by_step.push_back(std::move(steps)), by_time.push_back(std::move(time));
  }
  const std::string against_step = loss_curves(by_step, "Loss against step", 1, "step 1",
                                               [](double last) { return fmt::format("step {}", std::lround(last)); });
  if (against_step.empty()) return "";
  const std::string against_time = loss_curves(by_time, "Loss against time", 0, "0 s",
                                               [](double last) { return format_time(Time::from_seconds(last)); });
  return "<h3>Loss against step</h3>\n" + against_step +
         (against_time.empty() ? "" : "<h3>Loss against time, by the end of each step</h3>\n" + against_time);
}

}  // namespace rehearse::reports::html
