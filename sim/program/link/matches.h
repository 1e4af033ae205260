// Whose calls match, role by role: for untimed executions of a program, which need one rank a role.
//
// Every rank of a role runs the same text, so its untimed behaviour is its role's: the set of ops that such an
// execution can reach is unique (it does not depend on the order of moves), and by the symmetry of the grid it is the
// same for all ranks that differ only in their tensor, context, expert and data coordinates. One representative a role,
// its first rank, is therefore exact: a collective is called by all members when the representatives of the members'
// roles have called it, and a message's counterpart is there when the representative of the peer's role has posted it.
// A collective whose members all share one role matches itself.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/program/link/calls.h"

namespace rehearse::program {

struct MatchSide {
  RoleId role;
  int rank;               // of the role, for words
  std::int32_t sequence;  // of RoleCalls::sequences; -1: the role makes no such call
};

// Sequences whose k-th calls match, for every k. A collective's sides are the roles of the group's members, in role
// order; a message's are the sender and the receiver.
struct Match {
  GroupId group = -1;  // -1: messages
  int channel = 0;
  std::vector<MatchSide> sides;
  std::vector<int> members;  // collective: the ranks of the group seen from the first side that calls
};

// A role's sequence among the matches. match -1: it has no calls, or matches itself.
struct SequenceMatch {
  std::int32_t match = -1, side = 0;
};

struct RoleMatches {
  std::vector<int> representative;  // by role: its first rank
  std::vector<Match> matches;
  std::vector<std::vector<SequenceMatch>> of;  // by role and sequence
  // Roles and their sequences on groups that the role is no member of; they match nothing.
  std::vector<std::pair<RoleId, std::int32_t>> outside;
};

// `calls` by role.
RoleMatches match_roles(const Program& program, const std::vector<RoleCalls>& calls, const GridView& grid);

}  // namespace rehearse::program
