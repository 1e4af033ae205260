// What is sent before the first step where all ranks begin with rank 0's weights (training.first_weights: broadcast):
// of ranks that hold the same parameters the first sends what it has drawn to the others, message after message. Where
// these ranks are groups of groups (plan.zero_group), first within a group that shards together, then between those
// that hold the same, as PyTorch's FSDP does (torch/distributed/fsdp/_init_utils.py, _init_param_handle_from_module).
// Both interpreters read it: simulated it is a program of its own, performed its messages are sent one by one
// (execute/rank/first_weights.h).
//
// How parameters are put together: FrameworkProfile::first_weights_bucket. Types: as they are held, or in the fp32 of
// the copy that the optimizer keeps unless the framework has cast the model before (first_weights_cast).
// Left out: copies into and out of messages, the making of communicators, buffers that are no parameters (running means
// of batch normalisation), and what one rank alone has (tables of plan.embedding_tables: sharded).
#pragma once

#include <vector>

#include "sim/plan/scenario.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::account {

// One message of a role, sent over one group after the other, and the parameters in it, which are buffers of the
// trained program's role, in order; each at its place in the message, in elements.
struct FirstMessage {
  std::vector<program::GroupId> groups;  // of the trained program
  struct Part {
    program::BufferId parameter;
    std::int64_t offset;
  };
  std::vector<Part> parts;
  std::int64_t elements = 0;
  DType type = DType::f32;
};

// In the order in which they are sent; empty: nothing is.
std::vector<FirstMessage> first_messages(const plan::Scenario& scenario, const program::Program& trained,
                                         const program::Role& role);

struct FirstWeights {
  program::Program program;                         // one body a role, run once; groups are the trained program's
  std::vector<std::vector<FirstMessage>> messages;  // by role
  bool any() const;                                 // whether anything is sent
};
// `trained`: what the scenario is lowered to.
FirstWeights first_weights(const plan::Scenario& scenario, const program::Program& trained);

// What is known however it ran, of the rank that is sent most: messages and bytes.
result::FirstWeights first_weights_facts(const std::vector<std::vector<FirstMessage>>& messages);

}  // namespace rehearse::account
