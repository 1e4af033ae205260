// One parameter server, as a reactive role: messages come to it from workers, in any thread, and its own thread does
// one after the other, in the order of their coming (of two at one instant the lower rank's first), or in an order that
// is given. It waits for no worker: a pull that may not be answered yet is left in the queue while others are done. The
// rules of who waits for whom, which are those of sim/engine/parameter_servers.h, hold server by server:
//   synchronous  a pull of iteration k is answered once k steps are applied here;
//   bounded      once of every worker the gradients of iterations before k - staleness are;
//   checkpoints  in all cases no pull of an iteration at or behind a due step is answered before everything of the
//                iterations before it is applied and saved. So a checkpoint's moment is the same at all servers and for
//                all workers, and what is gone on from there is what would have gone on.
// With backup workers server 0 says whose gradients make a step: the first plan.counted() that have one (ended).
//
// serve() throws ServerWait if a worker has waited longer than the run's deadline, saying for whom.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "execute/rank/run.h"
#include "execute/servers/served_report.h"
#include "execute/servers/server_order.h"
#include "execute/servers/server_state.h"

namespace rehearse::execute {

struct ServerMessage {
  // begin: the first values, from worker 0. pull, push: of an iteration. ended: whether the iteration's gradient counts
  // is asked of server 0, where there are backup workers. done: the worker has ended its last iteration.
  enum class Kind : std::int64_t { begin, pull, push, ended, done };
  Kind kind = Kind::pull;
  int worker = -1;
  std::int64_t iteration = 0;
  std::vector<float> numbers;  // begin: values; push: the gradient
  // pull: called once in the server's thread, with how long it was held back. ended: in the caller's.
  std::function<void(std::chrono::nanoseconds held, std::span<const float> values)> answer;
  std::function<void(bool counts)> verdict;
  Clock::time_point come;
};

class ServerWait : public std::runtime_error {
 public:
  ServerWait(int rank, const std::string& text) : std::runtime_error(text), rank_(rank) {}
  int rank() const { return rank_; }  // who waited

 private:
  int rank_;
};

class Server {
 public:
  // `remote`: workers are processes, which can be stopped or hang without a word. Checkpoints of the run, if there are
  // any, have been made; the server goes on from what they have.
  Server(Run& run, int number, const ServerOrder& order, bool remote);

  // Told of every step that is decided: workers that have not ended it need not. Of server 0, before serve().
  void on_decided(std::function<void(std::int64_t steps)> tell) { tell_ = std::move(tell); }
  std::int64_t decided() const { return decided_.load(std::memory_order_relaxed); }

  void arrive(ServerMessage message);
  void serve();  // until close(), or the last worker is done, and nothing is left that it may do
  void close();
  ServerRecord record(bool values) const;  // after serve()

 private:
  bool synchronous() const { return run_.scenario.plan.consistency == plan::Consistency::synchronous; }
  bool take(ServerMessage& message);
  bool may_do(const ServerMessage& message) const;
  void act(ServerMessage& message);
  void save_if_due();
  bool counts(int worker, std::int64_t iteration);
  void check_deadlines() const;
  Clock::time_point met_at(const ServerMessage& pull) const;
  std::string wait_text(const ServerMessage& message) const;
  std::int64_t slowest() const;

  Run& run_;
  const int number_;
  const ServerOrder& order_;
  const bool remote_;
  std::int64_t due_;  // the next checkpoint
  ServerState state_;
  // Of its own thread.
  bool ready_ = false;
  std::vector<std::int64_t> applied_;  // by worker: iterations whose gradients are here
  std::vector<account::ServerEvent> events_;
  std::vector<std::int64_t> steps_ps_;
  std::int64_t most_ahead_ = 0;

  mutable std::mutex mutex_;  // of what is below
  std::condition_variable changed_;
  std::deque<ServerMessage> come_;
  std::vector<std::int64_t> ended_;  // by worker: iterations, as far as is known here
  std::vector<bool> done_;
  std::vector<Clock::time_point> last_word_;
  std::int64_t gathered_ = 0;  // gradients of the step that is being decided
  std::atomic<std::int64_t> decided_ = 0;
  bool closed_ = false;
  std::function<void(std::int64_t)> tell_;
};

}  // namespace rehearse::execute
