// A folder of checkpoints: one folder a checkpoint, "step-0000000020", with a file a rank, or one for all
// (state_file.h, CheckpointKind), and "manifest.json", which is written last and makes it one. What has no manifest was
// not finished. The manifest says what was trained (keys of model and training, data), by which plan, how far, with
// which losses, names the files with their checksums, and earlier checkpoints that they are based on; it ends with its
// own. Everything else in the folder is left alone.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "execute/checkpoint/options.h"
#include "execute/checkpoint/state_file.h"
#include "execute/training_losses.h"

namespace rehearse::execute {

using CheckpointKeys = std::vector<std::pair<std::string, std::string>>;  // key path and resolved value

struct Manifest {
  std::int64_t step = 0;   // optimizer steps done; the next step's examples begin at step * global batch
  std::int64_t steps = 0;  // of the whole run, as it was asked for: learning-rate schedules end there
  std::string data;        // what it was trained on: "35149 bytes, 0123...", or that examples are made
  CheckpointKeys trained;  // model.*, training.*: must be the same to go on
  CheckpointKeys plan;     // plan.*, number of ranks: may differ, then ranks read what is theirs from several files
  TrainingLosses losses;
  std::vector<StateFileFacts> files;  // by rank; of kind `full` one
  CheckpointKind kind = CheckpointKind::sharded;
  std::set<std::int64_t> bases;  // steps of all checkpoints without whose files these are not whole
};

std::string checkpoint_name(std::int64_t step);  // "step-0000000020"
std::string checkpoint_path(const std::string& folder, std::int64_t step);
std::string state_file_name(int rank);  // "rank-0003.state"
std::string part_file_name(int rank);   // "rank-0003.part": of a whole that is not put together yet
inline constexpr const char* kWholeFile = "whole.state";

void write_manifest(const std::string& checkpoint, const Manifest& manifest);
// Throws InputError naming the file: none, damaged, of a later version, of another step than its folder's name says.
Manifest read_manifest(const std::string& checkpoint);

// Steps of the checkpoints that have a manifest, ascending. No folder: none.
std::vector<std::int64_t> checkpoints_in(const std::string& folder);
// The last of them below `steps`, which a run of so many steps that is started again can go on from; 0: none.
std::int64_t last_checkpoint_before(const std::string& folder, std::int64_t steps);
// Takes away what a run that goes on from `step` makes anew: checkpoints of later steps, and what a killed run left of
// ours in those without a manifest.
void remove_checkpoints_after(const std::string& folder, std::int64_t step);
// All but the last `keep` and those that they are based on; the manifest goes first. Where it is not known on what one
// is based, none is taken away.
void keep_last_checkpoints(const std::string& folder, int keep);

}  // namespace rehearse::execute
