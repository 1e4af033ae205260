// See validate_throughput.h.
#include "cli/validate_throughput.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/paths.h"
#include "formats/published_runs.h"
#include "reports/limits.h"
#include "sim/base/csv.h"
#include "sim/base/csv_field.h"
#include "sim/base/diagnostics.h"
#include "sim/base/in_parallel.h"
#include "sim/result/output_file.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;
using reports::ThroughputRow;

constexpr const char* kRules = "calibrate/published/throughput-rules.yaml";

// The columns that rows of published runs may have; those of kNeeded have to be there.
const std::vector<std::string> kNeeded = {"id", "source", "model",       "gpu",    "gpus",
                                          "tp", "pp",     "micro_batch", "metric", "value"};

std::vector<formats::RunColumns> read_rows(const std::string& csv, std::string_view text, const std::string& root) {
  CsvReader reader(shown_path(csv, root), text);
  Diagnostics problems;
  std::vector<std::string> names;
  if (reader.next())
    for (std::size_t i = 0; i < reader.size(); ++i) names.emplace_back(reader[i]);
  for (const std::string& name : kNeeded)
    if (std::find(names.begin(), names.end(), name) == names.end())
      problems.add({reader.file(), 1, 1, name, fmt::format("there is no column '{}'", name), ""});
  problems.throw_if_any();
  std::vector<formats::RunColumns> rows;
  while (reader.next()) {
    if (reader.size() != names.size()) {
      problems.add({reader.file(), reader.line(), 1, "",
                    fmt::format("expected {} fields, found {}", names.size(), reader.size()), ""});
      continue;
    }
    formats::RunColumns& row = rows.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = csv_text(reader[i]);
  }
  problems.throw_if_any();
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
  in_parallel(threads, rows.size(), [&](std::size_t i) {
    if (scenarios[i].empty()) return;
    simulate(rows[i], (fs::path(directory) / (rows[i].id + ".yaml")).string(), root);
    const std::lock_guard lock(mutex);
    progress(static_cast<double>(++done) / static_cast<double>(files.size()));
  });
  return rows;
}

}  // namespace rehearse::cli
