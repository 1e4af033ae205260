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

std::vector<GpuRow> half(const std::vector<GpuRow>& rows, bool held_out) {
  std::vector<GpuRow> list;
  for (const GpuRow& row : rows)
    if (row.held_out == held_out) list.push_back(row);
  return list;
}

std::string plans(int n) {
  return fmt::format("{} plan{}", n, n == 1 ? "" : "s");
}

// Of plans of one half: the table and its sums.
std::string half_table(const std::vector<GpuRow>& rows, const std::string& what) {
  std::vector<std::vector<std::string>> cells = {
      {"plan", "measured", "simulated", "error", "memory", "exact", "worst class"}};
  for (const GpuRow& row : rows) {
    if (!row.step.reason.empty()) continue;
    const ClassTimes* worst = worst_class(row);
    cells.push_back({row.step.id, format_time(Time::from_seconds(row.step.measured_s)),
                     format_time(Time::from_seconds(row.step.simulated_s)), signed_percent(row.step.time_error()),
                     fmt::format("{:+.2f}%", row.step.memory_error() * 100), percent(row.exact),
                     worst == nullptr ? "-" : fmt::format("{} {}", worst->name, signed_percent(worst->error()))});
  }
  if (cells.size() == 1) return "";
  const GpuSummary s = summarize(rows);
  std::string out = what + "\n" + align(cells);
  out += wrap(fmt::format("Step time of {} within {} in the median, worst {}; memory worst {:+.2f}%.", plans(s.plans),
                          percent(s.median_error), signed_percent(s.worst_error), s.worst_memory_error * 100));
  if (!s.worst_class.empty())
    out += wrap(fmt::format("Kernel class furthest off, of those with a twentieth of a step's kernels: {}, {}.",
                            s.worst_class, signed_percent(s.worst_class_error)));
  return out;
}

std::string conditions_table(const std::vector<GpuRow>& rows) {
  std::vector<std::vector<std::string>> cells = {{"plan", "SM clock", "least", "of", "power", "heat", "throttle"}};
  for (const GpuRow& row : rows) {
    const result::GpuRun& g = row.gpu;
    if (row.step.reason.empty() && g.samples > 0)
      cells.push_back({row.step.id, fmt::format("{} MHz", g.sm_mhz), fmt::format("{}", g.least_sm_mhz),
                       fmt::format("{}", g.max_sm_mhz), fmt::format("{:.0f} of {:.0f} W", g.power_w, g.power_limit_w),
                       fmt::format("{} C", g.temperature_c), g.throttle});
  }
  return cells.size() > 1 ? "While it performed:\n" + align(cells) : "";
}

std::string algorithms_text(const std::vector<GpuRow>& rows) {
  int same = 0;
  std::vector<std::string> others;
  for (const GpuRow& row : rows) {
    same += row.same_algorithms;
    for (const OtherAlgorithm& o : row.other_algorithms)
      others.push_back(fmt::format("{}: {}: performed by {}, calibrated with {}", row.step.id, o.product, o.performed,
                                   o.calibrated));
  }
  if (same + static_cast<int>(others.size()) == 0) return "";
  std::string out = wrap(fmt::format("Products performed by the algorithm that was calibrated: {} of {}.", same,
                                     same + static_cast<int>(others.size())));
  for (const std::string& line : others) out += wrap(line);
  return out;
}

}  // namespace

std::string product_text(const std::string& form, std::int64_t m, std::int64_t n, std::int64_t k) {
  return fmt::format("{} m={} n={} k={}", form, m, n, k);
}

std::string loss_problem(const std::vector<double>& losses, std::int64_t vocab) {
  constexpr double kNear = 0.5;
  if (losses.empty()) return "there are no losses";
  const double expected = std::log(static_cast<double>(vocab));
  if (!(std::abs(losses.front() - expected) <= kNear))
    return fmt::format("the first loss is {:.4f}, not within {} of ln({}) = {:.4f}", losses.front(), kNear, vocab,
                       expected);
  const std::size_t quarter = std::max<std::size_t>(1, losses.size() / 4);
  double sum = 0;
  for (std::size_t i = losses.size() - quarter; i < losses.size(); ++i) sum += losses[i];
  const double last = sum / static_cast<double>(quarter);
  if (!(last < losses.front()))
    return fmt::format("the loss does not fall: {:.4f} first, {:.4f} in the mean of the last {} of {} steps",
                       losses.front(), last, quarter, losses.size());
  return "";
}

