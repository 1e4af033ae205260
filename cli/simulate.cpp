// rehearse simulate: one plan, its result as a table or as JSON, its files with -o.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/execute_mpi.h"
#include "cli/exit_code.h"
#include "cli/folding.h"
#include "cli/paths.h"
#include "cli/sweep.h"
#include "cli/sweep_axes.h"
#include "execute/placement/placement.h"
#include "reports/answers.h"
#include "reports/limits.h"
#include "reports/reinforcement.h"
#include "reports/tables.h"
#include "reports/text.h"
#include "sim/base/diagnostics.h"
#include "sim/base/in_parallel.h"
#include "sim/base/input_files.h"
#include "sim/base/units.h"
#include "sim/cost/calibration_file.h"
#include "sim/plan/scenario.h"
#include "sim/result/output_file.h"
#include "sim/result/step_history.h"
#include "sim/run/fit.h"
#include "sim/run/prepared.h"
#include "sim/run/processes.h"

namespace rehearse::cli {
namespace {

struct SimulateArguments {
  SimulationRequest request;
  std::string scenario, output, fold = "auto";
  std::vector<std::string> sweeps;
  bool json = false, output_given = false;
  int threads = 0;
  std::shared_ptr<execute::MpiSession> session;  // null: not one of several processes that share simulations

