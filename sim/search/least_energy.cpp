// See least_energy.h.
#include "sim/search/least_energy.h"

#include "sim/search/machines.h"

namespace rehearse::search {

bool counts_kernels(const plan::Scenario& scenario, const run::Machine& machine) {
  const bool alike = scenario.model.experts == 0 || scenario.model.routing == model::Routing::uniform;
  return alike && machine.kinds() == 1;
}

run::KernelJoules kernel_joules(const lower::DistinctStages& stages, const plan::Scenario& scenario,
                                const run::Machine& machine) {
  run::KernelJoules sum;
  if (!counts_kernels(scenario, machine) || scenario.training.packs()) return sum;
  const std::int64_t of_stage = scenario.cluster.gpus / scenario.plan.pipeline;
  const auto ranks = static_cast<double>(of_stage);
  for (std::size_t stage = 0; stage < stages.role_of.size(); ++stage) {
    const run::KernelRanges of_rank = run::kernel_joules(stages.program.roles[stages.role_of[stage]],
                                                         stages.slots[stage], machine.costs->device().power);
    sum.add({of_rank.products.value, of_rank.memory.value}, ranks);
  }
  return sum;
}

double least_energy(const run::Machine& machine, Time step, std::int64_t gpus, const run::KernelJoules& kernels) {
  const auto devices = static_cast<double>(gpus);
  if (machine.kinds() > 1) return step.seconds() * idle_watts(machine) * devices;
  return run::least_joules(machine.costs->device().power, step, devices, kernels);
}

}  // namespace rehearse::search
