// See local_ledger.h. A step is measured as result.json says: the median step, with the fastest and the slowest as its
// range; the simulated range is the costs' error interval.
#include "reports/ledgers/local_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "reports/text.h"
#include "sim/base/csv_field.h"
#include "sim/base/diagnostics.h"
#include "sim/base/document.h"
#include "sim/base/quantile.h"
#include "sim/base/units.h"
#include "sim/result/json_writer.h"

namespace rehearse::reports {
namespace {

std::int64_t largest_peak(const result::Result& r) {
  std::int64_t peak = 0;
  for (const auto& stage : r.stages) peak = std::max(peak, stage.peak);
  return peak;
}

std::string signed_error(double share) {
  return fmt::format("{:+.1f}%", share * 100);
}

std::string seconds_text(double seconds) {
  return format_time(Time::from_seconds(seconds));
}

LocalPlan read_plan(const Node& node) {
  LocalPlan plan;
  plan.id = node.text("id");
  plan.scenario = node.text("scenario");
  if (const Node set = node.get("set"))
    for (std::size_t i = 0; i < set.size(); ++i) {
      const auto text = set.at(i).as_text();
      if (!text || text->find('=') == std::string::npos) set.at(i).error("expected KEY=VALUE");
      plan.assignments.push_back(text.value_or(""));
    }
  node.finish();
  return plan;
}

// "A core for each thread: step time of 14 plans within 4.2% in the median, worst +11.0%; memory worst +0.00%."
std::string sentence(const std::string& what, const LocalSummary& s) {
  if (s.plans == 0) return "";
  return wrap(
      fmt::format("{}: step time of {} plan{} within {} in the median, worst {}; without the machine's drift "
                  "{} and {}; {} inside the interval; memory worst {}.",
                  what, s.plans, s.plans == 1 ? "" : "s", percent(s.median_error), signed_error(s.worst_error),
                  percent(s.median_without_drift), signed_error(s.worst_without_drift), s.inside,
                  fmt::format("{:+.2f}%", s.worst_memory_error * 100)));
}

// Nothing where it was as fast.
std::string drift_sentence(double drift) {
  if (std::abs(drift - 1) < 0.02) return "";
  return wrap(
      fmt::format("In the median over plans this machine ran {:.2f} times {} while measured than while "
                  "calibrated.",
                  drift > 1 ? drift : 1 / drift, drift > 1 ? "slower" : "faster"));
}

}  // namespace

std::vector<LocalPlan> read_local_plans(const std::string& file) {
  Diagnostics problems;
  const Document document = Document::from_file(file, problems);
  const Node root = document.root();
  root.integer("local_plans", {}, 1, 1);
  std::vector<LocalPlan> plans;
  const Node list = root.get("plans");
  if (list.kind() != Node::Kind::sequence) list.error("expected a list of plans");
  for (std::size_t i = 0; list.kind() == Node::Kind::sequence && i < list.size(); ++i) {
    LocalPlan plan = read_plan(list.at(i));
    for (const LocalPlan& other : plans)
      if (other.id == plan.id) list.at(i).error(fmt::format("a second plan '{}'", plan.id));
    plan.scenario = (std::filesystem::path(file).parent_path() / plan.scenario).string();
    plans.push_back(std::move(plan));
  }
  if (const Node held_out = root.get("held_out"))
    for (std::size_t i = 0; i < held_out.size(); ++i) {
      const std::string id = held_out.at(i).as_text().value_or("");
      const auto plan = std::find_if(plans.begin(), plans.end(), [&](const LocalPlan& p) { return p.id == id; });
      if (plan == plans.end())
        held_out.at(i).error(fmt::format("no plan '{}'", id));
      else
        plan->held_out = true;
    }
  root.finish();
  problems.throw_if_any();
  return plans;
}

LocalRow local_row(const std::string& id, const result::Result& simulated, const result::Result& measured,
                   bool oversubscribed) {
  LocalRow row;
  row.id = id;
  row.ranks = measured.ranks;
  row.oversubscribed = oversubscribed;
  row.measured_s = Time::from_ps(measured.step_time_ps).seconds();
  row.measured_low_s = measured.interval_low_s;
  row.measured_high_s = measured.interval_high_s;
  row.simulated_s = Time::from_ps(simulated.step_time_ps).seconds();
  row.low_s = simulated.interval_low_s;
  row.high_s = simulated.interval_high_s;
  row.batch = batch_of(measured);
  row.drift = slowdown(measured.pace, simulated.pace);
  row.measured_bytes = largest_peak(measured);
  row.simulated_bytes = largest_peak(simulated);
  return row;
}

LocalSummary summarize(const std::vector<LocalRow>& rows, bool oversubscribed) {
  LocalSummary s;
  std::vector<double> errors, without, drifts;
  for (const LocalRow& row : rows) {
    if (!row.reason.empty() || row.oversubscribed != oversubscribed) continue;
    errors.push_back(std::abs(row.time_error()));
    without.push_back(std::abs(row.error_without_drift()));
    drifts.push_back(row.drift);
    s.inside += row.inside() ? 1 : 0;
    if (without.back() > std::abs(s.worst_without_drift)) s.worst_without_drift = row.error_without_drift();
    if (std::abs(row.time_error()) > std::abs(s.worst_error)) s.worst_error = row.time_error();
    if (std::abs(row.memory_error()) > std::abs(s.worst_memory_error)) s.worst_memory_error = row.memory_error();
  }
  s.plans = static_cast<int>(errors.size());
  if (errors.empty()) return s;
  s.median_error = median(std::move(errors));
  s.median_without_drift = median(std::move(without));
  s.median_drift = median(std::move(drifts));
  return s;
}

std::string local_ledger_table(const std::vector<LocalRow>& rows) {
  std::vector<std::vector<std::string>> cells = {
      {"plan", "ranks", "batch", "measured", "range", "simulated", "error", "drift"}};
  std::string reasons;
  for (const LocalRow& row : rows) {
    if (!row.reason.empty()) {
      reasons += wrap(fmt::format("not performed: {}: {}", row.id, row.reason));
      continue;
    }
    cells.push_back({row.id, fmt::format("{}{}", row.oversubscribed ? "*" : "", row.ranks),
                     fmt::to_string(row.batch.global()), seconds_text(row.measured_s),
                     fmt::format("{:.0f}..{:+.0f}%", (row.measured_low_s / row.measured_s - 1) * 100,
                                 (row.measured_high_s / row.measured_s - 1) * 100),
                     seconds_text(row.simulated_s), signed_error(row.time_error()) + (row.inside() ? "" : "!"),
                     fmt::format("{:.2f}", row.drift)});
  }
  const LocalSummary own = summarize(rows, false), shared = summarize(rows, true);
  std::string out = cells.size() > 1 ? align(cells) : "";
  if (cells.size() > 1)
    out += wrap(
        "batch: sequences or samples a step; drift: how many times slower this machine was while it performed "
        "the plan than while it was calibrated; !: the measured step lies outside the simulated interval");
  if (shared.plans > 0) out += "* more threads than cores\n";
  out += reasons + sentence("A core for each thread", own) + sentence("More threads than cores", shared);
  if (own.plans + shared.plans > 0) out += drift_sentence(own.plans > 0 ? own.median_drift : shared.median_drift);
  return out;
}

std::string local_ledger_csv(const std::vector<LocalRow>& rows) {
  using result::number;
  std::string out =
      "id,ranks,oversubscribed,global_batch,micro_batch,micro_batches,data,tokens_per_step,measured_s,measured_low_s,"
      "measured_high_s,simulated_s,low_s,high_s,time_error,"
      "measured_bytes,simulated_bytes,memory_error,drift,error_without_drift,inside,reason\n";
  for (const LocalRow& row : rows) {
    out += fmt::format("{},", csv_field(row.id));
    if (row.reason.empty())
      out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},\n", row.ranks,
                         row.oversubscribed, row.batch.global(), row.batch.micro_batch, row.batch.micro_batches,
                         row.batch.data, row.batch.units(), number(row.measured_s), number(row.measured_low_s),
                         number(row.measured_high_s), number(row.simulated_s), number(row.low_s), number(row.high_s),
                         number(row.time_error()), row.measured_bytes, row.simulated_bytes, number(row.memory_error()),
                         number(row.drift), number(row.error_without_drift()), row.inside());
    else
      out += fmt::format("{}{}\n", std::string(20, ','), csv_field(row.reason));
  }
  return out;
}

