// Which options of rehearse execute go together, and with which plans. Each throws InputError that names the option.
#pragma once

#include "cli/execute.h"
#include "sim/plan/scenario.h"

namespace rehearse::cli {

void check_shrunk(const ExecuteArguments& a);            // with --shrink
void check_learning_options(const ExecuteArguments& a);  // of a scenario of reinforcement learning
void check_recordable(const ExecuteArguments& a, const plan::Scenario& scenario);  // with --record-routing
void check_until_loss(const ExecuteArguments& a, const plan::Scenario& scenario);  // with --until-loss
void check_served(const ExecuteArguments& a, const plan::Scenario& scenario);      // with and without servers

}  // namespace rehearse::cli
