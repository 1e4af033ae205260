// See search.h.
#include "reports/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSecondsADay = 86400, kHoursADay = 24;
constexpr std::size_t kMostReasons = 3;

// As result.json has it: rounded once, where Time::seconds() may be an ulp beside.
double exact_seconds_of(std::int64_t ps) {
  return static_cast<double>(ps) / 1e12;
}

double seconds_of(const SweepRow& row) {
  return exact_seconds_of(row.step_time_ps);
}

std::string leaf(const std::string& key) {
  return key.substr(key.rfind('.') + 1);
}

// "tensor 4, pipeline 8": of the keys for which `wanted` holds.
template <class Wanted>
std::string values_text(const SearchReport& r, const SweepRow& row, const Wanted& wanted) {
  std::string text;
  for (std::size_t k = 0; k < r.keys.size(); ++k)
    if (wanted(k)) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", leaf(r.keys[k].key), row.values[k]);
  return text;
}

bool differs(const std::vector<SweepRow>& rows, std::size_t key) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const SweepRow& row) { return row.values[key] != rows[0].values[key]; });
}

constexpr double kBillion = 1e9;

// What a plan costs, and what that is: dollars of the whole run, dollars or GPU-hours of a billion tokens or samples.
std::string cost_of(const SearchReport& r, const SweepRow& row) {
  const bool run = r.tokens > 0 && r.price;
  const double hours =
      days_of(run ? r.tokens : kBillion, row.tokens_per_s) * kHoursADay * static_cast<double>(row.gpus);
  return r.price ? "$" + compact(hours * r.price.usd) : compact(hours);
}
std::string cost_line(const SearchReport& r, const SweepRow& row) {
  const std::string units = row.batch.seq_len > 0 ? "tokens" : "samples";
  const std::string what = r.tokens > 0 && r.price ? compact(r.tokens) + " tokens" : "a billion " + units;
  return fmt::format("Cost: {} of {}{}.", r.price ? "dollars" : "GPU-hours", what,
                     r.price ? ", at " + r.price.text() : "");
}

// Rows with their costs, as a table shows them.
std::vector<SweepRow> with_costs(const SearchReport& r, std::vector<SweepRow> rows) {
  for (SweepRow& row : rows)
    if (row.tokens_per_s > 0) row.cost = cost_of(r, row);
  return rows;
}

// The table of plans with the keys in which they differ, after a line with what they have in common.
std::string table_of(const SearchReport& r, const std::vector<SweepRow>& plans, std::size_t width) {
  std::vector<SweepAxis> axes;
  std::vector<SweepRow> rows = with_costs(r, plans);
  for (SweepRow& row : rows) row.values.clear();
  for (std::size_t k = 0; k < r.keys.size(); ++k) {
    if (!differs(plans, k)) continue;
    axes.push_back(r.keys[k]);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].values.push_back(plans[i].values[k]);
  }
  if (axes.empty()) {  // one plan: what it is stands above
    axes.push_back({"plan", {}});
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].values.push_back(fmt::format("{}", i + 1));
  }
  const std::string common = values_text(r, plans[0], [&](std::size_t k) { return !differs(plans, k); });
  return (common.empty() ? "" : wrap((plans.size() > 1 ? "All with " : "") + common + ".", 0, width) + "\n") +
         sweep_table(axes, rows, width, TableOf::search);
}

std::string verdict(const SearchReport& r) {
  std::string text =
      fmt::format("{} plans in {:.1f} s: {} forbidden by a rule, {} too large for the memory, {} bounded, {} simulated",
                  grouped(static_cast<double>(r.choices)), r.wall_s, grouped(static_cast<double>(r.forbidden)),
                  grouped(static_cast<double>(r.too_large)), grouped(static_cast<double>(r.bounded)),
                  grouped(static_cast<double>(r.simulated)));
  if (r.proven) return text + ". Proven: no other plan of the space is better.";
  text += fmt::format(". Not proven: the limit left {} open", grouped(static_cast<double>(r.open)));
  if (r.open_from == 0)
    text += ", of some of which nothing is known";
  else if (!r.best.empty())
    text += fmt::format(", which may be as good as {}", objective_text(r.objective, r.open_from));
  return text + (r.by_time ? ". A limit of time depends on the machine." : ".");
}

std::string run_text(const SearchReport& r) {
  if (r.tokens <= 0 || r.best.empty() || r.best[0].tokens_per_s <= 0) return {};
  const double days = days_of(r.tokens, r.best[0].tokens_per_s);
  const double hours = days * kHoursADay * static_cast<double>(r.best[0].gpus);
  std::string text =
      fmt::format("{} tokens take the best plan {:.3g} days and {} GPU-hours", compact(r.tokens), days, grouped(hours));
  if (r.price) text += fmt::format(", ${} at {}", grouped(hours * r.price.usd), r.price.text());
  return text + ".";
}

