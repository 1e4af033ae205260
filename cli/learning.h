// rehearse execute of a scenario with section `reinforcement`: its phases performed on this machine's CPU.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "execute/checkpoint/options.h"
#include "sim/plan/scenario.h"

namespace rehearse::cli {

struct LearningRequest {
  std::string file, root;
  std::vector<std::string> assignments;
  int steps = 20, log_every = 0;
  std::chrono::milliseconds timeout{60'000};
  std::string output, metrics;  // "": none
  bool json = false;
  execute::CheckpointOptions checkpoint;
};

// The exit status.
int execute_learning(const LearningRequest& request, const plan::Scenario& scenario);

}  // namespace rehearse::cli
