// The report page from top to bottom: several plans in one table, what was asked, the answer, where the step goes,
// memory, the plan, the timeline, simulated against measured, losses. Each part is made elsewhere (html_*.h); this file
// has the order and the frame.
#include "reports/html/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "reports/answers.h"
#include "reports/html/answers.h"
#include "reports/html/errors.h"
#include "reports/html/figures.h"
#include "reports/html/frame.h"
#include "reports/html/history.h"
#include "reports/html/page_files.h"
#include "reports/html/payload.h"
#include "reports/html/plan.h"
#include "reports/html/plan_links.h"
#include "reports/html/plans.h"
#include "reports/html/scaling.h"
#include "reports/html/space.h"
#include "reports/html/text.h"
#include "reports/html/words.h"
#include "reports/limits.h"
#include "reports/reinforcement.h"
#include "reports/text.h"
#include "sim/base/check.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace html {
namespace {

using result::Result;
using result::StoredResult;
using Runs = std::vector<StoredResult>;
using Names = std::vector<std::string>;

constexpr std::size_t kMostBars =
    2'000'000;  // of all runs together: a few bytes each in the page, some 32 in the browser

std::string part_title(const Runs& runs, const std::string& name) {
  return runs.size() > 1 ? fmt::format("<h3>{}</h3>\n", escape(name)) : "";
}

// Every resolved key, a column a run; keys in which the runs differ are marked.
std::string keys_table(const Runs& runs, const Names& names) {
  std::set<std::string> keys;
  for (const StoredResult& run : runs)
    for (const auto& [key, value] : run.result.scenario) keys.insert(key);
  std::vector<std::vector<std::string>> rows = {{"key"}};
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  for (const std::string& key : keys) {
    std::vector<std::string> row = {key};
    for (const StoredResult& run : runs) row.push_back(key_of(run.result, key.c_str()));
    if (std::any_of(row.begin() + 1, row.end(), [&](const std::string& value) { return value != row[1]; }))
      row[0] += " ≠";
    rows.push_back(std::move(row));
  }
  return details(runs.size() > 1 ? "Every key; ≠ marks those that differ" : "Every key", table(rows));
}

std::string asked_section(const Runs& runs, const Names& names) {
  std::string out = "<div class=\"cards\">\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    out += "<article>" + part_title(runs, names[i]);
    for (const std::string& sentence : asked(runs[i].result)) out += fmt::format("<p>{}</p>\n", escape(sentence));
    out += "</article>\n";
  }
  return out + "</div>\n" + keys_table(runs, names);
}

std::string numbers(const Result& r) {
  std::string out = "<dl class=\"numbers\">" + headline_number(format_time(Time::from_ps(r.step_time_ps)), "step");
  if (result::mfu(r) >= 0.0005) out += headline_number(percent(result::mfu(r)), "MFU");
  if (r.tokens_per_s > 0) out += headline_number(compact(r.tokens_per_s), unit_of(r) + " a second");
  if (const std::int64_t bytes = fullest(r).bytes; bytes > 0)
    out += headline_number(format_bytes(Bytes(bytes)), "peak memory");
  return out + "</dl>\n";
}

// What is said of each run, once where it is the same of all: "X", or "A: X; B: Y".
template <class TextOf>
std::string of_runs(const Runs& runs, const Names& names, TextOf&& text_of) {
  std::vector<std::pair<std::string, Names>> texts;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string text = text_of(runs[i].result);
    if (text.empty()) continue;
    const auto same = std::find_if(texts.begin(), texts.end(), [&](const auto& one) { return one.first == text; });
    if (same == texts.end())
      texts.push_back({text, {names[i]}});
    else
      same->second.push_back(names[i]);
  }
  std::string out;
  for (const auto& [text, of] : texts)
    out += (out.empty() ? "" : "; ") + (texts.size() > 1 ? fmt::format("{}: {}", fmt::join(of, ", "), text) : text);
  return out;
}

