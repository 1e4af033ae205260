// The options of `rehearse execute` that say what checkpoints there are to be, and which one to go on from.
#pragma once

#include <CLI/CLI.hpp>

#include "execute/checkpoint/options.h"

namespace rehearse::cli {

struct CheckpointCommandOptions {
  CLI::Option *folder, *every;  // that others need
};
// `checkpoint` outlives the command.
CheckpointCommandOptions add_checkpoint_options(CLI::App& command, execute::CheckpointOptions& checkpoint,
                                                int most_steps);

}  // namespace rehearse::cli
