// See execute_mpi.h.
#include "cli/execute_mpi.h"

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/exit_code.h"
#include "execute/launch/environment.h"
#include "execute/local/local_world.h"
#include "sim/base/diagnostics.h"
#include "sim/lower/lower.h"

namespace rehearse::cli {
namespace {

using execute::Launch;
using execute::Launcher;

[[noreturn]] void refuse_mpi(const std::string& message, const std::string& hint) {
  throw InputError(Diagnostic{"", 0, 0, "--ranks mpi", message, hint});
}

// Processes that a launcher started without MPI are jobs of one each.
void check_job(const Launch& launch, int ranks) {
  if (launch.ranks != ranks)
    refuse_mpi(fmt::format("{} started {} processes ({}), but MPI counts {}", name_of(launch.launcher), launch.ranks,
                           launch.source, ranks),
               "start them with mpirun or with srun --mpi=pmix");
}

void leave_to_root(execute::MpiSession& session, const std::string& message) {
  if (const std::string text = session.give_up(message); !text.empty()) note("rehearse: error: " + text);
}

}  // namespace

int as_mpi_process(std::shared_ptr<execute::MpiSession>& session, std::chrono::milliseconds timeout,
                   const std::function<int()>& work) {
  const Launch launch = execute::read_launch(execute::process_environment());
  if (launch.launcher == Launcher::none && execute::mpi_available()) return work();
  session = execute::start_mpi(timeout);
  if (session->rank() == 0) {
    check_job(launch, session->ranks());
    return work();
  }
  try {
    return work();
  } catch (const Interrupted& end) {
    return end.exit_status();
  } catch (const InputError& error) {
    leave_to_root(*session, error.what());
    return kBadInput;
  } catch (const std::exception& error) {
    leave_to_root(*session, error.what());
    return kFailed;
  }
}

std::unique_ptr<execute::World> make_mpi_world(execute::MpiSession* session, const plan::Scenario& scenario,
                                               std::chrono::milliseconds timeout, const execute::Identity& identity) {
  const auto ranks = static_cast<int>(scenario.cluster.gpus);
  const std::string start = fmt::format("mpirun -n {} rehearse execute ... --ranks mpi", ranks);
  if (session == nullptr && ranks == 1) return execute::make_local_world(1, timeout);
  if (session == nullptr)
    refuse_mpi(fmt::format("the scenario has {} ranks, a process each, but no launcher started this one", ranks),
               start);
  if (session->ranks() != ranks)
    refuse_mpi(fmt::format("the scenario has {} rank{}, but MPI counts {} process{}", ranks, ranks == 1 ? "" : "s",
                           session->ranks(), session->ranks() == 1 ? "" : "es"),
               fmt::format("{}, or --set cluster.gpus={}", start, session->ranks()));
  return session->make_world(lower::lower(scenario), scenario.grid(), timeout, identity);
}

}  // namespace rehearse::cli