std::string answer_section(const Runs& runs, const Names& names, const HtmlOptions& options) {
  std::string out = "<div class=\"cards\">\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Result& r = runs[i].result;
    out += fmt::format("<article{}>{}{}", r.memory_fits ? "" : " class=\"misfit\"", part_title(runs, names[i]),
                       numbers(r));
    for (const std::string& sentence : answered(r, options)) out += fmt::format("<p>{}</p>\n", escape(sentence));
    for (const std::string& sentence : warnings(r)) out += fmt::format("<p>Warning: {}</p>\n", escape(sentence));
    for (const result::Note& note : r.notes) out += fmt::format("<p>Note: {}</p>\n", escape(note.text));
    out += "</article>\n";
  }
  out += "</div>\n";
  const std::string formulas = of_runs(runs, names, [](const Result& r) { return r.flop_formula; });
  if (!formulas.empty()) out += fmt::format("<p class=\"note\">MFU counts {}.</p>\n", escape(formulas));
  return out;
}

std::string memory_section(const Runs& runs, const Names& names) {
  std::string out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    out += part_title(runs, names[i]) + memory_figure(runs[i].result);
    if (const std::string phase = fullest_phase(runs[i].result); !phase.empty())
      out += fmt::format("<p class=\"note\">Stages are of an update alone; {}.</p>\n", escape(phase));
  }
  return out;
}

// Runs whose grids are drawn alike share one drawing.
std::string plan_section(const Runs& runs, const Names& names) {
  std::vector<std::pair<std::string, Names>> figures;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto grid = plan_grid(runs[i].result);
    const std::string figure =
        grid
            ? plan_figure(runs[i].result, *grid) + plan_links_figure(runs[i], *grid)
            : "<p class=\"note\">This result does not say how its ranks are arranged, or they have axes beside tensor, "
              "pipeline and data.</p>\n";
    const auto same = std::find_if(figures.begin(), figures.end(), [&](const auto& f) { return f.first == figure; });
    if (same == figures.end())
      figures.push_back({figure, {names[i]}});
    else
      same->second.push_back(names[i]);
  }
  std::string out;
  for (const auto& [figure, of] : figures)
    out += (figures.size() > 1 ? fmt::format("<h3>{}</h3>\n", escape(fmt::format("{}", fmt::join(of, "; ")))) : "") +
           figure;
  return out;
}

std::string timeline_section(const std::vector<Series>& series) {
  std::int64_t axis = 0;
  std::size_t ops = 0;
  for (const Series& one : series) {
    axis = std::max({axis, one.timeline.last_ps, one.timeline.window_ps});
    ops += one.timeline.ops;
  }
  const auto phases_alone = [](const Series& one) {
    return one.run->result.reinforcement.known && one.run->result.source == "measured"
               ? ": of performed steps of reinforcement learning the phases are measured, not their operations"
               : "";
  };
  if (ops == 0)
    return fmt::format("<p class=\"note\">There are no recorded operations{}.</p>\n", phases_alone(series.front()));
  std::string out = legend({{"forward", "forward"},
                            {"recompute", "recomputation"},
                            {"backward", "backward"},
                            {"optimizer", "optimizer"},
                            {"other", "other"}});
  for (const Series& one : series)
    if (one.timeline.ops > 0)
      out += (series.size() > 1 ? fmt::format("<h3>{}</h3>\n", escape(one.label)) : "") +
             timeline_figure(*one.run, one.timeline, axis);
  out = "<div id=\"timeline\"><div class=\"static\">\n" + out + "</div></div>\n";
  out += "<p class=\"note\">The last step, on one rank a stage; empty is idle: a bubble, or waiting for bytes.";
  for (const Series& one : series)
    if (one.timeline.merged_below_ps > 0)
      out += fmt::format(" {}: of {} operations, neighbours within {} are drawn as one.", escape(one.label),
                         grouped(static_cast<double>(one.timeline.ops)),
                         format_time(Time::from_ps(one.timeline.merged_below_ps)));
  for (const Series& one : series)
    if (one.timeline.ops == 0)
      out += fmt::format(" {}: no recorded operations{}.", escape(one.label), phases_alone(one));
  return out + "</p>\n";
}

std::string loss_section(const Runs& runs, const Names& names) {
  const std::string figure = loss_figure(runs, names);
  if (figure.empty()) return "";
  const auto unit = [](const Result& r) { return r.loss.empty() ? std::string() : loss_unit(r); };
  return "<div id=\"loss-chart\"><div class=\"static\">\n" + figure +
         "</div></div>\n<p class=\"note\">Of the measured runs, in " + escape(of_runs(runs, names, unit)) + ".</p>\n";
}

