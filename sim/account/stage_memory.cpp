// See stage_memory.h. The reserve is a constant of the framework's profile. A caching
// allocator's fragmentation is a share of the tensors' peak, an arena's what placing the tensors takes beyond it.
#include "sim/account/stage_memory.h"

#include "sim/program/memory_plan.h"

namespace rehearse::account {

std::vector<result::StageMemory> stage_memory(const program::Program& program, const plan::FrameworkProfile& framework,
                                              bool cpu) {
  using program::BufferClass;
  std::vector<result::StageMemory> stages;
  for (const program::Role& role : program.roles) {
    const program::MemoryPeak peak = program::memory_peak(role);
    const auto at = [&](BufferClass c) { return peak.at_peak[static_cast<std::size_t>(c)]; };
    result::StageMemory m;
    m.stage = role.pipeline;
    m.parameters = at(BufferClass::parameter);
    m.gradients = at(BufferClass::gradient);
    m.optimizer = at(BufferClass::optimizer);
    m.activations = at(BufferClass::activation);
    m.workspace = at(BufferClass::workspace);
    m.communication = at(BufferClass::communication);
    m.framework = !cpu && framework.allocator == plan::Allocator::caching
                      ? static_cast<std::int64_t>(framework.fragmentation * static_cast<double>(peak.peak_bytes))
                      : program::plan_memory(role).arena_bytes - peak.peak_bytes;
    if (!cpu) m.framework += framework.memory_reserve.count();
    m.peak = peak.peak_bytes + m.framework;
    m.where = peak.where;
    stages.push_back(std::move(m));
  }
  return stages;
}

}  // namespace rehearse::account
