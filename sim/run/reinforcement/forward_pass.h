// Programs of forwards alone (plan::Plan::forward_only), as phases of reinforcement learning have them: scoring by a
// model that is split as the plan says, prefill and decode steps of a replica that generates.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/result/result.h"
#include "sim/run/reinforcement/rollout.h"
#include "sim/run/run.h"

namespace rehearse::run {

struct ForwardPass {
  StepCost cost;                     // of the pass, mean over ranks
  double low = 1, high = 1;          // factors of its time: of its kernels
  std::array<double, 4> coverage{};  // shares of its busy time
  std::vector<result::StageMemory> stages;
};

// `scenario` as it is but for what the plan says of gradients and the optimizer, each sequence behind `cached` tokens.
// `steps` 1: from an idle pipeline on; 2: a steady one. Throws as simulate_scenario does.
ForwardPass forward_pass(plan::Scenario scenario, std::int64_t cached, int steps, const Options& options);

}  // namespace rehearse::run
