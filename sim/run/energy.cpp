#include "sim/run/energy.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/cost/power.h"
#include "sim/program/op.h"

namespace rehearse::run {
namespace {

using cost::Power;
using cost::Range;

// Of a step, over all devices, joules. `products`: at the highest clock.
struct Load {
  Range idle{0, 0, 0}, products{0, 0, 0}, memory{0, 0, 0}, ports{0, 0, 0};
};

void add(Range& sum, const Range& each, double times) {
  sum.value += each.value * times, sum.low += each.low * times, sum.high += each.high * times;
}

// The devices of one kind: all of them, and of each role.
struct Devices {
  double all = 0;
  std::vector<double> of_role;
};

Load load_of(const program::Program& program, const Devices& devices, const Power& power,
             const engine::Outcome& outcome, double share) {
  constexpr double kPico = 1e-12;
  Load load;
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    if (devices.of_role[r] == 0) continue;
    const KernelRanges kernels = kernel_joules(program.roles[r], program.roles[r].slots, power);
    add(load.products, kernels.products, devices.of_role[r]);
    add(load.memory, kernels.memory, devices.of_role[r]);
  }
  add(load.idle, power.idle_w, outcome.step_time.seconds() * devices.all);
  add(load.memory, power.byte, outcome.transfer_memory_bytes * share * kPico);
  add(load.ports, power.port, outcome.port_bytes * share * kPico);
  return load;
}

// The highest clock at which idle, other and products' energy fit what the limit allows in the step; the lowest if
// none.
double clock_within(const Power& power, double idle_j, double other_j, double products_j, double allowed_j) {
  const double left = allowed_j - idle_j - other_j;
  if (products_j <= left) return 1;
  const double voltage = std::sqrt(std::max(0.0, left) / products_j);
  const double clock = 1 - (1 - std::max(voltage, power.voltage.floor.value)) / power.voltage.slope.value;
  return std::max(clock, power.lowest_clock());
}

// `share`: of all devices, so of what transfers move.
result::Energy energy_of_kind(const program::Program& program, const Devices& devices, const Power& power,
                              const engine::Outcome& outcome, double share) {
  result::Energy out;
  const Load load = load_of(program, devices, power, outcome, share);
  const double allowed = power.limit_w * outcome.step_time.seconds() * devices.all;
  const auto sum = [&](double Range::*end, double of_products, double* clock) {
    const double other = load.memory.*end + load.ports.*end, products = load.products.*end * of_products;
    const double c = clock_within(power, load.idle.*end, other, products, allowed);
    if (clock != nullptr) *clock = c;
    const double v = power.voltage.voltage(c);
    return load.idle.*end + other + products * v * v;
  };
  out.known = true;
  out.limit_w = power.limit_w;
  out.idle_j = load.idle.value, out.memory_j = load.memory.value, out.ports_j = load.ports.value;
  const double all = sum(&Range::value, 1, &out.clock);
  out.products_j = all - out.idle_j - out.memory_j - out.ports_j;
  out.low_j = sum(&Range::low, 1, nullptr), out.high_j = sum(&Range::high, 1, nullptr);
  out.zeros_j = sum(&Range::value, power.zeros.value, nullptr);
  return out;
}

}  // namespace

bool is_counted(const program::Role& role, const program::Op& op) {
  if (program::within(role, op) != program::Within::device || op.ends()) return false;
  return !program::is_transfer(op) && !std::holds_alternative<program::HostSync>(op.shape);
}

KernelRanges kernel_joules(const program::Role& role, const std::vector<program::Slot>& slots,
                           const cost::Power& power) {
  KernelRanges sum;
  std::vector<std::int64_t> runs(role.bodies.size(), 0);
  for (const program::Slot& slot : slots) ++runs[static_cast<std::size_t>(slot.body)];
  for (std::size_t b = 0; b < role.bodies.size(); ++b)
    for (const program::Op& op : role.bodies[b].ops) {
      if (runs[b] == 0 || !is_counted(role, op)) continue;
      const cost::KernelEnergy energy = cost::kernel_energy(power, role, op);
      const double times = static_cast<double>(runs[b]) / static_cast<double>(role.bodies[b].every);
      add(sum.products, energy.flops, times);
      add(sum.memory, energy.bytes, times);
    }
  return sum;
}

double least_joules(const cost::Power& power, Time step, double devices, const KernelJoules& kernels) {
  const double idle = power.idle_w.value * step.seconds() * devices;
  const double allowed = power.limit_w * step.seconds() * devices;
  const double voltage = power.voltage.voltage(clock_within(power, idle, kernels.memory, kernels.products, allowed));
  return idle + kernels.memory + kernels.products * voltage * voltage;
}

result::Energy energy_of(const program::Program& program, const plan::RankGrid& grid, const cost::Device& device,
                         const engine::Outcome& outcome) {
  if (!device.power.known()) return {};
  const double ranks_a_role = grid.ranks() / static_cast<double>(program.roles.size());
  const Devices all{static_cast<double>(grid.ranks()), std::vector<double>(program.roles.size(), ranks_a_role)};
  return energy_of_kind(program, all, device.power, outcome, 1);
}

result::Energy energy_of(const Prepared& prepared, const engine::Outcome& outcome) {
  const program::Program& program = prepared.program();
  const plan::RankGrid& grid = prepared.grid();
  const Machine& machine = prepared.machine();
  if (machine.kinds() == 1) return energy_of(program, grid, prepared.costs().device(), outcome);
  std::vector<Devices> devices(static_cast<std::size_t>(machine.kinds()));
  for (Devices& kind : devices) kind.of_role.resize(program.roles.size(), 0);
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    Devices& kind = devices[static_cast<std::size_t>(prepared.cluster().kind_of(rank))];
    ++kind.all;
    ++kind.of_role[static_cast<std::size_t>(program::role_of(program, grid.coordinates(rank)))];
  }
  result::Energy out;
  for (int k = 0; k < machine.kinds(); ++k) {
    const Power& power = machine.costs_of(k).device().power;
    if (!power.known()) return {};
    const double share = devices[static_cast<std::size_t>(k)].all / grid.ranks();
    const result::Energy one = energy_of_kind(program, devices[static_cast<std::size_t>(k)], power, outcome, share);
    out.known = true;
    out.idle_j += one.idle_j, out.products_j += one.products_j, out.memory_j += one.memory_j;
    out.ports_j += one.ports_j, out.low_j += one.low_j, out.high_j += one.high_j, out.zeros_j += one.zeros_j;
    out.limit_w += one.limit_w * share;
    out.clock = std::min(out.clock, one.clock);
  }
  return out;
}

}  // namespace rehearse::run
