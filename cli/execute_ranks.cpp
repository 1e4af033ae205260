// See execute_ranks.h.
#include "cli/execute_ranks.h"

#include <fmt/format.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "cli/console.h"
#include "cli/execute_mpi.h"
#include "execute/gloo/gloo_world.h"
#include "execute/gloo/start_ranks.h"
#include "execute/launch/environment.h"
#include "execute/local/local_world.h"
#include "sim/base/diagnostics.h"
#include "sim/program/describe.h"

namespace rehearse::cli {
namespace {

std::string or_variable(const std::string& option, const char* name) {
  const char* value = std::getenv(name);
  return option.empty() && value != nullptr ? value : option;
}

[[noreturn]] void refuse(const std::string& option, const std::string& message, const std::string& hint) {
  throw InputError(Diagnostic{option, 0, 0, "", message, hint});
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
  options.supervised = std::getenv(execute::kSupervisedVariable) != nullptr;
  return execute::make_gloo_world(options);
}

}  // namespace

std::unique_ptr<execute::World> make_world(const RanksRequest& request, const plan::Scenario& scenario) {
  const bool processes = request.how == "gloo" || request.how == "nccl";
  if (!processes) {
    if (!request.rendezvous.empty()) refuse("--rendezvous", "only with --ranks gloo or nccl", "");
    if (!request.interface.empty()) refuse("--interface", "only with --ranks gloo or nccl", "");
  }
  if (processes) return make_processes(request, scenario);
  if (request.how == "mpi") return make_mpi_world(request.mpi.get(), scenario, request.timeout);
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
