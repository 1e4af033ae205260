// What a user asks for of a run's checkpoints.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace rehearse::execute {

// What a checkpoint has. sharded: of each rank all that it keeps. full: each parameter, moment and counter once, in one
// file that knows nothing of the ranks. incremental: of each rank what has changed since the checkpoint before, with a
// whole one now and then.
enum class CheckpointKind : unsigned char { sharded, full, incremental };
inline constexpr std::array<std::string_view, 3> kCheckpointKinds = {"sharded", "full", "incremental"};
constexpr std::string_view name_of(CheckpointKind kind) {
  return kCheckpointKinds.at(static_cast<std::size_t>(kind));
}

// A file of this name in the folder of checkpoints asks for one at the next step's end at which all ranks can know of
// it; it is taken away then.
inline constexpr const char* kNowFile = "now";

// How often this process was started again after a failure, as torchrun says it too: not 0, the run goes on from its
// last checkpoint.
inline constexpr const char* kRestartVariable = "TORCHELASTIC_RESTART_COUNT";

struct CheckpointOptions {
  std::string folder;  // empty: none are written
  int every = 0;       // steps; 0: after the last step alone
  int keep = 0;        // only the last so many; 0: all
  CheckpointKind kind = CheckpointKind::sharded;
  int base_every = 10;      // incremental: every so many checkpoints a whole one
  bool background = false;  // ranks go on once what they keep is copied; it is written meanwhile
  bool resume = false;      // go on from the last one; there must be one
  int restarts = 0;         // times that this run was started again: go on from the last one, if there is one

  bool any() const { return !folder.empty(); }
};

}  // namespace rehearse::execute
