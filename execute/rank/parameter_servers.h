// The parameter servers of a run whose ranks are threads of this process (plan.servers): a thread for each, which does
// what comes to it in the order of its coming, or in an order that is given, so that two runs give the same bits. The
// rules of who waits for whom are those of sim/engine/parameter_servers.h; a worker's iteration is its step of the same
// number. A synchronous step adds the gradients in the order of ranks, whoever came first.
//
// Workers call pull() before an iteration and push() behind it, each from one thread at a time. Waits end with
// DeadlineError after the run's deadline, naming the ranks that have not come so far, or with an error that says what a
// server waits for; with Stopped once another thread of the run has failed. Whatever a server's thread throws is
// reported to the World and stops the run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "execute/rank/parameters.h"
#include "execute/rank/rank_memory.h"
#include "execute/rank/run.h"
#include "kernels/device.h"
#include "sim/account/server_events.h"
#include "sim/account/server_shards.h"

namespace rehearse::execute {

class ParameterServers {
 public:
  explicit ParameterServers(Run& run);
  ~ParameterServers();

  // What they begin with: a worker's first values, which are all workers'.
  void begin_with(const RankMemory& memory);
  // The iteration's parameters into the worker's memory. Returns when it had to wait for others no more.
  Clock::time_point pull(int worker, std::int64_t iteration, const RankMemory& memory);
  // The iteration's gradients. Whether they count.
  bool push(int worker, std::int64_t iteration, const RankMemory& memory);
  // Others' gradients make the step: the worker need not go on with it.
  bool given_up(std::int64_t iteration) const { return iteration < decided_.load(std::memory_order_relaxed); }

  // All workers have ended: the servers do what has come and end.
  void finish();
  // After it.
  std::vector<account::ServerEvent> events() const;
  Parameters parameters() const;
  // Rates and staleness; and in `out` the time of a step, where there is none that all take together.
  void add_to(result::Result& out) const;

 private:
  enum class Kind : unsigned char { pull, push, step };
  struct Reply {
    std::vector<float> values;
    bool done = false;
  };
  struct Message {
    Kind kind = Kind::pull;
    int worker = -1;
    std::int64_t iteration = 0;
    std::vector<float> gradient;   // push
    std::shared_ptr<Reply> reply;  // pull; whoever asked may have gone
  };
  struct Server {
    std::vector<float> values, exp_avg, exp_avg_sq;
    std::deque<Message> come;
    std::condition_variable changed, answered;
    std::vector<account::ServerEvent> order;  // to be kept; empty: as it comes
    std::vector<account::ServerEvent> events;
    std::map<int, std::vector<float>> gathered;  // of a synchronous step, by worker
    std::int64_t updates = 0;
    std::unique_ptr<kernels::Device> device;
    std::thread thread;
  };

  bool synchronous() const;
  void check_order();
  void serve(std::size_t server);
  bool take(Server& server, Message& message);
  void act(std::size_t server, Message& message);
  void update(Server& server, const std::vector<float>& gradient);
  void add_step(Server& server);
  std::string wait_of(const Server& server) const;
  std::vector<int> behind(std::int64_t iteration) const;
  std::int64_t slowest() const;
  std::int64_t place_of(program::BufferId buffer) const;
  bool counts(int worker, std::int64_t iteration) const;

  Run& run_;
  const plan::Plan& plan_;
  const Timeline& timeline_;  // a worker's; all have the same
  const std::vector<account::ServerParameter> parameters_;
  mutable std::mutex mutex_;  // of all that is not a server thread's own
  std::condition_variable moved_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::int64_t> ended_;  // by worker: iterations
  std::int64_t gathered_ = 0;        // gradients of the step that is being gathered
  std::atomic<std::int64_t> decided_ = 0;
  std::map<std::int64_t, std::set<int>> members_;  // of each step, if an order is given
  std::int64_t most_ahead_ = 0;
  bool closed_ = false;
  // By worker: when each iteration had ended, and whether its gradient counted; and of synchronous ones each step.
  struct End {
    Clock::time_point when;
    bool counted;
  };
  std::vector<std::vector<End>> ends_;
  std::vector<Clock::time_point> steps_;
};

}  // namespace rehearse::execute
