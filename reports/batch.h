// The effective batch of a plan: what one optimizer step trains on, and what it is made of:
// global batch = micro-batch x micro-batches (gradient accumulation) x data parallel size.
#pragma once

#include <cstdint>
#include <string>

#include "sim/plan/scenario.h"
#include "sim/result/result.h"

namespace rehearse::reports {

struct Batch {
  std::int64_t micro_batch = 0, micro_batches = 0, data = 0;
  std::int64_t seq_len = 0;  // tokens of a sequence; 0: the model trains on samples without a length
  std::int64_t global() const { return micro_batch * micro_batches * data; }     // sequences or samples; 0: not known
  std::int64_t units() const { return global() * (seq_len > 0 ? seq_len : 1); }  // tokens or samples a step
};
// From the scenario's resolved keys; zeros where the result does not have them, and of a step
// of reinforcement learning, whose updates have batches of packed rows.
Batch batch_of(const result::Result& r);
// Of a scenario before it is simulated; zeros for one of reinforcement learning.
Batch batch_of(const plan::Scenario& scenario);

// "1,536 sequences = micro-batch 1 x 96 micro-batches x data 16; 3,145,728 tokens a step"; "" if it is not known.
std::string batch_text(const Batch& batch);
// The same of a result, and of a step of reinforcement learning, whose updates are steps of an optimizer: "8,192
// sequences a step = 512 prompts x 16 samples, in 4 updates of 2,048"; "" if it is not known.
std::string batch_text(const result::Result& r);
// "micro-batch 1 x 96 micro-batches x data 16"
std::string batch_factors(const Batch& batch);

}  // namespace rehearse::reports
