// What the files of the static check share; no part of its interface (that is static_check.h).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

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

}  // namespace rehearse::program
