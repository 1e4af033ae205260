// The file of `rehearse execute --metrics FILE`: what the run is at, written anew at most once a second and after the
// last step, each time whole or not at all.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "execute/performer.h"
#include "reports/metrics.h"

namespace rehearse::cli {

class MetricsFile {
 public:
  // path: "" for none. Examples and tokens: of a step; a model that reads no text has no tokens.
  MetricsFile(std::string path, std::string scenario, int steps, std::int64_t ranks, double examples, double tokens);
  void step(int step, const execute::StepLoss& loss);   // done, from 0
  void ended(const result::ParameterServers& servers);  // of a plan with some

 private:
  using Clock = std::chrono::steady_clock;
  std::string path_;
  reports::TrainingProgress progress_;
  double examples_a_step_, tokens_a_step_;
  // From the end of the first step on: ranks start within that one.
  bool timed_ = false;
  Clock::time_point written_ = Clock::now(), since_ = written_;
  int steps_since_ = 0;
};

}  // namespace rehearse::cli
