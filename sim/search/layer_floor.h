// What a plan's layers need at least, of time and of memory, from one lowering that many plans share: those that split
// the layers and what belongs to them alike, and differ in their stages, schedule, sharding and replicas. In
// microseconds a plan; what is not settled so is lowered itself (least_step.h).
//
// Time. The compute stream goes through a layer's kernels in order, and where one waits for a collective that waits for
// an earlier one it idles in between. So from a layer's first kernel to its last there passes at least the longest such
// path, wherever the layer lies. A stage needs these of all its layers, for every micro-batch; before its first slot
// the stages before it have done their forward of one, and behind its last one, where a backward comes last, their
// backward.
//
// Its data-parallel stream has the stage's gradients to reduce and its parameters to gather, as often as the sharding
// says, one after the other.
//
// Memory. Parameters, gradients and optimizer states of a stage's layers, as far as they are not sharded or on the
// host, and what the passes that a stage holds at once keep of their forward. Where a backward is in two parts, those
// count whose first part has not begun: from then on what the second does not need is free.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "sim/base/units.h"
#include "sim/cluster/cluster.h"
#include "sim/collective/collective.h"
#include "sim/cost/cost.h"
#include "sim/plan/scenario.h"
#include "sim/plan/schedule/schedule.h"
#include "sim/run/prepared.h"
#include "sim/search/least_energy.h"

namespace rehearse::search {

// Of a layer; of what lies before the first one (embedding) or after the last (head, loss).
struct UnitFloor {
  std::int64_t forward_ps = 0, backward_ps = 0;               // of a micro-batch
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;  // bytes, unsharded
  std::int64_t kept = 0;                                      // bytes of a micro-batch, between forward and backward
  run::KernelJoules kernels;                                  // of a micro-batch
  friend bool operator==(const UnitFloor&, const UnitFloor&) = default;
};

struct LayerFloor {
  UnitFloor first, last;
  std::vector<UnitFloor> layers;  // empty: not a transformer, nothing is known

  friend bool operator==(const LayerFloor&, const LayerFloor&) = default;
};

enum class Lowered : unsigned char {
  alike_once,  // of many layers that are alike two, beside the first and the last
  every_layer
};
// Of a scenario, whatever its stages, schedule, sharding and replicas, on each kind of device of the machine. Where the
// cluster is uneven (uneven() below) without its transfers.
std::vector<LayerFloor> layer_floors(const plan::Scenario& scenario, const run::Machine& machine,
                                     Lowered lowered = Lowered::alike_once);

// Whether groups of ranks that lie alike may have unlike links: links of a kind have different rates, devices are not
// in the order of their nodes, the last node is not full, or there are several kinds of devices.
bool uneven(const cluster::Cluster& cluster);

struct PlanFloor {
  Time step;
  std::int64_t bytes = 0;     // of the stage that needs most
  run::KernelJoules kernels;  // of all ranks' in a step; 0 where they do not count (least_energy.h)
};

// What a stage holds by a schedule's slots, asked once. Several threads may ask.
class PassesHeld {
 public:
  struct Held {
    int passes = 0;         // through one chunk, whose forward has ended while their backward has not begun: at most
    int micro_batches = 0;  // of which that is so of all the stage's chunks
  };
  Held of(const plan::PipelineSchedule& schedule, const plan::PipelinePlace& place, int micro_batches);

 private:
  std::mutex mutex_;
  std::map<std::tuple<const plan::PipelineSchedule*, int, int, int, bool, int>, Held> known_;
};

// What collectives of a machine take alone, asked once; several threads may ask.
class CollectiveTimes {
 public:
  explicit CollectiveTimes(const collective::CollectiveModel& model) : model_(model) {}
  Time of(program::CollectiveKind kind, const std::vector<int>& members, Bytes bytes);

 private:
  const collective::CollectiveModel& model_;
  std::mutex mutex_;
  std::map<std::tuple<program::CollectiveKind, std::int64_t, std::vector<int>>, Time> known_;
};

// Of each kind of device of the machine its layers. With layers_per_stage: by_time, which says how many layers a stage
// has only when it is lowered, the longest stage takes, and the fullest keeps, what it has to however layers are split.
PlanFloor plan_floor(const std::vector<LayerFloor>& of_kinds, const plan::Scenario& scenario,
                     const run::Machine& machine, CollectiveTimes& collectives, PassesHeld& held);

}  // namespace rehearse::search
