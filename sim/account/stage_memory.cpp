// See stage_memory.h. The reserve is a constant of the framework's profile. A caching
// allocator's fragmentation is a share of the tensors' peak, an arena's what placing the tensors takes beyond it.
#include "sim/account/stage_memory.h"

#include <algorithm>

#include "sim/account/grid_view.h"
#include "sim/program/link/send_slots.h"
#include "sim/program/memory_plan.h"

namespace rehearse::account {

namespace {

// Of messages sent from copies, those of a rank's slots.
std::int64_t copies_of(const program::Role& role, int send_slots) {
  std::int64_t bytes = 0;
  for (const std::int64_t slot : program::send_slot_bytes(role)) bytes += send_slots * slot;
  return bytes;
}

}  // namespace

std::vector<result::StageMemory> stage_memory(const program::Program& program, const plan::RankGrid& grid,
                                              const plan::FrameworkProfile& framework, bool cpu,
                                              const program::Arenas* arenas, const program::OwnMemory& own_memory) {
  using program::BufferClass;
  const bool arena = cpu || framework.allocator == plan::Allocator::arena;
  program::Arenas own;
  if (arena && arenas == nullptr) {
    own = program::lay_out_arenas(program, grid_view(program, grid), !cpu);
    arenas = &own;
  }
  std::vector<result::StageMemory> stages;
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    const program::Role& role = program.roles[r];
    const program::MemoryPeak peak = program::memory_peak(role, 1, false, own_memory);
    const auto at = [&](BufferClass c) { return peak.at_peak[static_cast<std::size_t>(c)]; };
    result::StageMemory m;
    m.stage = role.pipeline;
    m.parameters = at(BufferClass::parameter);
    m.gradients = at(BufferClass::gradient);
    m.optimizer = at(BufferClass::optimizer);
    m.activations = at(BufferClass::activation);
    m.workspace = at(BufferClass::workspace);
    m.communication = at(BufferClass::communication);
    const std::int64_t copies = arena && !cpu ? copies_of(role, arenas->send_slots) : 0;
    m.communication += copies;
    m.framework = arena ? arenas->places[r].arena_bytes - peak.peak_bytes
                        : static_cast<std::int64_t>(framework.fragmentation * static_cast<double>(peak.peak_bytes));
    if (!cpu) m.framework += framework.memory_reserve.count();
    m.peak = peak.peak_bytes + copies + m.framework;
    m.where = peak.where;
    m.host = arena ? arenas->places[r].host_bytes : program::memory_peak(role, 1, true).peak_bytes;
    // Of a stage's places in the expert group, that which needs most.
    const auto same = std::find_if(stages.begin(), stages.end(), [&](const auto& s) { return s.stage == m.stage; });
    if (same == stages.end())
      stages.push_back(std::move(m));
    else if (m.peak > same->peak)
      *same = std::move(m);
  }
  return stages;
}

}  // namespace rehearse::account
