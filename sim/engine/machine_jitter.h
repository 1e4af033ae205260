// The scatter of a measured machine (sim/cost/jitter.h), drawn from counters as all noise is (noise.h): every draw is a
// function of (seed, sample) and of what it is for alone. Draws of the scenario's own noise are others. Factors are
// integers in units of 2^-32 and delays whole nanoseconds, so that a library's last bit does not reach the result.
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/cost/jitter.h"
#include "sim/engine/noise.h"

namespace rehearse::engine {

// What a draw is for, within a rank's step.
struct JitterPlace {
  std::int32_t rank = 0, step = 0, slot = 0, op = 0;  // op: any number that tells two draws of the slot apart
};

class MachineJitter {
 public:
  MachineJitter() = default;  // none
  MachineJitter(const cost::Jitter& jitter, std::int64_t seed, std::int64_t sample);

  bool any() const { return any_; }
  // A kernel that takes `time` in the median.
  Time kernel(Time time, cost::KernelClass kind, const JitterPlace& place) const;
  // A transfer: the factor of all its times, and what it is delayed. a, b, channel, call: as Noise::transfer.
  Factor transfer(bool group, std::int32_t a, std::int32_t b, std::int32_t channel, std::int64_t call) const;
  Time transfer_delay(bool group, std::int32_t a, std::int32_t b, std::int32_t channel, std::int64_t call) const;
  // From an op's end to the start of the next on its stream, and of one on a stream that slept.
  Time dispatch(Time time, const JitterPlace& place) const;
  Time wake(Time time, const JitterPlace& place) const;

 private:
  Time delay(const cost::Delays& delays, double expected, std::uint64_t key, std::uint64_t low,
             std::uint64_t high) const;

  cost::Jitter jitter_;
  std::uint64_t key_ = 0;
  bool any_ = false;
};

// How many of what comes `expected` times on average (Poisson) have come where a uniform number in (0, 1) is `u`. Above
// 30 on average the normal distribution of the same mean and variance, rounded.
std::int64_t poisson(double expected, double u);

}  // namespace rehearse::engine
