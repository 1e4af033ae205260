// See validate_throughput.h.
#include "cli/validate_throughput.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/paths.h"
#include "formats/published_runs.h"
#include "reports/limits.h"
#include "sim/base/csv.h"
#include "sim/base/csv_field.h"
#include "sim/base/diagnostics.h"
#include "sim/base/in_parallel.h"
#include "sim/plan/framework.h"
#include "sim/result/output_file.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;
using reports::ThroughputRow;

constexpr const char* kRules = "calibrate/published/throughput-rules.yaml";
constexpr const char* kFacts = "calibrate/published/run-facts.yaml";

// Columns without which no row can be a scenario; the others may be missing.
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
  std::set<std::string> ids;
  while (reader.next()) {
    if (reader.size() != names.size()) {
      problems.add({reader.file(), reader.line(), 1, "",
                    fmt::format("expected {} fields, found {}", names.size(), reader.size()), ""});
      continue;
    }
    formats::RunColumns& row = rows.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = csv_text(reader[i]);
    const std::string& id = row["id"];  // names the row's scenario file
    if (id.empty() || id.front() == '.' || id.find('/') != std::string::npos)
      problems.add({reader.file(), reader.line(), 1, "id", fmt::format("'{}' cannot name a file", id), ""});
    else if (!ids.insert(id).second)
      problems.add({reader.file(), reader.line(), 1, "id", fmt::format("'{}' comes twice", id), ""});
    if (const std::string problem = formats::memory_problem(row); !problem.empty())
      problems.add({reader.file(), reader.line(), 1, "peak_memory", problem, ""});
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

std::string_view memory_word(formats::MemoryKind kind) {
  switch (kind) {
    case formats::MemoryKind::allocated:
      return "allocated";
    case formats::MemoryKind::reserved:
      return "reserved";
    case formats::MemoryKind::not_stated:
      return "not stated";
    case formats::MemoryKind::none:
      break;
  }
  return "";
}

ThroughputRow row_of(const formats::PublishedRun& run) {
  ThroughputRow row;
  row.id = run.id, row.source = run.source, row.software = run.software, row.model = run.model;
  row.complete = run.complete, row.reason = run.reason, row.measured_s = run.step_s;
  row.gpus = run.gpus, row.seq_len = run.seq_len, row.global_batch = run.global_batch;
  row.task = run.task, row.split = run.split, row.missing = run.missing;
  row.memory_kind = memory_word(run.memory_kind), row.memory_measured = run.memory_bytes;
  return row;
}

std::string file_name(const ThroughputRow& row) {
  return row.id + ".yaml";
}

// What of a predicted peak a published one of this kind counts (reports/ledgers/published_memory.h).
double comparable_memory(const result::Result& r, std::string_view kind) {
  const auto* worst = reports::largest_stage(r);
  if (worst == nullptr) return 0;
  const double tensors = static_cast<double>(worst->peak - worst->framework);
  const plan::FrameworkProfile* profile = plan::find_framework(r.scenario.at("framework"));
  return kind == "reserved" && profile != nullptr ? tensors * (1 + profile->fragmentation) : tensors;
}

void simulate(ThroughputRow& row, const std::string& file, const std::string& root) {
  SimulationRequest request;
  request.file = file;
  request.left_out = row.source;
  request.progress = [](double) { check_interrupt(); };
  try {
    const result::Result r = simulate_file(request, root);
    row.used = true;
    row.predicted_s = static_cast<double>(r.step_time_ps) * 1e-12;
    row.low_s = r.interval_low_s > 0 ? r.interval_low_s : row.predicted_s;
    row.high_s = r.interval_high_s > 0 ? r.interval_high_s : row.predicted_s;
    row.kernels_low = r.kernels_low, row.kernels_high = r.kernels_high;
    row.fits = r.memory_fits;
    row.framework = r.scenario.at("framework");
    row.coverage = r.coverage;
    if (const auto* worst = reports::largest_stage(r); worst != nullptr) row.memory_bytes = worst->peak;
    row.mfu = result::mfu(r) * row.predicted_s / row.measured_s;
    if (row.memory_measured > 0) row.memory_predicted = comparable_memory(r, row.memory_kind);
    for (std::size_t i = 0; i < row.breakdown_s.size(); ++i)
      row.breakdown_s[i] = static_cast<double>(r.breakdown_ps[i]) * 1e-12;
  } catch (const InputError& error) {
    const Diagnostic& first = error.diagnostics().front();
    row.reason = first.path.empty() ? first.message : fmt::format("{}: {}", first.path, first.message);
  }
}

}  // namespace

bool is_throughput_table(std::string_view text) {
  const std::string_view heading = text.substr(0, text.find('\n'));
  return heading.find("gpus") != std::string_view::npos && heading.find("scenario") == std::string_view::npos;
}

PublishedRuns read_published_runs(const std::string& csv, std::string_view text, const std::string& filter,
                                  const std::string& root) {
  const auto rules =
      formats::PublishedRules::read((fs::path(root) / kRules).string(), (fs::path(root) / kFacts).string());
  PublishedRuns runs;
  std::map<std::string, std::size_t> first_of;  // source and configuration -> the row that stands for it
  for (const formats::RunColumns& columns : read_rows(csv, text, root)) {
    const formats::PublishedRun run = rules.convert(columns);
    if (!selected(run, filter)) continue;
    ThroughputRow row = row_of(run);
    std::string scenario;
    if (run.reason.empty()) {
      const auto [known, added] = first_of.emplace(run.source + "\n" + run.scenario, runs.rows.size());
      if (added) {
        scenario = scenario_file(run);
        row.measurements.push_back(run.step_s);
      } else {
        ThroughputRow& first = runs.rows[known->second];
        first.measurements.push_back(run.step_s);
        row.reason = fmt::format("the configuration of {} once more: averaged there", first.id);
      }
    }
    runs.rows.push_back(std::move(row));
    runs.scenarios.push_back(std::move(scenario));
  }
  for (ThroughputRow& row : runs.rows)
    if (!row.measurements.empty()) row.measured_s = reports::mean(row.measurements);
  return runs;
}

void check_scenario_output(const std::string& directory, const PublishedRuns& runs) {
  check_output_directory(directory, {});
  for (std::size_t i = 0; i < runs.rows.size(); ++i)
    if (!runs.scenarios[i].empty()) result::check_output_file((fs::path(directory) / file_name(runs.rows[i])).string());
}

void simulate_published_runs(PublishedRuns& runs, const std::string& directory, int threads, const std::string& root) {
  std::vector<std::pair<std::string, std::string>> files;
  for (std::size_t i = 0; i < runs.rows.size(); ++i)
    if (!runs.scenarios[i].empty()) files.emplace_back(file_name(runs.rows[i]), runs.scenarios[i]);
  result::write_files(directory, files);
  Progress progress(fmt::format("simulating {} published runs", files.size()));
  std::mutex mutex;
  std::size_t done = 0;
  in_parallel(threads, runs.rows.size(), [&](std::size_t i) {
    if (runs.scenarios[i].empty()) return;
    simulate(runs.rows[i], (fs::path(directory) / file_name(runs.rows[i])).string(), root);
    const std::lock_guard lock(mutex);
    progress(static_cast<double>(++done) / static_cast<double>(files.size()));
  });
}

}  // namespace rehearse::cli
