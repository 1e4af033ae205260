// What makes steps and ranks differ in a simulation (section `noise` of a scenario): jitter of every duration, ranks
// that are slow for a step or throughout, links that lose capacity. Drawn by sim/engine/noise.h from counters, so that
// nothing depends on the order of events. Left out: ranks and links that fail for good, and jitter that is correlated
// between ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/units.h"

namespace rehearse::plan {

enum class Distribution : unsigned char { lognormal, uniform };
// slot: all kernels of a rank's slot (a body of one micro-batch) take the same factor, as a clock that wanders; op:
// each draws its own.
enum class Granularity : unsigned char { slot, op };

// Ranks whose kernels take `factor` times as long: those listed, and each other one with probability `share`.
struct SlowRanks {
  std::vector<std::int64_t> ranks;
  double share = 0, factor = 1;
};

// Resources whose name matches (* any characters, ? one), each with probability `share`, carry `capacity` of what they
// should: always, or once in every `period` for `duty` of it, from a moment drawn for each link and period.
struct LinkFault {
  std::string resources;
  double share = 1, capacity = 1;
  Time period;  // zero: always
  double duty = 1;
};

// A factor that all kernels of a rank's step take together, drawn for each rank and step: uniform in [low, high).
struct RankStep {
  double low = 1, high = 1;
  bool any() const { return low != 1 || high != 1; }
};

struct Noise {
  std::int64_t seed = 1;
  Distribution distribution = Distribution::lognormal;
  Granularity granularity = Granularity::slot;
  double kernels = 0, transfers = 0;  // coefficients of variation of factors with mean 1
  RankStep rank_step;
  std::vector<SlowRanks> slow_ranks;
  std::vector<LinkFault> links;
  bool machine = true;  // draw the scatter that a calibration of the machine measured (sim/cost/jitter.h)

  // Of the scenario's own, besides the machine's.
  bool any() const { return kernels > 0 || transfers > 0 || rank_step.any() || !slow_ranks.empty() || !links.empty(); }
};

inline constexpr double kMostJitter = 0.5;  // uniform factors stay above 1 - sqrt(3) / 2
inline constexpr double kLeastCapacity = 0.001, kMostSlow = 1000;
inline constexpr double kLeastFactor = 0.001;  // of rank_step; kMostSlow is its largest

}  // namespace rehearse::plan
