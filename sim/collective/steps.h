// A collective message by message: who waits for which message before sending which. The engine performs it with every
// message a flow (sim/engine/step_runs.h); that is the fidelity `step`, where `flow` moves all edges of a channel at
// one rate.
//
// An agent is a participant's part in one channel, a list of stages done in order. A stage, `repeat` times: wait for
// one message on each of `waits`, then hand one to each of `sends`. An edge carries its messages one at a time, in
// order; each takes `latency` from its last byte on until the receiver sees it. A ring of n ranks is one edge and three
// stages an agent, whatever the number of its steps.
//
// Which agents and messages an algorithm has stands in its file (algorithms/), written with steps_builder.h.
// Leaves out: NVLS and CollNet (switches add up, there are no messages between ranks) and NCCL's bound of eight
// steps that a sender may be ahead of its receiver.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/collective/wire.h"
#include "sim/program/op.h"

namespace rehearse::collective {

struct Steps {
  struct Edge {
    int from = 0, to = 0;  // devices, whose route the messages take
    std::int64_t bytes = 0;
    std::int32_t receiver = 0;  // agent
    Activity activity;          // set_times
  };
  struct Range {
    std::int32_t first = 0, last = 0;
  };
  struct Stage {
    Range waits, sends;  // of `waits` and `sends`
    std::int64_t repeat = 1;
  };
  std::vector<Edge> edges;
  std::vector<std::int32_t> waits, sends;  // edges
  std::vector<Stage> stages;
  std::vector<std::int32_t> first_stage;  // of each agent, then stages.size()
  Time latency;
  std::int64_t depth = 0;   // messages of the longest chain, whose latencies add up
  double fill = 0;          // pipelines: what filling them adds, in parts of the busiest edge's time
  bool concurrent = false;  // an agent sends to several at once

  std::int32_t agents() const { return static_cast<std::int32_t>(first_stage.size()) - 1; }
  std::int64_t messages() const;
};

// Of an algorithm that has messages for the collective (AlgorithmModel::has_messages). Bytes: the full size (op.h).
// Trees and broadcasts go in chunks of `chunk` bytes a channel, NCCL's step of 512 KiB, as do messages over rails, in
// 16 of them at most.
Steps steps_of(const cluster::Cluster& cluster, const Group& group, program::CollectiveKind kind, Algorithm algorithm,
               std::int64_t bytes, std::int64_t chunk = 512 << 10);
// What each message takes alone: its bytes over its route, `slower` times as long; with `inflate` it also takes that
// much more of the resources.
void set_times(Steps& steps, const cluster::Cluster& cluster, double slower, bool inflate, Time latency);

// `model` with collectives as steps, so that alone they take what `model` says (the latency is its start-up over the
// depth); what has no steps is left as it is. Both must outlive the result.
std::unique_ptr<CollectiveModel> make_stepped_model(const CollectiveModel& model, const cluster::Cluster& cluster);
// `model` without resources: closed forms, every transfer takes its time alone.
std::unique_ptr<CollectiveModel> make_analytic_model(const CollectiveModel& model);

}  // namespace rehearse::collective
