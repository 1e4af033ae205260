// Measures this machine for simulations of it: `rehearse calibrate`. The flow, top to bottom in calibrate.cpp, in the
// order in which a budget is worth spending: what the machine gives at best (machine.*, switching.*), the programs of
// the scenarios named, profiled (profile_targets.*, profile_run.*), transfers between ranks (transfers.*), what cores
// take from one another (machine.*), and a grid of kernels on their own for all other programs (kernel_grid.*,
// lone_kernel.*).
//
// Nothing else should run on the machine meanwhile: that is for the caller to see to.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/cost/calibration_file.h"
#include "sim/plan/scenario.h"

namespace rehearse::calibrate {

// all: the machine, the scenarios' programs, transfers, a grid. programs: only what the scenarios do, for a machine
// that is calibrated already: their programs, and transfers in their exact sizes.
enum class Extent : unsigned char { all, programs };

struct Request {
  std::vector<plan::Scenario> scenarios;  // whose programs are measured as they are; may be empty
  // Prefill and decode of replicas that generate (run::generating_on_cpu), measured with a cache of keys and values.
  std::vector<plan::Scenario> generating;
  Extent extent = Extent::all;
  double budget_s = 60;
  std::string command;  // for the record
  // In the caller's thread, many times a second: what is being done, and the share of the budget that is spent. What it
  // throws ends the calibration and is thrown on.
  std::function<void(const std::string& what, double done)> progress;
};

struct Outcome {
  cost::Calibration calibration;
  std::vector<std::string> shortfalls;  // for people: what the budget was too small for
  double others = 0;                    // share of the machine that other processes used (execute/other_load.h)
};

// `newer`, a calibration of Extent::programs, in the place of what `older` has of the same; what it did not measure is
// older's, the machine's peaks and sharing among it.
cost::Calibration refreshed(const cost::Calibration& older, cost::Calibration newer);

// Throws InputError for a scenario that cannot be performed, execute::DoesNotFit for one that is too large.
Outcome calibrate(const Request& request);

}  // namespace rehearse::calibrate
