// rehearse calibrate: measures this machine so that it can be simulated, within a budget of seconds; writes one JSON
// file (docs/calibration.md), which a local topology finds by itself, and prints what the machine is like. With
// --device cuda its GPU instead (calibrate_cuda.h).
#include "calibrate/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "calibrate/calibration_json.h"
#include "calibrate/trace/trace_calibration.h"
#include "cli/calibrate_cuda.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "cli/refuse.h"
#include "execute/other_load.h"
#include "execute/performer.h"
#include "execute/placement/placement.h"
#include "reports/text.h"
#include "sim/base/units.h"
#include "sim/cost/calibration_file.h"
#include "sim/plan/scenario.h"
#include "sim/result/output_file.h"
#include "sim/run/reinforcement/phases.h"

namespace rehearse::cli {
namespace {

namespace fs = std::filesystem;

struct CalibrateArguments {
  std::string device = "auto", output, products = "first";
  std::vector<std::string> scenarios, assignments, traces;
  double budget = 60;
  int skip_steps = 0;
  bool add = false, json = false;
};

std::string trace_command(const CalibrateArguments& a) {
  std::string line = "rehearse calibrate --from-trace";
  for (const std::string& file : a.traces) line += ' ' + fs::path(file).filename().string();
  if (a.device != "auto") line += " --device " + a.device;
  return a.skip_steps > 0 ? line + fmt::format(" --skip-steps {}", a.skip_steps) : line;
}

// The command that makes this file again.
std::string command_line(const CalibrateArguments& a) {
  std::string line =
      fmt::format("rehearse calibrate{} --budget {}", a.device == "cuda" ? " --device cuda" : "", a.budget);
  if (a.products != "first") line += " --products " + a.products;
  if (!a.traces.empty()) line = trace_command(a);
  if (!a.scenarios.empty()) line += fmt::format(" --for {}", fmt::join(a.scenarios, " "));
  for (const std::string& assignment : a.assignments) line += " --set " + assignment;
  return a.add ? line + " --add" : line;
}

// --add reads the file it replaces.
result::Over over(const CalibrateArguments& a) {
  return a.add ? result::Over::its_own_input : result::Over::no_input;
}

std::string output_path(const CalibrateArguments& a) {
  const std::string path = a.output.empty() ? cost::default_calibration_path() : a.output;
  if (path.empty()) refuse("", "neither XDG_CACHE_HOME nor HOME is set", "say where the file goes: -o FILE");
  if (!cost::is_calibration_path(path)) refuse("-o", "expected a file ending in .json, found " + path, "");
  std::error_code error;
  result::check_output_file(path, over(a));
  const fs::path folder = fs::absolute(path).parent_path();
  fs::create_directories(folder, error);
  if (error) refuse("-o", fmt::format("cannot make {}: {}", folder.string(), error.message()), "");
  return path;
}

// The calibration that --add adds to; nothing if there is none yet.
std::optional<cost::Calibration> older(const CalibrateArguments& a, const std::string& path) {
  std::error_code error;
  if (!a.add || !fs::exists(path, error)) return {};
  cost::Calibration found = cost::read_calibration(path);
  if (!found.host.same_machine(cost::host_fingerprint()))
    refuse("--add",
           fmt::format("{} is of another machine or build: {}, {}, {} cores, {}", path, found.host.name, found.host.cpu,
                       found.host.cores, found.host.isa),
           "leave --add out to replace it");
  return found;
}

std::string rate(double per_s, const char* unit) {
  return fmt::format("{:.4g} {}", per_s / 1e9, unit);
}

// "2 ranks 3.1 GB/s, 4 ranks 1.2 GB/s": bytes a rank has, by the time; of the size next to 64 MiB that was measured.
std::string all_reduce_rates(const cost::Calibration& c) {
  std::map<int, const cost::CalibratedTransfer*> largest;
  for (const auto& t : c.transfers) {
    if (t.send || t.kind != program::CollectiveKind::all_reduce || t.transport != cost::Transport::local) continue;
    const cost::CalibratedTransfer*& best = largest[t.ranks];
    if (t.bytes <= (std::int64_t{65} << 20) && (best == nullptr || t.bytes > best->bytes)) best = &t;
  }
  std::string text;
  for (const auto& [ranks, t] : largest) {
    if (t == nullptr) continue;
    text += fmt::format("{}{} ranks {}", text.empty() ? "" : ", ", ranks,
                        rate(static_cast<double>(t->bytes) / t->time.p50, "GB/s"));
    if (t->bytes < (std::int64_t{64} << 20)) text += fmt::format(" of {}", format_bytes(Bytes(t->bytes)));
  }
  return text.empty() ? "not measured" : text;
}

std::string summary(const cost::Calibration& c, const std::string& path) {
  const auto of_programs = std::count_if(c.kernels.begin(), c.kernels.end(),
                                         [](const auto& k) { return k.origin == cost::Origin::program; });
  const auto us = [](double seconds) { return format_time(Time::from_seconds(seconds)); };
  const double worst =
      c.slowdown[static_cast<std::size_t>(cost::Load::memory)][static_cast<std::size_t>(cost::Load::memory)];
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"Peak product", rate(c.peak_flops, "GFLOP/s fp32, all cores")},
      {"Copy", rate(c.memory_bandwidth, "GB/s read and written, all cores")},
      {"Dispatch", us(c.dispatch_s) + " from an op to the next of its stream"},
      {"Wake", us(c.wake_s) + " to an op of a stream that slept"},
      {"Sharing", fmt::format("a copy during copies takes {:.3g} times as long", worst)},
      {"All-reduce", all_reduce_rates(c)},
      {"Kernels", fmt::format("{} of the scenarios' programs, {} of the grid", of_programs,
                              static_cast<std::ptrdiff_t>(c.kernels.size()) - of_programs)},
      {"Transfers", fmt::format("{}", c.transfers.size())},
      {"Took", fmt::format("{:.3g} s of {:.3g}", c.made.wall_s, c.made.budget_s)},
  };
  return reports::wrap(
             fmt::format("{}: {}, {} core{}", c.host.name, c.host.cpu, c.host.cores, c.host.cores == 1 ? "" : "s")) +
         reports::labelled(rows) + reports::left("Written to", 18) + path + '\n';  // a path is for copying: whole
}

