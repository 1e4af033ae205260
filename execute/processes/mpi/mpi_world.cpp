// See mpi_world.h. Whatever the processes tell one another goes through the Hub, numbers through the MpiCommunicator.
#include "execute/processes/mpi/mpi_world.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "execute/performer.h"
#include "execute/processes/mpi/attendance.h"
#include "execute/processes/mpi/control_channel.h"
#include "execute/processes/mpi/watchdog.h"
#include "execute/transport/mpi/call.h"
#include "execute/transport/mpi/mpi_communicator.h"
#include "execute/transport/mpi/poll.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {
namespace {

MpiCommunicator::Groups groups_of(const program::Program& program, const plan::RankGrid& grid, int rank) {
  MpiCommunicator::Groups groups;
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const program::Group& group = program.groups[g];
    std::vector<int> members = grid.members(rank, group.axes, group.pipeline_only);
    if (std::find(members.begin(), members.end(), rank) != members.end())
      groups[static_cast<program::GroupId>(g)] = std::move(members);
  }
  return groups;
}

constexpr std::chrono::milliseconds kLastWord{200};  // for mpirun to pass on what was said before the job is ended

std::string late_text(const std::string& what, std::chrono::milliseconds limit) {
  return fmt::format("rehearse: error: waited {:.3g} s for {}", static_cast<double>(limit.count()) / 1000, what);
}

class MpiWorld : public World {
 public:
  MpiWorld(Hub& hub, MPI_Comm comm, const MpiCommunicator::Groups& groups, std::chrono::milliseconds timeout)
      : hub_(hub),
        timeout_(timeout),
        here_{hub.rank()},
        communicator_(comm, groups, timeout, hub.stop(), hub.outbox(), [&hub] { return hub.silent(); }) {}
  ~MpiWorld() override { hub_.end_run(!begun_ || gathered_); }

  std::span<const int> here() const override { return here_; }
  std::span<const int> on_this_machine() const override { return hub_.board().ranks(); }
  bool root() const override { return hub_.root(); }
  Communicator& communicator(int rank) override {
    REHEARSE_CHECK(rank == hub_.rank(), "rank {} is not here", rank);
    return communicator_;
  }
  Stop& stop() override { return hub_.stop(); }
  Whereabouts& whereabouts(int rank) override { return hub_.board().whereabouts(rank); }

  // Steady clocks are the same on one machine only: there, the last to come begins the run.
  Clock::time_point begin() override {
    begun_ = true;
    communicator_.meet_all();
    std::int64_t began = Clock::now().time_since_epoch().count();
    MPI_Request request = MPI_REQUEST_NULL;
    REHEARSE_MPI(MPI_Iallreduce(MPI_IN_PLACE, &began, 1, MPI_INT64_T, MPI_MAX, hub_.board().comm(), &request));
    const auto done = [&] {
      int flag = 0;
      REHEARSE_MPI(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
      return flag != 0;
    };
    poll_for(hub_.stop(), timeout_, done, [this] { return hub_.silent(); });
    return Clock::time_point(Clock::duration(began));
  }

  void report_loss(std::int64_t step, int, double part) override { hub_.report_loss(step, part); }
  std::optional<double> loss(std::int64_t step, std::span<const int> reporters) override {
    return hub_.losses().take(step, reporters);
  }
  void fail(int, std::string text) override { hub_.fail(text); }
  void waited(int, std::string text) override { hub_.waited(text); }
  std::string failure(const std::function<std::string(int rank)>& whereabouts_of) override {
    return hub_.failure(whereabouts_of);
  }
  std::vector<std::string> gather(std::string bytes) override {
    std::vector<std::string> all = hub_.gather(std::move(bytes), timeout_);
    gathered_ = true;
    return all;
  }

 private:
  Hub& hub_;
  std::chrono::milliseconds timeout_;
  std::array<int, 1> here_;
  MpiCommunicator communicator_;
  bool begun_ = false, gathered_ = false;
};

class Session : public MpiSession {
 public:
  explicit Session(std::chrono::milliseconds limit) {
    const Attendance attendance;
    const Watchdog watchdog(limit, [&attendance, limit] {
      const std::string missing = attendance.missing_text();
      return late_text(missing.empty() ? "the ranks to start MPI together" : missing + " to start MPI", limit);
    });
    int provided = 0;
    REHEARSE_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
    if (provided < MPI_THREAD_MULTIPLE) {
      MPI_Finalize();
      throw InputError(Diagnostic{"", 0, 0, "--ranks mpi",
                                  "this MPI library allows no calls by several threads (MPI_THREAD_MULTIPLE)",
                                  "build it so, or use another; Debian's Open MPI does"});
    }
    REHEARSE_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    REHEARSE_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    hub_ = std::make_unique<Hub>(comm_);
  }
  ~Session() override {
    const bool whole = hub_->leave();
    if (!whole) std::this_thread::sleep_for(kLastWord);
    hub_.reset();
    if (whole)
      MPI_Finalize();
    else
      MPI_Abort(MPI_COMM_WORLD, 1);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const override { return hub_->rank(); }
  int ranks() const override { return hub_->ranks(); }
  std::unique_ptr<World> make_world(const program::Program& program, const plan::RankGrid& grid,
                                    std::chrono::milliseconds timeout, const Identity& identity) override {
    const Watchdog watchdog(2 * timeout, [this, timeout] {
      std::string text = late_text("the ranks to make their groups", 2 * timeout);
      for (const int rank : hub_->silent()) text += fmt::format("\n  rank {}'s process does not answer", rank);
      return text;
    });
    hub_->begin_run();
    try {
      agree(identity, timeout);
      return std::make_unique<MpiWorld>(*hub_, comm_, groups_of(program, grid, rank()), timeout);
    } catch (const RanksDiffer&) {
      hub_->end_run(true);
      throw;
    } catch (const DeadlineError& late) {
      hub_->fail(fmt::format("rank {} waited {:.3g} s for rank{} {} to begin", rank(),
                             static_cast<double>(timeout.count()) / 1000, late.missing().size() == 1 ? "" : "s",
                             fmt::join(late.missing(), ", ")));
    } catch (const Stopped&) {
    }
    const std::string text = hub_->failure({});
    hub_->end_run(false);
    throw RankFailure(text);
  }
  std::string give_up(const std::string& message) override {
    hub_->fail(fmt::format("rank {}: {}", rank(), message));
    return hub_->failure({});
  }

 private:
  // Before groups are made, which would never be whole of ranks with other plans.
  void agree(const Identity& identity, std::chrono::milliseconds timeout) {
    const std::vector<std::string> all = hub_->gather(pack(identity), timeout);
    std::string verdict;
    if (hub_->root()) {
      std::vector<Identity> identities;
      for (const std::string& bytes : all) identities.push_back(unpack_identity(bytes));
      verdict = difference_text(identities);
    }
    verdict = hub_->from_root(std::move(verdict), timeout);
    if (!verdict.empty()) throw RanksDiffer(hub_->root() ? verdict : "");
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::unique_ptr<Hub> hub_;
};

}  // namespace

bool mpi_available() {
  return true;
}

std::unique_ptr<MpiSession> start_mpi(std::chrono::milliseconds limit) {
  return std::make_unique<Session>(limit);
}

}  // namespace rehearse::execute
