// Runs a program on the real Performer (execute/rank/cpu_rank.h) with every transfer left out, to time its ops: the
// ranks' threads, streams, waits, arenas and kernels are those of a run, so each op is timed with the caches, the page
// tables and the busy cores it has there. What is left out: the numbers other ranks would send, and the waiting for
// them.
//
// Values of what is not received are whatever lay there (the arena begins as zeros). That they do not slow arithmetic
// down is seen to by flushing denormals to zero in all threads of a run; x86 pays a hundred cycles for one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calibrate/budget.h"
#include "sim/plan/scenario.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::calibrate {

struct ProfileRequest {
  const plan::Scenario& scenario;
  const program::Program& program;
  const plan::RankGrid& grid;
  std::vector<int> ranks;    // that perform, at the same time
  int threads = 1;           // of each rank's compute stream
  std::int64_t steps = 200;  // at most, of the quickest rank
  std::int64_t least = 4;    // goes on after `seconds` until every rank has done these; the budget ends it all the same
  double seconds = 1;
  bool generates = false;  // prefill (plan.cached_tokens 0) or decode: with a cache and tokens drawn
};

struct ProfileRun {
  // Every op performed, of all steps, by rank and start. Starts count from the run's own beginning.
  std::vector<result::OpRecord> records;
  std::int64_t whole_steps = 0;  // that every rank finished; the budget may end a run in the middle of one
};

// Bytes of memory that the ranks' arenas need.
std::int64_t arena_bytes(const ProfileRequest& request);

// Throws std::runtime_error if an op fails.
ProfileRun profile(const ProfileRequest& request, const Budget& budget);

}  // namespace rehearse::calibrate
