// See control_channel.h.
#include "execute/processes/mpi/control_channel.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "execute/processes/mpi/mpi_job.h"
#include "execute/transport/mpi/call.h"
#include "execute/transport/mpi/poll.h"
#include "sim/base/interrupt.h"

namespace rehearse::execute {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kIdle{2};             // between looks for messages
constexpr milliseconds kDeathLook{50};       // between looks at other processes
constexpr milliseconds kForReports{2000};    // for the others to say where they waited
constexpr milliseconds kForLeaving{30'000};  // for all to come to the end of a run that went well
constexpr milliseconds kLastGrace{150};      // the same once mpirun has sent SIGTERM: SIGKILL follows in a second
constexpr milliseconds kTurn{200};           // between one rank's patience with the root and the next one's

constexpr char kOutside[] =
    "the job was ended from outside (SIGTERM): interrupted, or a rank on another machine has died";

volatile sig_atomic_t termination = 0;

void on_sigterm(int) {
  termination = 1;
}

MPI_Comm own_copy(MPI_Comm world) {
  MPI_Comm copy = MPI_COMM_NULL;
  REHEARSE_MPI(MPI_Comm_dup(world, &copy));
  REHEARSE_MPI(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
  return copy;
}

}  // namespace

MpiControlChannel::MpiControlChannel(MPI_Comm world) : comm_(own_copy(world)), status_(world) {
  REHEARSE_MPI(MPI_Comm_rank(comm_, &rank_));
  REHEARSE_MPI(MPI_Comm_size(comm_, &ranks_));
  struct sigaction action {};
  action.sa_handler = on_sigterm;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &action, &before_);
  thread_ = std::thread([this] { work(); });
}

MpiControlChannel::~MpiControlChannel() {
  finished_ = true;
  thread_.join();
  ::sigaction(SIGTERM, &before_, nullptr);
}

void MpiControlChannel::begin_run() {
  const std::lock_guard lock(mutex_);
  running_ = true;
}

void MpiControlChannel::end_run(bool whole) {
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
  }
  if (!root() && stop_.requested()) send(0, Kind::ended);
  if (whole) return;
  broken_ = true;
  if (root() && !reports_) send_all(Kind::reported);  // left by an exception: whoever catches it reports
}

void MpiControlChannel::send(int to, const Head& head, const std::string& text) {
  std::string bytes(sizeof head, '\0');
  std::memcpy(bytes.data(), &head, sizeof head);
  bytes += text;
  send_buffers_.send(bytes.data(), bytes.size(), to, 0, comm_);
}

void MpiControlChannel::send_all(Kind kind) {
  for (int to = 0; to < ranks_; ++to)
    if (to != rank_) send(to, kind);
}

void MpiControlChannel::work() {
  Backoff backoff;
  Clock::time_point deaths = Clock::now();
  try {
    while (!finished_) {
      status_.sign_of_life();
      const bool sending = send_buffers_.progress(), read = read_message();
      if (termination != 0) on_termination();
      if (Clock::now() - deaths > kDeathLook) {
        look_for_deaths();
        deaths = Clock::now();
      }
      if (sending || read) {
        backoff.pause();
      } else {
        backoff = {};
        send_buffers_.await_work(kIdle);
      }
    }
  } catch (const std::exception& error) {
    log_.failed(rank_, fmt::format("rank {}: {}", rank_, error.what()));
    stop_.request();
  }
}

bool MpiControlChannel::read_message() {
  int there = 0, count = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  REHEARSE_MPI(MPI_Improbe(MPI_ANY_SOURCE, 0, comm_, &there, &message, &status));
  if (there == 0) return false;
  REHEARSE_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
  std::string bytes(static_cast<std::size_t>(count), '\0');
  MPI_Request request = MPI_REQUEST_NULL;
  REHEARSE_MPI(MPI_Imrecv(bytes.data(), count, MPI_BYTE, &message, &request));
  int done = 0;
  for (Backoff backoff; done == 0 && !finished_;) {
    REHEARSE_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done != 0) break;
    send_buffers_.progress();
    backoff.pause();
  }
  Head head{};
  if (done == 0 || bytes.size() < sizeof head) return true;
  std::memcpy(&head, bytes.data(), sizeof head);
  take(head, bytes.substr(sizeof head));
  return true;
}

void MpiControlChannel::take(const Head& head, std::string text) {
  if (head.kind == Kind::loss) return losses_.report(head.step, head.rank, head.value);
  if (head.kind == Kind::failed) return fail(head.rank, text);
  if (head.kind == Kind::waited) return log_.waited(head.rank, text);
  if (head.kind == Kind::died) return died(head.rank);
  const std::lock_guard lock(mutex_);
  if (head.kind == Kind::account)
    accounts_[head.rank] = std::move(text);
  else if (head.kind == Kind::shared)
    shared_.push_back(std::move(text));
  if (head.kind == Kind::ended) ended_.insert(head.rank);
  if (head.kind == Kind::leaving) left_.insert(head.rank);
  if (head.kind == Kind::reported) reported_ = true;
  if (head.kind == Kind::over) over_ = true;
  if (head.kind == Kind::stop || head.kind == Kind::reported || head.kind == Kind::over) stop_.request();
  changed_.notify_all();
}

void MpiControlChannel::report_loss(std::int64_t step, double part) {
  if (root())
    losses_.report(step, rank_, part);
  else
    send(0, Head{Kind::loss, rank_, step, part});
}

