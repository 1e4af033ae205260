// What the files of the static check share; no part of its interface (that is static_check.h).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/program/link/matches.h"
#include "sim/program/link/repetition.h"
#include "sim/program/link/send_slots.h"
#include "sim/program/static_check.h"

namespace rehearse::program {

// Collects violations in the order they are found. One that repeats, with the same rule at the same op of the same body
// on the same buffer, is kept once with its count: a mistake in a body shows in every slot that uses it.
class ViolationList {
 public:
  // The text for the caller to fill, or nullptr if this one repeats. Valid until the next add().
  std::string* add(std::string_view rule, BodyId body, int op, BufferId buffer = -1);
  std::vector<Violation> take();

 private:
  struct Entry {
    Violation violation;
    int count = 1;
  };
  std::vector<Entry> entries_;
  std::map<std::tuple<std::string, BodyId, int, BufferId>, std::size_t> index_;
};

// "bad-reference": ids, views and micro-batches in range. The other checks rely on it.
void check_references(const Program& program, RoleId role, ViolationList& list);
// "event-recorded-twice", "unrecorded-event".
void check_events(const Program& program, RoleId role, ViolationList& list);
// "bad-operands".
void check_operands(const Program& program, RoleId role, ViolationList& list);
// "read-before-write", "release-before-write", "use-after-free", "double-release", "leak", "unordered-access".
void check_accesses(const Program& program, RoleId role, ViolationList& list);
// The walk that this makes: whether there is anything to report, where rounds of `repeats` need not all be walked; with
// none what it is.
void walk_accesses(const Program& program, RoleId role, const Repetition& repeats, ViolationList& list);

// One call of a step. leg: of a point-to-point op; -1 for a collective.
struct CallPlace {
  int slot, op, leg;
};

// The transfers of all roles: their calls, whose match, and by role and sequence where they are made.
struct Transfers {
  std::vector<RoleCalls> calls;
  RoleMatches matches;
  std::vector<std::vector<std::vector<CallPlace>>> places;

  // Of the calls of a side, in program order.
  const std::vector<CallPlace>& calls_of(const MatchSide& side) const {
    static const std::vector<CallPlace> none;
    if (side.sequence < 0) return none;
    return places[static_cast<std::size_t>(side.role)][static_cast<std::size_t>(side.sequence)];
  }
};

// "deadlock", or with `places` (by role, if not empty: of ranks whose memory is an arena) "reuse-deadlock": executes a
// step of every representative without time. Call only if the sides of each match have equally many calls.
void check_deadlock(const Program& program, const Transfers& transfers, const std::vector<const ArenaPlaces*>& places,
                    int send_slots, std::vector<Violation>& violations);

}  // namespace rehearse::program
