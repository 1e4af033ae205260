// See throughput_ledger.h.
#include "reports/ledgers/throughput_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "reports/ledgers/published_memory.h"
#include "reports/ledgers/sweep_ranking.h"
#include "reports/text.h"
#include "sim/base/csv_field.h"
#include "sim/base/quantile.h"
#include "sim/result/json_writer.h"

namespace rehearse::reports {
namespace {

using Groups = std::map<std::string, std::vector<const ThroughputRow*>>;

std::vector<std::string> summary_cells(const std::string& name, const std::vector<const ThroughputRow*>& rows) {
  const ErrorSummary s = summarize(rows);
  const auto share = [](double value) { return fmt::format("{:.1f}%", value * 100); };
  return {clip(name, 30),
          fmt::format("{}", s.n),
          share(s.mean),
          share(s.median),
          share(s.p90),
          fmt::format("{:+.1f}%", s.bias * 100),
          fmt::format("{:.0f}%", 100.0 * s.inside / std::max(1, s.n)),
          s.unfit > 0 ? fmt::format("{}", s.unfit) : ""};
}

}  // namespace

double mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

ErrorSummary summarize(const std::vector<const ThroughputRow*>& rows) {
  ErrorSummary s;
  std::vector<double> sizes;
  for (const ThroughputRow* row : rows) {
    if (!row->used) continue;
    ++s.n;
    s.inside += row->inside() ? 1 : 0;
    s.unfit += row->fits ? 0 : 1;
    s.bias += row->error();
    sizes.push_back(std::abs(row->error()));
    if (std::abs(row->error()) > std::abs(s.worst)) s.worst = row->error();
  }
  if (s.n == 0) return s;
  std::sort(sizes.begin(), sizes.end());
  s.mean = mean(sizes), s.median = quantile_of_sorted(sizes, 0.5), s.p90 = quantile_of_sorted(sizes, 0.9);
  s.bias /= s.n;
  return s;
}

TableCells throughput_cells(const std::vector<ThroughputRow>& rows) {
  Groups software, tiers;
  std::vector<const ThroughputRow*> all;
  for (const ThroughputRow& row : rows) {
    if (!row.used) continue;
    all.push_back(&row);
    software[row.software].push_back(&row);
    tiers[row.complete ? "tier A (complete)" : "tier B (something assumed)"].push_back(&row);
  }
  TableCells cells = {{"software", "n", "mean", "median", "p90", "bias", "inside", "unfit"}};
  if (all.empty()) return cells;
  for (const auto* groups : {&software, &tiers})
    for (const auto& [name, members] : *groups) cells.push_back(summary_cells(name, members));
  cells.push_back(summary_cells("all", all));
  return cells;
}

std::vector<std::pair<std::size_t, std::string>> unused_reasons(const std::vector<ThroughputRow>& rows) {
  std::map<std::string, std::size_t> reasons;
  for (const ThroughputRow& row : rows) {
    if (row.used) continue;
    const bool again = row.reason.rfind("the configuration of", 0) == 0;
    ++reasons[again ? "the same configuration once more: averaged" : row.reason];
  }
  std::vector<std::pair<std::size_t, std::string>> counts;
  for (const auto& [reason, count] : reasons) counts.emplace_back(count, reason);
  std::stable_sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  return counts;
}

std::string throughput_table(const std::vector<ThroughputRow>& rows) {
  const TableCells cells = throughput_cells(rows);
  std::string out = cells.size() > 1 ? align(cells) : "";
  out += wrap(
      "Errors are of the step time, predicted / measured - 1, each configuration once; inside: within the "
      "predicted interval; unfit: ran, and is predicted not to fit in memory.");
  for (const std::string& table : {sweep_tables(published_sweeps(rows)), memory_score_table(rows)})
    if (!table.empty()) out += "\n" + table;
  const auto counts = unused_reasons(rows);
  if (!counts.empty()) out += "\nNot used:\n";
  for (const auto& [count, reason] : counts) out += wrap(fmt::format("{}: {}", count, reason), 2);
  return out;
}

std::string throughput_csv(const std::vector<ThroughputRow>& rows) {
  using result::number;
  std::string out =
      "id,source,software,model,framework,tier,used,reason,metric,measured,predicted,error,low,high,fits,memory_bytes";
  for (const std::string_view share : result::kShareNames) out += fmt::format(",{}", share);
  out += ",memory_kind,memory_measured_bytes,memory_predicted_bytes,memory_error\n";
  for (const ThroughputRow& row : rows) {
    out +=
        fmt::format("{},{},{},{},{},{},{},{},step_time_s,{}", csv_field(row.id), csv_field(row.source),
                    csv_field(row.software), csv_field(row.model), csv_field(row.framework), row.complete ? "A" : "B",
                    row.used, csv_field(row.reason), row.measured_s > 0 ? number(row.measured_s) : "");
    if (row.used) {
      out += fmt::format(",{},{},{},{},{},{}", number(row.predicted_s), number(row.error()), number(row.low_s),
                         number(row.high_s), row.fits, row.memory_bytes);
      for (const double part : row.breakdown_s) out += "," + number(part);
    } else {
      out += std::string(6 + result::kShares, ',');
    }
    out += row.has_memory() ? fmt::format(",{},{},{},{}\n", row.memory_kind, number(row.memory_measured),
                                          number(row.memory_predicted), number(row.memory_error()))
                            : ",,,,\n";
  }
  return out;
}

namespace {

void write_run(result::JsonWriter& json, const ThroughputRow& row) {
  json.open('{').key("id").text(row.id).key("used").boolean(row.used).key("reason").text(row.reason);
  json.key("metric").text("step_time_s").key("unit").text("s").key("source").text(row.source);
  json.key("software").text(row.software).key("framework").text(row.framework);
  json.key("tier").text(row.complete ? "A" : "B");
  const auto real = [&](const char* key, double value, bool known) {
    json.key(key).raw(known ? result::number(value) : "null");
  };
  real("measured", row.measured_s, row.measured_s > 0);
  real("predicted", row.predicted_s, row.used);
  real("error", row.used ? row.error() : 0, row.used);
  real("low", row.low_s, row.used);
  real("high", row.high_s, row.used);
  real("kernels_low", row.kernels_low, row.used);
  real("kernels_high", row.kernels_high, row.used);
  if (row.used) json.key("fits").boolean(row.fits).key("memory_bytes").integer(row.memory_bytes);
  if (row.has_memory()) {
    json.key("memory").open('{').key("kind").text(row.memory_kind);
    json.key("measured_bytes").real(row.memory_measured).key("predicted_bytes").real(row.memory_predicted);
    json.key("error").real(row.memory_error()).close('}');
  }
  json.close('}');
}

void write_published_sweeps(result::JsonWriter& json, const std::vector<PublishedSweep>& sweeps) {
  const auto real = [&](const char* key, std::optional<double> value) {
    json.key(key).raw(value ? result::number(*value) : "null");
  };
  json.key("sweeps").open('[');
  for (const PublishedSweep& sweep : sweeps) {
    json.open('{').key("name").text(sweep.name).key("source").text(sweep.source).key("what").text(sweep.what);
    real("spearman", sweep.spearman);
    real("regret", sweep.regret());
    json.key("chosen").raw(sweep.chosen != nullptr ? result::json_quoted(sweep.chosen->id) : "null");
    json.key("best").text(sweep.best->id).key("rows").open('[');
    for (const ThroughputRow* row : sweep.rows)
      json.open('{').key("id").text(row->id).key("split").text(row->split).key("fits").boolean(row->fits).close('}');
    json.close(']').close('}');
  }
  json.close(']').key("sweep_sources").open('[');
  for (const SweepSummary& s : summarize(sweeps)) {
    json.open('{').key("source").text(s.source).key("sweeps").integer(s.sweeps).key("rows").integer(s.rows);
    real("mean_spearman", s.with_spearman > 0 ? std::optional(s.mean_spearman) : std::nullopt);
    real("mean_regret", s.with_regret > 0 ? std::optional(s.mean_regret) : std::nullopt);
    real("worst_regret", s.with_regret > 0 ? std::optional(s.worst_regret) : std::nullopt);
    json.key("best_chosen").integer(s.best_chosen).close('}');
  }
  json.close(']');
}

void write_published_memory(result::JsonWriter& json, const std::vector<MemoryScore>& scores) {
  json.key("memory_sources").open('[');
  for (const MemoryScore& s : scores) {
    json.open('{').key("source").text(s.source).key("kind").text(s.kind).key("n").integer(s.n);
    json.key("mean").real(s.mean).key("bias").real(s.bias).key("worst").text(s.worst->id).close('}');
  }
  json.close(']');
}

}  // namespace

std::string throughput_json(const std::vector<ThroughputRow>& rows) {
  result::JsonWriter json;
  json.open('{').key("schema").text("rehearse.ledger/1").key("rows").open('[');
  for (const ThroughputRow& row : rows) write_run(json, row);
  json.close(']');
  write_published_sweeps(json, published_sweeps(rows));
  write_published_memory(json, memory_scores(rows));
  json.close('}');
  return json.str();
}

}  // namespace rehearse::reports
