// See link.h.
#include "sim/program/link/link.h"

#include <utility>

namespace rehearse::program {

Link link(const Program& program, const GridView& grid) {
  std::vector<RoleCalls> calls;
  std::vector<RoleWaits> waits;
  for (const Role& role : program.roles) {
    calls.push_back(number_calls(role, grid.size));
    waits.push_back(resolve_waits(role));
  }
  ProcessGroups groups(program, calls, grid);
  return {std::move(calls), std::move(waits), std::move(groups)};
}

}  // namespace rehearse::program
