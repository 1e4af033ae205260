// What a device draws. Energy is counted, not power: a kernel costs so much a FLOP and a byte however long it takes,
// and what the device draws when nothing runs is paid for all of the time:
//   E = idle * T + sum over kernels (FLOPs * e_flop * v(c)^2 + bytes * e_byte) + bytes through ports * e_link,
// with c the clock of the multiprocessors as a share of the highest and v(c) their voltage as a share of the one there:
// switching a gate takes C V^2 whenever it is done (Weste and Harris, CMOS VLSI Design, 4th edition, chapter 5).
// Memory and links have supplies and clocks of their own. A power limit lowers c until the mean over tens of
// milliseconds is within it. docs/calibration.md, "Power and energy", says where the numbers come from and what they
// explain.
#pragma once

#include <string>
#include <vector>

#include "sim/cost/range.h"
#include "sim/program/program.h"

namespace rehearse {
class Node;
}

namespace rehearse::cost {

// v(c) = max(floor, 1 - slope * (1 - c)).
struct VoltageCurve {
  Range slope, floor;
  double voltage(double clock) const;
};
// What devices share: fitted to the runs of calibrate/published/power-limits.csv (tests/unit/cost/power_test.cpp
// repeats the fit).
VoltageCurve shared_voltage_curve();

// `power` of a device file. Energies in picojoules; of a FLOP at the highest clock, operands random numbers.
struct Power {
  double limit_w = 0;
  double min_mhz = 0, boost_mhz = 0;
  Range idle_w;        // with a context, nothing running
  Range half, single;  // a FLOP of products and attention: in bf16 and fp16; in fp32, as Device::peak_fp32 counts them
  Range eight;         // a FLOP of 8-bit products; where the file does not say, half as much as in bf16: see read_power
  Range byte;          // of device memory, read or written
  Range port;          // a byte that leaves or enters the device
  Range zeros;         // a FLOP whose operands are zeros, as a share of one with random operands
  VoltageCurve voltage;
  bool known() const { return limit_w > 0; }
  double lowest_clock() const { return min_mhz / boost_mhz; }
};
Power read_power(const Node& node);

// What a kernel takes beside the idle power, joules: its FLOPs at the highest clock, and its bytes. With the values of
// the file, or their low or high ends.
struct KernelEnergy {
  Range flops{0, 0, 0}, bytes{0, 0, 0};
};
KernelEnergy kernel_energy(const Power& power, const program::Role& role, const program::Op& op);

// A run under a power limit: its speed as a share of that without, and its mean power. Of each work the last one given
// is that without.
struct LimitedRun {
  std::string device, work;
  double speed = 1, watts = 0;
};
// How far the form above is from runs whose kernels all follow the clock but for a share of the time that each work
// has of its own: of every device the idle power, of every work that share are the best for this curve. Root mean
// square of log(measured / predicted) of the power.
double voltage_curve_error(const std::vector<LimitedRun>& runs, double slope, double floor);

}  // namespace rehearse::cost
