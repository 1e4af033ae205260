// The checkpoints of reinforcement learning that is performed, of the same folders and files as training's
// (checkpoint/folder.h): between two steps all ranks stand, and what the actor's update keeps of its ranks is written,
// behind it what the reference is and what the critic's update keeps. All else that a step depends on is its number:
// prompts, lengths and tokens are drawn by it (rollout.h), rewards by a rule keep nothing, a model that rewards is what
// is drawn for it, other phases get the actor's and the critic's weights. The manifest has mean losses, rewards and
// distances of all steps.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "execute/checkpoint/checkpoints.h"
#include "execute/performer.h"
#include "execute/reinforcement/phase_run.h"
#include "execute/training_losses.h"

namespace rehearse::execute {

// What is saved, in the order of its files; nullptr: there is none.
struct SavedModels {
  const PhaseRun* update = nullptr;
  const PhaseRun* reference = nullptr;
  const PhaseRun* critic = nullptr;
};
// The histories of a run behind its losses: rewards, distances. A manifest that has more, as those of runs with a
// critic once had, is read.
inline constexpr std::size_t kHistories = 2;

class LearningCheckpoints {
 public:
  // Throws InputError as find_beginning(). `options`: checkpoint and steps count.
  LearningCheckpoints(const plan::Scenario& scenario, const Options& options);

  std::int64_t first_step() const { return first_; }
  // Of the steps before: losses; parts: kHistories.
  const TrainingLosses& history() const { return history_; }
  bool due(std::int64_t steps_done) const { return checkpoint_due(options_, steps_done); }
  // While all ranks stand, before their first step; nothing without a checkpoint. Throws InputError naming what is torn
  // or foreign.
  void restore(const SavedModels& models) const;
  // While all ranks stand. `history`: of all steps done. Throws std::runtime_error naming what cannot be written.
  // Takes away old ones, but none at the run's end: a process that dies there is started again from one before it.
  void save(const SavedModels& models, const TrainingLosses& history) const;
  void keep_last() const;  // once nothing is left to do

 private:
  const plan::Scenario& scenario_;
  const Options options_;
  std::int64_t first_ = 0;
  std::optional<Manifest> manifest_;
  TrainingLosses history_;
};

}  // namespace rehearse::execute
