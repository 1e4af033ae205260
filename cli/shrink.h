// rehearse execute --shrink: the miniature of a plan for this machine's cores (sim/run/miniature.h), written as a
// scenario, calibrated for, simulated, performed, compared op by op, and what that says of the large plan
// (reports/miniature.h). From top to bottom in shrink.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rehearse::cli {

struct ShrinkRequest {
  std::string file;  // of the large plan
  std::vector<std::string> assignments;
  std::string calibration;         // a file to simulate from as it is; "": measured now, on top of `base`
  std::string base;                // of this machine; "": the one in the user's cache, if it is of this machine
  std::int64_t ranks_at_most = 0;  // 0: as many as keep every split, at least one a core
  double step_s = 1;               // roughly what a step of the miniature may take
  double budget_s = 10;            // to measure the miniature's program; twice that where the machine is not calibrated
  double seconds = 4;              // it is performed for
  std::string output;              // a directory; "": nothing is kept
  bool json = false;
  bool brief = false;  // without the comparison's table
};

// Before a command works for long: whether all that a miniature writes below `dir` may be written. Throws InputError.
void check_shrink_output(const std::string& dir);

// Throws InputError. Returns the exit code.
int execute_shrunk(const ShrinkRequest& request, const std::string& root);

}  // namespace rehearse::cli
