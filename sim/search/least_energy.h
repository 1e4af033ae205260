// The least energy that a step of a plan can take, without simulating it: what its kernels take whenever they run
// (sim/run/energy.h), and what the devices draw meanwhile in the least time of a step. Leaves out what transfers move.
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/lower/lower.h"
#include "sim/run/prepared.h"

namespace rehearse::search {

// Of kernels: of products at the highest clock, and of memory.
struct Joules {
  double products = 0, memory = 0;
  void add(const Joules& each, double times) { products += times * each.products, memory += times * each.memory; }
  friend bool operator==(const Joules&, const Joules&) = default;
};

// Whether ranks of a stage have the same kernels. Experts may have unlike numbers of rows.
bool ranks_are_alike(const plan::Scenario& scenario);

// Of all ranks in a step; 0 where devices or ranks are unlike, or documents differ.
Joules kernel_joules(const lower::DistinctStages& stages, const plan::Scenario& scenario, const run::Machine& machine);

// Of a step that takes `step` or longer, with these kernels.
double least_energy(const run::Machine& machine, Time step, std::int64_t gpus, const Joules& kernels);

}  // namespace rehearse::search
