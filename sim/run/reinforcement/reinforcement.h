// A step of reinforcement learning from feedback (plan/reinforcement.h) as phases, from what the model's own
// simulations give of each:
//
//   generation   replicas of the model decode their sequences (generation.h); devices wait for the slowest
//   scoring      forward passes of the actor, the reference, the reward model and the critic, one after the other
//                (forward_pass.h), each from an idle pipeline on
//   training     so many optimizer steps of the actor, then of the critic, each as `simulate` has it of that model
//   weights      from the ranks that train to the replicas (weight_movement.h)
//   copies       what a phase has no use for, to the host's memory and back (reinforcement.offload)
//
// Colocated these follow one another on all devices. Apart, generation is on devices of its own, which wait while the
// others score and train and the other way round; asynchronous, both go on at once, with the weights of the step
// before, and only moving weights stops both. Reward models and critics have a vocabulary's head here, where real ones
// have one output. Nothing is counted for what a framework's controller, its data and a program that rewards take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/result/result.h"
#include "sim/run/run.h"

namespace rehearse::run {

// The length of equal documents, of which a packed row of seq_len tokens has as many as fit and what is left of the
// next (training.documents: fixed), for which the sum of the documents' squared lengths over their sum is nearest to
// `wanted`, at most seq_len: within 1. What attention costs is told by that mean (plan::equal_document_length).
std::int64_t packed_document_length(double wanted, std::int64_t seq_len);

// `assignments`: those that the scenario was read with. Throws as simulate_scenario does.
result::Result simulate_reinforcement(const plan::Scenario& scenario, const std::vector<std::string>& assignments,
                                      const Options& options);

}  // namespace rehearse::run
