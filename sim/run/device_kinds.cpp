// See device_kinds.h.
#include "sim/run/device_kinds.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/check.h"
#include "sim/run/fit.h"

namespace rehearse::run {

std::vector<StageDevices> devices_of_stages(const cluster::Cluster& cluster, const plan::RankGrid& grid) {
  std::vector<StageDevices> stages(static_cast<std::size_t>(grid.size(Axis::pipeline)));
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    StageDevices& stage = stages[static_cast<std::size_t>(grid.coordinate(rank, Axis::pipeline))];
    const int kind = cluster.kind_of(rank);
    const auto at = std::lower_bound(stage.kinds.begin(), stage.kinds.end(), kind);
    if (at != stage.kinds.end() && *at == kind) continue;
    stage.first_rank.insert(stage.first_rank.begin() + (at - stage.kinds.begin()), rank);
    stage.kinds.insert(at, kind);
  }
  return stages;
}

std::vector<result::StageMemory> stages_of(const Machine& machine, const plan::Scenario& scenario,
                                           const program::Program& program, const program::Arenas* arenas) {
  std::vector<result::StageMemory> stages = stages_on(machine, scenario, program, arenas);
  if (machine.kinds() == 1) return stages;
  const std::vector<StageDevices> devices = devices_of_stages(*machine.cluster, scenario.grid());
  for (result::StageMemory& stage : stages) {
    for (const int kind : devices[static_cast<std::size_t>(stage.stage)].kinds) {
      const cost::Device& device = machine.costs_of(kind).device();
      const std::int64_t capacity = device.memory.count(), headroom = headroom_on(device, scenario);
      if (stage.device.empty() || capacity - headroom < stage.capacity - stage.headroom)
        stage.capacity = capacity, stage.headroom = headroom;
      stage.device += (stage.device.empty() ? "" : ", ") + device.name;
    }
  }
  return stages;
}

Room least_room(const Machine& machine, const plan::Scenario& scenario,
                const std::vector<result::StageMemory>& stages) {
  const cost::Device& device = machine.costs->device();
  Room room{0, device.memory.count(), headroom_on(device, scenario)};
  const result::StageMemory* tightest = result::tightest(stages);
  if (tightest == nullptr) return room;
  room.peak = tightest->peak;
  if (!tightest->device.empty()) room.capacity = tightest->capacity, room.headroom = tightest->headroom;
  return room;
}

std::string device_counts(const Machine& machine) {
  std::vector<int> counts(static_cast<std::size_t>(machine.kinds()), 0);
  for (int rank = 0; rank < machine.cluster->devices(); ++rank)
    ++counts[static_cast<std::size_t>(machine.cluster->kind_of(rank))];
  std::string text;
  for (int kind = 0; kind < machine.kinds(); ++kind)
    text += fmt::format("{}{} {}", kind == 0 ? "" : ", ", counts[static_cast<std::size_t>(kind)],
                        machine.costs_of(kind).device().name);
  return text;
}

}  // namespace rehearse::run
