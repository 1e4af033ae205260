// The checks of one rank: tables, events and operands by reading the bodies once, then the life and the order of
// accesses by walking two steps (check_accesses.cpp).
#include "sim/base/check.h"
#include "sim/program/check_parts.h"

namespace rehearse::program {

std::vector<Violation> check_role(const Program& program, RoleId role) {
  REHEARSE_CHECK(role >= 0 && role < static_cast<RoleId>(program.roles.size()), "there is no role {}", role);
  ViolationList list;
  check_references(program, role, list);
  std::vector<Violation> found = list.take();
  if (!found.empty()) return found;  // nothing else can be looked up
  check_events(program, role, list);
  check_operands(program, role, list);
  check_accesses(program, role, list);
  return list.take();
}

}  // namespace rehearse::program
