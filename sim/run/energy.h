// What a step takes in energy (sim/cost/power.h), counted from the program: a kernel's energy does not depend on when
// it runs. The simulation adds how long the step took and what its transfers moved.
#pragma once

#include "sim/engine/engine.h"
#include "sim/plan/rank_grid.h"
#include "sim/program/program.h"
#include "sim/result/result.h"
#include "sim/run/prepared.h"

namespace rehearse::run {

// Of kernels, J: of products at the highest clock, and of memory.
struct KernelRanges {
  cost::Range products{0, 0, 0}, memory{0, 0, 0};
};
struct KernelJoules {
  double products = 0, memory = 0;
  void add(const KernelJoules& each, double times) { products += times * each.products, memory += times * each.memory; }
  friend bool operator==(const KernelJoules&, const KernelJoules&) = default;
};
// Whether an op is a kernel of the device, of every step.
bool is_counted(const program::Role& role, const program::Op& op);
// Of one rank's step.
KernelRanges kernel_joules(const program::Role& role, const std::vector<program::Slot>& slots,
                           const cost::Power& power);
// What devices take whose kernels take so much together, J, in a step. In a longer step, or one in which transfers move
// something, it is no less.
double least_joules(const cost::Power& power, Time step, double devices, const KernelJoules& kernels);

// Not known for a device whose file has no `power`. Where the mean power at the highest clock is above the limit, the
// voltage is that of the clock at which it is not; step times take no part in that (docs/calibration.md, "Power and
// energy").
result::Energy energy_of(const program::Program& program, const plan::RankGrid& grid, const cost::Device& device,
                         const engine::Outcome& outcome);
// Of each of the devices its own, in a cluster of several kinds; what transfers moved is shared evenly among ranks. The
// limit is then the mean of all, the clock the lowest. Not known where it is of one of them.
result::Energy energy_of(const Prepared& prepared, const engine::Outcome& outcome);

}  // namespace rehearse::run
