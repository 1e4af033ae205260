// Which kinds of devices the ranks of a plan run on, where a cluster has several, and what follows for memory: a stage
// needs to fit on each kind that it is on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/plan/rank_grid.h"
#include "sim/program/link/send_slots.h"
#include "sim/program/program.h"
#include "sim/result/result.h"
#include "sim/run/prepared.h"

namespace rehearse::run {

struct StageDevices {
  std::vector<int> kinds;       // ascending (cluster::Cluster::kind_of)
  std::vector<int> first_rank;  // of the stage, of each
};
std::vector<StageDevices> devices_of_stages(const cluster::Cluster& cluster, const plan::RankGrid& grid);

// fit.h's stages_on; in a mixed cluster with each stage's devices, and the capacity and headroom of the one of them
// that leaves least.
std::vector<result::StageMemory> stages_of(const Machine& machine, const plan::Scenario& scenario,
                                           const program::Program& program, const program::Arenas* arenas = nullptr);

// What decides whether they fit: of the stage that has least room.
struct Room {
  std::int64_t peak = 0, capacity = 0, headroom = 0;
  bool fits() const { return peak <= capacity - headroom; }
};
Room least_room(const Machine& machine, const plan::Scenario& scenario, const std::vector<result::StageMemory>& stages);

// "4 h100-sxm, 4 a100-sxm-80g": how many ranks run on each kind.
std::string device_counts(const Machine& machine);

}  // namespace rehearse::run