void MpiControlChannel::fail(int rank, const std::string& text) {
  log_.failed(rank, text);
  if (!root()) send(0, Kind::failed, text);
  stop_all();
}

void MpiControlChannel::waited(int rank, const std::string& text) {
  log_.waited(rank, text);
  if (!root()) send(0, Kind::waited, text);
}

void MpiControlChannel::died(int rank) {
  log_.died(rank);
  {
    const std::lock_guard lock(mutex_);
    dead_.insert(rank);
  }
  stop_all();
}

// The others learn it from the root.
void MpiControlChannel::stop_all() {
  stop_.request();
  {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    if (!root() || std::exchange(stop_sent_, true)) return;
  }
  send_all(Kind::stop);
}

// Called with mutex_ held by the thread alone.
bool MpiControlChannel::first_alive() const {
  const auto ranks = status_.ranks();
  return *std::find_if(ranks.begin(), ranks.end(), [&](int r) { return !dead_.contains(r); }) == rank_;
}

void MpiControlChannel::look_for_deaths() {
  std::vector<int> found;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (!running_ || over_) return;
    for (const int rank : status_.dead())
      if (dead_.insert(rank).second) found.push_back(rank);
    if (found.empty()) return;
    first = first_alive();
  }
  for (const int rank : found) {
    if (first && !root()) send(0, Head{Kind::died, rank, 0, 0});
    log_.died(rank);  // by all: whoever has to tell the user knows it
  }
  if (first) return stop_all();
  stop_.request();
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

// mpirun ends a job because one of its processes died, or because it was itself asked to end.
void MpiControlChannel::on_termination() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(terminated_, true)) return;
    if (!running_) {  // nobody here looks at stop()
      end_process(SIGTERM);
    }
  }
  for (const Clock::time_point end = Clock::now() + kLastGrace; Clock::now() < end && !stop_.requested();) {
    look_for_deaths();
    while (read_message()) {
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  if (stop_.requested()) return;
  {
    const std::lock_guard lock(mutex_);
    outside_ = true;
  }
  if (root())
    fail(rank_, kOutside);
  else
    stop_.request();
}

template <class Ready>
bool MpiControlChannel::await(milliseconds limit, Ready ready) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, ready);
}

milliseconds MpiControlChannel::patience() const {
  const std::lock_guard lock(mutex_);
  return terminated_ || !dead_.empty() ? kLastGrace : kForReports;
}

std::string MpiControlChannel::report(const WhereaboutsOf& whereabouts_of) {
  if (!stop_.requested()) return "";
  if (!root()) {
    send(0, Kind::ended);
    if (await(patience() + kTurn * rank_, [&] { return reported_ || over_ || (dead_.contains(0) && first_alive()); })) {
      const std::lock_guard lock(mutex_);
      if (reported_ || over_) return "";
    }
  } else {
    await(patience(), [&] {
      for (int r = 1; r < ranks_; ++r)
        if (!ended_.contains(r) && !dead_.contains(r)) return false;
      return true;
    });
    const std::lock_guard lock(mutex_);
    if (reported_) return "";
  }
  reports_ = true;
  send_all(Kind::reported);
  FailureFacts facts = log_.facts();
  facts.silent = silent();
  {
    const std::lock_guard lock(mutex_);
    if (outside_ && ended_by_its_starter()) return "";
    if (outside_) facts.from_outside = kOutside;
  }
  return failure_text(facts, whereabouts_of);
}

std::vector<std::string> MpiControlChannel::gather(std::string bytes, milliseconds limit) {
  if (!root()) {
    send(0, Kind::account, bytes);
    return {};
  }
  {
    const std::lock_guard lock(mutex_);
    accounts_[0] = std::move(bytes);
  }
  std::vector<std::string> all;
  const auto missing = [&] {
    const std::lock_guard lock(mutex_);
    std::vector<int> ranks;
    for (int r = 0; r < ranks_; ++r)
      if (!accounts_.contains(r)) ranks.push_back(r);
    return ranks;
  };
  poll_for(
      stop_, limit, [&] { return missing().empty(); }, missing);
  const std::lock_guard lock(mutex_);
  for (auto& [rank, text] : accounts_) all.push_back(std::move(text));
  accounts_.clear();
  return all;
}

std::string MpiControlChannel::from_root(std::string text, milliseconds limit) {
  if (root()) {
    for (int to = 1; to < ranks_; ++to) send(to, Kind::shared, text);
    return text;
  }
  const auto come = [&] {
    const std::lock_guard lock(mutex_);
    return !shared_.empty();
  };
  poll_for(stop_, limit, come, [] { return std::vector<int>{0}; });
  const std::lock_guard lock(mutex_);
  std::string first = std::move(shared_.front());
  shared_.pop_front();
  return first;
}

bool MpiControlChannel::leave() {
  if (root() || reports_) {
    if (broken_ || reports_) return false;
    send_all(Kind::over);
    return await(kForLeaving, [&] { return static_cast<int>(left_.size()) == ranks_ - 1; });
  }
  // The root may still have files to write; if it dies, mpirun ends us. It ends a broken job itself.
  if (broken_)
    await(2 * kForReports, [&] { return over_; });
  else
    while (!await(kLook, [&] { return over_; })) {
    }
  {
    const std::lock_guard lock(mutex_);
    if (!over_) return false;
  }
  send(0, Kind::leaving);
  for (Backoff backoff; send_buffers_.progress();) backoff.pause();
  return true;
}

}  // namespace rehearse::execute