GpuRow gpu_row(const LocalPlan& plan, const Difference& d, const Algorithms& calibrated) {
  const result::Result &simulated = d.results[kFirst]->result, &measured = d.results[kSecond]->result;
  GpuRow row;
  row.step = local_row(plan.id, simulated, measured, false);
  row.held_out = plan.held_out;
  row.gpu = measured.gpu;
  for (const result::ProductUse& p : measured.gpu.products) {
    const std::string product = product_text(p.form, p.m, p.n, p.k);
    const auto known = calibrated.find(product);
    if (known == calibrated.end()) continue;
    if (known->second == p.algorithm)
      ++row.same_algorithms;
    else
      row.other_algorithms.push_back({product, known->second, p.algorithm});
  }
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

GpuSummary summarize(const std::vector<GpuRow>& rows, bool held_out) {
  return summarize(half(rows, held_out));
}

std::string gpu_ledger_table(const std::vector<GpuRow>& rows) {
  std::string out = half_table(half(rows, false), "Plans whose steps the calibration walked:");
  out += half_table(half(rows, true), "Plans held out of the walk:");
  for (const GpuRow& row : rows)
    if (!row.step.reason.empty())
      out += wrap(
          fmt::format("{}: {}: {}", row.wrong_losses ? "wrong losses" : "not performed", row.step.id, row.step.reason));
  return out + conditions_table(rows) + algorithms_text(rows);
}

// A row a plan and class; class "step" is the whole.
std::string gpu_ledger_csv(const std::vector<GpuRow>& rows) {
  using result::number;
  std::string out =
      "id,class,measured_s,simulated_s,error,measured_bytes,simulated_bytes,memory_error,reason,held_out,sm_mhz,"
      "sm_mhz_min,power_w,temperature_c,throttle,same_algorithms,other_algorithms\n";
  for (const GpuRow& row : rows) {
    const LocalRow& s = row.step;
    const char* const held_out = row.held_out ? "yes" : "no";
    if (!s.reason.empty()) {
      out += fmt::format("{},step,,,,,,,{},{},,,,,,,\n", csv_field(s.id), csv_field(s.reason), held_out);
      continue;
    }
    const result::GpuRun& g = row.gpu;
    const std::string conditions = g.samples > 0
                                       ? fmt::format("{},{},{},{},{}", g.sm_mhz, g.least_sm_mhz, number(g.power_w),
                                                     g.temperature_c, csv_field(g.throttle))
                                       : ",,,,";
    out +=
        fmt::format("{},step,{},{},{},{},{},{},,{},{},{},{}\n", csv_field(s.id), number(s.measured_s),
                    number(s.simulated_s), number(s.time_error()), s.measured_bytes, s.simulated_bytes,
                    number(s.memory_error()), held_out, conditions, row.same_algorithms, row.other_algorithms.size());
    for (const ClassTimes& c : row.classes)
      out += fmt::format("{},{},{},{},{},,,,,,,,,,,,\n", csv_field(s.id), csv_field(c.name), number(c.measured_s),
                         number(c.simulated_s), c.measured_s > 0 ? number(c.error()) : "");
  }
  return out;
}

std::string gpu_ledger_json(const std::vector<GpuRow>& rows) {
  result::JsonWriter json;
  json.open('{').key("schema").text("rehearse.gpu_ledger/1").key("rows").open('[');
  for (const GpuRow& row : rows) {
    const LocalRow& s = row.step;
    json.open('{').key("id").text(s.id).key("held_out").boolean(row.held_out).key("reason").text(s.reason);
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
      json.close(']').key("same_algorithms").integer(row.same_algorithms).key("other_algorithms").open('[');
      for (const OtherAlgorithm& o : row.other_algorithms)
        json.open('{')
            .key("product")
            .text(o.product)
            .key("calibrated")
            .text(o.calibrated)
            .key("performed")
            .text(o.performed)
            .close('}');
      json.close(']');
      if (const result::GpuRun& g = row.gpu; g.samples > 0) {
        json.key("gpu").open('{').key("samples").integer(g.samples).key("sm_mhz").integer(g.sm_mhz);
        json.key("sm_mhz_min").integer(g.least_sm_mhz).key("sm_mhz_max").integer(g.max_sm_mhz);
        json.key("power_w").real(g.power_w).key("power_limit_w").real(g.power_limit_w);
        json.key("temperature_c").integer(g.temperature_c).key("throttle").text(g.throttle).close('}');
      }
    }
    json.close('}');
  }
  json.close(']').close('}');
  return json.str();
}

}  // namespace rehearse::reports
