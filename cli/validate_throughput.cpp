// See validate_throughput.h.
#include "cli/validate_throughput.h"

#include <fmt/format.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/paths.h"
#include "formats/published_runs.h"
#include "reports/csv.h"
#include "reports/limits.h"
#include "sim/base/diagnostics.h"
#include "sim/result/output_file.h"
#include "sim/run/study.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;
using reports::ThroughputRow;

constexpr const char* kRules = "scenarios/published/throughput-rules.yaml";

std::vector<formats::RunColumns> read_rows(const std::string& csv, std::string_view text, const std::string& root) {
  const reports::CsvTable table =
      reports::parse_csv(shown_path(csv, root), text,
                         {"id", "source", "model", "gpu", "gpus", "tp", "pp", "micro_batch", "metric", "value"});
  std::vector<formats::RunColumns> rows;
  for (const reports::CsvRow& row : table.rows) {
    formats::RunColumns columns;
    for (std::size_t i = 0; i < table.columns.size(); ++i) columns[table.columns[i]] = row.fields[i];
    rows.push_back(std::move(columns));
  }
  return rows;
}

bool selected(const formats::PublishedRun& run, const std::string& filter) {
  for (const std::string* text : {&run.id, &run.source, &run.software, &run.model})
    if (text->find(filter) != std::string::npos) return true;
  return false;
}

std::string scenario_file(const formats::PublishedRun& run) {
  std::string head = fmt::format("# {} of {}: {} {} {}\n", run.id, run.source, run.metric, run.value, run.unit);
  for (const std::string& each : run.assumed) head += "# assumed: " + each + "\n";
  return head + run.scenario;
}

void simulate(ThroughputRow& row, const std::string& file, const std::string& root) {
  SimulationRequest request;
  request.file = file;
  request.progress = [](double) { check_interrupt(); };
  try {
    const result::Result r = simulate_file(request, root);
    row.used = true;
    row.predicted_s = static_cast<double>(r.step_time_ps) * 1e-12;
    row.low_s = r.interval_low_s > 0 ? r.interval_low_s : row.predicted_s;
    row.high_s = r.interval_high_s > 0 ? r.interval_high_s : row.predicted_s;
    row.fits = r.memory_fits;
    row.framework = r.scenario.at("framework");
    row.coverage = r.coverage;
    if (const auto* worst = reports::largest_stage(r); worst != nullptr) row.memory_bytes = worst->peak;
    for (std::size_t i = 0; i < row.breakdown_s.size(); ++i)
      row.breakdown_s[i] = static_cast<double>(r.breakdown_ps[i]) * 1e-12;
  } catch (const InputError& error) {
    row.reason = error.diagnostics().front().message;
  }
}

}  // namespace

bool is_throughput_table(std::string_view text) {
  const std::string_view heading = text.substr(0, text.find('\n'));
  return heading.find("gpus") != std::string_view::npos && heading.find("scenario") == std::string_view::npos;
}

std::vector<ThroughputRow> validate_throughput(const std::string& csv, std::string_view text, const std::string& filter,
                                               const std::string& directory, int threads, const std::string& root) {
  const auto rules = formats::PublishedRules::read((fs::path(root) / kRules).string());
  std::vector<ThroughputRow> rows;
  std::vector<std::string> scenarios;           // of each row; empty where there is none to simulate
  std::map<std::string, std::size_t> first_of;  // configuration -> the row that stands for it
  for (const formats::RunColumns& columns : read_rows(csv, text, root)) {
    const formats::PublishedRun run = rules.convert(columns);
    if (!selected(run, filter)) continue;
    ThroughputRow row;
    row.id = run.id, row.source = run.source, row.software = run.software, row.model = run.model;
    row.complete = run.complete, row.reason = run.reason, row.measured_s = run.step_s;
    std::string scenario;
    if (run.reason.empty()) {
      const auto [known, added] = first_of.emplace(run.scenario, rows.size());
      if (added) {
        scenario = scenario_file(run);
      } else {
        ThroughputRow& first = rows[known->second];
        first.measurements.push_back(run.step_s);
        row.reason = fmt::format("the configuration of {} once more: averaged there", first.id);
      }
    }
    if (!scenario.empty()) row.measurements.push_back(run.step_s);
    rows.push_back(std::move(row));
    scenarios.push_back(std::move(scenario));
  }
  for (ThroughputRow& row : rows)
    if (!row.measurements.empty()) row.measured_s = reports::mean(row.measurements);
  std::vector<std::pair<std::string, std::string>> files;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (!scenarios[i].empty()) files.emplace_back(rows[i].id + ".yaml", scenarios[i]);
  fs::create_directories(directory);
  result::write_files(directory, files);
  Progress progress(fmt::format("simulating {} published runs", files.size()));
  std::mutex mutex;
  std::size_t done = 0;
  run::in_parallel(threads, rows.size(), [&](std::size_t i) {
    if (scenarios[i].empty()) return;
    simulate(rows[i], (fs::path(directory) / (rows[i].id + ".yaml")).string(), root);
    const std::lock_guard lock(mutex);
    progress(static_cast<double>(++done) / static_cast<double>(files.size()));
  });
  return rows;
}

}  // namespace rehearse::cli
