// What the program's exit status says; the same for every command.
#pragma once

namespace rehearse::cli {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,     // anything not listed here
  kBadInput = 2,   // usage or input files
  kDoesNotFit = 3  // the plan needs more memory than there is; the result is written all the same
  // 128 + the signal's number: ended by SIGINT (130), SIGTERM (143), SIGHUP (129) or SIGXCPU (152); interrupt.h
};

}  // namespace rehearse::cli
