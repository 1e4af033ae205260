// See plans.h. A column is a function of a result to what is shown and to a number by which plans are compared;
// columns that no plan has a value for are left out.
#include "reports/html/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "reports/batch.h"
#include "reports/html/text.h"
#include "reports/html/words.h"
#include "reports/limits.h"
#include "reports/reinforcement.h"
#include "reports/text.h"
#include "sim/base/units.h"

namespace rehearse::reports::html {
namespace {

using result::Result;
using result::StoredResult;

struct Cell {
  std::string text;
  double value = 0;
};
using Cells = std::vector<std::optional<Cell>>;  // one a run

enum class Best : unsigned char { none, least, most };

struct Column {
  std::string name;
  Best best = Best::none;
  Cells cells;
  bool marked(std::size_t run, const std::vector<StoredResult>& runs) const;
};

// Whether the run's value is the best of the plans that fit, and not all of theirs.
bool Column::marked(std::size_t run, const std::vector<StoredResult>& runs) const {
  if (best == Best::none || !cells[run] || !runs[run].result.memory_fits) return false;
  const double sign = best == Best::most ? 1 : -1;
  bool beats_another = false;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i == run || !cells[i] || !runs[i].result.memory_fits) continue;
    if (sign * cells[i]->value > sign * cells[run]->value) return false;
    beats_another = beats_another || sign * cells[i]->value < sign * cells[run]->value;
  }
  return beats_another;
}

Cell share(double value) {
  return {percent(value), value};
}

std::optional<Cell> memory(const Result& r) {
  const std::int64_t bytes = fullest(r).bytes;
  if (bytes == 0) return std::nullopt;
  std::string text = format_bytes(Bytes(bytes));
  if (r.memory_capacity > 0) text += " of " + format_bytes(usable_memory(r));
  return Cell{text, static_cast<double>(bytes)};
}

std::string unit_of_all(const std::vector<StoredResult>& runs) {
  const auto tokens = [](const StoredResult& run) { return unit_of(run.result) == "tokens"; };
  return std::all_of(runs.begin(), runs.end(), tokens)    ? "tokens"
         : std::none_of(runs.begin(), runs.end(), tokens) ? "samples"
                                                          : "tokens or samples";
}

std::vector<Column> columns_of(const std::vector<StoredResult>& runs, const HtmlOptions& options) {
  std::vector<Column> list;
  const auto add = [&](std::string name, Best best, const std::function<std::optional<Cell>(const Result&)>& cell) {
    Column column{std::move(name), best, {}};
    for (const StoredResult& run : runs) column.cells.push_back(cell(run.result));
    if (std::any_of(column.cells.begin(), column.cells.end(), [](const auto& c) { return c.has_value(); }))
      list.push_back(std::move(column));
  };
  const auto when = [](bool known, Cell cell) { return known ? std::optional<Cell>(std::move(cell)) : std::nullopt; };
  const auto count = [](double n) { return Cell{grouped(n), n}; };
  add(std::all_of(runs.begin(), runs.end(), [](const auto& run) { return on_cpu(run.result); }) ? "ranks" : "GPUs",
      Best::none, [&](const Result& r) { return count(static_cast<double>(r.ranks)); });
  add("batch", Best::none, [&](const Result& r) {
    const Batch batch = batch_of(r);
    return when(batch.global() > 0, count(static_cast<double>(batch.global())));
  });
  add("step", Best::none, [](const Result& r) {
    return Cell{format_time(Time::from_ps(r.step_time_ps)), static_cast<double>(r.step_time_ps)};
  });
  add(unit_of_all(runs) + " a second", Best::most, [&](const Result& r) {
    return when(r.tokens_per_s > 0, {compact(r.tokens_per_s), r.tokens_per_s});
  });
  add("MFU", Best::most, [&](const Result& r) { return when(result::mfu(r) >= 0.0005, share(result::mfu(r))); });
  add("peak memory", Best::least, memory);
  add("bubble", Best::least, [](const Result& r) { return share(share_of(r, result::Share::bubble)); });
  add("exposed comm.", Best::least, [](const Result& r) { return share(exposed_communication(r)); });
  add("days", Best::least, [&](const Result& r) {
    const double days = r.tokens_per_s > 0 ? amount_of(r, options) / r.tokens_per_s / 86400 : 0;
    return when(days > 0, {fmt::format("{:.3g}", days), days});
  });
  add("GPU-hours", Best::least, [&](const Result& r) {
    const double hours = result::gpu_hours(r, amount_of(r, options));
    return when(hours > 0, {compact(hours), hours});
  });
  if (options.price_per_hour > 0)
    add("cost", Best::least, [&](const Result& r) {
      const double cost = result::gpu_hours(r, amount_of(r, options)) * options.price_per_hour;
      return when(cost > 0, {compact(cost), cost});
    });
  add("fits", Best::none, [](const Result& r) { return Cell{r.memory_fits ? "yes" : "no", 0}; });
  return list;
}

// The plan that trains fastest of those that fit; none if there is only one or several are as fast.
std::optional<std::size_t> fastest(const std::vector<StoredResult>& runs) {
  std::optional<std::size_t> found;
  int fitting = 0;
  bool tie = false;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Result& r = runs[i].result;
    if (!r.memory_fits) continue;
    ++fitting;
    const double best = found ? runs[*found].result.tokens_per_s : -1;
    tie = r.tokens_per_s == best || (tie && r.tokens_per_s < best);
    if (r.tokens_per_s > best) found = i;
  }
  return fitting > 1 && !tie ? found : std::nullopt;
}

std::string legend_note(const std::vector<StoredResult>& runs, const HtmlOptions& options, bool star) {
  std::string out;
  if (star) out += fmt::format("★ most {} a second of the plans that fit. ", unit_of_all(runs));
  out += "Bold: the best of a column among the plans that fit. Batch: sequences or samples an optimizer step.";
  const auto planned =
      std::find_if(runs.begin(), runs.end(), [&](const auto& run) { return amount_of(run.result, options) > 0; });
  if (planned != runs.end())
    out += fmt::format(" Days and GPU-hours are for {} {}.", in_words(amount_of(planned->result, options)),
                       unit_of(planned->result));
  if (std::any_of(runs.begin(), runs.end(), [](const auto& run) { return !run.result.memory_fits; }))
    out += " Of a plan that does not fit, all but its memory is as if it did.";
  return fmt::format("<p class=\"note\">{}</p>\n", escape(out));
}

}  // namespace

std::string plans_table(const std::vector<StoredResult>& runs, const std::vector<std::string>& names,
                        const HtmlOptions& options) {
  if (runs.size() < 2) return "";
  const std::vector<Column> columns = columns_of(runs, options);
  const auto star = fastest(runs);
  std::string out = "<div class=\"scroll\"><table class=\"plans\">\n<thead><tr><th scope=\"col\">plan</th>";
  for (const Column& column : columns) out += fmt::format("<th scope=\"col\">{}</th>", escape(column.name));
  out += "</tr></thead><tbody>\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const bool fits = runs[i].result.memory_fits;
    out += fmt::format("<tr{}><th scope=\"row\">{}{}</th>", fits ? "" : " class=\"misfit\"", escape(names[i]),
                       star == i ? " <b title=\"fastest\">★</b>" : "");
    for (const Column& column : columns)
      out += fmt::format("<td{}>{}</td>", column.marked(i, runs) ? " class=\"best\"" : "",
                         column.cells[i] ? escape(column.cells[i]->text) : "–");
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n" + legend_note(runs, options, star.has_value());
}

}  // namespace rehearse::reports::html
