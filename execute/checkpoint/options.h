// What a user asks for of a run's checkpoints.
#pragma once

#include <string>

namespace rehearse::execute {

// How often this process was started again after a failure, as torchrun says it too: not 0, the run goes on from its
// last checkpoint.
inline constexpr const char* kRestartVariable = "TORCHELASTIC_RESTART_COUNT";

struct CheckpointOptions {
  std::string folder;       // empty: none are written
  int every = 0;            // steps; 0: after the last step alone
  int keep = 0;             // only the last so many; 0: all
  bool background = false;  // ranks go on once what they keep is copied; it is written meanwhile
  bool resume = false;      // go on from the last one; there must be one
  int restarts = 0;         // times that this run was started again: go on from the last one, if there is one

  bool any() const { return !folder.empty(); }
};

}  // namespace rehearse::execute