std::string local_ledger_json(const std::vector<LocalRow>& rows) {
  result::JsonWriter json;
  json.open('{').key("schema").text("rehearse.local_ledger/1").key("rows").open('[');
  for (const LocalRow& row : rows) {
    json.open('{').key("id").text(row.id).key("reason").text(row.reason);
    if (row.reason.empty()) {
      json.key("ranks").integer(row.ranks).key("oversubscribed").boolean(row.oversubscribed);
      json.key("global_batch").integer(row.batch.global()).key("micro_batch").integer(row.batch.micro_batch);
      json.key("micro_batches").integer(row.batch.micro_batches).key("data").integer(row.batch.data);
      json.key("tokens_per_step").integer(row.batch.units());
      json.key("measured_s").real(row.measured_s).key("measured_low_s").real(row.measured_low_s);
      json.key("measured_high_s").real(row.measured_high_s).key("simulated_s").real(row.simulated_s);
      json.key("low_s").real(row.low_s).key("high_s").real(row.high_s).key("time_error").real(row.time_error());
      json.key("measured_bytes").integer(row.measured_bytes).key("simulated_bytes").integer(row.simulated_bytes);
      json.key("memory_error").real(row.memory_error());
      json.key("drift").real(row.drift).key("error_without_drift").real(row.error_without_drift());
      json.key("inside").boolean(row.inside());
    }
    json.close('}');
  }
  json.close(']').close('}');
  return json.str();
}

}  // namespace rehearse::reports
