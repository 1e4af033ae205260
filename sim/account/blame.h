// What a stream's idle time is called, for both interpreters. The rule:
//
// A wait is told by what the op that ended it was doing meanwhile. Of a transfer: from its post until the last
// participant had posted, `late`: straggler if that one was of our own role, else bubble; from then on the bytes' axis.
// Of a kernel on another stream: that stream's axis. Before the transfer was posted, by what its own stream was doing:
// the transfers in front of it, or a wait of its own, told the same way; and `host` where nothing held it back but that
// it was not launched. (sim/engine/histories.h, execute/history.h and reports/step_account.cpp hold to it.)
#pragma once

#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::account {

// While bytes of such a transfer move.
result::Share exposed(program::GroupKind kind);
result::Share exposed(Axis axis);

// While another stream waits for the op: bytes moving, or a kernel of its stream.
result::Share share_of_op(const program::Program& program, const program::Role& role, const program::Op& op);

// While a transfer waits for a participant that came last.
inline result::Share late(bool of_same_role) {
  return of_same_role ? result::Share::straggler : result::Share::bubble;
}
// Ranks along another axis than the pipeline's share a role.
inline bool same_role(Axis axis) {
  return axis != Axis::pipeline;
}

}  // namespace rehearse::account
