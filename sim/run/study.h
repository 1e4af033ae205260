// What is asked of a scenario beyond one simulation: its step over samples of the noise, what each cause of noise costs
// (the same draws without it), and what the step would be with other hardware. Simulations are spread over threads and
// processes; the answers do not depend on how many.
#pragma once

#include <array>
#include <functional>
#include <mutex>

#include "sim/result/result.h"
#include "sim/run/prepared.h"
#include "sim/run/processes.h"

namespace rehearse::run {

// One progress for many simulations. The callback is called by one thread at a time.
class SharedProgress {
 public:
  SharedProgress(const std::function<void(double)>& report, std::size_t simulations)
      : report_(report), simulations_(static_cast<double>(simulations)) {}
  std::function<void(double)> one();

 private:
  const std::function<void(double)>& report_;
  double simulations_, done_ = 0;
  std::mutex mutex_;
};

// The time of a step and the shares of it.
struct SampledStep {
  std::int64_t step_ps = 0;
  std::array<std::int64_t, result::kShares> breakdown_ps{};
};
using SampleStep = std::function<SampledStep(const engine::Options&)>;

// Simulates samples 0 to count - 1, of a step as `step` does, or the engine. Of the steps' order statistics the median
// one is `reported`.
result::Samples sample(const Prepared& prepared, std::int64_t count, const Workers& workers, SharedProgress& progress,
                       const SampleStep& step = {});

// What each cause of noise costs in a sample of which `outcome` is the simulation: each slow rank (the first
// kMostSlowRanks), all of them, each entry of noise.links, ranks' factors for the step, the machine's measured scatter,
// jitter of kernels, of transfers.
result::NoiseCost noise_cost(const Prepared& prepared, const engine::Options& options, const engine::Outcome& outcome,
                             const Workers& workers, SharedProgress& progress);
inline constexpr std::size_t kMostSlowRanks = 8;

// The step with one lever at a half and at the double; levers that change nothing here are there too.
// `plain` is the simulation without any.
std::vector<result::WhatIf> what_if(const Prepared& prepared, const engine::Options& options,
                                    const engine::Outcome& plain, const Workers& workers, SharedProgress& progress);
inline constexpr std::size_t kLevers = 6;

}  // namespace rehearse::run