std::vector<Series> series_of(const Runs& runs, const Names& names) {
  std::vector<Series> out;
  for (std::size_t i = 0; i < runs.size(); ++i)
    out.push_back({names[i], &runs[i], timeline_of(runs[i], kMostBars / runs.size())});
  return out;
}

std::string packed(std::string_view id, const std::string& bytes) {
  return fmt::format("<script type=\"text/plain\" id=\"{}\">{}</script>\n", id, base64(gzip(bytes)));
}

std::string scripts(const std::vector<Series>& series, const Runs& runs, const SearchFile* search) {
  std::string out;
  if (search != nullptr) out += packed("space-payload", search_payload(*search, runs));
  if (!series.empty()) out += packed("payload", payload(series));
  return out + "<script>\n" + std::string(page_script()) + "</script>\n";
}

// What is said of each run, and of all beside one another.
std::string run_sections(const Runs& runs, const Names& names, const std::vector<Series>& series,
                         const HtmlOptions& options) {
  std::string out = section("plans", "The plans side by side", plans_table(runs, names, options));
  out += section("asked", "What was asked", asked_section(runs, names));
  out += section("answer", "The answer", answer_section(runs, names, options));
  out += section("phases", "Phases of the step", phases_section(runs, names));
  out += section("breakdown", "Where the step goes", breakdown_figure(runs, names));
  out += section("jobs", "Jobs on the cluster", jobs_section(runs, names));
  out += section("samples", "Over samples of the noise", samples_section(runs, names));
  out += section("noise", "What noise costs", noise_section(runs, names));
  out += section("what-if", "What if", what_if_section(runs, names));
  out += section("memory", fmt::format("Memory of a {} at its peak", device_noun(runs.front().result)),
                 memory_section(runs, names));
  out += section("plan", "The plan", plan_section(runs, names));
  out += section("timelines", "Timeline", timeline_section(series));
  out += section("collectives", "Collectives", collectives_section(runs, names));
  out += section("links", "Busiest links", links_section(runs, names));
  out += section("errors", "Simulated against measured", errors_table(runs, names));
  out += section("steps", "Step by step", history_section(runs, names, options.target_loss));
  return out + section("loss", "Loss", loss_section(runs, names));
}

// Of searches that differ in the number of GPUs.
Names by_gpus(const Runs& runs) {
  Names names;
  for (const StoredResult& run : runs) names.push_back(fmt::format("{} GPUs", run.result.ranks));
  return names;
}

std::string title_of(const Runs& runs, const Names& names, const HtmlOptions& options) {
  if (options.search != nullptr) return search_title(*options.search);
  if (options.scaling != nullptr) return scaling_title(*options.scaling);
  return runs.size() == 1 ? runs[0].result.scenario_name : fmt::format("{}", fmt::join(names, " · "));
}

}  // namespace
}  // namespace html

bool has_page_script() {
  return !page_script().empty();
}

std::string html_page(const std::vector<result::StoredResult>& runs, const HtmlOptions& options) {
  using namespace html;
  REHEARSE_CHECK(!runs.empty() || options.search != nullptr || options.scaling != nullptr, "a report of no result");
  const bool script = options.script && has_page_script();
  const Names names = options.scaling != nullptr ? by_gpus(runs) : labels(runs);
  const std::vector<Series> series = series_of(runs, names);
  const std::string title = title_of(runs, names, options);
  std::string out = page_head(title.empty() ? "Rehearse" : title + " – Rehearse", script);
  out += fmt::format("<body>\n<main>\n<header><p class=\"brand\">Rehearse</p><h1>{}</h1></header>\n", escape(title));
  if (options.search != nullptr) out += search_sections(*options.search, script);
  if (options.scaling != nullptr) out += scaling_sections(*options.scaling);
  if (!runs.empty()) out += run_sections(runs, names, series, options);
  if (!script)
    out +=
        "<footer><p class=\"note\">This page has no script: the figures are static. A program built where Node and npm "
        "were there makes the timeline one that can be zoomed.</p></footer>\n";
  out += "</main>\n";
  if (script) out += scripts(series, runs, options.search);
  return out + "</body>\n</html>\n";
}

}  // namespace rehearse::reports
