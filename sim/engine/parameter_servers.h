// Workers and parameter servers without a common step, in simulated time. Each worker goes round by itself: it pulls
// its parameters from every server, computes, and pushes its gradients to every server; each server serves what has
// come in the order of its coming, of what came at the same time lower ranks first. What a worker computes is given by
// iteration, as the simulator (simulator/simulator.h) has it of the worker's program; messages are activities of the
// same network, whose links they share by the same solver (network.h).
//
//   asynchronous  an update is applied at once; the worker that has pushed to all servers pulls at once
//   bounded       the same, but iteration c is not begun before every worker has pushed its iteration c - bound - 1
//   synchronous   step c is of the first `counted` workers whose gradients are all there, whose mean the servers apply
//                 together; then all pull. Who computes for it still gives up, and what is on its way is dropped.
//
// A pull rides behind the last byte of the push before it: asking takes no time of its own. A server sends while it
// goes on with what comes next. What is decided over all servers (which gradients count, who is slowest) is known
// everywhere at once. A server's kernels take nothing from a worker on the same device.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/account/server_events.h"
#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/engine/noise.h"
#include "sim/plan/plan.h"

namespace rehearse::engine {

struct ServedWork {
  int workers = 1, servers = 1;
  plan::Consistency consistency = plan::Consistency::asynchronous;
  std::int64_t bound = 0;       // of bounded
  int counted = 1;              // of synchronous: workers whose gradients make a step
  std::int64_t iterations = 1;  // of each worker
  std::function<Time(int worker, std::int64_t iteration)> compute;
  std::vector<collective::TransferPlan> pulls, pushes;  // [worker * servers + server]
  // By server. update: of a gradient as it comes, or of a synchronous step's sum; add: of a gradient to that sum.
  std::vector<Time> update, add;
  // How many times as long a message takes; none given: as long.
  std::function<Factor(int worker, int server, bool pull, std::int64_t iteration)> message_factor;
  plan::Noise noise = {};  // of links
  std::int64_t sample = 0;
};

struct ServedRun {
  std::vector<account::ServerEvent> events;  // one server's after the other's, each in its order
  // By worker and iteration: when it asked for parameters, had them all, had computed, and its gradients were all there
  // (or it had given up). Asking comes behind waiting for others, which begins when the iteration before has ended.
  struct Iteration {
    Time asked, began, computed, ended;
    bool counted = true;
  };
  std::vector<std::vector<Iteration>> iterations;
  std::vector<Time> steps;      // of synchronous ones, when the last server had applied it
  std::int64_t most_ahead = 0;  // at the beginning of an iteration: of those that the slowest has ended
  // From `from` to `to`: every worker is in its second iteration or a later one.
  Time from, to;
  std::vector<Time> server_busy;         // of it
  std::vector<std::int64_t> link_bytes;  // by resource, of messages that ended in it
};

ServedRun run_servers(const ServedWork& work, const cluster::Cluster& cluster);

}  // namespace rehearse::engine
