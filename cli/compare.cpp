// rehearse compare: two result directories side by side, op by op where they hold the same program.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/compare_trace.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "cli/refuse.h"
#include "reports/difference.h"
#include "reports/reinforcement.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"
#include "sim/result/output_file.h"
#include "sim/result/read_directory.h"

namespace rehearse::cli {
namespace {

struct CompareArguments {
  std::string first, second, output;
  int rank = -1;  // -1: not given
  std::optional<double> target_loss;
  bool json = false, output_given = false, force = false;
};

// Both directories' problems at once.
std::pair<result::StoredResult, result::StoredResult> read_both(const CompareArguments& a) {
  std::pair<result::StoredResult, result::StoredResult> both;
  Diagnostics problems;
  const Busy line("reading results");
  const auto read = [&](const std::string& dir, result::StoredResult& into) {
    try {
      into = result::read_directory(dir);
    } catch (const InputError& error) {
      for (const Diagnostic& d : error.diagnostics()) problems.add(d);
    }
    check_interrupt();
  };
  read(a.first, both.first);
  read(a.second, both.second);
  problems.throw_if_any();
  return both;
}

// Op by op says nothing of two models that are not the same.
void require_related(const result::Result& first, const result::Result& second) {
  const auto value = [](const result::Result& r, const char* key) {
    const auto found = r.scenario.find(key);
    return found == r.scenario.end() ? std::string() : found->second;
  };
  const auto differ = [&](const char* key) {
    const std::string a = value(first, key), b = value(second, key);
    return !a.empty() && !b.empty() && a != b;
  };
  if (differ("model") && differ("model.parameters"))
    throw InputError(Diagnostic{
        "", 0, 0, "",
        fmt::format("the results are of different models, {} ({} parameters) and {} ({})", value(first, "model"),
                    value(first, "model.parameters"), value(second, "model"), value(second, "model.parameters")),
        "--force compares them all the same"});
}

int compare(const CompareArguments& a) {
  if (a.output_given) check_output_directory(a.output, {"compare.csv", "compare.json"});
  if (std::error_code error; a.target_loss && std::filesystem::is_regular_file(a.second, error))
    refuse("--target-loss", "a profiler's trace has no losses", "the directory of a run that was performed");
  if (std::error_code error; std::filesystem::is_regular_file(a.second, error)) {
    TraceComparison c{a.first, a.second, a.output_given ? a.output : "", std::nullopt, a.json};
    if (a.rank >= 0) c.rank = a.rank;
    return compare_trace(c);
  }
  const auto [first, second] = read_both(a);
  if (!a.force) require_related(first.result, second.result);
  if (first.result.reinforcement.known != second.result.reinforcement.known)
    throw InputError(
        Diagnostic{"", 0, 0, "",
                   "one result is of steps of reinforcement learning, the other is not: there are no phases to compare",
                   "two results of one kind"});
  if (a.target_loss)
    for (const result::StoredResult* one : {&first, &second})
      if (!one->history.known() || one->result.loss.empty())
        refuse("--target-loss", fmt::format("{} has no losses by step", one->directory),
               "two directories that execute wrote with -o");
  if (a.target_loss && first.result.reinforcement.known)
    refuse("--target-loss", "is of training alone, and these are steps of reinforcement learning");
  if (first.result.reinforcement.known) {
    const reports::PhaseComparison phases = reports::compare_phases(first.result, second.result);
    if (a.output_given) result::write_files(a.output, {{"compare.csv", phases.csv}, {"compare.json", phases.json}});
    print(a.json ? phases.json : phases.text);
    return kDone;
  }
  reports::Difference d = reports::difference(first, second);
  if (a.target_loss)
    d.targets = {result::loss_target(first.history, *a.target_loss),
                 result::loss_target(second.history, *a.target_loss)};
  const std::string json = reports::difference_json(d);
  if (a.output_given)
    result::write_files(a.output, {{"compare.csv", reports::difference_csv(d)}, {"compare.json", json}});
  print(a.json ? json : reports::difference_table(d));
  return kDone;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  auto a = std::make_shared<CompareArguments>();
  CLI::App* command = app.add_subcommand("compare", "Compare two results: where their steps differ, and why");
  command->add_option("FIRST", a->first, "A directory that simulate or execute wrote with -o")
      ->required()
      ->type_name("");
  command->add_option("SECOND", a->second, "Another, or a PyTorch profiler's trace of the run")
      ->required()
      ->type_name("");
  CLI::Option* output =
      command->add_option("-o", a->output, "Write compare.csv (op by op) and compare.json there")->type_name("DIR");
  command->add_option("--rank", a->rank, "Which recorded rank the trace is of")
      ->check(between(0, 1 << 24))
      ->type_name("N");
  command->add_option("--target-loss", a->target_loss, "Also when each run came to this loss")
      ->check(number_between(-1e30, 1e30))
      ->type_name("X");
  command->add_flag("--force", a->force, "Compare results of different models too");
  command->add_flag("--json", a->json, "Print compare.json alone to standard output");
  command->footer(
      "Examples:\n"
      "  rehearse simulate my.yaml -o simulated && rehearse execute my.yaml -o measured\n"
      "  rehearse compare simulated measured\n"
      "  rehearse compare simulated rank0.pt.trace.json.gz\n"
      "Exit status: 0 done, 2 bad usage or input, 1 other.");
  command->callback([a, output, &action] {
    a->output_given = output->count() > 0;
    action = [a] { return compare(*a); };
  });
}

}  // namespace rehearse::cli
