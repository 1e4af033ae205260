// Which transfers of which roles meet: the table that check_ranks.cpp compares and check_deadlock.cpp executes.
// Internal to the static check.
//
// Every rank of a role runs the same text, so its untimed behaviour is its role's: the set of ops that a token
// execution can reach is unique (it does not depend on the order of steps), and by the symmetry of the grid it is the
// same for all ranks that differ only in their tensor, context, expert and data coordinates. One representative a role,
// its first rank, is therefore exact: a collective is posted on all members when it is posted by the representatives of
// the members' roles, and a leg's counterpart is posted when the representative of the peer's role posted it. A
// collective whose members all share one role meets itself and needs no table.
#pragma once

#include <map>
#include <vector>

#include "sim/program/static_check.h"

namespace rehearse::program {

// One issue of a transfer in a step. leg: of a point-to-point op; -1 for a collective.
struct Call {
  int slot, op, leg;
};

// One participant of a meeting: a role, `rank` of it in words, and its calls in program order.
struct Side {
  RoleId role;
  int rank;
  std::vector<Call> calls;
};

// Transfers that match one by one, the k-th call of every side. A collective's sides are the roles of the group's
// members (in role order); a point-to-point meeting's are the sender and the receiver.
struct Meeting {
  bool collective = false;
  GroupId group = -1;
  int channel = 0;
  std::vector<Side> sides;
  std::vector<int> members;  // collective: the ranks of the group seen from the first side
};

// How a call of a body's op finds its place among the calls of its side: base of the slot + ordinal in the body.
struct Post {
  int meeting, side;
  int line, ordinal;
};

struct RoleMeetings {
  std::vector<std::pair<int, int>> lines;             // (meeting, side) that this role takes part in
  std::vector<int> bases;                             // [slot * lines.size() + line]: calls before the slot
  std::vector<std::vector<std::vector<Post>>> posts;  // by body and op; empty: the op meets nobody of another rank

  int index(int slot, const Post& p) const {
    return bases[static_cast<std::size_t>(slot) * lines.size() + static_cast<std::size_t>(p.line)] + p.ordinal;
  }
};

struct Rendezvous {
  std::vector<int> representative;  // by role: its first rank
  std::vector<Meeting> meetings;
  std::vector<RoleMeetings> roles;
};

// References must be in range (check_references). Groups that a role calls without being a member are reported as
// "bad-reference" and left out.
Rendezvous find_meetings(const Program& program, const GridView& grid, std::vector<Violation>& violations);

// Executes one step of every representative without time. Call only if the meetings' sides have equally many calls.
// One step is enough: it begins with every earlier event recorded and ends with nothing in flight, as every other step
// does.
void check_deadlock(const Program& program, const Rendezvous& rendezvous, std::vector<Violation>& violations);

}  // namespace rehearse::program
