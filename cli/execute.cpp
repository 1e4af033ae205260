// rehearse execute: performs a plan for real on this machine, its ranks threads or processes, on CPUs or GPUs
// (execute/placement/placement.h), whatever the scenario's topology; prints what was measured, as a table or as JSON,
// its files with -o. Of several processes only the root's speaks.
#include "cli/execute.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "cli/checkpoint_options.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/event_file.h"
#include "cli/execute_checks.h"
#include "cli/execute_mpi.h"
#include "cli/exit_code.h"
#include "cli/learning.h"
#include "cli/measured_text.h"
#include "cli/metrics_file.h"
#include "cli/paths.h"
#include "cli/refuse.h"
#include "cli/shrink.h"
#include "execute/data.h"
#include "execute/pace_watch.h"
#include "execute/performer.h"
#include "execute/placement/elastic.h"
#include "execute/placement/placement.h"
#include "execute/processes/local_world.h"
#include "execute/processes/start_ranks.h"
#include "execute/reinforcement/learn.h"
#include "execute/servers/server_order.h"
#include "execute/step_table.h"
#include "reports/text.h"
#include "sim/account/server_events.h"
#include "sim/base/diagnostics.h"
#include "sim/base/document.h"
#include "sim/base/input_files.h"
#include "sim/base/interrupt.h"
#include "sim/cost/calibration_file.h"
#include "sim/lower/lower.h"
#include "sim/model/recorded_choices.h"
#include "sim/plan/scenario.h"
#include "sim/result/output_file.h"
#include "sim/result/step_history.h"
#include "sim/run/parameter_servers.h"
#include "sim/run/run.h"

namespace rehearse::cli {
namespace {

constexpr int kMaxSteps = 1'000'000;
constexpr double kStepsOfMiniature = 50;  // at most, where they take as long as asked

// How often the launcher, or the command that started this process, has started the ranks again.
int restarts() {
  const char* count = std::getenv(execute::kRestartVariable);
  return count == nullptr ? 0 : std::max(0, std::atoi(count));
}

// --epochs in steps: as many as see every sequence of the data that often.
int steps_of(const ExecuteArguments& a, const plan::Scenario& scenario) {
  if (a.epochs <= 0) return a.steps;
  const auto& t = scenario.training;
  const auto examples = execute::open_data(scenario.model, t.seq_len, t.seed, a.data)->examples();
  if (examples == 0)
    throw InputError(
        Diagnostic{"--epochs", 0, 0, "", "this model trains on made examples, which have no end", "--steps"});
  const double steps = std::ceil(a.epochs * static_cast<double>(examples) / static_cast<double>(t.global_batch));
  if (steps > kMaxSteps)
    throw InputError(Diagnostic{"--epochs", 0, 0, "", fmt::format("{} steps; at most {}", steps, kMaxSteps), ""});
  return static_cast<int>(steps);
}

// A line on standard error every so many steps: loss, mean time and rate since the line before.
class Log {
 public:
  Log(int every, const plan::Scenario& scenario)
      : every_(every),
        tokens_(scenario.model.reads_text()),
        per_step_(static_cast<double>(scenario.training.global_batch * (tokens_ ? scenario.training.seq_len : 1))) {}

  bool operator()(int step, const execute::StepLoss& loss) {
    if (every_ == 0) return false;
    if ((step + 1) % every_ != 0) return true;
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - since_).count() / every_;
    since_ = now;
    std::string parts;
    for (std::size_t part = 0; part < loss.parts.size(); ++part)
      parts += fmt::format("{}{} {}", part == 0 ? " (" : ", ", execute::loss_part_name(part),
                           reports::loss_text(loss.parts[part]));
    if (!parts.empty()) parts += ")";
    note(fmt::format("step {}  loss {}{}  {}  {} {}/s", step + 1, reports::loss_text(loss.loss), parts,
                     format_time(Time::from_seconds(seconds)), reports::compact(per_step_ / seconds),
                     tokens_ ? "tokens" : "samples"));
    return true;
  }