  // Whether there are simulations that do not depend on one another.
  bool several() const { return !sweeps.empty() || request.samples > 0 || request.what_if; }
  // The process that speaks.
  bool root() const { return session == nullptr || session->rank() == 0; }
};

// Where it does not fit, by how much, and the changes that would make it fit.
std::string memory_message(const SimulateArguments& a, const result::Result& r, const std::string& root) {
  if (!r.host_fits())
    return fmt::format(
        "rehearse: does not fit in memory: the ranks of a node keep {} in the memory of its host, which has {}, {} too "
        "much\nrehearse: more nodes, zero 1 to 3 where every rank keeps all states, or without plan.offload_optimizer, "
        "plan.offload_activations and plan.offload_layers; a larger host: cluster.overrides: {{host_memory.size: "
        "...}}\n",
        format_bytes(Bytes(r.host_bytes)), format_bytes(Bytes(r.host_capacity)),
        format_bytes(Bytes(r.host_bytes - r.host_capacity)));
  if (r.reinforcement.known) {
    const std::string phase = reports::phase_that_does_not_fit(r);
    return fmt::format(
        "rehearse: does not fit in memory{}{}\nrehearse: reinforcement.offload: true, a larger plan.tensor or "
        "plan.pipeline, or less reinforcement.generation.memory\n",
        phase.empty() ? "" : ": ", phase);
  }
  const plan::Scenario scenario = scenario_of(a.request, root);
  const Busy line("looking for changes that fit");
  const auto changes = run::changes_that_fit(scenario, a.request.assignments, options_of(a.request, root));
  const result::StageMemory* worst = reports::largest_stage(r);
  std::string out = "rehearse: does not fit in memory";
  if (worst != nullptr)
    out += fmt::format(": stage {} needs {} of {} a GPU{}, {} too much, at {}", worst->stage,
                       format_bytes(Bytes(worst->peak)), format_bytes(reports::usable_memory(r)),
                       reports::headroom_words(r), format_bytes(Bytes(worst->peak) - reports::usable_memory(r)),
                       worst->where.empty() ? "its peak" : worst->where);
  if (!changes) return out + "\n";
  std::string set;
  for (const std::string& assignment : changes->assignments) set += " --set " + assignment;
  const std::string needs = format_bytes(Bytes(changes->peak_bytes));
  return out +
         (changes->fits
              ? fmt::format("\nrehearse: it would fit with{} (needs {})\n", set, needs)
              : fmt::format("\nrehearse: no change of up to three keys makes it fit; the nearest is{} (needs {})\n",
                            set, needs));
}

void require_available(const SimulateArguments& a) {
  if (!a.sweeps.empty() && (a.request.samples > 0 || a.request.what_if))
    throw InputError(Diagnostic{"", 0, 0, "", "--sweep compares plans; --samples and --what-if are of one plan",
                                "name the plan with --set"});
  refuse_fixed(a.sweeps, "--sweep", a.request.assignments, "--set");
  if (a.fold == "explain" &&
      (!a.sweeps.empty() || a.json || a.output_given || a.request.samples > 0 || a.request.what_if))
    throw InputError(Diagnostic{"", 0, 0, "", "--fold explain simulates nothing: it prints which ranks are alike",
                                "leave out --sweep, --samples, --what-if, --json and -o, or --fold explain"});
}

// A calibration that was named is taken whatever machine it is of, but not in silence.
void note_other_machines(const std::vector<std::string>& calibrations) {
  const cost::HostFacts here = cost::host_fingerprint();
  for (const std::string& file : calibrations) {
    if (!cost::is_calibration_path(file)) continue;
    const cost::HostFacts there = cost::read_calibration(file).host;
    if (!there.same_machine(here))
      note(fmt::format("rehearse: note: {} is of another machine than this: {}, {}, {} cores", file, there.name,
                       there.cpu, there.cores));
  }
}

int explain_folding(const SimulateArguments& a, const std::string& root) {
  const plan::Scenario scenario = scenario_of(a.request, root);
  const run::Options options = options_of(a.request, root);
  try {
    const run::Prepared prepared(scenario, options);
    print(folding_text(prepared.folding(prepared.engine_options())));
  } catch (const InputError& error) {
    throw plan::located(error, scenario);
  }
  return kDone;
}

// The one scenario, its samples and what-ifs shared with the other processes of the session, if there is one.
result::Result simulate_shared(SimulateArguments& a, const std::string& root) {
  if (a.session == nullptr) return simulate_file(a.request, root);
  execute::MpiSession& session = *a.session;
  constexpr std::chrono::hours kLongestWait{24};  // that a process is waited for after another has done its part
  const run::Processes processes{session.rank(), session.ranks(),
                                 [&](std::string bytes) { return session.trade(std::move(bytes), kLongestWait); }};
  a.request.processes = &processes;
  a.request.progress = [&](double) {
    if (session.failed()) throw std::runtime_error("another process has ended the simulation");
  };
  session.begin_work();
  result::Result r = simulate_file(a.request, root);
  session.gather("", kLongestWait);
  a.request.processes = nullptr;
  return r;
}

int simulate(SimulateArguments a) {
  require_available(a);
  const std::string root = data_root();
  a.request.file = scenario_file(a.scenario, root);
  for (const std::string& calibration : a.request.calibrations) note_input(calibration);
  if (a.root()) note_other_machines(a.request.calibrations);
  if (a.fold == "explain") return explain_folding(a, root);
  if (!a.sweeps.empty())
    return sweep({a.request, a.sweeps, a.output, a.output_given, a.json, a.threads, a.session.get()}, root);
  if (a.output_given) {
    check_result_directory(a.output);
    check_output_directory(a.output, {"steps.csv", "servers.csv"});
  }
  std::vector<account::ServerEvent> server_events;
  if (a.output_given) a.request.server_events = &server_events;
  a.request.fold = a.fold != "off";
  a.request.record = a.output_given;
  const int processes = a.session != nullptr ? a.session->ranks() : 1;
  a.request.threads = a.threads > 0 ? a.threads : std::max(1, hardware_threads() / processes);
  a.request.ideal = a.root();
  const result::Result r = simulate_shared(a, root);
  if (!a.root()) return kDone;
  for (const std::string& warning : reports::warnings(r))
    if (a.json) note("rehearse: warning: " + warning);
  tell_notes(r);
  if (a.output_given) {
    const Busy line("writing " + a.output);
    std::vector<result::DirectoryFile> more;
    if (!r.step_ends_ps.empty())
      more.push_back({"steps.csv", [&](result::OutputFile& file) { result::write_simulated_steps(r, file); }});
    if (!server_events.empty())
      more.push_back(result::directory_file("servers.csv", account::server_event_table(server_events)));
    result::write_directory(r, a.output, more);
  }
  print(a.json ? result::to_json(r) : reports::summary(r));
  if (r.memory_fits) return kDone;
  std::string message = memory_message(a, r, root);
  message.pop_back();
  note(message);
  return kDoesNotFit;
}

}  // namespace

void add_simulate(CLI::App& app, Action& action) {
  auto a = std::make_shared<SimulateArguments>();
  CLI::App* command = app.add_subcommand("simulate", "Simulate one plan: step time, MFU, memory");
  command->add_option("SCENARIO", a->scenario, "A file, or a name of rehearse list scenarios")
      ->required()
      ->type_name("");
  command->add_option("--set", a->request.assignments, "Override a key, as plan.tensor=4; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command->add_option("--sweep", a->sweeps, "Compare plans: all combinations of values; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=V,V,...");
  command->add_option("--calibration", a->request.calibrations, "Add a calibration file; repeatable")
      ->allow_extra_args(false)
      ->type_name("FILE");
  command->add_option("--steps", a->request.steps, "Steps; the last is reported (default 2)")
      ->check(between(1, 50000))
      ->type_name("N");
  command->add_option("--fold", a->fold, "Simulate one of ranks alike, all, or say which are")
      ->check(one_of({"auto", "off", "explain"}))
      ->type_name("HOW");
  command->add_option("--fidelity", a->request.fidelity, "How transfers are simulated (default flow)")
      ->check(one_of({"analytic", "flow", "step"}))
      ->type_name("KIND");
  command->add_option("--samples", a->request.samples, "Draw the noise N times: p5, p50, p95 of the step")
      ->check(between(1, 100000))
      ->type_name("N");
  command->add_flag("--what-if", a->request.what_if, "Halve and double rates and costs, one at a time");
  command->add_option("--threads", a->threads, "Simulations at once, where there are several (cores)")
      ->check(between(1, 4096))
      ->type_name("N");
  CLI::Option* output =
      command->add_option("-o", a->output, "Folder for result.json, ops.csv and so on")->type_name("DIR");
  command->add_flag("--json", a->json, "Print result.json alone to standard output");
  command->footer(
      "Examples:\n"
      "  rehearse simulate gpt3-175b-1024xa100\n"
      "  rehearse simulate my.yaml --set plan.tensor=4 --set plan.zero=1 -o out\n"
      "  rehearse simulate my.yaml --json | jq .mfu\n"
      "  rehearse simulate my.yaml --sweep plan.tensor=1,2,4 --sweep plan.zero=1,3\n"
      "  rehearse simulate my.yaml --set noise.kernels=0.03 --samples 100\n"
      "  rehearse simulate my.yaml --what-if\n"
      "  mpirun -n 4 rehearse simulate my.yaml --sweep ...   processes share plans,\n"
      "                                                      samples, what-ifs\n"
      "Exit status: 0 done, 2 bad usage or input, 3 does not fit in memory, 1 other.");
  command->callback([a, output, &action] {
    a->output_given = output->count() > 0;
    action = [a] {
      const auto work = [a] { return simulate(*a); };
      if (!a->several()) return as_first_process("simulate without --sweep, --samples or --what-if", work);
      if (!execute::launched_for_mpi()) return work();
      constexpr std::chrono::seconds kToStart{60};
      return as_mpi_process(a->session, kToStart, work);
    };
  });
}

}  // namespace rehearse::cli
