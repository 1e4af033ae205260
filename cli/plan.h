// rehearse plan as other commands run it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/price_option.h"
#include "execute/processes/mpi/mpi_world.h"

namespace rehearse::cli {

// The command's options; all but `scenario` may be left as they are.
struct PlanArguments {
  SimulationRequest request;
  std::string scenario, output, objective = "step_time", budget, tokens;
  std::vector<std::string> ranges;
  std::string gpus, clusters;
  int top = 5, threads = 0;
  PriceOption price;
  double days = 0;
  std::shared_ptr<execute::MpiSession> session = {};  // null: not one of several processes that share a search
  bool json = false, output_given = false, worth = false, front = false;
  bool weak = false;  // of several numbers of GPUs: the batch grows with them
};

// Searches, prints, writes what `output` is to have. Returns the exit code; throws InputError.
int plan_command(PlanArguments a);

}  // namespace rehearse::cli