 private:
  int every_;
  bool tokens_;
  double per_step_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

execute::Options options_of(const ExecuteArguments& a) {
  execute::Options options;
  options.steps = a.steps;
  options.data = a.data;
  options.timeout = a.placement.timeout;
  options.record = a.output_given;
  options.poll = [more = a.poll] {
    check_interrupt();
    if (more) more();
  };
  options.maker = a.maker.get();
  options.checkpoint = a.checkpoint;
  options.server_order = a.order.get();
  options.record_routing = !a.routing.empty();
  if (a.until_loss)
    options.enough = [target = *a.until_loss](const std::vector<double>& losses) {
      constexpr auto window = static_cast<std::size_t>(result::kLossWindow);
      if (losses.size() < window) return false;
      const auto from = losses.end() - static_cast<std::ptrdiff_t>(window);
      return std::accumulate(from, losses.end(), 0.0) / static_cast<double>(window) <= target;
    };
  return options;
}

// Where it is wrong: an order of servers that was read in its file, all else in the scenario's.
InputError placed(const InputError& error, const ExecuteArguments& a, const plan::Scenario& scenario) {
  std::vector<Diagnostic> list = error.diagnostics();
  for (Diagnostic& d : list)
    if (d.file.empty() && d.path == execute::kOrderOfServers && !a.order_file.empty()) d.file = a.order_file;
  return plan::located(InputError(std::move(list)), scenario);
}

// With --order or --as-simulated: what parameter servers are to do. The same in every process.
std::shared_ptr<const std::vector<account::ServerEvent>> order_of_servers(const ExecuteArguments& a,
                                                                          const plan::Scenario& scenario) {
  using Events = std::vector<account::ServerEvent>;
  if (!a.order_file.empty())
    return std::make_shared<const Events>(account::parse_server_events(a.order_file, read_text_file(a.order_file)));
  if (!a.as_simulated) return nullptr;
  run::Options simulated;
  simulated.data_root = data_root();
  try {
    execute::check_performable(scenario, a.steps);
    return std::make_shared<const Events>(run::simulated_server_order(scenario, simulated, a.steps));
  } catch (const InputError& error) {
    throw placed(error, a, scenario);
  }
}

// Nothing in processes that are not the root's.
std::optional<execute::Outcome> perform(const ExecuteArguments& a, const plan::Scenario& scenario,
                                        const std::string& what, execute::World& world) {
  Progress progress(what + scenario.name);
  progress.begin();
  Log log(a.log_every, scenario);
  const auto examples = static_cast<double>(scenario.training.global_batch);
  MetricsFile metrics(world.root() ? a.metrics : "", scenario.name, a.steps, scenario.cluster.gpus, examples,
                      scenario.model.reads_text() ? examples * static_cast<double>(scenario.training.seq_len) : 0);
  execute::Options options = options_of(a);
  options.on_step = [&](int step, const execute::StepLoss& loss) {
    if (!log(step, loss)) progress(static_cast<double>(step + 1) / a.steps);
    metrics.step(step, loss);
  };
  try {
    execute::check_performable(scenario, a.steps);
    const program::Program program = lower::lower(scenario);
    const auto ranks = static_cast<int>(world.here().size());
    // Of ranks that are threads of this process: others' cores are not ours to keep busy.
    if (a.maker != nullptr || ranks != scenario.cluster.gpus) {
      auto outcome = execute::perform(scenario, program, options, world);
      if (outcome) metrics.ended(outcome->result.servers);
      return outcome;
    }
    const int cores = cost::host_fingerprint().cores;
    execute::PaceWatch pace(cores);
    options.poll = [&pace] {
      check_interrupt();
      pace.look();
    };
    pace.begin_stretch();
    auto outcome = execute::perform(scenario, program, options, world);
    pace.end_stretch();
    pace.probe();
    if (outcome) metrics.ended(outcome->result.servers);
    if (outcome) outcome->result.pace = pace.pace(ranks * execute::threads_per_rank(scenario, ranks));
    return outcome;
  } catch (const InputError& error) {
    throw placed(error, a, scenario);
  }
}

// The same training on one rank with as many threads as each rank of the plan has.
execute::Outcome perform_baseline(ExecuteArguments a, const std::string& file, const std::string& root,
                                  std::int64_t threads) {
  a.output_given = false;
  a.metrics.clear();
  a.until_loss.reset();
  a.routing.clear();
  a.checkpoint = {};
  a.as_simulated = false, a.order_file.clear(), a.order = nullptr;
  a.assignments.insert(
      a.assignments.end(),
      {"cluster.gpus=1", fmt::format("cluster.threads_per_rank={}", threads), "plan.tensor=1", "plan.pipeline=1",
       "plan.context=1", "plan.expert=1", "plan.zero=0", "plan.local_steps=0", "plan.servers=0",
       "plan.consistency=synchronous", "plan.backup_workers=0", "plan.layers_per_stage=auto"});
  const auto alone = execute::make_local_world(1, a.placement.timeout);
  return *perform(a, plan::read_scenario(file, a.assignments, root, plan::Purpose::perform), "performing on one rank ",
                  *alone);
}

struct Files {
  std::string root, scenario;
  std::string layers;  // what plan.layers_per_stage: by_time chose
};

int perform_and_tell(const ExecuteArguments& a, const plan::Scenario& scenario, const Files& files,
                     execute::World& world) {
  if (world.root() && (scenario.noise.any() || !scenario.jobs.empty()))
    note(a.as_simulated
             ? "rehearse: note: noise and cluster.jobs are only simulated; of them the order in which servers take "
               "gradients is performed, which the simulation with them gave, and nothing else"
             : "rehearse: note: noise and cluster.jobs are only simulated; nothing of them is performed");
  if (!files.layers.empty()) note("rehearse: note: " + files.layers);
  std::optional<execute::Outcome> outcome = perform(a, scenario, "performing ", world);
  if (!outcome) return kDone;
  describe_measured(scenario, files.scenario, files.root, outcome->result);
  const std::string steps = execute::step_table(outcome->shares, outcome->first_step, outcome->result.loss);
  if (a.until_loss)
    outcome->result.target = result::loss_target(result::parse_steps_csv("steps.csv", steps), *a.until_loss);
  tell_notes(outcome->result);
  if (a.output_given) {
    const Busy line("writing " + a.output);
    std::vector<result::DirectoryFile> more{result::directory_file("steps.csv", steps)};
    if (!outcome->server_events.empty())
      more.push_back(result::directory_file("servers.csv", account::server_event_table(outcome->server_events)));
    if (a.tensorboard) more.push_back(result::directory_file(kEventFile, event_file(*outcome)));
    result::write_directory(outcome->result, a.output, more);
  }
  if (!a.routing.empty()) result::write_output(a.routing, model::routing_table_text(outcome->routing));
  std::string text = a.json ? result::to_json(outcome->result) : measured_text(*outcome, scenario);
  if (a.baseline) {
    const int threads = execute::threads_per_rank(scenario, static_cast<int>(world.on_this_machine().size()));
    text += against_one_rank(outcome->result, perform_baseline(a, files.scenario, files.root, threads).result);
  }
  print(text);
  return kDone;
}

// As one of several processes that is not the root's: others tell the user, this one's exit status says the same.
int perform_quietly(const ExecuteArguments& a, const plan::Scenario& scenario, const Files& files,
                    execute::World& world) {
  try {
    return perform_and_tell(a, scenario, files, world);
  } catch (const InputError&) {
    return kBadInput;
  } catch (const execute::DoesNotFit&) {
    return kDoesNotFit;
  } catch (const Interrupted& end) {
    return end.exit_status();
  }
}

int start(const ExecuteArguments& a, const plan::Scenario& scenario, const execute::Placement& placement) {
  try {
    execute::check_performable(scenario, a.steps);
    return placement.start(lower::lower(scenario), options_of(a));
  } catch (const InputError& error) {
    throw placed(error, a, scenario);
  }
}

// What a miniature takes of the command's other options; the rest is for what is performed as it is.
int run_shrunk(const ExecuteArguments& a, const std::string& file, const std::string& root) {
  check_shrunk(a);
  ShrinkRequest request = a.miniature;
  if (!request.calibration.empty()) note_input(request.calibration);
  request.file = file;
  request.assignments = a.assignments;
  request.seconds = std::min(request.seconds, kStepsOfMiniature * request.step_s);
  request.output = a.output;
  request.json = a.json;
  return execute_shrunk(request, root);
}

// What ends ranks is said here, by the process that is to say it; the exit status.
int telling_failures(const std::function<int()>& work) {
  try {
    return work();
  } catch (const execute::DoesNotFit& error) {
    note(fmt::format("rehearse: {}", error.what()));
    return kDoesNotFit;
  } catch (const execute::RankFailure& error) {
    const std::string text = error.what();
    if (!text.empty()) note(fmt::format("rehearse: error: {}", text));
    return end_signal() == 0 ? kFailed : Interrupted(end_signal()).exit_status();
  } catch (const execute::RanksDiffer& error) {
    const std::string text = error.what();
    if (!text.empty()) note(fmt::format("rehearse: error: {}", text));
    return kBadInput;
  } catch (const Interrupted& end) {
    if (!execute::supervised()) throw;
    return end.exit_status();  // the parent tells
  }
}

// The scenario with another number of ranks and the batch as it is.
std::vector<std::string> with_ranks(const ExecuteArguments& a, const plan::Scenario& given, int ranks) {
  std::vector<std::string> assignments = a.assignments;
  assignments.push_back(fmt::format("cluster.gpus={}", ranks));
  assignments.push_back(fmt::format("training.global_batch={}", given.training.global_batch));
  return assignments;
}

// All ranks in one process of their own, which is started again from its last checkpoint when it fails.
int supervise_learning(const ExecuteArguments& a, const plan::Scenario& scenario) {
  try {
    execute::check_learnable(scenario, a.steps);
  } catch (const InputError& error) {
    throw placed(error, a, scenario);
  }
  using Variables = std::vector<std::pair<std::string, std::string>>;
  execute::StartOptions start;
  start.poll = check_interrupt;
  start.whereabouts_of = [](int, const execute::Whereabouts&) { return std::string("the process of all ranks"); };
  return execute::start_again(
      {a.checkpoint.folder, a.steps, a.placement.max_restarts, a.placement.note}, [&](int restarts) {
        const int all = a.checkpoint.restarts + restarts;
        start.variables = [all](int) {
          return all == 0 ? Variables() : Variables{{execute::kRestartVariable, fmt::to_string(all)}};
        };
        return execute::start_ranks(start);
      });
}

int perform_learning(const ExecuteArguments& a, const plan::Scenario& scenario, const std::string& file,
                     const std::string& root) {
  check_learning_options(a);
  return telling_failures([&] {
    if (a.placement.max_restarts > 0 && !execute::supervised()) return supervise_learning(a, scenario);
    return execute_learning({file, root, a.assignments, a.steps, a.log_every, a.placement.timeout,
                             a.output_given ? a.output : "", a.metrics, a.json, a.checkpoint},
                            scenario);
  });
}

int perform_plan(ExecuteArguments a, const std::string& file, const std::string& root) {
  std::string layers;
  const plan::Scenario scenario =
      with_chosen_layers(plan::read_scenario(file, a.assignments, root, plan::Purpose::perform), root, &layers);
  if (scenario.reinforcement.given) return perform_learning(a, scenario, file, root);
  return telling_failures([&] {
    a.steps = steps_of(a, scenario);
    check_served(a, scenario);
    check_until_loss(a, scenario);
    if (!a.routing.empty()) check_recordable(a, scenario);
    a.order = order_of_servers(a, scenario);
    const execute::Placement placement(a.placement, scenario);
    const auto world = placement.join(options_of(a), [&scenario] { return lower::lower(scenario); });
    if (world == nullptr) return start(a, scenario, placement);
    a.maker = placement.make_ranks(*world);
    return world->root() ? perform_and_tell(a, scenario, {root, file, layers}, *world)
                         : perform_quietly(a, scenario, {root, file, ""}, *world);
  });
}

// Starts ranks, as many as there are, again and again (elastic.h); of a rank that was started: with so many.
int run_elastic(ExecuteArguments a, const std::string& file, const std::string& root) {
  if (a.placement.ranks != "gloo" && a.placement.ranks != "mpi")
    refuse("--elastic", "is of ranks that are processes over Gloo or MPI", "--ranks gloo, or mpi");
  if (a.baseline) refuse("--elastic", "--baseline compares with one number of ranks", "leave one of them out");
  const execute::RankRange range = execute::parse_rank_range("--elastic", a.elastic);
  const auto read = [&](const std::vector<std::string>& assignments) {
    return plan::read_scenario(file, assignments, root, plan::Purpose::perform);
  };
  const plan::Scenario given = read(a.assignments);
  execute::check_elastic(given, a.checkpoint);
  const auto possible = [&](int ranks) {
    try {
      read(with_ranks(a, given, ranks));
      return true;
    } catch (const InputError&) {
      return false;
    }
  };
  if (!a.routing.empty())
    refuse("--elastic", "--record-routing keeps what one run of ranks chose", "leave one of them out");
  if (const int launched = execute::launched_ranks(); launched > 0) {
    if (launched < range.least || launched > range.most)
      refuse("--elastic", fmt::format("{} ranks were started, which is not within {}", launched, a.elastic));
    if (!possible(launched))
      refuse("--elastic", fmt::format("{} ranks were started, which cannot perform the plan", launched),
             "whole replicas, of which the global batch is a multiple");
    a.assignments = with_ranks(a, given, launched);
    if (!execute::supervised()) a.checkpoint.restarts = std::max(1, a.checkpoint.restarts);  // from the last, if any
    return perform_plan(a, file, root);
  }
  execute::ElasticRun run;
  run.range = range;
  run.first = static_cast<int>(given.cluster.gpus);
  run.folder = a.checkpoint.folder;
  run.steps = steps_of(a, given);
  run.failures_at_most = a.placement.max_restarts;
  run.possible = possible;
  run.note = a.placement.note;
  run.perform = [&](int ranks, int starts, const std::function<void()>& poll) {
    ExecuteArguments now = a;
    now.assignments = with_ranks(a, given, ranks);
    now.placement.max_restarts = 0;
    now.checkpoint.restarts = starts;
    now.steps = static_cast<int>(run.steps);
    now.poll = poll;
    const plan::Scenario scenario = with_chosen_layers(read(now.assignments), root, nullptr);
    now.order = order_of_servers(now, scenario);
    return start(now, scenario, execute::Placement(now.placement, scenario));
  };
  return telling_failures([&] { return execute::run_elastic(run); });
}

int run_execute(const ExecuteArguments& a) {
  const std::string root = data_root();
  const std::string file = scenario_file(a.scenario, root);
  if (a.shrink) return run_shrunk(a, file, root);
  if (!a.data.empty()) note_input(a.data);
  if (!a.order_file.empty()) note_input(a.order_file);
  if (a.output_given)
    check_result_directory(a.output),
        check_output_directory(a.output, {"steps.csv", "servers.csv", "learning.csv", kEventFile});
  if (!a.metrics.empty()) check_output_path(a.metrics);
  if (!a.routing.empty()) check_output_path(a.routing);
  return a.elastic.empty() ? perform_plan(a, file, root) : run_elastic(a, file, root);
}

}  // namespace

void add_execute(CLI::App& app, Action& action) {
  auto a = std::make_shared<ExecuteArguments>();
  CLI::App* command = app.add_subcommand("execute", "Perform a plan for real on this machine's CPU or GPUs");
  command->add_option("SCENARIO", a->scenario, "A file, or a name of rehearse list scenarios")
      ->required()
      ->type_name("");
  command->add_option("--set", a->assignments, "Override a key, as plan.tensor=4; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  CLI::Option* steps = command->add_option("--steps", a->steps, "Optimizer steps (default 20)")
                           ->check(between(1, kMaxSteps))
                           ->type_name("N");
  command->add_option("--epochs", a->epochs, "Instead of --steps: times through the data")
      ->check(number_between(1e-3, 1e6))
      ->excludes(steps)
      ->type_name("N");
  command->add_option("--until-loss", a->until_loss, "Stop once the mean of 10 steps' losses is so low")
      ->check(number_between(-1e30, 1e30))
      ->type_name("X");
  command->add_option("--data", a->data, "A text file, read as bytes, or a .bin of uint16")->type_name("FILE");
  command->add_option("--device", a->placement.device, "auto (default), cpu, cuda: what performs it")
      ->check(one_of({"auto", "cpu", "cuda"}))
      ->envname("REHEARSE_DEVICE")
      ->type_name("WHERE");
  command->add_option("--ranks", a->placement.ranks, "local: threads; gloo, mpi: processes; nccl: on GPUs")
      ->check(one_of({"local", "gloo", "mpi", "nccl"}))
      ->type_name("HOW");
  command->add_option("--cuda-graphs", a->placement.graphs, "auto, on, off: replay steps on a GPU as CUDA graphs")
      ->check(one_of({"auto", "on", "off"}))
      ->type_name("WHEN");
  command->add_option("--products", a->placement.products, "cuBLASLt's algorithms: first (default) or measured")
      ->check(one_of({"first", "measured"}))
      ->type_name("WHICH");
  command->add_option("--attention", a->placement.attention, "On GPUs: own (default), or cudnn where that agrees")
      ->check(one_of({"own", "cudnn"}))
      ->type_name("WHOSE");
  command->add_option("--rendezvous", a->placement.rendezvous, "Empty folder where a launcher's processes meet")
      ->type_name("DIR");
  command->add_option("--interface", a->placement.interface, "Network interface of gloo and nccl, as eth0")
      ->check(not_empty())
      ->type_name("NAME");
  const auto [checkpoint, every] = add_checkpoint_options(*command, a->checkpoint, kMaxSteps);
  command->add_option("--max-restarts", a->placement.max_restarts, "After a failure start again, so often")
      ->check(between(1, 1'000'000))
      ->needs(checkpoint)
      ->type_name("N");
  command->add_option("--elastic", a->elastic, "Ranks come and go (gloo, mpi): go on with what is left")
      ->needs(every)
      ->type_name("LEAST:MOST");
  command->add_option("--log-every", a->log_every, "Print loss, step time and rate every N steps")
      ->check(between(1, kMaxSteps))
      ->type_name("N");
  const auto timeout = std::make_shared<double>(60);
  command->add_option("--timeout", *timeout, "Seconds a rank waits for others (default 60)")
      ->check(number_between(0.1, 1e6))
      ->type_name("S");
  CLI::Option* output =
      command->add_option("-o", a->output, "Folder for result.json, ops.csv and so on")->type_name("DIR");
  command->add_flag("--tensorboard", a->tensorboard, "With -o: the steps as an event file too")->needs(output);
  command->add_option("--metrics", a->metrics, "Loss and rates while it runs, for Prometheus")
      ->check(not_empty())
      ->type_name("FILE");
  command->add_flag("--as-simulated", a->as_simulated, "Parameter servers take gradients as simulated");
  command->add_option("--order", a->order_file, "Parameter servers do what a servers.csv says")
      ->check(not_empty())
      ->excludes("--as-simulated")
      ->type_name("FILE");
  command->add_option("--record-routing", a->routing, "Which experts tokens chose, for model.routing_file")
      ->check(not_empty())
      ->type_name("FILE");
  CLI::Option* shrink = command->add_flag("--shrink", a->shrink, "In miniature: simulated, performed, compared");
  command->add_option("--ranks-at-most", a->miniature.ranks_at_most, "In the miniature (default: keeps every split)")
      ->check(between(1, execute::kMaxRanks))
      ->needs(shrink)
      ->type_name("N");
  command->add_option("--step-seconds", a->miniature.step_s, "Roughly, of a step of the miniature (default 1)")
      ->check(number_between(0.001, 1e4))
      ->needs(shrink)
      ->type_name("S");
  command->add_option("--budget", a->miniature.budget_s, "Seconds to calibrate for the miniature (default 10)")
      ->check(number_between(1, 1e5))
      ->needs(shrink)
      ->type_name("S");
  command->add_option("--calibration", a->miniature.calibration, "Simulate the miniature from this file as it is")
      ->needs(shrink)
      ->type_name("FILE");
  CLI::Option* json = command->add_flag("--json", a->json, "Print result.json alone to standard output");
  command->add_flag("--baseline", a->baseline, "Also perform on one rank: speed-up and efficiency")->excludes(json);
  command->footer(
      "Examples:\n"
      "  rehearse execute gpt-tiny-ddp --steps 50\n"
      "  rehearse execute gpt-tiny-2x2x2 --data book.txt -o measured\n"
      "  rehearse execute gpt-tiny-ddp --ranks gloo --checkpoint saved --every 10\n"
      "  rehearse execute plans/plan-1.yaml --shrink -o miniature\n"
      "Exit status: 0 done, 2 bad usage or input, 3 does not fit in memory, 1 other,\n"
      "128 + signal interrupted.");
  command->callback([a, timeout, output, command, &action] {
    for (const char* name :
         {"--steps", "--log-every", "--products", "--attention", "--cuda-graphs", "--timeout", "--rendezvous",
          "--interface", "--record-routing", "--as-simulated", "--order", "--until-loss"})
      if (a->shrink && command->get_option(name)->count() > 0) a->not_of_miniature = name;
    if (command->get_option("--base-every")->count() > 0 && a->checkpoint.kind != execute::CheckpointKind::incremental)
      refuse("--base-every", "is of incremental checkpoints", "--checkpoint-kind incremental, or leave it out");
    a->placement.timeout = std::chrono::milliseconds(std::llround(*timeout * 1000));
    a->placement.version = REHEARSE_VERSION;
    a->placement.as_simulated = a->as_simulated;
    a->placement.note = [](const std::string& text) { note(text); };
    a->output_given = output->count() > 0;
    a->checkpoint.restarts = restarts();
    action = [a] {
      const auto work = [a] { return run_execute(*a); };
      return a->placement.ranks == "mpi" ? as_mpi_process(a->placement.mpi, a->placement.timeout, work) : work();
    };
  });
}

}  // namespace rehearse::cli
