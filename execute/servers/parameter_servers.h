// The parameter servers of a run (plan.servers) as its workers see them: pull() before an iteration and push() behind
// it, each from one thread of a rank at a time; a worker's iteration is its step of the same number. Servers are
// threads beside workers that are threads (local_servers.h), or processes beside workers that are processes
// (remote_servers.h, server_process.h); who waits for whom is the servers' matter (server.h).
//
// Waits end with an error that says what a server waits for, after the run's deadline and a little more, so that a
// server that knows better speaks first; with Stopped once the run has failed elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "execute/rank/rank_memory.h"
#include "execute/rank/run.h"
#include "execute/servers/served_report.h"
#include "sim/account/server_shards.h"

namespace rehearse::execute {

// How much longer than a server a worker waits before it speaks.
inline constexpr std::chrono::milliseconds kForServersToSpeak{1000};

class ParameterServers {
 public:
  virtual ~ParameterServers() = default;

  // What they begin with: worker 0's first values, which are all workers'. By its rank, once.
  void begin_with(const RankMemory& memory);
  // The iteration's parameters into the worker's memory. Returns when it had to wait for others no more.
  Clock::time_point pull(int worker, std::int64_t iteration, const RankMemory& memory);
  // The iteration's gradients. Whether they count.
  bool push(int worker, std::int64_t iteration, const RankMemory& memory);
  // Others' gradients make the step: the worker need not go on with it.
  virtual bool given_up(std::int64_t iteration) const = 0;

  // All workers here have ended.
  virtual void finish() = 0;
  // After it: of the workers, and the servers, of this process.
  virtual ServedRecords records() const = 0;

 protected:
  using Shards = std::vector<std::vector<float>>;  // by server
  explicit ParameterServers(Run& run);

  // The iteration's values; when it was no longer held back.
  virtual Clock::time_point get(int worker, std::int64_t iteration, Shards& values) = 0;
  virtual void begin(Shards values) = 0;
  // With backup workers: whether the gradient counts.
  virtual bool ask_whether_counts(int worker, std::int64_t iteration) = 0;
  virtual void send(int worker, std::int64_t iteration, Shards gradients) = 0;
  // The worker has ended its last iteration.
  virtual void end(int worker) = 0;

  std::size_t servers() const { return elements_.size(); }
  std::vector<WorkerRecord> workers() const;

  Run& run_;
  const Timeline& timeline_;  // a worker's; all have the same
  const std::vector<account::ServerParameter> parameters_;
  const std::vector<std::int64_t> elements_;  // by server

 private:
  Shards numbers_of(const RankMemory& memory, program::BufferId account::ServerParameter::*which) const;
  std::int64_t place_of(program::BufferId buffer) const;

  std::vector<std::vector<WorkerEnd>> ends_;  // by rank; of those that are here
};

// For the workers of this process. `run` outlives it.
std::unique_ptr<ParameterServers> make_servers(Run& run);

// Whether this process performs a server, and which: processes of servers follow those of workers.
bool serves(const plan::Scenario& scenario, const World& world);

}  // namespace rehearse::execute
