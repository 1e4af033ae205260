// The file of `rehearse execute --metrics FILE`: what the run is at, written anew at most once a second and after the
// last step, each time whole or not at all.
#pragma once

#include <chrono>
#include <string>

#include "execute/performer.h"
#include "reports/metrics.h"
#include "sim/plan/scenario.h"

namespace rehearse::cli {

class MetricsFile {
 public:
  // path: "" for none.
  MetricsFile(std::string path, const plan::Scenario& scenario, int steps);
  void step(int step, const execute::StepLoss& loss);  // done, from 0

 private:
  using Clock = std::chrono::steady_clock;
  std::string path_;
  reports::TrainingProgress progress_;
  double examples_a_step_, tokens_an_example_;
  Clock::time_point since_ = Clock::now();
  int steps_since_ = 0;
};

}  // namespace rehearse::cli
