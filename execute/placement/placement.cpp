// See placement.h. What is particular to GPUs is in gpus.cpp.
#include "execute/placement/placement.h"

#include <fmt/format.h>

#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "execute/checkpoint/folder.h"
#include "execute/data.h"
#include "execute/placement/gpus.h"
#include "execute/processes/identity.h"
#include "execute/processes/launch_environment.h"
#include "execute/processes/local_world.h"
#include "execute/processes/mpi/mpi_job.h"
#include "execute/processes/process_world.h"
#include "execute/processes/start_ranks.h"
#include "execute/rank/run.h"
#include "execute/transport/gloo/gloo_wire.h"
#include "sim/account/server_events.h"
#include "sim/base/diagnostics.h"
#include "sim/base/interrupt.h"
#include "sim/plan/performed_keys.h"

namespace rehearse::execute {
namespace {

std::string or_variable(const std::string& option, const char* name) {
  const char* value = std::getenv(name);
  return option.empty() && value != nullptr ? value : option;
}

[[noreturn]] void refuse_option(const std::string& option, const std::string& message, const std::string& hint) {
  throw InputError(Diagnostic{option, 0, 0, "", message, hint});
}

// What the scenario's keys do not show: files of models and frameworks that are not the same everywhere.
std::string program_fingerprint(const MakeProgram& lower) {
  try {
    return fingerprint_of(lower());
  } catch (const InputError& error) {
    return error.what();  // said to the user when it is to be performed
  }
}

// What this process is about to do, for comparison with the others.
Identity identity_of(const PlacementRequest& request, const plan::Scenario& scenario, const Options& options, bool cuda,
                     const MakeProgram& lower) {
  // The program's own file and what it says of itself: other sources, other options, another compiler.
  Identity identity{
      {"program", fmt::format("rehearse {}, {}", request.version, fingerprint_of_file("/proc/self/exe"))}};
  for (auto& key : plan::performed_keys(scenario)) identity.push_back(std::move(key));
  identity.emplace_back("data",
                        scenario.model.reads_text() ? fingerprint_of_file(data_file(options.data)) : "made examples");
  identity.emplace_back("--steps", fmt::to_string(options.steps));
  identity.emplace_back("-o", options.record ? "given" : "not given");
  const CheckpointOptions& c = options.checkpoint;
  if (c.any()) {
    identity.emplace_back("--checkpoint", c.folder);
    identity.emplace_back("--every", fmt::to_string(c.every));
    identity.emplace_back("--checkpoint-kind", name_of(c.kind));
    if (c.kind == CheckpointKind::incremental) identity.emplace_back("--base-every", fmt::to_string(c.base_every));
    identity.emplace_back("--async", c.background ? "given" : "not given");
    identity.emplace_back("--resume", c.resume || c.restarts > 0 ? "given" : "not given");
  }
  if (scenario.plan.served()) {
    identity.emplace_back("--as-simulated", request.as_simulated ? "given" : "not given");
    identity.emplace_back("--order", options.server_order != nullptr && !request.as_simulated ? "given" : "not given");
    // It comes from keys that are only simulated otherwise: topology, costs, noise.
    if (options.server_order != nullptr)
      identity.emplace_back(kOrderPart, fingerprint_of_text(account::server_event_table(*options.server_order)));
  }
  identity.emplace_back("--device", cuda ? "cuda" : "cpu");
  identity.emplace_back(kProgramPart, program_fingerprint(lower));
  return identity;
}

// Processes over Gloo, or those over NCCL, which control one another over plain sockets.
std::unique_ptr<World> join_processes(const PlacementRequest& request, const std::string& ranks,
                                      const plan::Scenario& scenario, const Identity& identity) {
  const bool nccl = ranks == "nccl";
  if (!nccl && !gloo_available())
    refuse_option("--ranks gloo", "this program was built without Gloo", "install libgloo-dev and build again");
  const std::string interface = or_variable(request.interface, "GLOO_SOCKET_IFNAME");
  if (!interface.empty()) check_interface(interface);
  const std::string folder = or_variable(request.rendezvous, kRendezvousVariable);
  const Launch launch = read_launch(process_environment());
  if (launch.launcher == Launcher::none) {
    if (!request.rendezvous.empty())
      refuse_option("--rendezvous", "no launcher says which rank this process is",
                    "set RANK and WORLD_SIZE, or leave it out");
    return nullptr;
  }
  check_ranks(launch, scenario.cluster.gpus, scenario.plan.served() ? scenario.plan.servers : 0);
  if (folder.empty())
    refuse_option("--ranks " + ranks,
                  fmt::format("started as one rank of {} ({}), which must meet somewhere", launch.ranks, launch.source),
                  "--rendezvous DIR, an empty folder that all ranks see");
  ProcessOptions options;
  options.rank = launch.rank;
  options.ranks = launch.ranks;
  options.folder = folder;
  options.interface = interface;
  options.timeout = request.timeout;
  options.control_only = nccl;
  options.identity = identity;
  options.supervised = supervised();
  return make_process_world(options);
}

[[noreturn]] void refuse_mpi(const std::string& message, const std::string& hint) {
  throw InputError(Diagnostic{"", 0, 0, "--ranks mpi", message, hint});
}

std::unique_ptr<World> join_mpi(MpiSession* session, const plan::Scenario& scenario, std::chrono::milliseconds timeout,
                                int restarts, const Identity& identity, const MakeProgram& lower) {
  const auto ranks = static_cast<int>(scenario.cluster.gpus);
  const int processes = ranks + static_cast<int>(scenario.plan.served() ? scenario.plan.servers : 0);
  const std::string start = fmt::format("mpirun -n {} rehearse execute ... --ranks mpi", processes);
  if (session == nullptr && restarts > 0) return nullptr;  // start() starts a job
  if (session == nullptr && processes == 1) return make_local_world(1, timeout);
  const std::string has = processes == ranks
                              ? fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s")
                              : fmt::format("{} workers and {} parameter servers", ranks, processes - ranks);
  if (session == nullptr)
    refuse_mpi(fmt::format("the scenario has {}, a process each, but no launcher started this one", has), start);
  if (session->ranks() != processes)
    refuse_mpi(fmt::format("the scenario has {}, but MPI counts {} process{}", has, session->ranks(),
                           session->ranks() == 1 ? "" : "es"),
               processes == ranks ? fmt::format("{}, or --set cluster.gpus={}", start, session->ranks()) : start);
  return session->make_world(lower(), scenario.grid(), timeout, identity);
}

// Who started the ranks starts them again: we, or a launcher.
void check_restarts(const PlacementRequest& request, const std::string& how) {
  if (request.max_restarts == 0) return;
  if (how.empty() || how == "local")
    refuse_option("--max-restarts", "ranks that are threads end with their process, and nobody is left",
                  "--ranks gloo, or mpi");
  const Launch launch = read_launch(process_environment());
  if (launch.launcher != Launcher::none && !supervised())
    refuse_option("--max-restarts", fmt::format("{} started this rank, not this command", name_of(launch.launcher)),
                  how == "mpi" ? "leave mpirun to rehearse: it starts mpirun -n itself" : "torchrun --max-restarts");
}

}  // namespace

Placement::Placement(PlacementRequest request, const plan::Scenario& scenario)
    : request_(std::move(request)), scenario_(scenario), gpus_(choose_gpus(request_, scenario)) {}

std::unique_ptr<World> Placement::join(const Options& options, const MakeProgram& lower) const {
  const auto ranks = static_cast<int>(scenario_.cluster.gpus);
  const std::string how = on_gpus() ? "nccl" : request_.ranks;
  const bool processes = how == "gloo" || how == "nccl";
  check_restarts(request_, how);
  Identity identity;
  if (how == "gloo" || how == "mpi" || (on_gpus() && ranks > 1))
    identity = identity_of(request_, scenario_, options, on_gpus(), lower);
  if (on_gpus() && ranks == 1 && read_launch(process_environment()).launcher == Launcher::none)
    return make_local_world(1, request_.timeout);
  if (processes) return join_processes(request_, how, scenario_, identity);
  if (!request_.rendezvous.empty()) refuse_option("--rendezvous", "only with --ranks gloo or nccl", "");
  if (!request_.interface.empty()) refuse_option("--interface", "only with --ranks gloo or nccl", "");
  if (how.empty()) refuse_launcher("execute");
  if (how == "mpi")
    return join_mpi(request_.mpi.get(), scenario_, request_.timeout, request_.max_restarts, identity, lower);
  return make_local_world(ranks, request_.timeout);
}

std::unique_ptr<RankMaker> Placement::make_ranks(World& world) const {
  return on_gpus() ? make_gpu_ranks(request_, scenario_, *gpus_, world) : nullptr;
}

int Placement::start(const program::Program& program, const Options& given) const {
  std::vector<int> ranks(static_cast<std::size_t>(scenario_.cluster.gpus));
  std::iota(ranks.begin(), ranks.end(), 0);
  Options options = given;
  std::unique_ptr<GpusToStart> gpus;
  if (on_gpus()) {
    gpus = std::make_unique<GpusToStart>(request_, *gpus_, static_cast<int>(ranks.size()));
    options.maker = &gpus->maker();
  }
  check_run(scenario_, program, options, ranks);
  const plan::RankGrid grid = scenario_.grid();
  const std::vector<Timeline> timelines = make_timelines(program, grid);
  StartOptions start;
  // Parameter servers are the processes behind the ranks'.
  start.ranks = static_cast<int>(ranks.size() + (scenario_.plan.served() ? scenario_.plan.servers : 0));
  start.poll = options.poll;
  if (gpus) {
    gpus->prepare_sharing();
    start.variables = [&gpus](int rank) { return gpus->variables(rank); };
  }
  start.whereabouts_of = [&](int rank, const Whereabouts& at) {
    return rank_whereabouts(scenario_, timelines, grid, rank, at);
  };
  return start_again({options.checkpoint.folder, options.steps, request_.max_restarts, request_.note},
                     [&](int restarts) { return start_once(start, options.checkpoint.restarts + restarts); });
}

int Placement::start_once(const StartOptions& given, int restarts) const {
  const std::pair<std::string, std::string> count{kRestartVariable, fmt::to_string(restarts)};
  if (request_.ranks == "mpi") {
    MpiJobOptions job{given.ranks, {}, given.poll};
    if (restarts > 0) job.variables.push_back(count);
    return start_mpi_job(job);
  }
  StartOptions start = given;
  if (restarts > 0)
    start.variables = [&](int rank) {
      auto variables = given.variables ? given.variables(rank) : std::vector<std::pair<std::string, std::string>>{};
      variables.push_back(count);
      return variables;
    };
  return start_ranks(start);
}

int start_again(const StartAgain& how, const std::function<int(int restarts)>& start) {
  for (int restarts = 0;; ++restarts) {
    try {
      return start(restarts);
    } catch (const RankFailure& failure) {
      if (restarts == how.restarts || end_signal() != 0) throw;
      how.note(fmt::format("rehearse: {}\nrehearse: note: starting again from step {}, restart {} of {}",
                           failure.what(), last_checkpoint_before(how.folder, how.steps), restarts + 1, how.restarts));
    }
  }
}

void refuse_launcher(const std::string& command) {
  const Launch launch = read_launch(process_environment());
  if (launch.ranks == 1) return;
  const bool mpi = launch.launcher == Launcher::open_mpi || launch.launcher == Launcher::hydra;
  const bool performs = command == "execute";
  throw InputError(Diagnostic{
      "", 0, 0, "",
      fmt::format("{} started this process as one of {} by {}, each of which would {}", name_of(launch.launcher),
                  launch.ranks, launch.source, performs ? "train the whole plan" : "do all of " + command),
      performs ? fmt::format("--ranks {} makes each a rank, --ranks local is one run in each", mpi ? "mpi" : "gloo")
               : "run it once, outside of the launcher, or unset its variables"});
}

int launched_ranks() {
  const Launch launch = read_launch(process_environment());
  return launch.launcher == Launcher::none ? 0 : launch.ranks;
}

bool launched_for_mpi() {
  const Launch launch = read_launch(process_environment());
  return launch.ranks > 1 && launch.launcher != Launcher::torchrun;
}

void join_mpi_job(std::shared_ptr<MpiSession>& session, std::chrono::milliseconds timeout) {
  const Launch launch = read_launch(process_environment());
  if (launch.launcher == Launcher::none && mpi_available()) return;
  session = start_mpi(timeout);
  // Processes that a launcher started without MPI are jobs of one each.
  if (session->rank() == 0 && launch.ranks != session->ranks())
    refuse_mpi(fmt::format("{} started {} processes ({}), but MPI counts {}", name_of(launch.launcher), launch.ranks,
                           launch.source, session->ranks()),
               "start them with mpirun or with srun --mpi=pmix");
}

}  // namespace rehearse::execute
