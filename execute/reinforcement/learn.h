// Reinforcement learning from feedback, performed on this machine's CPU: step after step generation, scoring, rewards
// and advantages, updates of the actor and moving weights, by the Programs that the simulation has of these phases. All
// ranks are threads of this process. Colocated, phases and models take turns on the same cores; apart, generation has
// threads of its own, which wait while the others work. Each phase has a copy of the weights that it reads.
//
// What is learnt is group relative policy optimisation (Shao et al. 2024, arXiv 2402.03300, section 4.1): rollout.h has
// rewards, advantages and the loss.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "execute/checkpoint/options.h"
#include "execute/performer.h"
#include "execute/reinforcement/phase_run.h"
#include "execute/reinforcement/rollout.h"

namespace rehearse::execute {

// What the phases perform; what they name outlives the run.
struct LearningPlan {
  const plan::Scenario* scenario = nullptr;  // the whole
  PhasePlan prefill, decode;                 // of a replica
  PhasePlan scoring, update;                 // on all ranks that train
  std::vector<std::int64_t> response_lengths;
};

struct LearningStep {
  double generation_s = 0, actor_scoring_s = 0, reference_scoring_s = 0, rewards_s = 0, training_s = 0, weights_s = 0;
  double prefill_s = 0, decode_s = 0;  // of the replica that took longest
  double loss = 0;                     // mean over the updates
  double reward = 0, distance = 0;     // means over sequences, and over tokens before the updates
  double seconds() const {
    return generation_s + actor_scoring_s + reference_scoring_s + rewards_s + training_s + weights_s;
  }
};

struct LearningOptions {
  int steps = 20;
  std::chrono::milliseconds timeout{60'000};
  bool keep_parameters = false;
  CheckpointOptions checkpoint;  // without `background`
  std::function<void(int step, const LearningStep& done)> on_step;
  std::function<void()> poll;
  // After a step's update, for those who compare.
  std::function<void(int step, const Rollout& rollout, const std::vector<double>& losses)> on_rollout;
  std::function<void(int rank, std::int64_t step, const program::Op& op)> before_op;  // of an update
  // Of a prefill or decode step of a replica, whose rank it is.
  std::function<void(int replica, int rank, std::int64_t step, const program::Op& op)> before_generating_op;
};

struct LearningOutcome {
  result::Result result;            // source "measured"; step_time and breakdown of a whole step
  std::int64_t first_step = 0;      // steps done before, by the run that this one went on from
  std::vector<LearningStep> steps;  // performed here; result's losses, rewards and distances are of all
  StepShares shares;      // by rank (colocated: of all phases; apart those that generate come behind) and step
  Parameters parameters;  // the actor's, after the last step
  std::int64_t cache_bytes = 0, held_bytes = 0;
};

// Throws InputError for what a section `reinforcement` says and cannot be performed.
void check_learnable(const plan::Scenario& scenario, int steps);

// Throws InputError, DoesNotFit, RankFailure.
LearningOutcome learn(const LearningPlan& plan, const LearningOptions& options);

// learning.csv of such a run: a row a step, the first of them `first_step` (from 0), with its loss, reward, distance
// from the reference and its phases' seconds.
std::string learning_table(const std::vector<LearningStep>& steps, std::int64_t first_step);

}  // namespace rehearse::execute