std::string trace_summary(const calibrate::trace::TraceCalibration& c, const std::string& path) {
  const auto largest = [](const std::map<std::string, calibrate::trace::Tally>& by) {
    std::string most;
    double seconds = 0;
    for (const auto& [what, t] : by)
      if (t.seconds > seconds) seconds = t.seconds, most = fmt::format("{} ({})", what, t.example);
    return most;
  };
  std::vector<std::pair<std::string, std::string>> rows = {
      {"Device", c.device},
      {"Kernels", fmt::format("{} timed; {} of their time is used", c.samples.kernels, reports::percent(c.used))},
      {"Shapes", fmt::format("{} products, {} attentions, {} others, {} collectives", c.products, c.attentions,
                             c.others, c.collectives)},
  };
  if (c.beside > 0) rows.emplace_back("Beside NCCL", fmt::format("{} shapes were timed during collectives", c.beside));
  if (c.samples.skipped > 0)
    rows.emplace_back("Skipped", fmt::format("{} kernels of the first steps", c.samples.skipped));
  if (!c.samples.left_out.empty()) rows.emplace_back("Left out", "most of all " + largest(c.samples.left_out));
  return reports::wrap(c.gpu.empty() ? "A measured run" : "A measured run on " + c.gpu) + reports::labelled(rows) +
         reports::left("Written to", 18) + path + '\n' +
         reports::wrap("Simulate with it: rehearse simulate SCENARIO --calibration FILE.");
}

