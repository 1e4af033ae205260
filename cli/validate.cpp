// rehearse validate: published measurements against what we predict for the same runs, and the ledger of both; with
// --local, plans of this machine (local_loop.h), with --gpu of its GPU (gpu_loop.h).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/gpu_loop.h"
#include "cli/local_loop.h"
#include "cli/paths.h"
#include "cli/validate_collectives.h"
#include "cli/validate_throughput.h"
#include "execute/placement/placement.h"
#include "reports/ledgers/ledger.h"
#include "reports/ledgers/ledger_page.h"
#include "reports/ledgers/step_intervals.h"
#include "reports/ledgers/sweep_ranking.h"
#include "reports/limits.h"
#include "sim/base/diagnostics.h"
#include "sim/base/document.h"
#include "sim/base/in_parallel.h"
#include "sim/base/input_files.h"
#include "sim/base/unfinished.h"
#include "sim/base/units.h"
#include "sim/result/output_file.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShipped = "scenarios/published/measurements.csv";
constexpr const char* kShippedCollectives = "scenarios/published/collectives.csv";

struct ValidateArguments {
  std::string throughput, filter, output, calibration, intervals, products = "first";
  double budget = 120, seconds = 4;
  bool local = false, gpu = false, output_given = false, budget_given = false, seconds_given = false;
  bool collectives = false;
  std::string collectives_csv;
  int threads = 0;  // of --throughput: simulations at once; 0: a core each
};

bool selected(const reports::Measurement& m, const std::string& filter) {
  return m.id.find(filter) != std::string::npos || m.scenario.find(filter) != std::string::npos;
}

// A prediction, or why there is none.
struct Prediction {
  result::Result result;
  std::string problem;
};

Prediction predict(const std::string& file, const std::string& root) {
  Prediction p;
  SimulationRequest request;
  request.file = file;
  try {
    p.result = simulate_file(request, root);
    if (const auto* worst = reports::largest_stage(p.result); !p.result.memory_fits && worst != nullptr)
      note(fmt::format("rehearse: note: {}: predicted not to fit: needs {} of {} a GPU{}", p.result.scenario_file,
                       format_bytes(Bytes(worst->peak)), format_bytes(reports::usable_memory(p.result)),
                       reports::headroom_words(p.result)));
  } catch (const InputError& error) {
    p.problem = error.diagnostics().front().text();
  }
  return p;
}

void check_ledger_output(const std::string& dir, const std::string& csv) {
  note_input(csv);
  check_output_directory(dir, {"ledger.csv", "ledger.json"});
}

void write_ledger(const std::string& dir, const std::vector<reports::LedgerRow>& rows) {
  result::write_files(dir, {{"ledger.csv", reports::ledger_csv(rows)}, {"ledger.json", reports::ledger_json(rows)}});
}

[[noreturn]] void refuse_empty(const std::string& csv, const std::string& filter) {
  throw InputError(Diagnostic{
      csv, 0, 0, "",
      filter.empty() ? "holds no measurements" : fmt::format("no measurement matches --filter {}", filter), ""});
}

[[noreturn]] void refuse_intervals(const std::string& problem) {
  throw InputError(Diagnostic{"validate", 0, 0, "", "--intervals " + problem, ""});
}

[[noreturn]] void refuse_threads() {
  throw InputError(Diagnostic{"validate", 0, 0, "", "--threads needs --throughput with a table of published runs", ""});
}

int validate_collectives(const ValidateArguments& a, const std::string& root) {
  const std::string csv =
      a.collectives_csv.empty() ? (fs::path(root) / kShippedCollectives).string() : a.collectives_csv;
  if (a.output_given) check_ledger_output(a.output, csv);
  const CollectiveLedger ledger = collective_ledger(shown_path(csv, root), read_text_file(csv), a.filter);
  if (ledger.rows.empty()) refuse_empty(csv, a.filter);
  if (a.output_given) write_ledger(a.output, ledger.rows);
  print(ledger.table);
  return reports::summarize(ledger.rows).used > 0 ? kDone : kFailed;
}

void write_published_runs(const std::string& dir, const std::vector<reports::ThroughputRow>& rows,
                          const std::string& table) {
  result::write_files(dir, {{"ledger.csv", reports::throughput_csv(rows)},
                            {"ledger.json", reports::throughput_json(rows)},
                            {"sweeps.csv", reports::sweeps_csv(reports::published_sweeps(rows))},
                            {"ledger.html", reports::ledger_page(rows, table)},
                            {"predicted-measured.svg", reports::predicted_measured_svg(rows)}});
}

int validate_published_runs(const ValidateArguments& a, const std::string& csv, const std::string& text,
                            const std::string& root) {
  PublishedRuns runs = read_published_runs(csv, text, a.filter, root);
  if (runs.rows.empty()) refuse_empty(csv, a.filter);
  std::optional<TemporaryFolder> scratch;
  if (!a.output_given) scratch.emplace("validate");
  const std::string directory = scratch ? scratch->path() : (fs::path(a.output) / "scenarios").string();
  if (!a.intervals.empty()) result::check_output_file(a.intervals, result::Over::its_own_input);
  if (a.output_given) {
    check_output_directory(a.output,
                           {"ledger.csv", "ledger.json", "sweeps.csv", "ledger.html", "predicted-measured.svg"});
    check_scenario_output(directory, runs);
  }
  simulate_published_runs(runs, directory, a.threads > 0 ? a.threads : hardware_threads(), root);
  const std::vector<reports::ThroughputRow>& rows = runs.rows;
  if (a.output_given) write_published_runs(a.output, rows, shown_path(csv, root));
  if (!a.intervals.empty()) {
    const std::string learned = reports::step_intervals_csv(rows);
    if (learned.empty()) refuse_intervals("needs runs of two sources or more");
    result::write_output(a.intervals, learned, result::Over::its_own_input);
  }
  print(reports::throughput_table(rows));
  const bool any = std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.used; });
  return any ? kDone : kFailed;
}

