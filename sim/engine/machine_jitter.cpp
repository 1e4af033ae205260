// See machine_jitter.h.
#include "sim/engine/machine_jitter.h"

#include <algorithm>
#include <cmath>

#include "sim/base/random.h"
#include "sim/engine/draws.h"

namespace rehearse::engine {

namespace {

// Apart from those of noise.cpp.
enum JitterPurpose : std::uint64_t {
  kKernel = 101,
  kKernelDelay,
  kRankStep,
  kTransfer,
  kTransferDelay,
  kDispatchDelay,
  kWake,
  kWakeDelay
};

constexpr double kMostNormals = 30;  // Poisson numbers up to here are counted out
constexpr std::int64_t kDrawn = 8;   // delays up to here have a length each; more have their sum's

std::uint64_t low_of(const JitterPlace& place) {
  return pair_of(place.rank, place.step);
}
std::uint64_t high_of(const JitterPlace& place) {
  return pair_of(place.slot, place.op);
}
std::uint64_t channel_key(std::uint64_t key, JitterPurpose purpose, bool group, std::int32_t channel) {
  return mix_key(mix_key(key, purpose), static_cast<std::uint64_t>(channel) << 1 | (group ? 1U : 0U));
}
// The median is 1.
Factor lognormal(double spread, std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  if (spread <= 0) return kFactorOne;
  const auto words = Philox::draw(key, low, high);
  return factor_of(std::exp(spread * normal(words[0], words[1])));
}

}  // namespace

std::int64_t poisson(double expected, double u) {
  if (expected > kMostNormals) {
    // The normal quantile of u, by bisection on the error function: rare, so slow is well.
    double low = -8, high = 8;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (0.5 * std::erfc(-middle / std::numbers::sqrt2) < u ? low : high) = middle;
    }
    return std::max<std::int64_t>(0, std::llround(expected + std::sqrt(expected) * low));
  }
  double term = std::exp(-expected), sum = term;
  std::int64_t n = 0;
  while (u > sum && n < 10 * static_cast<std::int64_t>(kMostNormals))
    sum += term *= expected / static_cast<double>(++n);
  return n;
}

MachineJitter::MachineJitter(const cost::Jitter& jitter, std::int64_t seed, std::int64_t sample)
    : jitter_(jitter),
      key_(mix_key(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(sample))),
      any_(jitter.any()) {}

// The sum of delays of which `expected` come on average. Lengths have the mean of `delays`.
Time MachineJitter::delay(const cost::Delays& delays, double expected, std::uint64_t key, std::uint64_t low,
                          std::uint64_t high) const {
  if (!delays.any()) return Time();
  const auto words = Philox::draw(key, low, high);
  const std::int64_t count = poisson(expected, uniform(words[0]));
  if (count == 0) return Time();
  const double variance = delays.spread * delays.spread;
  double seconds = 0;
  if (count <= kDrawn) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto length = Philox::draw(mix_key(key, static_cast<std::uint64_t>(i) + 1), low, high);
      seconds += delays.mean_s * std::exp(delays.spread * normal(length[0], length[1]) - variance / 2);
    }
  } else {
    const auto n = static_cast<double>(count);
    seconds = delays.mean_s * std::max(0.0, n + normal(words[1], words[2]) * std::sqrt(n * std::expm1(variance)));
  }
  return Time::from_ns(std::llround(std::min(seconds, 1e5) * 1e9));
}

Time MachineJitter::kernel(Time time, cost::KernelClass kind, const JitterPlace& place) const {
  const std::uint64_t low = low_of(place), high = high_of(place);
  const double spread = jitter_.kernels[static_cast<std::size_t>(kind)];
  Time taken = times(time, lognormal(spread, mix_key(key_, kKernel), low, high));
  taken = times(taken, lognormal(jitter_.rank_step, mix_key(key_, kRankStep), low, 0));
  return taken + delay(jitter_.kernel_delays, jitter_.kernel_delays.rate * time.seconds(), mix_key(key_, kKernelDelay),
                       low, high);
}

Factor MachineJitter::transfer(bool group, std::int32_t a, std::int32_t b, std::int32_t channel,
                               std::int64_t call) const {
  return lognormal(jitter_.transfers, channel_key(key_, kTransfer, group, channel), pair_of(a, b),
                   static_cast<std::uint64_t>(call));
}

Time MachineJitter::transfer_delay(bool group, std::int32_t a, std::int32_t b, std::int32_t channel,
                                   std::int64_t call) const {
  return delay(jitter_.transfer_delays, jitter_.transfer_delays.rate, channel_key(key_, kTransferDelay, group, channel),
               pair_of(a, b), static_cast<std::uint64_t>(call));
}

Time MachineJitter::dispatch(Time time, const JitterPlace& place) const {
  return time + delay(jitter_.dispatch_delays, jitter_.dispatch_delays.rate, mix_key(key_, kDispatchDelay),
                      low_of(place), high_of(place));
}

Time MachineJitter::wake(Time time, const JitterPlace& place) const {
  const std::uint64_t low = low_of(place), high = high_of(place);
  return times(time, lognormal(jitter_.waking, mix_key(key_, kWake), low, high)) +
         delay(jitter_.waking_delays, jitter_.waking_delays.rate, mix_key(key_, kWakeDelay), low, high);
}

}  // namespace rehearse::engine
