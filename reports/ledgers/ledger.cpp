// See ledger.h. A metric that falls when the step gets longer has its interval turned round.
#include "reports/ledgers/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "reports/batch.h"
#include "reports/text.h"
#include "sim/base/csv.h"
#include "sim/base/csv_field.h"
#include "sim/base/diagnostics.h"
#include "sim/result/json_writer.h"

namespace rehearse::reports {
namespace {

using result::Result;

constexpr std::array<std::string_view, 4> kCoverageNames = {"exact", "interpolated", "extrapolated", "spec"};

enum class Unit { seconds, tokens_per_s, tflops, share };
struct Metric {
  std::string_view name;
  Unit unit;
};
constexpr Metric kMetrics[] = {{"iter_time_s", Unit::seconds},
                               {"step_time_s", Unit::seconds},
                               {"tokens_per_s", Unit::tokens_per_s},
                               {"tokens_per_s_per_gpu", Unit::tokens_per_s},
                               {"model_tflops_per_gpu", Unit::tflops},
                               {"hardware_tflops_per_gpu", Unit::tflops},
                               {"mfu", Unit::share},
                               {"hfu", Unit::share}};

double value_of(std::string_view metric, const Result& r) {
  const double step_s = static_cast<double>(r.step_time_ps) * 1e-12;
  const double gpu_tera_seconds = step_s * static_cast<double>(r.ranks) * 1e12;
  if (metric == "tokens_per_s") return r.tokens_per_s;
  if (metric == "tokens_per_s_per_gpu") return r.tokens_per_s_per_gpu;
  if (metric == "model_tflops_per_gpu") return gpu_tera_seconds > 0 ? r.model_flops / gpu_tera_seconds : 0;
  if (metric == "hardware_tflops_per_gpu") return gpu_tera_seconds > 0 ? r.hardware_flops / gpu_tera_seconds : 0;
  if (metric == "mfu") return mfu(r);
  return metric == "hfu" ? hfu(r) : step_s;
}

// What a printed value is multiplied by to be in the result's unit; nullopt for a unit the metric does not have.
std::optional<double> factor_of(Unit unit, std::string_view text) {
  using Known = std::pair<std::string_view, double>;
  static constexpr Known kSeconds[] = {{"s", 1}, {"ms", 1e-3}};
  static constexpr Known kTokens[] = {{"tokens/s", 1}, {"tokens/s/gpu", 1}, {"tokens/s/GPU", 1}};
  static constexpr Known kTflops[] = {{"TFLOP/s", 1}, {"TFLOPS", 1}, {"TFLOP/s/GPU", 1}, {"PFLOP/s", 1e3}};
  static constexpr Known kShares[] = {{"", 1}, {"1", 1}, {"fraction", 1}, {"%", 1e-2}, {"percent", 1e-2}};
  const auto find = [&](const auto& list) -> std::optional<double> {
    for (const auto& [name, factor] : list)
      if (name == text) return factor;
    return std::nullopt;
  };
  switch (unit) {
    case Unit::seconds:
      return find(kSeconds);
    case Unit::tokens_per_s:
      return find(kTokens);
    case Unit::tflops:
      return find(kTflops);
    case Unit::share:
      return find(kShares);
  }
  return std::nullopt;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

LedgerRow start_row(const Measurement& m) {
  LedgerRow row;
  row.id = m.id;
  row.metric = m.metric;
  row.unit = m.unit;
  row.scenario = m.scenario;
  row.source = m.source;
  row.measured = m.value;
  return row;
}

std::string coverage_text(const std::array<double, 4>& coverage) {
  std::string out;
  for (std::size_t i = 0; i < coverage.size(); ++i)
    if (coverage[i] >= 0.005)
      out += fmt::format("{}{:.0f}% {}", out.empty() ? "" : " ", coverage[i] * 100, kCoverageNames[i]);
  return out;
}

// "16/64/15/5": percent of each coverage in its order.
std::string percents(const std::array<double, 4>& coverage) {
  return fmt::format("{:.0f}/{:.0f}/{:.0f}/{:.0f}", coverage[0] * 100, coverage[1] * 100, coverage[2] * 100,
                     coverage[3] * 100);
}

}  // namespace

std::vector<Measurement> read_measurements(const std::string& file, std::string_view text) {
  Diagnostics problems;
  CsvTable table(file, std::string(text), {{"id", "scenario", "metric", "value", "unit"}, true}, problems);
  std::vector<Measurement> out;
  while (const CsvRow* row = table.next()) {
    const std::optional<double> measured = parse_number(row->text("value"));
    if (!measured) row->error("value", fmt::format("expected a number, found '{}'", row->text("value")));
    if (row->text("scenario").empty()) row->error("scenario", "expected a scenario, found nothing");
    const auto text_of = [row](const char* column) { return std::string(row->text(column)); };
    out.push_back({text_of("id"), text_of("scenario"), text_of("metric"), text_of("unit"),
                   table.has("source") ? text_of("source") : "", measured.value_or(0), table.line()});
  }
  problems.throw_if_any();
  return out;
}

LedgerRow unused(const Measurement& measurement, std::string reason) {
  LedgerRow row = start_row(measurement);
  row.reason = std::move(reason);
  return row;
}

LedgerRow compare(const Measurement& m, const Result& r) {
  const auto metric =
      std::find_if(std::begin(kMetrics), std::end(kMetrics), [&](const Metric& k) { return k.name == m.metric; });
  if (metric == std::end(kMetrics)) return unused(m, fmt::format("no result has the metric '{}'", m.metric));
  const std::optional<double> factor = factor_of(metric->unit, m.unit);
  if (!factor) return unused(m, fmt::format("'{}' is no unit of {}", m.unit, m.metric));
  if (!(m.value > 0)) return unused(m, "the measured value is not positive");
  LedgerRow row = start_row(m);
  row.used = true;
  row.predicted = value_of(m.metric, r) / *factor;
  row.error = row.predicted / row.measured - 1;
  row.coverage = r.coverage;
  row.global_batch = batch_of(r).global();
  const double step_s = static_cast<double>(r.step_time_ps) * 1e-12;
  row.low = row.high = row.predicted;
  if (step_s > 0 && r.interval_low_s > 0) {
    const double shorter = r.interval_low_s / step_s, longer = r.interval_high_s / step_s;
    const bool time = metric->unit == Unit::seconds;
    row.low = time ? row.predicted * shorter : row.predicted / longer;
    row.high = time ? row.predicted * longer : row.predicted / shorter;
  }
  return row;
}

LedgerSummary summarize(const std::vector<LedgerRow>& rows) {
  LedgerSummary s;
  for (const LedgerRow& row : rows) {
    if (!row.used) continue;
    ++s.used;
    s.within_10_percent += std::abs(row.error) <= 0.1 ? 1 : 0;
    s.in_interval += row.low <= row.measured && row.measured <= row.high ? 1 : 0;
    s.mean_absolute_error += std::abs(row.error);
    s.mean_error += row.error;
    if (std::abs(row.error) > std::abs(s.worst_error)) s.worst_error = row.error;
  }
  if (s.used > 0) {
    s.mean_absolute_error /= s.used;
    s.mean_error /= s.used;
  }
  return s;
}

namespace {

// "MFU, %", "s", "TFLOP/s": what a row's numbers are, for a narrow column.
std::string what(const LedgerRow& row) {
  if (row.metric == "mfu" || row.metric == "hfu")
    return fmt::format("{}, {}", row.metric == "mfu" ? "MFU" : "HFU", row.unit);
  return row.unit;
}

}  // namespace

std::string ledger_table(const std::vector<LedgerRow>& rows) {
  std::vector<std::string> scenarios;
  for (const LedgerRow& row : rows) scenarios.push_back(file_stem(row.scenario));
  scenarios = without_common_words(std::move(scenarios));
  std::vector<std::vector<std::string>> cells = {
      {"scenario", "batch", "of", "measured", "predicted", "error", "coverage"}};
  std::string reasons;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const LedgerRow& row = rows[i];
    if (!row.used) {
      reasons += wrap(fmt::format("not used: {}: {}", row.id, row.reason));
      continue;
    }
    cells.push_back({clip(scenarios[i], 24),
                     row.global_batch > 0 ? grouped(static_cast<double>(row.global_batch)) : "-", clip(what(row), 9),
                     compact(row.measured), compact(row.predicted), fmt::format("{:+.1f}%", row.error * 100),
                     percents(row.coverage)});
  }
  if (cells.size() > 1)
    reasons =
        "batch: sequences or samples a step\ncoverage: % of busy time exact/interpolated/extrapolated/data sheet\n" +
        reasons;
  std::string out = cells.size() > 1 ? align(cells) : "";
  out += reasons;
  const LedgerSummary s = summarize(rows);
  if (s.used == 0) return out + "No measurement was used.\n";
  return out + wrap(fmt::format(
                   "{} used: mean absolute error {}, mean error {:+.1f}%, worst {:+.1f}%; {} within 10%, {} inside "
                   "their predicted interval.",
                   s.used, percent(s.mean_absolute_error), s.mean_error * 100, s.worst_error * 100, s.within_10_percent,
                   s.in_interval));
}

std::string ledger_csv(const std::vector<LedgerRow>& rows) {
  using result::number;
  std::string out = "id,used,reason,metric,measured,predicted,error,low,high,coverage,global_batch\n";
  for (const LedgerRow& row : rows) {
    out += fmt::format("{},{},{},{},{}", csv_field(row.id), row.used, csv_field(row.reason), csv_field(row.metric),
                       number(row.measured));
    out += row.used ? fmt::format(",{},{},{},{},{},{}\n", number(row.predicted), number(row.error), number(row.low),
                                  number(row.high), csv_field(coverage_text(row.coverage)), row.global_batch)
                    : ",,,,,,\n";
  }
  return out;
}

std::string ledger_json(const std::vector<LedgerRow>& rows) {
  result::JsonWriter json;
  json.open('{').key("schema").text("rehearse.ledger/1").key("rows").open('[');
  for (const LedgerRow& row : rows) {
    json.open('{').key("id").text(row.id).key("used").boolean(row.used).key("reason").text(row.reason);
    json.key("metric")
        .text(row.metric)
        .key("unit")
        .text(row.unit)
        .key("scenario")
        .text(row.scenario)
        .key("source")
        .text(row.source);
    json.key("measured").real(row.measured);
    const auto predicted = [&](std::string_view key, double value) {
      json.key(key).raw(row.used ? result::number(value) : "null");
    };
    predicted("predicted", row.predicted);
    predicted("error", row.error);
    predicted("low", row.low);
    predicted("high", row.high);
    json.key("coverage").open('{');
    for (std::size_t i = 0; i < kCoverageNames.size() && row.used; ++i)
      json.key(kCoverageNames[i]).real(row.coverage[i]);
    json.close('}');
    if (row.global_batch > 0) json.key("global_batch").integer(row.global_batch);
    json.close('}');
  }
  json.close(']').close('}');
  return json.str();
}

}  // namespace rehearse::reports
