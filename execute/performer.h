// Performs a Program for real: every rank of the plan is a set of threads of this process, one a stream, on CPU
// kernels. The flow, top to bottom in performer.cpp: check that it can be performed, lay out each role's step
// (timeline.*), open the data (data.*), make and fill the ranks (rank.*, parameters.*), run them, and turn what was
// measured into a result::Result (measure.*).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "execute/parameters.h"
#include "sim/plan/scenario.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::execute {

inline constexpr int kMaxRanks = 64;

struct Options {
  int steps = 20;
  std::string data;                           // data.h; empty: the default
  std::chrono::milliseconds timeout{60'000};  // how long a rank waits for others in a transfer
  bool record = false;                        // keep the ops of the last step of one rank a stage
  bool keep_parameters = false;               // fill Outcome::parameters
  // In the caller's thread, after each step in order; what it throws ends the run and is thrown on.
  std::function<void(int step, double loss)> on_step;
  // In the caller's thread, many times a second; what it throws ends the run and is thrown on.
  std::function<void()> poll;
  // In the thread of the stream, before each op; what it throws fails that rank there.
  std::function<void(int rank, std::int64_t step, const program::Op& op)> before_op;
};

struct Outcome {
  result::Result result;  // source "measured"
  std::string data;       // what was trained on, for people
  Parameters parameters;  // after the last step
};

// A rank failed, or waited longer than the timeout: which rank, in which op of which slot, and who waited for whom.
class RankFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The ranks' arenas together are larger than this machine's memory.
class DoesNotFit : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws InputError for a scenario that cannot be performed (precision, number of ranks); perform() does too.
void check_performable(const plan::Scenario& scenario, int steps);

// Threads of a rank's compute stream: as the scenario says, else cores / ranks.
int threads_per_rank(const plan::Scenario& scenario);

// Throws InputError for a scenario that cannot be performed (precision, number of ranks, data), DoesNotFit,
// RankFailure.
Outcome perform(const plan::Scenario& scenario, const program::Program& program, const Options& options);

}  // namespace rehearse::execute
