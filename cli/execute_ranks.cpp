// See execute_ranks.h.
#include "cli/execute_ranks.h"

#include <fmt/format.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "cli/console.h"
#include "cli/execute_mpi.h"
#include "cli/refuse.h"
#include "execute/data.h"
#include "execute/gloo/gloo_world.h"
#include "execute/gloo/start_ranks.h"
#include "execute/launch/environment.h"
#include "execute/local/local_world.h"
#include "sim/base/diagnostics.h"
#include "sim/lower/lower.h"
#include "sim/plan/performed_keys.h"

namespace rehearse::cli {
namespace {

std::string or_variable(const std::string& option, const char* name) {
  const char* value = std::getenv(name);
  return option.empty() && value != nullptr ? value : option;
}

// Processes over Gloo, or those over NCCL, which control one another over plain sockets.
std::unique_ptr<execute::World> make_processes(const RanksRequest& request, const plan::Scenario& scenario) {
  const bool nccl = request.how == "nccl";
  if (!nccl && !execute::gloo_available())
    refuse("--ranks gloo", "this program was built without Gloo", "install libgloo-dev and build again");
  const std::string interface = or_variable(request.interface, "GLOO_SOCKET_IFNAME");
  if (!interface.empty()) execute::check_interface(interface);
  const std::string folder = or_variable(request.rendezvous, execute::kRendezvousVariable);
  const execute::Launch launch = execute::read_launch(execute::process_environment());
  if (launch.launcher == execute::Launcher::none) {
    if (!request.rendezvous.empty())
      refuse("--rendezvous", "no launcher says which rank this process is", "set RANK and WORLD_SIZE, or leave it out");
    return nullptr;
  }
  execute::check_ranks(launch, scenario.cluster.gpus);
  if (folder.empty())
    refuse("--ranks " + request.how,
           fmt::format("started as one rank of {} ({}), which must meet somewhere", launch.ranks, launch.source),
           "--rendezvous DIR, an empty folder that all ranks see");
  execute::GlooOptions options;
  options.rank = launch.rank;
  options.ranks = launch.ranks;
  options.folder = folder;
  options.interface = interface;
  options.timeout = request.timeout;
  options.control_only = nccl;
  options.identity = request.identity;
  options.supervised = execute::supervised();
  return execute::make_gloo_world(options);
}

// The program's own file and what it says of itself: other sources, other options, another compiler.
std::string version_of_this_program() {
  return fmt::format("rehearse {}, {}", REHEARSE_VERSION, execute::fingerprint_of_file("/proc/self/exe"));
}

std::string data_of(const plan::Scenario& scenario, const std::string& given) {
  return scenario.model.is_transformer() ? execute::fingerprint_of_file(execute::data_file(given)) : "made examples";
}

// What the scenario's keys do not show: files of models and frameworks that are not the same everywhere.
std::string lowered(const plan::Scenario& scenario) {
  try {
    return execute::fingerprint_of(lower::lower(scenario));
  } catch (const InputError& error) {
    return error.what();  // said to the user when it is to be performed
  }
}

}  // namespace

bool among_processes(const RanksRequest& request, bool cuda, const plan::Scenario& scenario) {
  return request.how == "gloo" || request.how == "mpi" || (cuda && scenario.cluster.gpus > 1);
}

execute::Identity identity_of(const plan::Scenario& scenario, const execute::Options& options, bool cuda) {
  execute::Identity identity{{"program", version_of_this_program()}};
  for (auto& key : plan::performed_keys(scenario)) identity.push_back(std::move(key));
  identity.emplace_back("data", data_of(scenario, options.data));
  identity.emplace_back("--steps", fmt::to_string(options.steps));
  identity.emplace_back("-o", options.record ? "given" : "not given");
  identity.emplace_back("--device", cuda ? "cuda" : "cpu");
  identity.emplace_back(execute::kProgramPart, lowered(scenario));
  return identity;
}

void refuse_launcher(const std::string& command) {
  const execute::Launch launch = execute::read_launch(execute::process_environment());
  if (launch.ranks == 1) return;
  const bool mpi = launch.launcher == execute::Launcher::open_mpi || launch.launcher == execute::Launcher::hydra;
  const bool performs = command == "execute";
  throw InputError(Diagnostic{
      "", 0, 0, "",
      fmt::format(
          "{} started this process as one of {}\n  ({}), each of which would {}\n  {}", name_of(launch.launcher),
          launch.ranks, launch.source, performs ? "train the whole plan" : "do all of " + command,
          performs ? fmt::format("--ranks {} makes each a rank, --ranks local is one run in each", mpi ? "mpi" : "gloo")
                   : "run it once, outside of the launcher, or unset its variables"),
      ""});
}

std::unique_ptr<execute::World> make_world(const RanksRequest& request, const plan::Scenario& scenario) {
  const bool processes = request.how == "gloo" || request.how == "nccl";
  if (!processes) {
    if (!request.rendezvous.empty()) refuse("--rendezvous", "only with --ranks gloo or nccl", "");
    if (!request.interface.empty()) refuse("--interface", "only with --ranks gloo or nccl", "");
  }
  if (processes) return make_processes(request, scenario);
  if (request.how.empty()) refuse_launcher("execute");
  if (request.how == "mpi") return make_mpi_world(request.mpi.get(), scenario, request.timeout, request.identity);
  return execute::make_local_world(static_cast<int>(scenario.cluster.gpus), request.timeout);
}

int start_processes(const plan::Scenario& scenario, const program::Program& program, const execute::Options& options,
                    const std::function<void()>& begin,
                    const std::function<std::vector<std::pair<std::string, std::string>>(int rank)>& variables) {
  std::vector<int> ranks(static_cast<std::size_t>(scenario.cluster.gpus));
  std::iota(ranks.begin(), ranks.end(), 0);
  execute::check_run(scenario, program, options, ranks);
  const plan::RankGrid grid = scenario.grid();
  const std::vector<execute::Timeline> timelines = execute::make_timelines(program, grid);
  execute::StartOptions start;
  start.ranks = static_cast<int>(ranks.size());
  start.poll = check_interrupt;
  start.variables = variables;
  if (begin) begin();
  start.whereabouts_of = [&](int rank, const execute::Whereabouts& at) {
    return execute::whereabouts_text(timelines[static_cast<std::size_t>(grid.coordinate(rank, Axis::pipeline))], rank,
                                     at);
  };
  return execute::start_ranks(start);
}

}  // namespace rehearse::cli
