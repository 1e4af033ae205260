// rehearse queue: many jobs on one cluster (sim/run/queue.h), how long each works from its scenario's own simulation.
#include "reports/queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "cli/paths.h"
#include "cli/plan_search.h"
#include "cli/price_option.h"
#include "cli/refuse.h"
#include "reports/batch.h"
#include "sim/base/diagnostics.h"
#include "sim/base/units.h"
#include "sim/cluster/topology.h"
#include "sim/run/goodput.h"
#include "sim/run/queue_file.h"

namespace rehearse::cli {
namespace {

struct QueueArguments {
  std::string file, gpus;
  std::vector<std::string> calibrations;
  PriceOption price;
  bool json = false;
};

struct NoRoom : InputError {
  using InputError::InputError;
};

// A step of an entry's scenario on its GPUs, and what a copy of its weights would be; each simulated once.
class Steps {
 public:
  struct Step {
    double seconds = 0, checkpoint_bytes = 0;
    std::string batch = {};  // in words
  };

  Steps(std::vector<std::string> calibrations, std::string root)
      : calibrations_(std::move(calibrations)), root_(std::move(root)) {}

  Step of(const run::QueueEntry& entry, const std::string& topology) {
    SimulationRequest request;
    request.file = scenario_file(entry.scenario, root_);
    request.assignments = entry.assignments;
    request.assignments.push_back("cluster.topology=" + topology);
    request.assignments.push_back(fmt::format("cluster.gpus={}", entry.gpus));
    request.calibrations = calibrations_;
    const auto [at, added] =
        known_.emplace(fmt::format("{} {}", request.file, fmt::join(request.assignments, " ")), Step{});
    if (!added) return at->second;
    if (scenario_of(request, root_).plan.own_servers() > 0)
      refuse(request.file, "parameter servers on devices of their own are not counted in a queue's jobs yet",
             "plan.server_devices: workers");
    const result::Result step = simulate_file(request, root_);
    tell_notes(step);
    if (!step.memory_fits)
      throw NoRoom(Diagnostic{request.file, 0, 0, "", fmt::format("does not fit in memory on {} GPUs", entry.gpus),
                              "more GPUs a job, or recomputation"});
    at->second = {static_cast<double>(step.step_time_ps) * 1e-12, run::checkpoint_bytes(scenario_of(request, root_)),
                  reports::batch_text(step)};
    return at->second;
  }

