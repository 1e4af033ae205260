// See space.h. The figure that stands without a script has every plan that was simulated and a fixed number of the
// others; the script's (reports/page/space.js) has all of them.
#include "reports/html/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "reports/html/frame.h"
#include "reports/html/payload.h"
#include "reports/html/plan_json.h"
#include "reports/html/text.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports::html {
namespace {

// Of a file that anyone may have written: what no count holds becomes the largest that one does.
std::int64_t whole(double value) {
  constexpr double kMost = 9e18;
  return static_cast<std::int64_t>(std::clamp(value, -kMost, kMost));
}

}  // namespace

std::string space_seconds(double s) {
  return format_time(Time::from_ps(whole(s * 1e12)));
}

std::string space_bytes(double bytes) {
  return format_bytes(Bytes(whole(bytes)));
}

std::string leaf_of(const std::string& key) {
  return key.substr(key.rfind('.') + 1);
}

namespace {

using SpaceJson = PlanJson;
using TableRows = std::vector<std::vector<std::string>>;

constexpr double kSpaceWidth = 1100, kSpaceHeight = 380, kSpaceLeft = 70, kSpaceBottom = 40, kSpaceTop = 16,
                 kSpaceRight = 20;
constexpr std::size_t kMostCircles = 1500;  // circles of the static figure

struct SpacePoint {
  int status = 0;
  double step_s = 0, bytes = 0;
};

// The figure's points: all that were simulated, of the others one in so many.
std::vector<SpacePoint> points_of(const SpaceJson& search) {
  std::vector<SpacePoint> simulated, others;
  for (const SpaceJson& p : search.at("points")) {
    const SpacePoint point{p.at(0).get<int>(), p.at(1).get<double>(), p.at(2).get<double>()};
    if (point.step_s > 0 && point.bytes > 0) (point.status == 2 ? simulated : others).push_back(point);
  }
  const std::size_t every = others.size() / kMostCircles + 1;
  std::vector<SpacePoint> shown;
  for (std::size_t i = 0; i < others.size(); i += every) shown.push_back(others[i]);
  shown.insert(shown.end(), simulated.begin(), simulated.end());
  return shown;
}

// Both axes are logarithmic.
std::string space_scatter(const std::vector<SpacePoint>& points) {
  if (points.empty()) return "";
  const auto [s0, s1] = std::minmax_element(
      points.begin(), points.end(), [](const SpacePoint& a, const SpacePoint& b) { return a.step_s < b.step_s; });
  const auto [b0, b1] = std::minmax_element(points.begin(), points.end(),
                                            [](const SpacePoint& a, const SpacePoint& b) { return a.bytes < b.bytes; });
  const auto place = [](double v, double low, double high, double from, double to) {
    return high > low ? from + (to - from) * std::log(v / low) / std::log(high / low) : (from + to) / 2;
  };
  std::string out = fmt::format(
      "<svg class=\"figure\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Plans: step against peak memory\">\n",
      kSpaceWidth, kSpaceHeight);
  for (const SpacePoint& p : points)
    out += fmt::format("<circle class=\"plan-{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>\n", p.status,
                       coordinate(place(p.step_s, s0->step_s, s1->step_s, kSpaceLeft, kSpaceWidth - kSpaceRight)),
                       coordinate(place(p.bytes, b0->bytes, b1->bytes, kSpaceHeight - kSpaceBottom, kSpaceTop)),
                       p.status == 2 ? 4 : 2);
  const auto label = [&](double x, double y, const char* anchor, const std::string& text) {
    out += fmt::format("<text class=\"label small\" text-anchor=\"{}\" x=\"{}\" y=\"{}\">{}</text>\n", anchor, x, y,
                       escape(text));
  };
  label(kSpaceLeft, kSpaceHeight - 22, "start", space_seconds(s0->step_s));
  label(kSpaceWidth - kSpaceRight, kSpaceHeight - 22, "end", space_seconds(s1->step_s));
  label(kSpaceWidth / 2, kSpaceHeight - 6, "middle", "step, logarithmic");
  label(kSpaceLeft - 8, kSpaceTop + 8, "end", space_bytes(b1->bytes));
  label(kSpaceLeft - 8, kSpaceHeight - kSpaceBottom, "end", space_bytes(b0->bytes));
  return out + "</svg>\n";
}

bool plans_differ(const SpaceJson& plans, const std::string& key) {
  return std::any_of(plans.begin(), plans.end(),
                     [&](const SpaceJson& plan) { return plan.at("plan").at(key) != plans.at(0).at("plan").at(key); });
}

// A row a plan: the keys in which they differ, then what each comes to.
std::string plan_rows(const SpaceJson& plans, bool numbered) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : plans.at(0).at("plan").items())
    if (plans.size() == 1 || plans_differ(plans, key)) keys.push_back(key);
  TableRows rows{{"plan"}};
  for (const std::string& key : keys) rows[0].push_back(leaf_of(key));
  const bool days = plans.at(0).at("cost").contains("days"), dollars = plans.at(0).at("cost").contains("dollars");
  for (const char* name : {"step", "interval", "MFU", "peak memory", "limited by"}) rows[0].emplace_back(name);
  if (days) rows[0].insert(rows[0].end() - 1, {"days", "GPU-hours"});
  if (dollars) rows[0].insert(rows[0].end() - 1, "dollars");
  for (const SpaceJson& plan : plans) {
    std::vector<std::string> row{numbered ? std::to_string(plan.at("rank").get<int>()) : std::to_string(rows.size())};
    for (const std::string& key : keys) row.push_back(plan.at("plan").at(key).get<std::string>());
    row.push_back(space_seconds(plan.at("step_time_s").get<double>()));
    row.push_back(fmt::format("{} to {}", space_seconds(plan.at("interval_s").at(0).get<double>()),
                              space_seconds(plan.at("interval_s").at(1).get<double>())));
    row.push_back(percent(plan.at("mfu").get<double>()));
    row.push_back(space_bytes(plan.at("memory").at("peak_bytes").get<double>()));
    if (days) row.push_back(fmt::format("{:.3g}", plan.at("cost").at("days").get<double>()));
    if (days) row.push_back(grouped(plan.at("cost").at("gpu_hours").get<double>()));
    if (dollars) row.push_back(grouped(plan.at("cost").at("dollars").get<double>()));
    const std::string limit = plan.at("limited_by").get<std::string>();
    row.push_back(limit.substr(0, limit.find(':')));
    rows.push_back(std::move(row));
  }
  return "<div class=\"scroll\">" + table(rows) + "</div>\n";
}

