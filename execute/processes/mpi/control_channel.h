// What the processes of an MPI job tell one another besides the numbers of Communicators: losses and accounts to the
// root (rank 0), failures to the root and from it to all, and the end. It all goes in small messages of one kind each;
// a thread of every process reads them, keeps sends under way moving, shows that the process lives, and looks for ranks
// of this machine that have died and for the SIGTERM by which mpirun ends a job.
//
// One process tells the user what went wrong: the root, or, if that is the one that is dead or stuck, the first that
// has waited long enough for it to do so.
#pragma once

#include <mpi.h>
#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "execute/processes/failures.h"
#include "execute/processes/losses.h"
#include "execute/processes/mpi/node_status.h"
#include "execute/transport/mpi/send_buffers.h"
#include "execute/transport/stop.h"

namespace rehearse::execute {

class MpiControlChannel final : public Failures {
 public:
  explicit MpiControlChannel(MPI_Comm world);
  ~MpiControlChannel() override;
  MpiControlChannel(const MpiControlChannel&) = delete;
  MpiControlChannel& operator=(const MpiControlChannel&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool root() const { return rank_ == 0; }
  Stop& stop() { return stop_; }
  SendBuffers& send_buffers() { return send_buffers_; }
  const NodeStatus& status() const { return status_; }
  std::vector<int> silent() const { return status_.silent_for(kSilence); }

  // A run begins: a rank that dies now is a failure. It ends with end_run(), `whole` if nothing of it is under way any
  // more.
  void begin_run();
  void end_run(bool whole);

  void report_loss(std::int64_t step, double part);
  Losses& losses() { return losses_; }

  void fail(int rank, const std::string& text) override;
  void waited(int rank, const std::string& text) override;
  std::string report(const WhereaboutsOf& whereabouts_of) override;

  // To the root, whose own call waits for all: theirs in order of ranks. Throws WaitEnded at the root.
  std::vector<std::string> gather(std::string bytes, std::chrono::milliseconds limit);

  // The root's text, in every process. Throws WaitEnded.
  std::string from_root(std::string text, std::chrono::milliseconds limit);

  // The last call: waits until all are here, if the job is whole. Returns whether MPI can be ended in order.
  bool leave();

 private:
  enum class Kind : std::int32_t { loss, account, failed, waited, died, ended, stop, reported, over, leaving, shared };
  struct Head {
    Kind kind;
    std::int32_t rank;  // of whom it is: the sender, or the rank that died
    std::int64_t step;
    double value;
  };
  static constexpr std::chrono::milliseconds kSilence{2000};

  void send(int to, const Head& head, const std::string& text = "");
  void send(int to, Kind kind, const std::string& text = "") { send(to, Head{kind, rank_, 0, 0}, text); }
  void send_all(Kind kind);
  void work();
  bool read_message();
  void take(const Head& head, std::string text);
  void stop_all();
  void died(int rank);
  void look_for_deaths();
  void on_termination();
  template <class Ready>
  bool await(std::chrono::milliseconds limit, Ready ready);
  std::chrono::milliseconds patience() const;
  bool first_alive() const;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, ranks_ = 1;
  Stop stop_;
  SendBuffers send_buffers_;
  NodeStatus status_;
  Losses losses_;
  FailureLog log_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::map<int, std::string> accounts_;
  std::deque<std::string> shared_;  // by the root, in the order it sent them
  std::set<int> ended_, left_, dead_;
  bool running_ = false, reported_ = false, over_ = false, stop_sent_ = false, terminated_ = false, outside_ = false;
  std::atomic<bool> reports_ = false, broken_ = false;  // broken_: transfers may be under way for ever

  struct sigaction before_ {};  // of SIGTERM
  std::atomic<bool> finished_ = false;
  std::thread thread_;  // last: it uses all the above
};

}  // namespace rehearse::execute