std::vector<plan::Scenario> scenarios_of(const CalibrateArguments& a) {
  const std::string root = data_root();
  std::vector<plan::Scenario> list;
  for (const std::string& name : a.scenarios)
    list.push_back(plan::read_scenario(scenario_file(name, root), a.assignments, root, plan::Purpose::perform));
  for (plan::Scenario& s : list) s.plan.layers_by_time = false;  // kernels are the same however layers are split
  return list;
}

// Of scenarios that learn from feedback, what else there is to a step: scoring and generation.
void add_phases(const CalibrateArguments& a, calibrate::Request& request) {
  run::Options options;
  options.data_root = data_root();
  const std::vector<plan::Scenario> whole = request.scenarios;
  for (const plan::Scenario& s : whole) {
    if (!s.reinforcement.given) continue;
    if (s.reinforcement.packing)
      note(
          fmt::format("rehearse: warning: {}: the forward that scores packed rows is not profiled: its kernels are "
                      "costed by others' times (reinforcement.packing=false is profiled, and performed)",
                      s.name));
    else
      request.scenarios.push_back(run::scoring_scenario(s, a.assignments, options));
    for (plan::Scenario& each : run::generating_on_cpu(s, a.assignments, options))
      request.generating.push_back(std::move(each));
  }
}

calibrate::Outcome measure(const CalibrateArguments& a) {
  calibrate::Request request;
  request.scenarios = scenarios_of(a);
  const bool one = request.scenarios.size() == 1;
  add_phases(a, request);
  request.budget_s = a.budget;
  request.command = command_line(a);
  PhasedProgress progress;
  request.progress = [&](const std::string& what, double done) { progress(what, done); };
  if (one) {
    try {
      return calibrate::calibrate(request);
    } catch (const InputError& error) {
      throw plan::located(error, request.scenarios.front());
    }
  }
  return calibrate::calibrate(request);
}

int run_cuda(const CalibrateArguments& a) {
  require_cuda_device();
  if (a.add) refuse("--add", "adds to a calibration of a CPU", "leave it out with --device cuda");
  const CudaCalibrated made =
      calibrate_cuda({scenarios_of(a), {}, a.budget, command_line(a), a.output, a.products == "measured"});
  print(a.json ? made.text : made.summary);
  return kDone;
}

// Known words, or with --from-trace the name of a device file.
void check_device(const CalibrateArguments& a) {
  const std::vector<std::string> words = {"auto", "cpu", "cuda"};
  const bool word = std::find(words.begin(), words.end(), a.device) != words.end();
  if (a.traces.empty() && !word) {
    const std::string near = nearest(a.device, words);
    refuse("--device", fmt::format("expected auto, cpu or cuda, found '{}'", a.device),
           near.empty() ? "the name of a device goes with --from-trace" : fmt::format("did you mean '{}'?", near));
  }
  if (a.device != "cuda" && a.products != "first")
    refuse("--products", "chooses among cuBLASLt's algorithms", "--device cuda");
  if (!a.traces.empty() && (a.device == "cpu" || a.device == "cuda"))
    refuse("--device", "a trace was measured already: expected the name of a device file, or auto", "");
}

int run_from_trace(const CalibrateArguments& a) {
  if (!a.scenarios.empty()) refuse("--for", "a trace says what was measured: leave it out with --from-trace", "");
  if (a.add) refuse("--add", "a trace makes a file of its own: leave it out with --from-trace", "");
  if (a.output.empty()) refuse("-o", "with --from-trace say where the file goes", "-o measured.yaml");
  if (!a.output.ends_with(".yaml"))
    refuse("-o", "expected a file ending in .yaml, found " + a.output, "measurements of a GPU are a device file");
  const std::string root = data_root();
  if (a.device != "auto") cost::find_device_file(a.device, root);
  result::check_output_file(a.output);
  calibrate::trace::TraceRequest request;
  request.files = a.traces;
  request.device = a.device == "auto" ? "" : a.device;
  request.skip_steps = a.skip_steps;
  request.command = command_line(a);
  PhasedProgress progress;
  request.progress = [&](const std::string& what, double done) { progress(what, done); };
  const calibrate::trace::TraceCalibration made = calibrate::trace::calibrate_from_trace(request);
  progress.clear();
  check_interrupt();
  result::write_output(a.output, made.text);
  print(a.json ? made.text : trace_summary(made, a.output));
  return kDone;
}

