// See machines.h.
#include "sim/search/machines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "sim/program/link/places.h"
#include "sim/program/link/waits.h"
#include "sim/program/memory_plan.h"
#include "sim/run/device_kinds.h"
#include "sim/run/fit.h"

namespace rehearse::search {
namespace {

std::int64_t room_on(const cost::Device& device, const plan::Scenario& scenario) {
  return device.memory.count() - run::headroom_on(device, scenario);
}

}  // namespace

std::shared_ptr<const run::Machine> Machines::of(const plan::Scenario& scenario) {
  const std::lock_guard lock(mutex_);
  std::string key =
      fmt::format("{} {} {} {} {}", scenario.framework.name, scenario.cluster.topology, scenario.cluster.gpus,
                  scenario.cluster.threads_per_rank, fmt::join(scenario.calibrations, " "));
  for (const auto& [path, value] : scenario.cluster.overrides) key += fmt::format(" {}={}", path, value);
  for (const plan::PinnedCollective& pin : scenario.cluster.collectives)
    key += fmt::format(" {} {} {}", pin.kind, pin.algorithm, pin.protocol);
  auto& machine = known_[key];
  if (!machine) {
    machine = std::make_shared<const run::Machine>(scenario, options_);
    collectives_.emplace(machine.get(), std::make_unique<CollectiveTimes>(machine->collectives.model()));
  }
  return machine;
}

CollectiveTimes& Machines::collectives_of(const run::Machine& machine) {
  const std::lock_guard lock(mutex_);
  return *collectives_.at(&machine);
}

std::int64_t most_room(const run::Machine& machine, const plan::Scenario& scenario) {
  std::int64_t most = 0;
  for (int kind = 0; kind < machine.kinds(); ++kind)
    most = std::max(most, room_on(machine.costs_of(kind).device(), scenario));
  return most;
}

Bytes least_memory(const run::Machine& machine) {
  Bytes least = machine.costs->device().memory;
  for (int kind = 1; kind < machine.kinds(); ++kind) least = std::min(least, machine.costs_of(kind).device().memory);
  return least;
}

std::int64_t with_reserve(std::int64_t tensors, const plan::Scenario& scenario, const run::Machine& machine) {
  const cost::Device& device = machine.costs->device();
  if (device.cpu) return tensors;
  const plan::FrameworkProfile& framework = scenario.framework;
  const bool measured = framework.measured_host && device.reserve > Bytes();
  const std::int64_t reserve = (measured ? device.reserve : framework.memory_reserve).count();
  const double wasted = framework.allocator == plan::Allocator::arena ? 0 : framework.fragmentation;
  return tensors + static_cast<std::int64_t>(wasted * static_cast<double>(tensors)) + reserve;
}

double idle_watts(const run::Machine& machine) {
  double least = 0;
  for (int kind = 0; kind < machine.kinds(); ++kind) {
    const cost::Power& power = machine.costs_of(kind).device().power;
    if (!power.known()) return 0;
    least = kind == 0 ? power.idle_w.value : std::min(least, power.idle_w.value);
  }
  return least;
}

LeastMemory least_memory(const lower::DistinctStages& stages, const plan::Scenario& scenario,
                         const run::Machine& machine) {
  LeastMemory found;
  const program::OwnMemory own = run::own_memory_on(machine, scenario);
  std::vector<std::int64_t> of_roles;
  for (const program::Role& role : stages.program.roles)
    of_roles.push_back(with_reserve(program::memory_peak(role, 1, false, own).peak_bytes, scenario, machine));
  found.bytes = *std::max_element(of_roles.begin(), of_roles.end());
  if (machine.kinds() == 1) {
    found.fits = found.bytes <= most_room(machine, scenario);
    return found;
  }
  const std::vector<run::StageDevices> devices = run::devices_of_stages(*machine.cluster, scenario.grid());
  for (std::size_t s = 0; s < devices.size(); ++s)
    for (const int kind : devices[s].kinds)
      found.fits &= of_roles[stages.role_of[s]] <= room_on(machine.costs_of(kind).device(), scenario);
  return found;
}

std::int64_t fullest_placed(const program::Program& program, const plan::Scenario& scenario,
                            const run::Machine& machine) {
  if (machine.kinds() > 1 || scenario.framework.allocator != plan::Allocator::arena) return 0;
  const program::Role* fullest = nullptr;
  std::int64_t most = -1;
  for (const program::Role& role : program.roles)
    if (const std::int64_t peak = program::memory_peak(role).peak_bytes; peak > most) fullest = &role, most = peak;
  const program::ArenaPlaces places =
      program::place_buffers(*fullest, program::resolve_waits(*fullest), program::kArenaAlignment);
  return with_reserve(places.arena_bytes, scenario, machine);
}

}  // namespace rehearse::search
