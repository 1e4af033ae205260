// Runs of steps; see step_runs.h.
#include "sim/engine/step_runs.h"

#include <utility>

#include "sim/base/check.h"
#include "sim/engine/longest_run.h"

namespace rehearse::engine {

StepsId StepRuns::define(std::shared_ptr<const collective::Steps> steps, std::int64_t alike) {
  auto code = std::make_unique<Code>();
  code->steps = std::move(steps);
  code->activities.reserve(code->steps->edges.size());
  for (const collective::Steps::Edge& edge : code->steps->edges)
    code->activities.push_back(network_.define(edge.activity, alike));
  free_.push_back({});
  return codes_.push_back(std::move(code));
}

// A run of the steps with nothing done yet.
std::int32_t StepRuns::open(StepsId d) {
  const collective::Steps& steps = *codes_[d]->steps;
  std::int32_t id;
  if (free_[d].empty()) {
    id = static_cast<std::int32_t>(runs_.size());
    Run run;
    run.code = codes_[d].get();
    run.defined = d;
    run.first_edge = static_cast<std::int32_t>(edges_.size());
    edges_.resize(edges_.size() + steps.edges.size());
    run.agents.resize(static_cast<std::size_t>(steps.agents()));
    runs_.push_back(std::move(run));
  } else {
    id = free_[d].back();
    free_[d].pop_back();
  }
  Run& run = runs_[static_cast<std::size_t>(id)];
  for (std::size_t e = 0; e < steps.edges.size(); ++e) {
    edges_[static_cast<std::size_t>(run.first_edge) + e] = EdgeState();
    edges_[static_cast<std::size_t>(run.first_edge) + e].run = id;
  }
  for (std::size_t a = 0; a < run.agents.size(); ++a) {
    run.agents[a].stage = steps.first_stage[a];
    run.agents[a].left = -1;
  }
  run.running = steps.agents();
  return id;
}

std::int32_t StepRuns::start(StepsId defined, std::int32_t owner, Time now) {
  const std::int32_t id = open(defined);
  runs_[static_cast<std::size_t>(id)].owner = owner;
  for (std::int32_t a = 0; a < codes_[defined]->steps->agents(); ++a) advance(id, a, now);
  return end(id);
}

// The agent does what it can.
void StepRuns::advance(std::int32_t id, std::int32_t index, Time now) {
  Run& run = runs_[static_cast<std::size_t>(id)];
  const collective::Steps& steps = *run.code->steps;
  Agent& agent = run.agents[static_cast<std::size_t>(index)];
  const std::int32_t last = steps.first_stage[static_cast<std::size_t>(index) + 1];
  if (agent.stage == last && agent.left < 0) {  // it has nothing to do at all
    --run.running;
    agent.left = 0;
  }
  while (agent.stage < last) {
    const collective::Steps::Stage& stage = steps.stages[static_cast<std::size_t>(agent.stage)];
    if (agent.left < 0) agent.left = stage.repeat;
    const auto edge = [&](std::int32_t w) -> EdgeState& {
      return edges_[static_cast<std::size_t>(run.first_edge + steps.waits[static_cast<std::size_t>(w)])];
    };
    for (std::int32_t w = stage.waits.first; w < stage.waits.last; ++w)
      if (edge(w).received == 0) return;
    for (std::int32_t w = stage.waits.first; w < stage.waits.last; ++w) --edge(w).received;
    for (std::int32_t s = stage.sends.first; s < stage.sends.last; ++s)
      send(run, steps.sends[static_cast<std::size_t>(s)], now);
    if (--agent.left > 0) continue;
    agent.left = -1;
    if (++agent.stage == last) {
      agent.left = 0;
      --run.running;
    }
  }
}

void StepRuns::send(Run& run, std::int32_t edge, Time now) {
  EdgeState& state = edges_[static_cast<std::size_t>(run.first_edge + edge)];
  if (state.moving) {
    ++state.waiting;
    return;
  }
  state.moving = true;
  network_.start(run.code->activities[static_cast<std::size_t>(edge)], owner_of(run.first_edge + edge), now);
}

std::int32_t StepRuns::sent(std::int32_t owner, Time now) {
  const std::int32_t index = owner_of(owner);
  EdgeState& state = edges_[static_cast<std::size_t>(index)];
  Run& run = runs_[static_cast<std::size_t>(state.run)];
  state.moving = false;
  if (state.waiting > 0) {
    --state.waiting;
    send(run, index - run.first_edge, now);
  }
  const Time latency = run.code->steps->latency;
  if (latency == Time()) return arrived(static_cast<std::uint32_t>(index), now);
  queue_.push(now + latency, target_base_ | static_cast<std::uint32_t>(index), 0);
  return kGoesOn;
}

std::int32_t StepRuns::arrived(std::uint32_t index, Time now) {
  EdgeState& state = edges_[index];
  ++state.received;
  const std::int32_t id = state.run;
  const Run& run = runs_[static_cast<std::size_t>(id)];
  const auto edge = index - static_cast<std::uint32_t>(run.first_edge);
  advance(id, run.code->steps->edges[edge].receiver, now);
  return end(id);
}

std::int32_t StepRuns::end(std::int32_t id) {
  const Run& run = runs_[static_cast<std::size_t>(id)];
  if (run.running > 0) return kGoesOn;
  free_[run.defined].push_back(id);
  return run.owner;
}

StepsAlone run_steps(const cluster::Cluster& cluster, collective::Steps steps) {
  constexpr std::uint32_t kArrival = 1u << 31;
  EventQueue queue;
  Network network(cluster, queue, 0);
  StepRuns runs(network, queue, kArrival);
  StepsAlone alone;
  alone.messages = steps.messages();
  const StepsId id = runs.define(std::make_shared<const collective::Steps>(std::move(steps)));
  std::int32_t ended = runs.start(id, 0, Time());
  bool done = ended == 0;
  network.settle(Time());
  Time now;
  std::vector<Event> events;
  while (!queue.empty()) {
    now = queue.next_time();
    require_countable(now);
    while (queue.next_time() == now) {
      queue.take(events);
      alone.events += static_cast<std::int64_t>(events.size());
      for (const Event& event : events) {
        ended = StepRuns::kGoesOn;
        if ((event.target & kArrival) != 0)
          ended = runs.arrived(event.target & ~kArrival, now);
        else if (network.current(event.target, event.version))
          ended = runs.sent(network.finish(event.target), now);
        if (ended == 0) alone.time = now;  // what the queue still holds is stale
        done = done || ended == 0;
      }
    }
    network.settle(now);
  }
  REHEARSE_CHECK(done, "steps that do not end");
  alone.solves = network.solves();
  return alone;
}

}  // namespace rehearse::engine
