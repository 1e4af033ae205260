// See goodput.h.
#include "reports/goodput.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

using result::Goodput;
using result::WeekQuantiles;
using result::Weeks;
using GoodputJson = nlohmann::ordered_json;

constexpr double kDay = 86400;

using ValueOfWeeks = std::function<double(const Weeks&)>;

WeekQuantiles over_samples(const Goodput& g, const ValueOfWeeks& value) {
  std::vector<double> values;
  for (const Weeks& w : g.samples) values.push_back(value(w));
  return result::week_quantiles(std::move(values));
}

double units_trained(const Goodput& g, const Weeks& w) {
  return static_cast<double>(w.steps) * g.tokens_per_step;
}

double failed(const Weeks& w, std::size_t component) {
  return static_cast<double>(w.failures[component]);
}

double share(const Weeks& w, std::size_t which) {
  return w.shares[which] / w.seconds();
}

// "93.1%  (92.6% to 93.5%)": the median, and between which nine of ten samples lie.
std::string range_text(const WeekQuantiles& q, const std::function<std::string(double)>& text) {
  return fmt::format("{}  ({} to {})", text(q.p50), text(q.p5), text(q.p95));
}

// Also of more than a Time holds, 106 days.
std::string seconds_text(double seconds) {
  constexpr double kDaysOfTime = 100;
  if (seconds < kDaysOfTime * kDay) return format_time(Time::from_seconds(seconds));
  return fmt::format("{:.0f} days", seconds / kDay);
}

// What the closed form takes for granted.
const char* with_hosts_enough(const Goodput& g) {
  return g.spare_hosts < 0 ? "" : " with hosts enough";
}

std::string interval_text(const Goodput& g) {
  const double seconds = static_cast<double>(g.interval_steps) * g.step_s;
  std::string text = fmt::format("every {} step{}, {} of training", g.interval_steps, g.interval_steps == 1 ? "" : "s",
                                 seconds_text(seconds));
  const bool least = g.least_interval_steps > 1 && g.interval_steps == g.least_interval_steps;
  if (least) text += ", in which the one before is written";
  if (g.asked_interval_s == 0) return text + (least ? ": the best" : ", the best in whole steps");
  if (least && std::round(g.asked_interval_s / g.step_s) < static_cast<double>(g.interval_steps))
    text += fmt::format(": checkpoint.interval, {}, is too short for it", seconds_text(g.asked_interval_s));
  return text + fmt::format("; the best, {}, would give {}{}", seconds_text(g.best_interval_s),
                            percent(g.expected_at_best), with_hosts_enough(g));
}

std::string checkpoint_text(const Goodput& g) {
  const auto text = [](double bytes) { return format_bytes(Bytes(static_cast<std::int64_t>(bytes))); };
  std::string bytes = text(g.checkpoint_bytes);
  if (g.written_bytes < g.checkpoint_bytes)
    bytes += fmt::format(", of which {} written on average", text(g.written_bytes));
  if (g.write_s == 0) return fmt::format("{}, for which ranks stand still {}", bytes, seconds_text(g.stall_s));
  return fmt::format("{}, copied in {}, written {} later", bytes, seconds_text(g.stall_s), seconds_text(g.write_s));
}

std::string hosts_text(const Goodput& g) {
  std::string spare = g.spare_hosts < 0 ? "spares as needed" : fmt::format("{} spare", g.spare_hosts);
  if (!g.step_s_missing.empty())
    spare +=
        fmt::format("; then fewer replicas, a step of {} with one missing", seconds_text(g.step_s_missing.front()));
  return fmt::format("{} GPUs in {} host{}, {}", g.gpus, g.hosts, g.hosts == 1 ? "" : "s", spare);
}

std::string interruptions_text(const Goodput& g) {
  const auto number = [](double n) { return fmt::format("{:.0f}", n); };
  std::string text =
      range_text(over_samples(g, [](const Weeks& w) { return static_cast<double>(w.interruptions()); }), number);
  std::string by;
  for (std::size_t c = 0; c < result::kComponents; ++c)
    if (const WeekQuantiles q = over_samples(g, [c](const Weeks& w) { return failed(w, c); }); q.p95 > 0)
      by += fmt::format("{}{} {:.0f}", by.empty() ? "" : ", ", result::kComponentNames[c], q.p50);
  return text + (by.empty() ? "" : ": " + by);
}

std::string where_time_goes(const Goodput& g) {
  std::string out = "\nWhere the time goes (median of samples)\n";
  for (std::size_t s = 0; s < result::kWeekShares; ++s) {
    const WeekQuantiles q = over_samples(g, [s](const Weeks& w) { return share(w, s); });
    if (q.p95 > 0)
      out += fmt::format("  {}{}\n", left(spaced(result::kWeekShareNames[s]), 18),
                         range_text(q, [](double x) { return right(fmt::format("{:.2f}%", 100 * x), 7); }));
  }
  return out;
}

GoodputJson json_of(const WeekQuantiles& q) {
  return {{"p5", q.p5}, {"p50", q.p50}, {"p95", q.p95}};
}

}  // namespace