 private:
  std::vector<std::string> calibrations_;
  std::string root_;
  std::map<std::string, Step> known_;
};

// Of a host; that the topology is there and holds so many hosts. Throws InputError.
std::int64_t devices_of(const run::QueueFile& file, const std::string& root) {
  const auto refuse_topology = [&](const InputError& error) {
    const Diagnostic& d = error.diagnostics().front();
    throw InputError(
        Diagnostic{file.file, file.topology_line, file.topology_column, "cluster.topology", d.message, d.hint});
  };
  plan::Scenario scenario;
  scenario.cluster.topology = file.topology;
  scenario.cluster.gpus = 1;
  try {
    cluster::build_cluster(file.topology, 1, {}, 1, root);
    const std::int64_t devices = run::devices_of_host(scenario, root);
    cluster::build_cluster(file.topology, static_cast<int>(file.hosts * devices), {}, 1, root);
    return devices;
  } catch (const InputError& error) {
    refuse_topology(error);
  }
  return 0;
}

std::string policy_text(const run::QueueFile& file) {
  if (file.policy != run::QueuePolicy::gang) return run::policy_name(file.policy);
  return fmt::format("gang: turns of {}, {} between them, at most {} sets of jobs", format_time(file.slice),
                     format_time(file.switched), file.level);
}

result::QueueResult simulate(const run::QueueFile& file, Steps& steps, const std::string& root) {
  result::QueueResult r;
  r.name = file.name, r.topology = file.topology, r.hosts = file.hosts;
  r.policy = run::policy_name(file.policy), r.policy_text = policy_text(file);
  r.devices = devices_of(file, root);
  std::vector<double> work_s, copy_s;
  for (const run::QueueEntry& entry : file.entries) {
    Steps::Step step;
    if (!entry.scenario.empty()) step = steps.of(entry, file.topology);
    const double copied = entry.copied > Bytes() ? static_cast<double>(entry.copied.count()) : step.checkpoint_bytes;
    work_s.push_back(entry.scenario.empty() ? entry.time.seconds() : step.seconds * static_cast<double>(entry.steps));
    copy_s.push_back(entry.rounds > 0 ? copied / static_cast<double>(entry.copy_bandwidth.per_s()) : 0);
    r.groups.push_back(
        {entry.name, entry.gpus, entry.keep > 0, step.batch, step.seconds, work_s.back(), copy_s.back()});
  }
  run::QueueOutcome outcome = run::simulate_queue(run::queue_request(file, r.devices, work_s, copy_s, r.group_of));
  r.runs = std::move(outcome.runs);
  r.makespan_s = outcome.makespan_s;
  r.gpu_s = outcome.gpu_s;
  return r;
}

// Each number of GPUs for the jobs that have a scenario.
std::vector<result::QueueChoice> choose_gpus(const run::QueueFile& file, const std::vector<std::int64_t>& numbers,
                                             double price, Steps& steps, const std::string& root) {
  std::vector<result::QueueChoice> choices;
  std::optional<InputError> wrong;  // whatever the number, it seems
  for (const std::int64_t gpus : numbers) {
    run::QueueFile with = file;
    for (run::QueueEntry& entry : with.entries)
      if (!entry.scenario.empty()) entry.gpus = gpus;
    result::QueueChoice choice{gpus, "", {}};
    try {
      choice.result = simulate(with, steps, root);
      choice.result.price_per_gpu_hour = price;
    } catch (const NoRoom& error) {
      choice.problem = error.diagnostics().front().message;
    } catch (const InputError& error) {
      if (!wrong) wrong = error;
      choice.problem = error.diagnostics().front().message;
    }
    choices.push_back(std::move(choice));
  }
  const bool none = std::none_of(choices.begin(), choices.end(), [](const auto& c) { return c.problem.empty(); });
  if (none && wrong) throw *wrong;
  return choices;
}

std::string queue_file(const std::string& given, const std::string& root) {
  const std::filesystem::path shipped = std::filesystem::path(root) / "scenarios" / "queues" / (given + ".yaml");
  return !std::filesystem::exists(given) && std::filesystem::exists(shipped) ? shipped.string() : given;
}

int queue_command(const QueueArguments& a) {
  const std::string root = data_root();
  const run::QueueFile file = run::read_queue_file(queue_file(a.file, root));
  const double price = a.price.of(file.topology, root).usd;
  Steps steps(a.calibrations, root);
  if (a.gpus.empty()) {
    result::QueueResult r = simulate(file, steps, root);
    r.price_per_gpu_hour = price;
    print(a.json ? reports::queue_json(r) : reports::queue_text(r, terminal_width()));
    return kDone;
  }
  if (std::all_of(file.entries.begin(), file.entries.end(), [](const auto& e) { return e.scenario.empty(); }))
    refuse("--gpus", "no job of the file has a scenario: a given time says nothing of other numbers of GPUs",
           "jobs: [{scenario: my.yaml, steps: 1000, gpus: 8}]");
  const auto choices = choose_gpus(file, numbers_of_gpus(a.gpus), price, steps, root);
  print(a.json ? reports::queue_choices_json(choices) : reports::queue_choices_text(choices, terminal_width()));
  return std::any_of(choices.begin(), choices.end(), [](const auto& c) { return c.problem.empty(); }) ? kDone
                                                                                                      : kDoesNotFit;
}

}  // namespace

void add_queue(CLI::App& app, Action& action) {
  auto a = std::make_shared<QueueArguments>();
  CLI::App* command = app.add_subcommand("queue", "Many jobs on one cluster: waits, utilisation, searches");
  command->add_option("FILE", a->file, "Cluster, policy and jobs (docs/queue.md)")->required()->type_name("");
  command->add_option("--gpus", a->gpus, "For jobs with a scenario: which is done first")->type_name("N,...");
  command->add_option("--calibration", a->calibrations, "Also these measurements; repeatable")
      ->allow_extra_args(false)
      ->type_name("FILE");
  a->price.add_to(*command);
  command->add_flag("--json", a->json, "The same for programs");
  command->footer(
      "Examples:\n  rehearse queue halving-27\n"
      "  rehearse queue trials.yaml --gpus 1,2,4,8");
  command->callback([a, &action] { action = [a] { return queue_command(*a); }; });
}

}  // namespace rehearse::cli
