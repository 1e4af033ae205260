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

Load load_of(const program::Program& program, const plan::RankGrid& grid, const Power& power,
             const engine::Outcome& outcome) {
  constexpr double kPico = 1e-12;
  Load load;
  const double ranks_a_role = grid.ranks() / static_cast<double>(program.roles.size());
  for (const program::Role& role : program.roles) {
    std::vector<std::int64_t> runs(role.bodies.size(), 0);
    for (const program::Slot& slot : role.slots) ++runs[static_cast<std::size_t>(slot.body)];
    for (std::size_t b = 0; b < role.bodies.size(); ++b)
      for (const program::Op& op : role.bodies[b].ops) {
        if (program::within(role, op) != program::Within::device) continue;  // what hosts take is left out
        if (runs[b] == 0 || program::is_transfer(op) || std::holds_alternative<program::HostSync>(op.shape)) continue;
        const cost::KernelEnergy energy = cost::kernel_energy(power, role, op);
        const double times = ranks_a_role * static_cast<double>(runs[b]);
        add(load.products, energy.flops, times);
        add(load.memory, energy.bytes, times);
      }
  }
  add(load.idle, power.idle_w, outcome.step_time.seconds() * grid.ranks());
  add(load.memory, power.byte, outcome.transfer_memory_bytes * kPico);
  add(load.ports, power.port, outcome.port_bytes * kPico);
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

}  // namespace

result::Energy energy_of(const program::Program& program, const plan::RankGrid& grid, const cost::Device& device,
                         const engine::Outcome& outcome) {
  result::Energy out;
  const Power& power = device.power;
  if (!power.known()) return out;
  const Load load = load_of(program, grid, power, outcome);
  const double allowed = power.limit_w * outcome.step_time.seconds() * grid.ranks();
  const auto sum = [&](double Range::*end, double share, double* clock) {
    const double other = load.memory.*end + load.ports.*end, products = load.products.*end * share;
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

}  // namespace rehearse::run
