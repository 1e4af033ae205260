// Collectives performed message by message (sim/collective/steps.h): every message is a flow of the network, and the
// agents of a run go on when what they wait for has arrived. Nothing depends on the order of events of an instant: an
// agent's progress is a count of arrivals.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/collective/steps.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/network.h"

namespace rehearse::engine {

class StepRuns {
 public:
  // Arrivals are pushed to `queue` as events with target `target_base | edge`. Both must outlive this.
  StepRuns(Network& network, EventQueue& queue, std::uint32_t target_base)
      : network_(network), queue_(queue), target_base_(target_base) {}

  // Registers the steps of a plan, which `alike` process groups go through together; the id is for start().
  StepsId define(std::shared_ptr<const collective::Steps> steps, std::int64_t alike = 1);
  // `owner` comes back from sent() or arrived() when the collective has ended; -1: it goes on.
  static constexpr std::int32_t kGoesOn = -1;
  std::int32_t start(StepsId defined, std::int32_t owner, Time now);
  // The network's owner of a message's flow is `owner_of` its edge: below kGoesOn.
  static constexpr std::int32_t owner_of(std::int32_t edge) { return -2 - edge; }
  static constexpr bool is_message(std::int32_t owner) { return owner < kGoesOn; }
  // The flow of a message has ended; it arrives now or after its latency.
  std::int32_t sent(std::int32_t owner, Time now);
  // An arrival came up.
  std::int32_t arrived(std::uint32_t edge, Time now);

 private:
  struct Code {
    std::shared_ptr<const collective::Steps> steps;
    std::vector<ActivityId> activities;  // of the network, by edge
  };
  struct Agent {
    std::int32_t stage = 0;
    std::int64_t left = 0;  // repeats of it
  };
  struct EdgeState {
    std::int32_t run = 0;
    std::int32_t waiting = 0;   // messages behind the one on its way
    std::int32_t received = 0;  // not yet taken by the receiver
    bool moving = false;
  };
  struct Run {
    const Code* code = nullptr;
    StepsId defined;
    std::int32_t owner = 0;
    std::int32_t first_edge = 0;  // in edges_
    std::int32_t running = 0;     // agents that have not finished
    std::vector<Agent> agents;
  };

  std::int32_t open(StepsId defined);
  void advance(std::int32_t run, std::int32_t agent, Time now);
  void send(Run& run, std::int32_t edge, Time now);
  std::int32_t end(std::int32_t run);

  Network& network_;
  EventQueue& queue_;
  std::uint32_t target_base_;
  IdVector<StepsId, std::unique_ptr<Code>> codes_;
  std::vector<Run> runs_;
  IdVector<StepsId, std::vector<std::int32_t>> free_;  // runs by what they are of: their edges are used again
  std::vector<EdgeState> edges_;                       // run by run
};

// A collective alone on a cluster, all ranks starting at once.
struct StepsAlone {
  Time time;
  std::int64_t messages = 0, events = 0, solves = 0;
};
StepsAlone run_steps(const cluster::Cluster& cluster, collective::Steps steps);

}  // namespace rehearse::engine