int validate(const ValidateArguments& a) {
  const std::string root = data_root();
  if (a.threads > 0 && a.throughput.empty()) refuse_threads();
  if (!a.intervals.empty() && a.throughput.empty())
    refuse_intervals("needs --throughput with a table of published runs");
  if (a.local || a.gpu) execute::refuse_launcher("validate");
  if (a.local) return validate_local({a.calibration, a.budget, a.seconds, a.filter, a.output}, root);
  if (a.gpu)
    return validate_gpu({a.calibration, a.budget, a.seconds, a.filter, a.output, a.products == "measured"}, root);
  if (!a.calibration.empty() || a.budget_given || a.seconds_given)
    throw InputError(
        Diagnostic{"validate", 0, 0, "", "--calibration, --budget and --seconds need --local or --gpu", ""});
  if (a.collectives) return validate_collectives(a, root);
  const std::string csv = a.throughput.empty() ? (fs::path(root) / kShipped).string() : a.throughput;
  if (a.output_given) check_ledger_output(a.output, csv);
  const std::string text = read_text_file(csv);
  if (is_throughput_table(text)) return validate_published_runs(a, csv, text, root);
  if (!a.intervals.empty()) refuse_intervals("needs --throughput with a table of published runs");
  if (a.threads > 0) refuse_threads();
  const std::vector<reports::Measurement> measurements = reports::read_measurements(shown_path(csv, root), text);
  std::map<std::string, Prediction> predictions;
  std::vector<reports::LedgerRow> rows;
  for (const reports::Measurement& m : measurements) {
    if (!selected(m, a.filter)) continue;
    const std::string file = (fs::path(csv).parent_path() / m.scenario).string();
    auto known = predictions.find(file);
    if (known == predictions.end()) known = predictions.emplace(file, predict(file, root)).first;
    const Prediction& p = known->second;
    rows.push_back(p.problem.empty() ? reports::compare(m, p.result) : reports::unused(m, p.problem));
  }
  if (rows.empty()) refuse_empty(csv, a.filter);
  if (a.output_given) write_ledger(a.output, rows);
  print(reports::ledger_table(rows));
  return reports::summarize(rows).used > 0 ? kDone : kFailed;
}

}  // namespace

void add_validate(CLI::App& app, Action& action) {
  auto a = std::make_shared<ValidateArguments>();
  CLI::App* command = app.add_subcommand("validate", "Compare predictions with published measurements");
  CLI::Option* throughput =
      command->add_option("--throughput", a->throughput, "Published runs of many frameworks, or measurements")
          ->check(not_empty())
          ->type_name("CSV");
  CLI::Option* collectives =
      command->add_option("--collectives", a->collectives_csv, "Collectives instead: fitted on every other size")
          ->expected(0, 1)
          ->excludes(throughput)
          ->type_name("[CSV]");
  command->add_option("--threads", a->threads, "With --throughput: runs at once (default: a core each)")
      ->check(between(1, 1024))
      ->type_name("N");
  command->add_option("--intervals", a->intervals, "With --throughput: write the intervals of its runs")
      ->type_name("FILE");
  command->add_option("--filter", a->filter, "Only rows with this in their id, scenario, source,\nsoftware or model")
      ->type_name("NAME");
  CLI::Option* local = command->add_flag("--local", a->local, "Instead: calibrate, simulate, perform plans here");
  CLI::Option* gpu = command->add_flag("--gpu", a->gpu, "The same on this machine's GPU")->excludes(local);
  command->add_option("--products", a->products, "With --gpu: as execute's --products")
      ->needs(gpu)
      ->check(one_of({"first", "measured"}))
      ->type_name("WHICH");
  command->add_option("--calibration", a->calibration, "With these two: this one instead of a new one")
      ->type_name("FILE");
  CLI::Option* budget = command->add_option("--budget", a->budget, "With these: seconds to calibrate (default 120)")
                            ->check(number_between(1, 1e5))
                            ->type_name("S");
  CLI::Option* seconds = command->add_option("--seconds", a->seconds, "With these: seconds to perform each (default 4)")
                             ->check(number_between(0.1, 1e5))
                             ->type_name("S");
  for (CLI::Option* mode : {local, gpu}) mode->excludes(collectives);
  CLI::Option* output =
      command
          ->add_option("-o", a->output,
                       "Write ledger.csv and ledger.json to a directory; of\npublished runs a page and a picture too")
          ->type_name("DIR");
  command->footer(
      "A CSV of --throughput has the columns of scenarios/published/throughput.csv, or\n"
      "id, scenario (a path next to it), metric, value, unit.\n"
      "Examples:\n  rehearse validate\n  rehearse validate --filter 175b -o out\n  rehearse validate --local\n"
      "  rehearse validate --throughput runs.csv --filter llm-foundry -o out\n"
      "  rehearse validate --collectives -o out");
  command->callback([a, output, collectives, budget, seconds, &action] {
    a->collectives = collectives->count() > 0;
    a->output_given = output->count() > 0;
    a->budget_given = budget->count() > 0, a->seconds_given = seconds->count() > 0;
    action = [a] { return validate(*a); };
  });
}

}  // namespace rehearse::cli
