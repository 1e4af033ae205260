// What a stream's idle time is called, for both interpreters. The rule:
//
// A wait is attributed by what the op that ended it was doing meanwhile. Of a transfer: from its post until the last
// participant had posted, `late`: straggler if that one was of our own role, else bubble; from then on the bytes' axis.
// Of a kernel on another stream: that stream's axis. Before the transfer was posted, by what its own stream was doing:
// the transfers in front of it, or a wait of its own, attributed the same way; and `host` where nothing held it back
// but that it was not launched. (sim/engine/histories.h, execute/history.h and reports/step_account.cpp hold to it.)
#pragma once

#include "sim/program/link/blame.h"
#include "sim/result/result.h"

namespace rehearse::account {

result::Share share_of(program::Blame blame);

// While another stream waits for the op: bytes moving, or a kernel of its stream.
inline result::Share share_of_op(const program::Program& program, const program::Role& role, const program::Op& op) {
  return share_of(program::blame_of(program, role, op));
}

// While a transfer waits for a participant that came last.
inline result::Share late(bool of_same_role) {
  return of_same_role ? result::Share::straggler : result::Share::bubble;
}

}  // namespace rehearse::account
