// The checkpoints of a run, as one of its processes sees them: goes on from one, writes others. A rank whose streams
// all stand still after a step that is due hands over what it keeps (save()); it is written at once, or copied and
// written by a thread of its own while the rank goes on, at most one checkpoint at a time. The root sees the ranks'
// files appear, which have their names only once they are whole, puts one file together of them where that is asked
// for, and then writes the manifest with the losses until then (look()). So all processes must see the same folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "execute/checkpoint/asked_now.h"
#include "execute/checkpoint/changed_blocks.h"
#include "execute/checkpoint/options.h"
#include "execute/checkpoint/rank_state.h"
#include "execute/checkpoint/whole_state.h"
#include "execute/processes/world.h"
#include "execute/rank/rank.h"
#include "execute/timeline.h"
#include "sim/plan/scenario.h"

namespace rehearse::execute {

struct Options;

// Which checkpoint a run begins from, at step 0 if from none. Throws InputError: there is none to resume, the folder
// has an earlier run's, its last one is of another model, training or data, or has no steps left to do.
struct Beginning {
  std::int64_t step = 0;
  std::optional<Manifest> manifest;
};
Beginning find_beginning(const plan::Scenario& scenario, const Options& options);
// The same, and its folder is there, without what the run will make anew. By one process.
Beginning begin_in_folder(const plan::Scenario& scenario, const Options& options);
// Whether a checkpoint is due after so many steps, without being asked for.
bool checkpoint_due(const Options& options, std::int64_t steps_done);
// What a manifest says of a run but for losses and files.
Manifest manifest_of_run(const plan::Scenario& scenario, const Options& options, std::int64_t step);

class Checkpoints {
 public:
  // By all processes of the run, before it begins.
  Checkpoints(const plan::Scenario& scenario, const Options& options, World& world);
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  std::int64_t first_step() const { return first_; }
  const TrainingLosses& losses() const { return losses_; }  // of the steps before
  // By the ranks' threads, of every step that they end; a wait as in World::begin().
  bool due(std::int64_t steps_done) { return asked_.after(steps_done) || checkpoint_due(options_, steps_done); }

  // A rank here, or a parameter server, whose states are all there is to keep of a plan with servers: below, the
  // numbers of ranks are those of servers then. Before any other call about it, in one thread.
  void add(int rank, RankState state);
  // What all of them keep, in order: of kind `full`, before the run begins.
  void put_together(const std::vector<RankState>& all) { whole_.emplace(all); }
  // Its memory holds what a run begins with. Ranks at the same time.
  void restore(int rank, const RankMemory& memory);
  // Nothing of the rank's memory changes meanwhile. Ranks at the same time; throws what went wrong with this one's file
  // or the one before.
  void save(int rank, std::int64_t steps_done, const RankMemory& memory);
  void finish(int rank);  // all is written
  CheckpointUse use(int rank) const { return writers_.at(rank)->use; }

  // At the root: writes the manifests of the checkpoints whose files are there and whose losses are known, and takes
  // away old ones. The ranks whose files of the next are still missing.
  std::vector<int> look(const TrainingLosses& losses);
  void keep_last() const;  // at the root, once all have ended their part

 private:
  struct Writer {
    std::optional<RankState> state;
    ChangedBlocks changed;
    std::optional<StateBase> base;  // the checkpoint since which `changed` knows; nothing: there is none
    int since_whole = 0;            // checkpoints that were based on others since
    std::vector<std::byte> copy;
    std::thread thread;
    std::exception_ptr error;
    CheckpointUse use;
  };
  void write(Writer& writer, std::int64_t step, const RankMemory* memory);
  StateHeader what_to_write(Writer& writer, std::int64_t step, const StatePayload& payload);
  std::string file_name(int rank) const;
  void write_manifest_of(std::int64_t step, const TrainingLosses& losses);
  void find_bases(const std::string& checkpoint, Manifest& manifest);

  const plan::Scenario& scenario_;
  const Options& options_;
  const CheckpointOptions& wish_;
  int ranks_;                          // files of a checkpoint
  int first_holder_ = 0;               // the rank of the first of them, as people count
  std::int64_t first_ = 0, next_ = 0;  // the step gone on from, the first that may be due and has no manifest
  bool same_plan_ = false;
  TrainingLosses losses_;
  std::unique_ptr<SavedRanks> saved_;
  std::map<int, std::unique_ptr<Writer>> writers_;
  std::optional<WholeState> whole_;
  std::map<std::int64_t, std::set<std::int64_t>> bases_;  // by step, of the checkpoints that have a manifest
  AskedNow asked_;
};

}  // namespace rehearse::execute
