#include "reports/ledgers/gpu_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/text.h"
#include "sim/base/csv_field.h"
#include "sim/base/units.h"
#include "sim/result/json_writer.h"

namespace rehearse::reports {
namespace {

constexpr double kCounts = 0.05;  // share of a step's kernels from which a class's error counts

std::string signed_percent(double share) {
  return fmt::format("{:+.1f}%", share * 100);
}

double kernels_s(const GpuRow& row) {
  double sum = 0;
  for (const ClassTimes& c : row.classes) sum += c.measured_s;
  return sum;
}

// The class that counts and is furthest off; nullptr without one.
const ClassTimes* worst_class(const GpuRow& row) {
  const ClassTimes* worst = nullptr;
  for (const ClassTimes& c : row.classes)
    if (c.measured_s >= kCounts * kernels_s(row) &&
        (worst == nullptr || std::fabs(c.error()) > std::fabs(worst->error())))
      worst = &c;
  return worst;
}

}  // namespace

GpuRow gpu_row(const std::string& id, const Difference& d) {
  const result::Result &simulated = d.results[kFirst]->result, &measured = d.results[kSecond]->result;
  GpuRow row;
  row.step = local_row(id, simulated, measured, false);
  row.exact = simulated.coverage[0];
  for (const OpGroup& group : d.classes)
    row.classes.push_back(
        {group.name, Time::from_ps(group.ps[kFirst]).seconds(), Time::from_ps(group.ps[kSecond]).seconds()});
  return row;
}

GpuSummary summarize(const std::vector<GpuRow>& rows) {
  std::vector<LocalRow> steps;
  GpuSummary s;
  for (const GpuRow& row : rows) {
    steps.push_back(row.step);
    const ClassTimes* worst = row.step.reason.empty() ? worst_class(row) : nullptr;
    if (worst == nullptr || std::fabs(worst->error()) <= std::fabs(s.worst_class_error)) continue;
    s.worst_class_error = worst->error();
    s.worst_class = worst->name + " of " + row.step.id;
  }
  const LocalSummary of_steps = summarize(steps, false);
  s.plans = of_steps.plans;
  s.median_error = of_steps.median_error, s.worst_error = of_steps.worst_error;
  s.worst_memory_error = of_steps.worst_memory_error;
  return s;
}

std::string gpu_ledger_table(const std::vector<GpuRow>& rows) {
  std::vector<std::vector<std::string>> cells = {
      {"plan", "measured", "simulated", "error", "memory", "exact", "worst class"}};
  std::string reasons;
  for (const GpuRow& row : rows) {
    if (!row.step.reason.empty()) {
      reasons += wrap(fmt::format("not performed: {}: {}", row.step.id, row.step.reason));
      continue;
    }
    const ClassTimes* worst = worst_class(row);
    cells.push_back({row.step.id, format_time(Time::from_seconds(row.step.measured_s)),
                     format_time(Time::from_seconds(row.step.simulated_s)), signed_percent(row.step.time_error()),
                     fmt::format("{:+.2f}%", row.step.memory_error() * 100), percent(row.exact),
                     worst == nullptr ? "-" : fmt::format("{} {}", worst->name, signed_percent(worst->error()))});
  }
  std::string out = (cells.size() > 1 ? align(cells) : "") + reasons;
  const GpuSummary s = summarize(rows);
  if (s.plans == 0) return out;
  out += wrap(fmt::format("Step time of {} plan{} within {} in the median, worst {}; memory worst {:+.2f}%.", s.plans,
                          s.plans == 1 ? "" : "s", percent(s.median_error), signed_percent(s.worst_error),
                          s.worst_memory_error * 100));
  if (!s.worst_class.empty())
    out += wrap(fmt::format("Kernel class furthest off, of those with a twentieth of a step's kernels: {}, {}.",
                            s.worst_class, signed_percent(s.worst_class_error)));
  return out;
}

// A row a plan and class; class "step" is the whole.
std::string gpu_ledger_csv(const std::vector<GpuRow>& rows) {
  using result::number;
  std::string out = "id,class,measured_s,simulated_s,error,measured_bytes,simulated_bytes,memory_error,reason\n";
  for (const GpuRow& row : rows) {
    const LocalRow& s = row.step;
    if (!s.reason.empty()) {
      out += fmt::format("{},step,,,,,,,{}\n", csv_field(s.id), csv_field(s.reason));
      continue;
    }
    out += fmt::format("{},step,{},{},{},{},{},{},\n", csv_field(s.id), number(s.measured_s), number(s.simulated_s),
                       number(s.time_error()), s.measured_bytes, s.simulated_bytes, number(s.memory_error()));
    for (const ClassTimes& c : row.classes)
      out += fmt::format("{},{},{},{},{},,,,\n", csv_field(s.id), csv_field(c.name), number(c.measured_s),
                         number(c.simulated_s), c.measured_s > 0 ? number(c.error()) : "");
  }
  return out;
}

std::string gpu_ledger_json(const std::vector<GpuRow>& rows) {
  result::JsonWriter json;
  json.open('{').key("schema").text("rehearse.gpu_ledger/1").key("rows").open('[');
  for (const GpuRow& row : rows) {
    const LocalRow& s = row.step;
    json.open('{').key("id").text(s.id).key("reason").text(s.reason);
    if (s.reason.empty()) {
      json.key("global_batch").integer(s.batch.global()).key("tokens_per_step").integer(s.batch.units());
      json.key("measured_s").real(s.measured_s).key("simulated_s").real(s.simulated_s);
      json.key("time_error").real(s.time_error()).key("exact").real(row.exact);
      json.key("measured_bytes").integer(s.measured_bytes).key("simulated_bytes").integer(s.simulated_bytes);
      json.key("memory_error").real(s.memory_error()).key("classes").open('[');
      for (const ClassTimes& c : row.classes)
        json.open('{')
            .key("class")
            .text(c.name)
            .key("measured_s")
            .real(c.measured_s)
            .key("simulated_s")
            .real(c.simulated_s)
            .close('}');
      json.close(']');
    }
    json.close('}');
  }
  json.close(']').close('}');
  return json.str();
}

}  // namespace rehearse::reports
