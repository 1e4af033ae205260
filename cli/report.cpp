// rehearse report: results as one HTML file.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "reports/html/html.h"
#include "sim/base/diagnostics.h"
#include "sim/base/input_files.h"
#include "sim/base/units.h"
#include "sim/result/output_file.h"
#include "sim/result/read_directory.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostRuns = 8;

struct ReportArguments {
  std::vector<std::string> directories;
  std::string output;
  reports::HtmlOptions options;
};

// Problems of all directories at once.
std::vector<result::StoredResult> read_all(const std::vector<std::string>& directories) {
  Diagnostics problems;
  std::vector<result::StoredResult> runs;
  Progress progress("reading results");
  progress.begin();
  for (const std::string& directory : directories) {
    progress(static_cast<double>(runs.size()) / static_cast<double>(directories.size()));
    try {
      runs.push_back(result::read_directory(directory));
    } catch (const InputError& error) {
      for (const Diagnostic& d : error.diagnostics()) problems.add(d);
    }
  }
  problems.throw_if_any();
  return runs;
}

// The results of a search's plans, best first, as far as they are there and a page holds them.
std::vector<std::string> plans_in(const std::string& directory) {
  std::vector<std::string> plans;
  for (std::size_t i = 1; i <= kMostRuns; ++i) {
    const fs::path plan = fs::path(directory) / fmt::format("plan-{}", i);
    if (fs::exists(plan / "result.json")) plans.push_back(plan.string());
  }
  return plans;
}

// The results of the best plan of each number of GPUs, the fewest first, as far as they are there; of more than a page
// holds the first, the last, and those between evenly.
std::vector<std::string> best_of_numbers(const std::string& directory, const reports::SearchFile& scaling) {
  std::vector<std::string> found;
  for (const std::string& plan : reports::best_directories(scaling)) {
    const fs::path path = fs::path(directory) / plan;
    if (fs::exists(path / "result.json")) found.push_back(path.string());
  }
  std::vector<std::string> plans;
  const std::size_t shown = std::min(found.size(), kMostRuns);
  for (std::size_t i = 0; i < shown; ++i) plans.push_back(found[shown > 1 ? i * (found.size() - 1) / (shown - 1) : 0]);
  return plans;
}

bool has_only(const std::string& directory, const char* file) {
  return fs::exists(fs::path(directory) / file) && !fs::exists(fs::path(directory) / "result.json");
}

// Throws InputError unless a page can be written to `path`.
void check_page(const std::string& path) {
  const fs::path name = fs::path(path).filename();
  if (name == "result.json" || name == "ops.csv" || name == "trace.json.gz" || name == reports::kSearchFile ||
      name == reports::kScalingFile)
    throw InputError(Diagnostic{"", 0, 0, "", fmt::format("-o {}: would overwrite a result", path), ""});
  check_output_path(path);
}

int report(ReportArguments a) {
  if (a.directories.size() > kMostRuns)
    throw InputError(Diagnostic{
        "", 0, 0, "", fmt::format("{} results; a page holds at most {}", a.directories.size(), kMostRuns), ""});
  const std::string output = a.output.empty() ? (fs::path(a.directories.front()) / "report.html").string() : a.output;
  reports::SearchFile search;
  const std::string first = a.directories.front();
  if (a.directories.size() == 1 && has_only(first, reports::kSearchFile)) {
    search = reports::read_search_file(first);
    a.options.search = &search;
    a.directories = plans_in(first);
  } else if (a.directories.size() == 1 && has_only(first, reports::kScalingFile)) {
    search = reports::read_scaling_file(first);
    a.options.scaling = &search;
    a.directories = best_of_numbers(first, search);
  }
  for (const std::string& directory : a.directories)
    for (const char* name : {"result.json", "ops.csv", "trace.json.gz"})
      note_input((fs::path(directory) / name).string());
  if (!a.output.empty())
    check_page(output);
  else
    result::check_output_file(output);
  const std::vector<result::StoredResult> runs = read_all(a.directories);
  std::string page;
  {
    const Busy line("making " + output);
    page = reports::html_page(runs, a.options);
    result::write_output(output, page);
  }
  note(fmt::format("rehearse: {} ({})", output, format_bytes(Bytes(static_cast<std::int64_t>(page.size())))));
  if (a.options.script && !reports::has_page_script())
    note("rehearse: note: built without Node, so the page's figures are static");
  return kDone;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto a = std::make_shared<ReportArguments>();
  CLI::App* command = app.add_subcommand("report", "One HTML page: figures, memory, plan, timeline");
  command->add_option("DIR", a->directories, "What simulate, execute or plan -o wrote; up to eight")
      ->required()
      ->type_name("");
  command->add_option("-o", a->output, "The page (default: report.html in the first DIR)")->type_name("FILE");
  command->add_option("--tokens", a->options.tokens, "Days and GPU-hours are for so many (300e9)")
      ->check(number_between(1, 1e18))
      ->type_name("N");
  command->add_option("--price", a->options.price_per_hour, "Of a GPU-hour: adds the cost")
      ->check(number_between(0, 1e9))
      ->type_name("P");
  command->add_option("--target-loss", a->options.target_loss, "When each run came to this loss")
      ->check(number_between(-1e30, 1e30))
      ->type_name("X");
  command->add_flag(
      "--static", [a](std::int64_t) { a->options.script = false; }, "Without a script: static figures");
  command->footer(
      "Examples:\n"
      "  rehearse simulate gpt3-175b-1024xa100 -o out && rehearse report out\n"
      "  rehearse report gpipe 1f1b -o schedules.html\n"
      "  rehearse plan my.yaml -o plans && rehearse report plans\n"
      "  rehearse plan my.yaml --gpus 64,128 -o numbers && rehearse report numbers\n"
      "  rehearse report simulated measured -o both.html");
  command->callback([a, &action] { action = [a] { return report(*a); }; });
}

}  // namespace rehearse::cli
