// See cluster_choice.h.
#include "reports/cluster_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/batch.h"
#include "reports/tables.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

using Json = nlohmann::ordered_json;

const SweepRow& best_row(const ClusterOption& option) {
  return option.search.best.front();
}

double days_taken(const ClusterChoice& c, const ClusterOption& option) {
  return c.tokens > 0 && best_row(option).tokens_per_s > 0 ? days_of(c.tokens, best_row(option).tokens_per_s) : 0;
}

double dollars_of(const ClusterChoice& c, const ClusterOption& option) {
  constexpr double kHoursADay = 24;
  return days_taken(c, option) * kHoursADay * static_cast<double>(best_row(option).gpus) * option.search.price.usd;
}

bool in_time(const ClusterChoice& c, const ClusterOption& option) {
  return option.can() && (c.days == 0 || (days_taken(c, option) > 0 && days_taken(c, option) <= c.days));
}

// The option for which `value` is least of those in time; values of 0 are not known.
template <class Value>
std::optional<std::size_t> least(const ClusterChoice& c, const Value& value) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < c.options.size(); ++i) {
    if (!in_time(c, c.options[i]) || value(c.options[i]) <= std::pair(0.0, 0.0)) continue;
    if (!found || value(c.options[i]) < value(c.options[*found])) found = i;
  }
  return found;
}

std::string plan_words(const ClusterOption& option) {
  std::string text;
  for (std::size_t k = 0; k < option.search.keys.size(); ++k)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", option.search.keys[k].key, best_row(option).values[k]);
  return text.empty() ? "the plan that is fixed" : text;
}

std::string run_words(const ClusterChoice& c, const ClusterOption& option) {
  std::string text = fmt::format("{} GPUs of {}", grouped(static_cast<double>(best_row(option).gpus)), option.cluster);
  if (const double days = days_taken(c, option); days > 0) text += fmt::format(", {:.3g} days", days);
  if (const double dollars = dollars_of(c, option); dollars > 0)
    text += fmt::format(", ${} at {}", grouped(dollars), option.search.price.text());
  return text;
}

// The nearest thing that would work, where nothing is in time.
std::string none_in_time(const ClusterChoice& c) {
  const ClusterOption* fastest = nullptr;
  for (const ClusterOption& option : c.options)
    if (option.can() && (fastest == nullptr || days_taken(c, option) < days_taken(c, *fastest))) fastest = &option;
  std::string text = fmt::format("None of these trains {} tokens in {:.4g} days", compact(c.tokens), c.days);
  if (fastest == nullptr) return text + ": no plan fits.";
  return text + fmt::format(
                    "; the nearest is {}. More GPUs than that do not shorten it, or cannot be: a larger "
                    "training.global_batch lets more of them work.",
                    run_words(c, *fastest));
}

std::string verdicts(const ClusterChoice& c, std::size_t width) {
  const auto few = fewest_gpus(c), cheap = cheapest(c);
  if (!few) return c.days > 0 ? wrap(none_in_time(c), 0, width) : "";
  const std::string task =
      c.days > 0 ? fmt::format(" that train {} tokens in {:.4g} days", compact(c.tokens), c.days) : std::string();
  std::string text = wrap(fmt::format("Fewest GPUs{}: {}.", task, run_words(c, c.options[*few])), 0, width);
  if (cheap) text += wrap(fmt::format("Cheapest{}: {}.", task, run_words(c, c.options[*cheap])), 0, width);
  std::string unpriced;
  for (const ClusterOption& option : c.options)
    if (in_time(c, option) && !option.search.price) unpriced += (unpriced.empty() ? "" : ", ") + option.cluster;
  if (!unpriced.empty() && c.tokens > 0)
    text += wrap(fmt::format("No price is known of {}: give one with --prices FILE or --price D.", unpriced), 0, width);
  return text;
}

}  // namespace

std::optional<std::size_t> fewest_gpus(const ClusterChoice& c) {
  return least(c, [&](const ClusterOption& o) {
    return std::pair(static_cast<double>(best_row(o).gpus), static_cast<double>(best_row(o).step_time_ps));
  });
}

std::optional<std::size_t> cheapest(const ClusterChoice& c) {
  return least(c, [&](const ClusterOption& o) { return std::pair(dollars_of(c, o), 0.0); });
}

std::string cluster_text(const ClusterChoice& c, std::size_t width) {
  std::vector<std::vector<std::string>> rows{{"cluster", "GPUs", "step", "MFU", "days", "GPU-hours", "dollars"}};
  std::string notes;
  for (const ClusterOption& option : c.options) {
    if (!option.can()) {
      const std::string why = !option.problem.empty() ? option.problem : "nothing fits in memory";
      notes += wrap(fmt::format("{}, {} GPUs: {}.", option.cluster, grouped(static_cast<double>(option.gpus)), why), 0,
                    width);
      continue;
    }
    const SweepRow& row = best_row(option);
    const double days = days_taken(c, option), dollars = dollars_of(c, option);
    rows.push_back(
        {option.cluster, grouped(static_cast<double>(row.gpus)), format_time(Time::from_ps(row.step_time_ps)),
         percent(row.mfu), days > 0 ? fmt::format("{:.3g}", days) : "-",
         days > 0 ? grouped(days * 24 * static_cast<double>(row.gpus)) : "-", dollars > 0 ? grouped(dollars) : "-"});
    notes +=
        wrap(fmt::format("{}, {} GPUs: {}", option.cluster, grouped(static_cast<double>(row.gpus)), plan_words(option)),
             0, width);
    if (const std::string batch = batch_text(row.batch); !batch.empty()) notes += wrap("batch: " + batch, 2, width);
    if (!option.search.proven) notes += wrap("Not proven: a limit ended its search.", 2, width);
  }
  const std::string& name = c.options.front().search.scenario;
  std::string text = fmt::format("{}the best plan of each cluster\n\n", name.empty() ? "" : name + ": ");
  if (rows.size() > 1) text += align(rows, 0, width) + "\n";
  return text + notes + verdicts(c, width);
}

std::string cluster_json(const ClusterChoice& c) {
  Json json{{"schema", "rehearse.plan_clusters/1"}};
  if (c.tokens > 0) json["tokens"] = c.tokens;
  if (c.days > 0) json["days"] = c.days;
  json["clusters"] = Json::array();
  for (const ClusterOption& option : c.options) {
    Json one{{"cluster", option.cluster}, {"gpus", option.gpus}, {"fits", option.can()}};
    if (!option.problem.empty()) one["problem"] = option.problem;
    if (!option.tried.empty()) one["gpus_tried"] = option.tried;
    if (option.can()) one["search"] = Json::parse(search_json(option.search));
    if (option.can() && c.days > 0) one["in_time"] = in_time(c, option);
    json["clusters"].push_back(std::move(one));
  }
  const auto few = fewest_gpus(c), cheap = cheapest(c);
  json["fewest_gpus"] = few ? Json(c.options[*few].cluster) : Json(nullptr);
  json["cheapest"] = cheap ? Json(c.options[*cheap].cluster) : Json(nullptr);
  return json.dump(2) + "\n";
}

}  // namespace rehearse::reports