int run_calibrate(const CalibrateArguments& a) {
  execute::refuse_launcher("calibrate");
  check_device(a);
  if (a.skip_steps > 0 && a.traces.empty()) refuse("--skip-steps", "is about the steps of a trace: --from-trace", "");
  if (!a.traces.empty()) return run_from_trace(a);
  if (!a.assignments.empty() && a.scenarios.empty())
    refuse("--set", "overrides keys of the scenarios of --for, and there are none", "");
  if (a.device == "cuda") return run_cuda(a);
  const std::string path = output_path(a);
  const std::optional<cost::Calibration> before = older(a, path);
  try {
    calibrate::Outcome outcome = measure(a);
    cost::Calibration& c = outcome.calibration;
    if (before) c = calibrate::merged(*before, std::move(c));
    const std::string text = calibrate::to_json(c);
    check_interrupt();
    result::write_output(path, text, over(a));
    if (outcome.others > execute::kQuiet)
      note(fmt::format(
          "rehearse: warning: other programs used {} of this machine meanwhile: what was measured is slower "
          "than the machine",
          reports::percent(outcome.others)));
    for (const std::string& shortfall : outcome.shortfalls)
      note("rehearse: warning: " + shortfall + "; a larger --budget helps");
    print(a.json ? text : summary(c, path));
    return kDone;
  } catch (const execute::DoesNotFit& error) {
    note(fmt::format("rehearse: {}", error.what()));
    return kDoesNotFit;
  }
}

}  // namespace

void add_calibrate(CLI::App& app, Action& action) {
  auto a = std::make_shared<CalibrateArguments>();
  CLI::App* command = app.add_subcommand("calibrate", "Measure this machine, so that it can be simulated");
  command->add_option("--device", a->device, "auto or cpu: this CPU; cuda: its GPU; a trace's NAME")
      ->check(CLI::Validator([](std::string&) { return std::string(); }, "").name("auto|cpu|cuda"))
      ->type_name("WHAT");
  command->add_option("--for", a->scenarios, "Measure exactly what these do: files, or names of list")
      ->expected(1, 64)
      ->type_name("SCENARIO...");
  command->add_option("--products", a->products, "With --device cuda: as execute's --products")
      ->check(one_of({"first", "measured"}))
      ->type_name("WHICH");
  command->add_option("--from-trace", a->traces, "PyTorch profiler's traces of one run, a GPU each")
      ->expected(1, 64)
      ->type_name("FILE...");
  command->add_option("--skip-steps", a->skip_steps, "Of a trace's marked steps, the first N do not count")
      ->check(between(0, 1000000))
      ->type_name("N");
  command->add_option("--set", a->assignments, "Override a key of them, as plan.tensor=2; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command->add_option("--budget", a->budget, "Seconds it may take (default 60)")
      ->check(number_between(1, 1e5))
      ->type_name("SECONDS");
  command->add_option("-o", a->output, "Default: the user's cache, where simulate looks")->type_name("FILE");
  command->add_flag("--add", a->add, "Keep what the file has and this run does not measure");
  command->add_flag("--json", a->json, "Print the file to standard output");
  command->footer(
      "Leave the machine alone meanwhile: what else runs on it is measured too.\n"
      "Examples:\n"
      "  rehearse calibrate\n"
      "  rehearse calibrate --for gpt-tiny-ddp gpt-tiny-2x2x2 --budget 120\n"
      "  rehearse calibrate --device cuda --for my.yaml -o my-gpu.yaml\n"
      "  rehearse calibrate --from-trace rank*.json.gz -o run.yaml\n"
      "Exit status: 0 done, 2 bad usage or input, 3 does not fit in memory, 1 other.");
  command->callback([a, &action] { action = [a] { return run_calibrate(*a); }; });
}

}  // namespace rehearse::cli