std::string changes_text(const SearchReport& r, std::size_t width) {
  if (r.changes.empty()) return {};
  std::vector<std::vector<std::string>> rows{{"the best plan, but", "step", "longer"}};
  const double best = seconds_of(r.best[0]);
  for (const KeyChange& change : r.changes) {
    const std::string what = fmt::format("{}={}", change.key, change.value);
    if (change.step_ps == 0) {
      rows.push_back({what, "does not fit", ""});
      continue;
    }
    const double step = exact_seconds_of(change.step_ps);
    rows.push_back(
        {what, format_time(Time::from_ps(change.step_ps)), fmt::format("{:+.1f}%", 100 * (step / best - 1))});
  }
  return "\nWhat each key is worth\n" + align(rows, 2, width);
}

Json plan_json(const SearchReport& r, const SweepRow& row) {
  Json plan = Json::object();
  for (std::size_t k = 0; k < r.keys.size(); ++k) plan[r.keys[k].key] = row.values[k];
  Json json{{"plan", plan},
            {"step_time_s", seconds_of(row)},
            {"interval_s", {row.low_s, row.high_s}},
            {"tokens_per_s", row.tokens_per_s},
            {"mfu", row.mfu},
            {"memory", {{"peak_bytes", row.peak_bytes}, {"capacity_bytes", row.memory_bytes}}},
            {"gpus", row.gpus},
            {"global_batch", row.batch.global()},
            {"limited_by", row.limited_by}};
  const double hours = seconds_of(row) * static_cast<double>(row.gpus) / 3600;
  json["cost"] = {{"gpu_hours_per_step", hours}};
  if (r.price) json["cost"]["dollars_per_step"] = hours * r.price.usd;
  if (r.tokens > 0 && row.tokens_per_s > 0) {
    const double days = days_of(r.tokens, row.tokens_per_s);
    json["cost"]["days"] = days;
    json["cost"]["gpu_hours"] = days * kHoursADay * static_cast<double>(row.gpus);
    if (r.price) json["cost"]["dollars"] = days * kHoursADay * static_cast<double>(row.gpus) * r.price.usd;
  }
  if (!row.directory.empty()) json["directory"] = row.directory;
  return json;
}

Json json_of(const SearchReport& r) {
  Json json;
  json["schema"] = "rehearse.plan/1";
  json["scenario"] = r.scenario;
  json["objective"] = r.objective;
  json["search"] = {{"plans_in_space", r.choices},
                    {"plans_feasible", r.choices - r.forbidden - r.too_large},
                    {"plans_forbidden", r.forbidden},
                    {"plans_too_large", r.too_large},
                    {"plans_simulated", r.simulated},
                    {"plans_pruned", r.bounded},
                    {"plans_open", r.open},
                    {"proven", r.proven},
                    {"wall_s", r.wall_s}};
  if (!r.proven) json["search"]["open_from"] = r.open_from;
  json["space"] = Json::object();
  for (const SweepAxis& key : r.keys) json["space"][key.key] = key.values;
  json["plans"] = Json::array();
  for (std::size_t i = 0; i < r.best.size(); ++i) {
    Json plan{{"rank", i + 1}};
    plan.update(plan_json(r, r.best[i]));
    if (r.joules[i] > 0) plan["energy_j_per_step"] = r.joules[i];
    json["plans"].push_back(std::move(plan));
  }
  if (r.simplest) {
    json["simplest"] = plan_json(r, *r.simplest);
    json["simplest"]["kind"] = r.simple_kind;
  }
  if (r.advice.known) {
    json["why"] = {{"kind", advice_kind(r.advice)}, {"reason", advice_reason(r.advice)}};
    for (const SimplerKind& kind : r.advice.simpler) {
      Json simpler{{"kind", kind_name(kind.kind)},
                   {"plans", kind.plans},
                   {"too_large", kind.too_large},
                   {"against", advice_against(r.advice, kind)}};
      json["why"]["simpler"].push_back(std::move(simpler));
    }
  }
  if (r.price)
    json["price"] = {{"usd_per_gpu_hour", r.price.usd}, {"instance", r.price.instance}, {"date", r.price.date}};
  if (!r.front.empty()) {
    json["front"] = Json::array();
    for (const SweepRow& row : r.front) json["front"].push_back(plan_json(r, row));
  }
  if (!r.changes.empty()) {
    json["worth"] = Json::array();
    for (const KeyChange& c : r.changes) {
      Json change{{"key", c.key}, {"value", c.value}};
      if (c.step_ps > 0)
        change["step_time_s"] = exact_seconds_of(c.step_ps);
      else
        change["fits"] = false;
      json["worth"].push_back(std::move(change));
    }
  }
  return json;
}

