// What `framework: auto`, the default, stands for: the profile of what people run for such a plan. The rules stand in
// one table in auto_framework.cpp, first match wins, and docs/scenario.md says them for people.
#pragma once

#include <string>

#include "sim/model/model.h"
#include "sim/plan/framework.h"
#include "sim/plan/plan.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

// A profile, and why it was chosen: "parameters are sharded (zero 3)". Named by the file: no reason.
struct ChosenFramework {
  FrameworkProfile profile;
  std::string why;
};

// On GPUs; of the plan only what the file says counts (tensor, pipeline, zero).
ChosenFramework framework_on_gpus(const model::Model& model, const Plan& plan);

// A profile that the file names, with the policies that its plan has there.
FrameworkProfile framework_of_plan(const FrameworkProfile& named, const Source& source);

// For a file that names none. What is wrong with the file is left for whoever reads it; the profile is `rehearse` then.
ChosenFramework choose_framework(const Source& source);

}  // namespace rehearse::plan::detail