std::string goodput_text(const Goodput& g) {
  const auto days = [](double d) { return fmt::format("{:.2f} days", d); };
  std::vector<std::pair<std::string, std::string>> rows = {
      {"Machine", hosts_text(g)},
      {"Step", seconds_text(g.step_s)},
      {"Fails every", seconds_text(g.mean_time_to_failure_s) + " on average, while it trains"},
      {"A checkpoint", checkpoint_text(g)},
      {"Checkpoints", interval_text(g)},
      {"Best interval", fmt::format("{}; Young {}, Daly {}", seconds_text(g.best_interval_s), seconds_text(g.young_s),
                                    seconds_text(g.daly_s))},
      {"Length", range_text(over_samples(g, [](const Weeks& w) { return w.seconds() / kDay; }), days)},
      {"Interruptions", interruptions_text(g)},
      {"Effective",
       fmt::format("{} of the time; expected {}{}",
                   range_text(over_samples(g, [](const Weeks& w) { return w.effective_ratio(); }), percent),
                   percent(g.expected_ratio), with_hosts_enough(g))},
      {g.tokens ? "Tokens" : "Samples", range_text(over_samples(g, [&](const Weeks& w) { return units_trained(g, w); }),
                                                   [](double n) { return fmt::format("{:.4g}", n); })},
      {g.tokens ? "Tokens a second" : "Samples a second",
       range_text(over_samples(g, [&](const Weeks& w) { return units_trained(g, w) / w.seconds(); }), compact)},
  };
  if (!g.batch.empty()) rows.insert(rows.begin() + 2, {"Batch", g.batch});
  if (g.first_weights_s > 0)
    rows.insert(rows.begin() + 2,
                {"First weights",
                 seconds_text(g.first_weights_s) + " of each restart, besides failures.restart: rank 0 sends them"});
  if (g.price_per_gpu_hour > 0)
    rows.push_back({"Cost", range_text(over_samples(g, [&](const Weeks& w) { return g.cost_of(w); }),
                                       [](double c) { return fmt::format("${:.4g}", c); })});
  return wrap(fmt::format("{}: medians of {} samples; nine of ten lie in the brackets", g.scenario_name,
                          g.samples.size())) +
         labelled(rows) + where_time_goes(g);
}

std::string goodput_json(const Goodput& g) {
  GoodputJson failures, shares;
  for (std::size_t c = 0; c < result::kComponents; ++c)
    failures[std::string(result::kComponentNames[c])] =
        json_of(over_samples(g, [c](const Weeks& w) { return failed(w, c); }));
  for (std::size_t s = 0; s < result::kWeekShares; ++s)
    shares[std::string(result::kWeekShareNames[s])] =
        json_of(over_samples(g, [s](const Weeks& w) { return share(w, s); }));
  GoodputJson j = {
      {"schema", "rehearse.goodput/1"},
      {"scenario", g.scenario_name},
      {"gpus", g.gpus},
      {"hosts", g.hosts},
      {"spare_hosts", g.spare_hosts < 0 ? GoodputJson() : GoodputJson(g.spare_hosts)},
      {"step_time_s", g.step_s},
      {"step_time_s_with_replicas_missing", g.step_s_missing},
      {"first_weights_s", g.first_weights_s},
      {"mean_time_to_failure_s", g.mean_time_to_failure_s},
      {"checkpoint",
       {{"bytes", g.checkpoint_bytes},
        {"written_bytes", g.written_bytes},
        {"stall_s", g.stall_s},
        {"write_s", g.write_s},
        {"interval_steps", g.interval_steps},
        {"interval_s", static_cast<double>(g.interval_steps) * g.step_s},
        {"asked_interval_s", g.asked_interval_s > 0 ? GoodputJson(g.asked_interval_s) : GoodputJson()},
        {"least_interval_s", static_cast<double>(g.least_interval_steps) * g.step_s},
        {"best_interval_s", g.best_interval_s},
        {"young_interval_s", g.young_s},
        {"daly_interval_s", g.daly_s}}},
      {"expected_effective_ratio", g.expected_ratio},
      {"expected_effective_ratio_at_best_interval", g.expected_at_best},
      {"samples", g.samples.size()},
      {"effective_ratio", json_of(over_samples(g, [](const Weeks& w) { return w.effective_ratio(); }))},
      {"days", json_of(over_samples(g, [](const Weeks& w) { return w.seconds() / kDay; }))},
      {g.tokens ? "tokens" : "examples", json_of(over_samples(g, [&](const Weeks& w) { return units_trained(g, w); }))},
      {"steps", json_of(over_samples(g, [](const Weeks& w) { return static_cast<double>(w.steps); }))},
      {"interruptions",
       json_of(over_samples(g, [](const Weeks& w) { return static_cast<double>(w.interruptions()); }))},
      {"failures", failures},
      {"shares", shares}};
  if (g.price_per_gpu_hour > 0) j["cost_usd"] = json_of(over_samples(g, [&](const Weeks& w) { return g.cost_of(w); }));
  return j.dump(2) + "\n";
}

}  // namespace rehearse::reports
