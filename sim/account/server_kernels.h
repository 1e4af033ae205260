// What a parameter server's device does, as a role of flat ranges, so that it is costed and measured like any kernel:
// the optimizer's step on the server's elements, and of synchronous servers the sum of their workers' gradients.
#pragma once

#include <array>
#include <cstdint>

#include "sim/plan/scenario.h"
#include "sim/program/program.h"

namespace rehearse::account {

struct ServerKernels {
  program::Role role;
  program::Op update;  // of the values, in place
  program::Op sum;     // a gradient to the sum of a step
};
// Of so many elements, which workers pull as `values` and whose gradients they push as `gradients`: where they compute
// in 16 bits the server keeps fp32 beside what it sends.
ServerKernels server_kernels(const plan::Scenario& scenario, std::int64_t elements, program::DType values,
                             program::DType gradients);

// How often a server does each while every worker ends one iteration: {update, sum}.
std::array<std::int64_t, 2> server_calls(const plan::Plan& plan);
// Moments of the optimizer that a server keeps.
std::int64_t server_moments(const plan::Training& training);

}  // namespace rehearse::account
