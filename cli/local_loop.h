// The whole loop on this machine: calibrate it for some plans, simulate each from that calibration, perform it, and set
// the two side by side. Used by `validate --local` and `demo`. If other programs used the machine while something was
// measured, a line on standard error says how much.
#pragma once

#include <string>
#include <vector>

#include "reports/ledgers/local_ledger.h"
#include "sim/result/result.h"

namespace rehearse::cli {

// Those of scenarios/local/plans.yaml.
std::vector<reports::LocalPlan> local_plans(const std::string& root);

struct Calibrating {
  double budget_s = 60;
  std::string command;    // for the record
  std::string file;       // that is written
  std::string base = {};  // a calibration of this machine, of which the plans' programs alone are measured anew
};
// Measures this machine for the plans' programs, with a progress line.
void calibrate_for(const std::vector<reports::LocalPlan>& plans, const Calibrating& how, const std::string& root);

struct LocalRun {
  result::Result simulated, measured;
  bool oversubscribed = false;  // more threads than cores
};
// Simulates a plan from a calibration, then performs it for about `seconds`: at least six steps. `record` keeps the ops
// of both.
LocalRun simulate_and_perform(const reports::LocalPlan& plan, const std::string& calibration, double seconds,
                              bool record, const std::string& root);

struct LocalValidation {
  std::string calibration;  // a file; empty: calibrate first
  double budget_s = 120, seconds = 4;
  std::string filter;  // only plans whose id contains it
  std::string output;  // a directory; empty: none
};
// The plans of scenarios/local/plans.yaml: prints the ledger; writes ledger.csv, ledger.json, the calibration and every
// plan's two results. Unless a calibration is given, a fifth of the budget measures the machine, and the rest each
// plan's own program just before the plan is performed, so that little time lies between the two; calibration.json
// beside a plan's results is what it was simulated from, that of the output what all of them left. Returns the exit
// code.
int validate_local(const LocalValidation& v, const std::string& root);

}  // namespace rehearse::cli