std::string nothing_fits(const SearchReport& r, std::size_t width) {
  std::string text = wrap(verdict(r), 0, width);
  if (r.open > 0)
    return text +
           wrap(
               "No plan is known to fit yet: the limit came before one that does was simulated. A larger --budget "
               "goes on, a smaller space (--fix, --range) is sooner done.",
               0, width);
  if (!r.smallest.empty())
    text += wrap(
        fmt::format("Nothing fits. The plan that needs least, {}, needs {} of {} a GPU.", fmt::join(r.smallest, " "),
                    format_bytes(Bytes(r.smallest_bytes)), format_bytes(Bytes(r.capacity_bytes))),
        0, width);
  // What a plan divides among GPUs is most of its memory where it fits nowhere.
  if (r.gpus > 0 && r.capacity_bytes > 0)
    text += wrap(fmt::format("Were all of it divided among more GPUs, {} would hold it.",
                             grouped(std::ceil(static_cast<double>(r.gpus) * static_cast<double>(r.smallest_bytes) /
                                               static_cast<double>(r.capacity_bytes)))),
                 0, width);
  return text +
         wrap(
             "More GPUs (--gpus), a wider space (--range plan.recompute=full, --range plan.offload_optimizer=true) "
             "or a smaller training.global_batch may help.",
             0, width);
}

// Of all numbers' best plans: a column a key that any of them has.
std::pair<std::vector<SweepAxis>, std::vector<SweepRow>> best_of_each(const ScalingReport& r) {
  std::vector<SweepAxis> axes{{"gpus", {}}};
  for (const SearchReport& search : r.searches)
    for (const SweepAxis& key : search.keys)
      if (std::none_of(axes.begin(), axes.end(), [&](const SweepAxis& a) { return a.key == key.key; }))
        axes.push_back(key);
  std::vector<SweepRow> rows;
  for (const SearchReport& search : r.searches) {
    if (search.best.empty()) continue;
    SweepRow row = with_costs(search, {search.best[0]})[0];
    row.values.clear();
    row.values.push_back(std::to_string(row.gpus));
    for (std::size_t a = 1; a < axes.size(); ++a) {
      const SweepAxis& axis = axes[a];
      std::string value = "-";
      for (std::size_t k = 0; k < search.keys.size(); ++k)
        if (search.keys[k].key == axis.key) value = search.best[0].values[k];
      row.values.push_back(std::move(value));
    }
    rows.push_back(std::move(row));
  }
  return {std::move(axes), std::move(rows)};
}

std::string knee_text(const ScalingReport& r) {
  if (const auto knee = knee_of(r))
    return fmt::format("The knee: {} GPUs. Of those added up to {} each gives {:.2f} of what one of the {} gives.",
                       grouped(static_cast<double>(knee->gpus)), grouped(static_cast<double>(knee->next)), knee->gives,
                       grouped(static_cast<double>(knee->gpus)));
  return fmt::format("No knee: added GPUs give at least {} of what those before give, as far as was looked.", kKnee);
}

// The numbers of GPUs whose best plan trains the tokens in time.
const SearchReport* in_time(const ScalingReport& r) {
  for (const SearchReport& search : r.searches)
    if (!search.best.empty() && r.days > 0 && days_of(search.tokens, search.best[0].tokens_per_s) <= r.days)
      return &search;
  return nullptr;
}

std::string deadline_text(const ScalingReport& r) {
  const double tokens = r.searches.front().tokens;
  if (const SearchReport* first = in_time(r))
    return fmt::format("The fewest GPUs of these that train {} tokens in {:.4g} days: {}, in {:.3g} days.",
                       compact(tokens), r.days, grouped(static_cast<double>(first->best[0].gpus)),
                       days_of(tokens, first->best[0].tokens_per_s));
  return fmt::format("None of these trains {} tokens in {:.4g} days.", compact(tokens), r.days);
}

}  // namespace

std::optional<Knee> knee_of(const ScalingReport& r) {
  const SweepRow* before = nullptr;
  for (const SearchReport& search : r.searches) {
    if (search.best.empty()) continue;
    const SweepRow& row = search.best.front();
    if (before != nullptr && row.gpus > before->gpus && before->tokens_per_s > 0) {
      const double one = before->tokens_per_s / static_cast<double>(before->gpus);
      const double gives =
          (row.tokens_per_s - before->tokens_per_s) / static_cast<double>(row.gpus - before->gpus) / one;
      if (gives < kKnee) return Knee{before->gpus, row.gpus, gives};
    }
    before = &row;
  }
  return std::nullopt;
}

