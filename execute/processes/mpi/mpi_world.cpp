// See mpi_world.h. Whatever the processes tell one another goes through the control channel, numbers through the
// communicator.
#include "execute/processes/mpi/mpi_world.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <thread>
#include <type_traits>
#include <utility>

#include "execute/processes/mpi/attendance.h"
#include "execute/processes/mpi/control_channel.h"
#include "execute/processes/mpi/watchdog.h"
#include "execute/transport/mpi/call.h"
#include "execute/transport/mpi/mpi_communicator.h"
#include "execute/transport/mpi/mpi_wire.h"
#include "execute/transport/mpi/poll.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {
namespace {

MpiCommunicator::Groups groups_of(const program::Program& program, const plan::RankGrid& grid, int rank) {
  MpiCommunicator::Groups groups;
  if (rank >= grid.ranks()) return groups;
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const program::Group& group = program.groups[g];
    std::vector<int> members = grid.members(rank, group.axes, group.pipeline_only, group.tensor_block);
    if (std::find(members.begin(), members.end(), rank) != members.end())
      groups[static_cast<program::GroupId>(g)] = std::move(members);
  }
  return groups;
}

constexpr int kLanes = 2;  // of a wire: control's, which is not used, and that of parameter servers
constexpr std::chrono::milliseconds kLookForSilent{10'000};  // while others do their part of the work
constexpr std::chrono::milliseconds kLastWord{200};  // for mpirun to pass on what was said before the job is ended

std::string late_text(const std::string& what, std::chrono::milliseconds limit) {
  return fmt::format("rehearse: error: {} for {}", waited_text(limit), what);
}

class MpiWorld : public World {
 public:
  // `beside`: there are processes that are no ranks of the plan.
  MpiWorld(MpiControlChannel& channel, MPI_Comm comm, const MpiCommunicator::Groups& groups, bool beside,
           std::chrono::milliseconds timeout)
      : channel_(channel),
        timeout_(timeout),
        here_{channel.rank()},
        communicator_(comm, groups, timeout, channel.stop(), channel.send_buffers(),
                      [&channel] { return channel.silent(); }) {
    if (beside) wire_ = make_mpi_wire(comm, kLanes, timeout, channel.stop(), channel.send_buffers());
  }
  ~MpiWorld() override { channel_.end_run(!begun_ || gathered_); }

  std::span<const int> here() const override { return here_; }
  std::span<const int> on_this_machine() const override { return channel_.status().ranks(); }
  bool root() const override { return channel_.root(); }
  Communicator& communicator(int rank) override {
    REHEARSE_CHECK(rank == channel_.rank(), "rank {} is not here", rank);
    return communicator_;
  }
  Wire* wire() override { return wire_.get(); }
  Stop& stop() override { return channel_.stop(); }
  Failures& failures() override { return channel_; }
  Whereabouts& whereabouts(int rank) override { return channel_.status().whereabouts(rank); }

  std::string from_root(std::string bytes) override { return channel_.from_root(std::move(bytes), timeout_); }

  // Steady clocks are the same on one machine only: there, the last to come begins the run.
  Clock::time_point begin() override {
    begun_ = true;
    communicator_.barrier();
    std::int64_t began = Clock::now().time_since_epoch().count();
    MPI_Request request = MPI_REQUEST_NULL;
    REHEARSE_MPI(MPI_Iallreduce(MPI_IN_PLACE, &began, 1, MPI_INT64_T, MPI_MAX, channel_.status().comm(), &request));
    const auto done = [&] {
      int flag = 0;
      REHEARSE_MPI(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
      return flag != 0;
    };
    poll_for(channel_.stop(), timeout_, done, [this] { return channel_.silent(); });
    return Clock::time_point(Clock::duration(began));
  }

  void report_loss(std::int64_t step, int, double part) override { channel_.report_loss(step, part); }
  std::optional<double> loss(std::int64_t step, std::span<const int> reporters) override {
    return channel_.losses().take(step, reporters);
  }
  std::vector<std::string> gather(std::string bytes) override {
    std::vector<std::string> all = channel_.gather(std::move(bytes), timeout_);
    gathered_ = true;
    return all;
  }

 private:
  MpiControlChannel& channel_;
  std::chrono::milliseconds timeout_;
  std::array<int, 1> here_;
  MpiCommunicator communicator_;
  std::unique_ptr<Wire> wire_;
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
    channel_ = std::make_unique<MpiControlChannel>(comm_);
  }
  ~Session() override {
    const bool whole = channel_->leave();
    if (!whole) std::this_thread::sleep_for(kLastWord);
    channel_.reset();
    if (whole)
      MPI_Finalize();
    else
      MPI_Abort(MPI_COMM_WORLD, 1);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const override { return channel_->rank(); }
  int ranks() const override { return channel_->ranks(); }
  std::unique_ptr<World> make_world(const program::Program& program, const plan::RankGrid& grid,
                                    std::chrono::milliseconds timeout, const Identity& identity) override {
    const Watchdog watchdog(2 * timeout, [this, timeout] {
      std::string text = late_text("the ranks to make their groups", 2 * timeout);
      for (const int rank : channel_->silent()) text += "\n  " + silent_text(rank);
      return text;
    });
    channel_->begin_run();
    try {
      agree(identity, timeout);
      return std::make_unique<MpiWorld>(*channel_, comm_, groups_of(program, grid, rank()), ranks() > grid.ranks(),
                                        timeout);
    } catch (const RanksDiffer&) {
      channel_->end_run(true);
      throw;
    } catch (const DeadlineError& late) {
      channel_->fail(rank(), fmt::format("rank {} {} to begin", rank(), waited_text(timeout, late.missing())));
    } catch (const Stopped&) {
    }
    const std::string text = channel_->report(had_not_begun);
    channel_->end_run(false);
    throw RankFailure(text);
  }
  void begin_work() override { channel_->begin_run(); }
  bool failed() const override { return channel_->stop().requested(); }
  std::vector<std::string> gather(std::string bytes, std::chrono::milliseconds limit) override {
    std::vector<std::string> all = unless_stopped(limit, [&] { return channel_->gather(bytes, kLookForSilent); });
    channel_->end_run(true);
    return all;
  }
  std::vector<std::string> trade(std::string bytes, std::chrono::milliseconds limit) override {
    std::vector<std::string> all = unless_stopped(limit, [&] { return channel_->gather(bytes, kLookForSilent); });
    const std::string joint = unless_stopped(limit, [&] { return channel_->from_root(joined(all), kLookForSilent); });
    return channel_->root() ? all : parted(joint);
  }
  std::string give_up(const std::string& message) override {
    channel_->fail(rank(), fmt::format("rank {}: {}", rank(), message));
    return channel_->report(had_not_begun);
  }

 private:
  // What `wait` returns, which throws DeadlineError as long as it has not come, up to `limit`. Throws RankFailure.
  template <class Wait>
  std::invoke_result_t<Wait> unless_stopped(std::chrono::milliseconds limit, Wait&& wait) {
    const Clock::time_point deadline = Clock::now() + limit;
    try {
      for (;;) {
        try {
          return wait();
        } catch (const DeadlineError& late) {
          if (Clock::now() < deadline && channel_->silent().empty()) continue;
          channel_->fail(rank(),
                         fmt::format("rank {} waited for {} to finish their part", rank(), ranks_text(late.missing())));
          break;
        }
      }
    } catch (const Stopped&) {
    }
    const std::string text = channel_->report([](int) { return std::string("had not finished its part"); });
    channel_->end_run(false);
    throw RankFailure(text);
  }
  // Texts as one: of each its length, then all of it.
  static std::string joined(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) all += fmt::format("{} ", text.size()) + text;
    return all;
  }
  static std::vector<std::string> parted(const std::string& all) {
    std::vector<std::string> texts;
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t begin = all.find(' ', at) + 1, length = std::stoull(all.substr(at, begin - at));
      texts.push_back(all.substr(begin, length));
      at = begin + length;
    }
    return texts;
  }

  // Before groups are made, which would never be whole of ranks with other plans.
  void agree(const Identity& identity, std::chrono::milliseconds timeout) {
    const std::vector<std::string> all = channel_->gather(pack(identity), timeout);
    std::string verdict;
    if (channel_->root()) {
      std::vector<Identity> identities;
      for (const std::string& bytes : all) identities.push_back(unpack_identity(bytes));
      verdict = difference_text(identities);
    }
    verdict = channel_->from_root(std::move(verdict), timeout);
    if (!verdict.empty()) throw RanksDiffer(channel_->root() ? verdict : "");
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::unique_ptr<MpiControlChannel> channel_;
};

}  // namespace

bool mpi_available() {
  return true;
}

std::unique_ptr<MpiSession> start_mpi(std::chrono::milliseconds limit) {
  return std::make_unique<Session>(limit);
}

}  // namespace rehearse::execute
