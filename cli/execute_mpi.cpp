// See execute_mpi.h.
#include "cli/execute_mpi.h"

#include "cli/console.h"
#include "cli/exit_code.h"
#include "execute/placement/placement.h"
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

}  // namespace rehearse::cli
