// Draws of noise (sim/plan/noise.h). Every draw is a function of its counter alone: (seed, sample) and what it is for,
// with rank, step, slot and op of a kernel, or the process group and the call of a transfer. So nothing depends on the
// order of events or on threads, and a run without one cause of noise has the same draws of all others.
//
// Factors are integers in units of 2^-32, so that a library's last bit of exp() or cos() does not reach the result.
// Uniform factors with coefficient of variation c lie in [1 - c sqrt(3), 1 + c sqrt(3)); lognormal ones are
// exp(s z - s^2 / 2) with s^2 = ln(1 + c^2) and a standard normal z (Box and Muller 1958). Both have mean 1. A rank's
// factor for a step (noise.rank_step) is uniform between the ends given, whatever their mean.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/engine/wide.h"
#include "sim/plan/noise.h"

namespace rehearse::engine {

using Factor = std::int64_t;
inline constexpr int kFactorBits = 32;
inline constexpr Factor kFactorOne = Factor{1} << kFactorBits;

// ps * factor, to the nearest picosecond.
constexpr std::int64_t times(std::int64_t ps, Factor factor) {
  return static_cast<std::int64_t>((static_cast<Int128>(ps) * factor + (kFactorOne >> 1)) >> kFactorBits);
}
constexpr Time times(Time time, Factor factor) {
  return Time::from_ps(times(time.ps(), factor));
}
Factor factor_of(double value);

// Whether a name matches a pattern of * (any characters, also none) and ? (one).
bool matches(std::string_view pattern, std::string_view name);

struct SlowRank {
  std::int32_t rank = 0;
  double factor = 1;
};

class Noise {
 public:
  Noise() = default;  // none
  // `spared`: ranks that are not slow, whatever was drawn.
  Noise(const plan::Noise& noise, std::int64_t sample, const std::vector<int>& spared, int ranks);

  // Whether kernels take other times than they cost.
  bool kernels() const { return kernels_ > 0 || rank_step_.any() || !slow_.empty(); }
  bool transfers() const { return transfers_ > 0; }
  bool by_op() const { return by_op_; }
  // Of a kernel; with granularity slot, op 0 stands for all of the slot. The product of its own jitter, the rank's
  // factor for the step and that of a slow rank.
  Factor kernel(std::int32_t rank, std::int32_t step, std::int32_t slot, std::int32_t op) const;
  // Of the `call`-th transfer of a group's instance (a: its first member, b: the group) or of a channel (a: from, b:
  // to).
  Factor transfer(bool group, std::int32_t a, std::int32_t b, std::int32_t channel, std::int64_t call) const;
  const std::vector<SlowRank>& slow_ranks() const { return slow_; }
  // What all kernels of a rank take longer, in units of kFactorOne.
  Factor slowness(std::int32_t rank) const {
    return of_rank_.empty() ? kFactorOne : of_rank_[static_cast<std::size_t>(rank)];
  }

 private:
  Factor rank_step(std::int32_t rank, std::int32_t step) const;
  Factor draw(double variation, std::uint64_t key, std::uint64_t low, std::uint64_t high) const;
  void find_slow_ranks(const plan::Noise& noise, const std::vector<int>& spared, int ranks);

  std::uint64_t key_ = 0;
  bool by_op_ = false, uniform_ = false;
  double kernels_ = 0, transfers_ = 0;
  plan::RankStep rank_step_;
  std::vector<SlowRank> slow_;   // by rank
  std::vector<Factor> of_rank_;  // slow ones; empty: none is
};

// The links that noise makes slow, and when.
class LinkFaults {
 public:
  LinkFaults() = default;
  LinkFaults(const plan::Noise& noise, std::int64_t sample, const std::vector<cluster::Resource>& resources);

  // Whether any of them is slow at some times only.
  bool come_and_go() const {
    return std::any_of(faults_.begin(), faults_.end(), [](const Fault& fault) { return fault.period > Time(); });
  }
  // When the next link changes; Time::max() if none does any more.
  Time next() const { return heap_.empty() ? Time::max() : heap_.front().first; }
  // Calls change(resource, capacity) for all that change at `now` == next(); once before the clock runs with now = 0.
  template <class Function>
  void apply(Time now, Function&& change) {
    while (!heap_.empty() && heap_.front().first <= now) {
      const std::int32_t index = take();
      const Fault& fault = faults_[static_cast<std::size_t>(index)];
      change(fault.resource, capacity_of(fault.resource));
    }
  }
  // The same of links of one kind and capacity whose capacity is the same at all times, different ones if it may not
  // be.
  std::int64_t alike(std::int32_t resource) const;
  // Links of the i-th entry of noise.links.
  const std::vector<std::int64_t>& counts() const { return counts_; }

 private:
  struct Fault {
    std::int32_t resource = 0, entry = 0;
    double capacity = 1;
    Time period = {}, slow = {};  // period 0: always
    std::int64_t count = 0;       // periods begun
    Time end = {};                // of the slow time it is in
    bool active = false;
  };
  std::int32_t take();
  void put(Time time, std::int32_t fault);
  Time begin_of(const Fault& fault) const;
  std::int64_t capacity_of(std::int32_t resource) const;

  std::uint64_t key_ = 0;
  std::vector<Fault> faults_;  // by resource, then entry
  std::vector<std::int64_t> nominal_;
  std::vector<std::int64_t> counts_;
  std::vector<std::pair<Time, std::int32_t>> heap_;  // the earliest first
};

}  // namespace rehearse::engine
