// Reinforcement learning from feedback, performed on this machine's CPU: step after step generation, scoring, rewards
// and advantages, updates of the actor and moving weights, by the Programs that the simulation has of these phases. All
// ranks are threads of this process. Colocated, phases and models take turns on the same cores; apart, generation has
// threads of its own, which wait while the others work. Each phase has a copy of the weights that it reads.
//
// What is learnt is group relative policy optimisation (Shao et al. 2024, arXiv 2402.03300, section 4.1), or proximal
// policy optimisation with a critic, a model of the actor's size that begins as it does (Schulman et al. 2017, arXiv
// 1707.06347; Ouyang et al. 2022, arXiv 2203.02155): rollout.h has rewards, advantages and the losses, values.h what a
// critic and a reward model say.
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
  double reward_scoring_s = 0, critic_scoring_s = 0, critic_training_s = 0;
  double prefill_s = 0, decode_s = 0;  // of the replica that took longest
  double loss = 0, value_loss = 0;     // means over the updates: the actor's and the critic's
  double reward = 0, distance = 0;     // means over sequences, and over tokens before the updates
  double seconds() const {
    return generation_s + actor_scoring_s + reference_scoring_s + reward_scoring_s + critic_scoring_s + rewards_s +
           training_s + critic_training_s + weights_s;
  }
};

struct LearningOptions {
  int steps = 20;
  std::chrono::milliseconds timeout{60'000};
  bool keep_parameters = false;
  CheckpointOptions checkpoint;  // without `background`
  std::function<void(int step, const LearningStep& done)> on_step;
  std::function<void()> poll;
  // After a step's updates, for those who compare: losses of the actor's and of the critic's, if there is one.
  std::function<void(int step, const Rollout& rollout, const std::vector<double>& losses,
                     const std::vector<double>& value_losses)>
      on_rollout;
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
  Parameters critic;      // its, if there is one
  std::int64_t cache_bytes = 0, held_bytes = 0;
};

// Throws InputError for what a section `reinforcement` says and cannot be performed.
void check_learnable(const plan::Scenario& scenario, int steps);

// Throws InputError, DoesNotFit, RankFailure.
LearningOutcome learn(const LearningPlan& plan, const LearningOptions& options);

// learning.csv of such a run: a row a step, the first of them `first_step` (from 0), with its losses, reward,
// distance from the reference and its phases' seconds.
std::string learning_table(const std::vector<LearningStep>& steps, std::int64_t first_step);

}  // namespace rehearse::execute
