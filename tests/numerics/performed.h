// A scenario performed on this machine, as tests of numerics do it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "execute/performer.h"
#include "tests/support/lowered.h"

namespace rehearse {

// The scenario's program, checked and performed; its parameters are kept.
inline execute::Outcome performed(const plan::Scenario& scenario, int steps, const std::string& data = "") {
  const program::Program program = lower::lower(scenario);
  EXPECT_EQ(violations(program, scenario.grid()), "");
  execute::Options options;
  options.steps = steps;
  options.keep_parameters = true;
  options.data = data;
  return execute::perform(scenario, program, options);
}

}  // namespace rehearse
