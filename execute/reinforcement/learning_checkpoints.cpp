// See learning_checkpoints.h.
#include "execute/reinforcement/learning_checkpoints.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "execute/checkpoint/folder.h"
#include "execute/checkpoint/rank_state.h"
#include "execute/checkpoint/state_file.h"
#include "sim/base/diagnostics.h"

namespace rehearse::execute {
namespace {

void write_states(const std::string& folder, std::int64_t step, int first_file, const PhaseRun& run) {
  std::vector<std::byte> block;
  for (int rank = 0; rank < run.grid().ranks(); ++rank) {
    const RankState state(run.timeline(rank), run.grid(), rank);
    StateHeader header = state.header();
    header.step = step;
    write_state_file(
        folder + "/" + state_file_name(first_file + rank), header,
        [&](std::int64_t offset, std::int64_t bytes) { return state.part(run.memory(rank), offset, bytes, block); });
  }
}

// From the manifest's files [first, first + count), of a model of its own.
void read_states(const std::string& folder, const Manifest& saved, std::size_t first, std::size_t count, bool same_plan,
                 const PhaseRun& run) {
  Manifest part = saved;
  part.files.assign(saved.files.begin() + static_cast<std::ptrdiff_t>(first),
                    saved.files.begin() + static_cast<std::ptrdiff_t>(first + count));
  SavedRanks ranks(folder, std::move(part));
  for (int rank = 0; rank < run.grid().ranks(); ++rank)
    ranks.restore(RankState(run.timeline(rank), run.grid(), rank), run.memory(rank), same_plan);
}

std::vector<const PhaseRun*> in_order(const SavedModels& models) {
  std::vector<const PhaseRun*> runs;
  for (const PhaseRun* run : {models.update, models.reference, models.critic})
    if (run != nullptr) runs.push_back(run);
  return runs;
}

// Without how the other phases are performed: what is saved lies in ranks that train.
CheckpointKeys plan_of_training(CheckpointKeys plan) {
  std::erase_if(plan, [](const auto& key) { return key.first.starts_with("reinforcement."); });
  return plan;
}

}  // namespace

LearningCheckpoints::LearningCheckpoints(const plan::Scenario& scenario, const Options& options)
    : scenario_(scenario), options_(options) {
  Beginning beginning = begin_in_folder(scenario, options);
  first_ = beginning.step;
  const plan::Reinforcement& r = scenario.reinforcement;
  history_.parts.resize(kHistories);
  if (first_ == 0) return;
  history_ = beginning.manifest->losses;
  const std::size_t models = 1 + (r.reference ? 1 : 0) + (r.has_critic() ? 1 : 0);
  if (history_.parts.size() < kHistories || beginning.manifest->files.size() % models != 0)
    throw InputError(Diagnostic{checkpoint_path(options_.checkpoint.folder, first_) + "/manifest.json", 0, 0, "",
                                "is of no run of reinforcement learning", "another folder"});
  history_.parts.resize(kHistories);
  manifest_ = std::move(beginning.manifest);
}

void LearningCheckpoints::restore(const SavedModels& models) const {
  if (!manifest_) return;
  const bool same_plan =
      plan_of_training(manifest_->plan) == plan_of_training(manifest_of_run(scenario_, options_, first_).plan);
  const std::vector<const PhaseRun*> runs = in_order(models);
  const std::size_t each = manifest_->files.size() / runs.size();  // by the grid that saved them
  for (std::size_t i = 0; i < runs.size(); ++i)
    read_states(checkpoint_path(options_.checkpoint.folder, first_), *manifest_, i * each, each, same_plan, *runs[i]);
}

void LearningCheckpoints::save(const SavedModels& models, const TrainingLosses& history) const {
  const auto step = static_cast<std::int64_t>(history.of_steps.size());
  const std::string folder = checkpoint_path(options_.checkpoint.folder, step);
  std::filesystem::create_directories(folder);
  Manifest m = manifest_of_run(scenario_, options_, step);
  m.losses = history;
  int files = 0;
  for (const PhaseRun* run : in_order(models)) {
    write_states(folder, step, files, *run);
    for (int rank = 0; rank < run->grid().ranks(); ++rank)
      m.files.push_back(state_file_facts(folder, state_file_name(files++)));
  }
  write_manifest(folder, m);
  if (step < options_.steps) keep_last();  // until the end there is one to go on from, killed whenever
}

void LearningCheckpoints::keep_last() const {
  if (options_.checkpoint.keep > 0) keep_last_checkpoints(options_.checkpoint.folder, options_.checkpoint.keep);
}

}  // namespace rehearse::execute
