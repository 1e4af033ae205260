// See checkpoint_options.h.
#include "cli/checkpoint_options.h"

#include <algorithm>
#include <string>

#include "cli/commands.h"

namespace rehearse::cli {

CheckpointCommandOptions add_checkpoint_options(CLI::App& command, execute::CheckpointOptions& checkpoint,
                                                int most_steps) {
  CLI::Option* folder =
      command.add_option("--checkpoint", checkpoint.folder, "Write checkpoints there, to be resumed from")
          ->check(not_empty())
          ->type_name("DIR");
  CLI::Option* every =
      command.add_option("--every", checkpoint.every, "A checkpoint every N steps; without: at the end")
          ->check(between(1, most_steps))
          ->needs(folder)
          ->type_name("N");
  command.add_option("--keep", checkpoint.keep, "Keep the last K checkpoints (default all)")
      ->check(between(1, most_steps))
      ->needs(folder)
      ->type_name("K");
  command
      .add_option_function<std::string>(
          "--checkpoint-kind",
          [&checkpoint](const std::string& name) {
            constexpr const auto& kinds = execute::kCheckpointKinds;
            checkpoint.kind =
                static_cast<execute::CheckpointKind>(std::find(kinds.begin(), kinds.end(), name) - kinds.begin());
          },
          "sharded (the default), full, incremental")
      ->check(one_of({execute::kCheckpointKinds.begin(), execute::kCheckpointKinds.end()}))
      ->needs(folder)
      ->type_name("KIND");
  command.add_option("--base-every", checkpoint.base_every, "Incremental: every K-th is a whole one (default 10)")
      ->check(between(1, most_steps))
      ->needs(folder)
      ->type_name("K");
  command.add_flag("--async", checkpoint.background, "Write checkpoints while training goes on")->needs(folder);
  command.add_flag("--resume", checkpoint.resume, "Go on from the last checkpoint")->needs(folder);
  return {folder, every};
}

}  // namespace rehearse::cli