std::string counts_line(const SpaceJson& answer) {
  const SpaceJson& s = answer.at("search");
  const auto count = [&](const char* name) { return grouped(s.at(name).get<double>()); };
  std::string text = fmt::format(
      "{} plans: {} forbidden by a rule, {} too large for the memory, {} settled by a bound, "
      "{} simulated. ",
      count("plans_in_space"), count("plans_forbidden"), count("plans_too_large"), count("plans_pruned"),
      count("plans_simulated"));
  text += s.at("proven").get<bool>() ? "Proven: no other plan of the space is better."
                                     : fmt::format("Not proven: a limit left {} open.", count("plans_open"));
  return "<p>" + escape(text) + "</p>\n";
}

std::string space_section(const SpaceJson& search, bool script) {
  const SpaceJson& answer = search.at("answer");
  std::string out = counts_line(answer);
  out += "<div id=\"space-chart\"><div class=\"static\">\n" +
         legend({{"plan-2", "simulated"}, {"plan-1", "bounded: at least so long"}, {"plan-0", "too large"}}) +
         space_scatter(points_of(search)) + "</div></div>\n";
  return out + fmt::format(
                   "<p class=\"note\">A point is a plan: its step against the memory of the rank that needs "
                   "most. Of a plan that was not simulated both are bounds; it is as long and as large, or "
                   "more.{}</p>\n",
                   script ? "" : " All that were simulated are drawn, of the others some.");
}

std::string best_plans_section(const SpaceJson& answer) {
  if (answer.at("plans").empty()) return "<p>No plan fits in memory.</p>\n";
  std::string out = plan_rows(answer.at("plans"), true);
  if (answer.contains("why")) {
    out += fmt::format("<p>{}</p>\n<ul>\n", escape(answer.at("why").at("reason").get<std::string>()));
    if (answer.at("why").contains("simpler"))
      for (const SpaceJson& kind : answer.at("why").at("simpler"))
        out += fmt::format("<li>{}: {}</li>\n", escape(kind.at("kind").get<std::string>()),
                           escape(kind.at("against").get<std::string>()));
    out += "</ul>\n";
  }
  if (answer.contains("simplest"))
    out += "<h3>As good and simpler</h3>\n" + plan_rows(SpaceJson::array({answer.at("simplest")}), false);
  return out;
}

std::string worth_section(const SpaceJson& answer) {
  if (!answer.contains("worth")) return "";
  const double best = answer.at("plans").at(0).at("step_time_s").get<double>();
  TableRows rows{{"the best plan, but", "step", "longer"}};
  for (const SpaceJson& change : answer.at("worth")) {
    const std::string what =
        fmt::format("{}={}", change.at("key").get<std::string>(), change.at("value").get<std::string>());
    if (!change.contains("step_time_s")) {
      rows.push_back({what, "does not fit", ""});
      continue;
    }
    const double step = change.at("step_time_s").get<double>();
    rows.push_back({what, space_seconds(step), fmt::format("{:+.1f}%", 100 * (step / best - 1))});
  }
  return table(rows);
}

template <class Read>
auto read_search(const SearchFile& search, const Read& read) {
  return read_fields(search, "rehearse.search/1", "rehearse plan SCENARIO -o DIR", read);
}

}  // namespace

std::string search_sections(const SearchFile& search, bool script) {
  return read_search(search, [&](const SpaceJson& json) {
    const SpaceJson& answer = json.at("answer");
    std::string out = section("answers", "The best plans", best_plans_section(answer));
    out += section("space", "The space: step against memory", space_section(json, script));
    if (answer.contains("front"))
      out += section("front", "Less memory, and what it costs in time", plan_rows(answer.at("front"), false));
    return out + section("worth", "What each key is worth", worth_section(answer));
  });
}

std::string search_payload(const SearchFile& search, const std::vector<result::StoredResult>& runs) {
  return read_search(search, [&](SpaceJson json) {
    json["runs"] = SpaceJson::object();
    for (std::size_t i = 0; i < runs.size(); ++i)
      json["runs"][std::filesystem::path(runs[i].directory).filename().string()] = i;
    return json.dump();
  });
}

std::string search_title(const SearchFile& search) {
  return read_search(
      search, [](const SpaceJson& json) { return json.at("answer").at("scenario").get<std::string>() + ": plans"; });
}

}  // namespace rehearse::reports::html
