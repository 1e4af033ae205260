// See execute_mpi.h.
#include "cli/execute_mpi.h"

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/exit_code.h"
#include "execute/placement/placement.h"
#include "execute/processes/launch_environment.h"
#include "sim/base/diagnostics.h"

namespace rehearse::cli {
namespace {

int leave_to_root(execute::MpiSession& session, const std::exception& error, int status) {
  if (const std::string text = session.give_up(error.what()); !text.empty()) note("rehearse: error: " + text);
  return status;
}

}  // namespace

int as_mpi_process(std::shared_ptr<execute::MpiSession>& session, std::chrono::milliseconds timeout,
                   const std::function<int()>& work) {
  execute::join_mpi_job(session, timeout);
  if (session == nullptr || session->rank() == 0) return work();
  try {
    return work();
  } catch (const Interrupted& end) {
    return end.exit_status();
  } catch (const InputError& error) {
    return leave_to_root(*session, error, kBadInput);
  } catch (const std::exception& error) {
    return leave_to_root(*session, error, kFailed);
  }
}

int as_first_process(const std::string& what, const std::function<int()>& work) {
  execute::Launch launch;
  try {
    launch = execute::read_launch(execute::process_environment());
  } catch (const InputError&) {  // half a launcher's variables: wrong for ranks, nothing to work that has none
  }
  const bool mpi = launch.launcher != execute::Launcher::none && launch.launcher != execute::Launcher::torchrun;
  if (!mpi || launch.ranks == 1) return work();
  if (launch.rank > 0) return kDone;
  note(fmt::format("rehearse: note: {} is not shared among processes: the first of {} alone answers", what,
                   launch.ranks));
  return work();
}

}  // namespace rehearse::cli
