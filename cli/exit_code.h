// What the program's exit status says; the same for every command.
#pragma once

namespace rehearse::cli {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,        // anything not listed here
  kBadInput = 2,      // usage or input files
  kDoesNotFit = 3,    // the plan needs more memory than there is; the result is written all the same
  kInterrupted = 130  // SIGINT, as shells report it
};

}  // namespace rehearse::cli