std::string objective_text(std::string_view objective, double value) {
  if (objective == "memory") return format_bytes(Bytes(static_cast<std::int64_t>(value)));
  if (objective == "energy") return joules_text(value) + " a sample";
  if (objective == "cost") return fmt::format("{:.4g} GPU-hours a sample", value);
  return fmt::format("{:.4g} s", value);
}

double days_of(double tokens, double tokens_per_s) {
  return tokens / tokens_per_s / kSecondsADay;
}

std::string search_text(const SearchReport& r, std::size_t width) {
  if (r.best.empty()) return nothing_fits(r, width);
  std::string text =
      fmt::format("{}: the best {} by {}\n\n", r.scenario,
                  r.best.size() == 1 ? "plan" : fmt::format("{} plans", r.best.size()), spaced(r.objective));
  text += table_of(r, r.best, width) + wrap(cost_line(r, r.best[0]), 0, width);
  text += "\n" + wrap("The best plan: " + r.best[0].limited_by, 0, width);
  if (r.simplest)
    text +=
        wrap(fmt::format("As good and simpler: {} in place of {}, {}, {:.4g} s. Plans within 1.5% of one another may "
                         "change places in reality; take this one.",
                         r.simple_kind, r.best_kind, values_text(r, *r.simplest, [](std::size_t) { return true; }),
                         seconds_of(*r.simplest)),
             0, width);
  text += advice_text(r.advice, width);
  if (const std::string run = run_text(r); !run.empty()) text += wrap(run, 0, width);
  if (!r.front.empty()) text += "\nLess memory, and what it costs in time\n" + table_of(r, r.front, width);
  text += changes_text(r, width);
  text += "\n" + wrap(verdict(r), 0, width);
  for (std::size_t i = 0; i < std::min(kMostReasons, r.reasons.size()); ++i)
    text += wrap(fmt::format("{} forbidden: {}", grouped(static_cast<double>(r.reasons[i].second)), r.reasons[i].first),
                 2, width);
  return text;
}

std::string search_json(const SearchReport& r) {
  return json_of(r).dump(2) + "\n";
}

std::string scaling_json(const ScalingReport& r) {
  Json json{{"schema", "rehearse.plan_scaling/1"}};
  json["searches"] = Json::array();
  for (const SearchReport& search : r.searches) json["searches"].push_back(json_of(search));
  const std::optional<Knee> knee = knee_of(r);
  json["knee_gpus"] = knee ? Json(knee->gpus) : Json(nullptr);
  if (r.days > 0) {
    const SearchReport* first = in_time(r);
    json["days"] = r.days;
    json["fewest_gpus"] = first != nullptr ? Json(first->best[0].gpus) : Json(nullptr);
  }
  return json.dump(2) + "\n";
}

std::string scaling_text(ScalingReport r, std::size_t width) {
  auto [axes, rows] = best_of_each(r);
  if (rows.empty()) return search_text(r.searches.back(), width);
  set_scaling(rows);
  std::string text = fmt::format("{}: the best plan by {} for each number of GPUs\n\n", r.searches.front().scenario,
                                 spaced(r.searches.front().objective));
  // Columns of keys that all have alike say nothing.
  for (std::size_t k = axes.size(); k-- > 1;) {
    const bool alike = rows.size() > 1 && !differs(rows, k);
    if (!alike) continue;
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(k));
    for (SweepRow& row : rows) row.values.erase(row.values.begin() + static_cast<std::ptrdiff_t>(k));
  }
  text +=
      sweep_table(axes, rows, width, TableOf::search) + wrap(cost_line(r.searches.front(), rows[0]), 0, width) + "\n";
  for (const SearchReport& search : r.searches) {
    if (search.best.empty())
      text += wrap((search.open > 0 ? "No plan is known to fit yet: " : "Nothing fits: ") + verdict(search), 0, width);
    else if (const std::string run = run_text(search); !run.empty())
      text += wrap(fmt::format("{} GPUs: {}", grouped(static_cast<double>(search.best[0].gpus)), run), 0, width);
    if (!search.proven) text += wrap(verdict(search), 2, width);
  }
  if (rows.size() > 1) text += wrap(knee_text(r), 0, width);
  if (r.days > 0) text += wrap(deadline_text(r), 0, width);
  return text;
}

}  // namespace rehearse::reports
