// The scenarios of the phases of a step of reinforcement learning, as they are simulated (reinforcement.h) and
// performed (execute/reinforcement/): the same Programs for both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/program/program.h"
#include "sim/run/run.h"

namespace rehearse::run {

// Of a prefill at once, at most: vLLM's max_num_batched_tokens for chunked prefill.
inline constexpr std::int64_t kPrefillTokens = 8192;

// The scenario of the file with these assignments behind its own, without its section `reinforcement`.
plan::Scenario with_assignments(const plan::Scenario& scenario, const std::vector<std::string>& own,
                                std::vector<std::string> more, const Options& options);

// Forwards alone, each sequence behind `cached` tokens: without what the plan says of gradients and the optimizer.
void make_forward_only(plan::Scenario& scenario, std::int64_t cached);

// Replicas that generate, of reinforcement.generation.tensor devices each.
std::int64_t replicas(const plan::Scenario& scenario);
// That of `replicas` at the same step, each of so many sequences of so many tokens at once; `graph`: launched as one.
plan::Scenario replica_scenario(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                std::int64_t replicas, std::int64_t sequences, std::int64_t tokens, bool graph,
                                const Options& options);
// Rows at least, as whole micro-batches of all replicas: as many as the pipeline's schedule needs.
std::int64_t whole_rows(const plan::Scenario& scenario, std::int64_t rows, std::int64_t micro_batch);
// Sequences that a replica decodes at once at most, and those of a prefill.
std::int64_t decoded_at_once(const plan::Scenario& scenario);
std::int64_t prefilled_at_once(const plan::Scenario& scenario);
// Ascending: the tokens cached at which decode steps are simulated, of a step whose longest response has `longest`. On
// a CPU, whose steps are of all sequences whether they have ended or not, with one of next to nothing.
std::vector<std::int64_t> decode_contexts(const plan::Scenario& scenario, std::int64_t longest, bool cpu);
// Of all replicas of a CPU at once, the Programs whose kernels its simulation asks for: prefill and, at each context,
// decode, with as many sequences as there are at most.
std::vector<plan::Scenario> generating_on_cpu(const plan::Scenario& scenario,
                                              const std::vector<std::string>& assignments, const Options& options);
// The forward passes that score, without packing.
plan::Scenario scoring_scenario(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                const Options& options);

struct PerformedPhase {
  plan::Scenario scenario;
  program::Program program;
};
// What `execute` performs, of a scenario without packing.
struct PerformedPhases {
  PerformedPhase prefill, decode, scoring, update;
  std::vector<std::int64_t> response_lengths;
};
PerformedPhases performed_phases(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                 const Options& options);

}  // namespace rehearse::run
