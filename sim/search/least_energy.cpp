// See least_energy.h.
#include "sim/search/least_energy.h"

#include "sim/run/energy.h"
#include "sim/search/machines.h"

namespace rehearse::search {

bool ranks_are_alike(const plan::Scenario& scenario) {
  return scenario.model.experts == 0 || scenario.model.routing == model::Routing::uniform;
}

Joules kernel_joules(const lower::DistinctStages& stages, const plan::Scenario& scenario, const run::Machine& machine) {
  Joules sum;
  if (machine.kinds() > 1 || !ranks_are_alike(scenario) || scenario.training.packs()) return sum;
  const std::int64_t of_stage = scenario.cluster.gpus / scenario.plan.pipeline;
  const auto ranks = static_cast<double>(of_stage);
  for (std::size_t stage = 0; stage < stages.role_of.size(); ++stage) {
    const run::KernelJoules of_rank = run::kernel_joules(stages.program.roles[stages.role_of[stage]],
                                                         stages.slots[stage], machine.costs->device().power);
    sum.add({of_rank.products.value, of_rank.memory.value}, ranks);
  }
  return sum;
}

double least_energy(const run::Machine& machine, Time step, std::int64_t gpus, const Joules& kernels) {
  const auto devices = static_cast<double>(gpus);
  if (machine.kinds() > 1) return step.seconds() * idle_watts(machine) * devices;
  return run::least_joules(machine.costs->device().power, step.seconds(), devices, kernels.products, kernels.memory);
}

}  // namespace rehearse::search
