// See link.h.
#include "sim/program/link/link.h"

#include <utility>

namespace rehearse::program {

Link link(const Program& program, const GridView& grid) {
  std::vector<RoleCalls> calls;
  for (const Role& role : program.roles) calls.push_back(number_calls(role, grid.size));
  ProcessGroups groups(program, calls, grid);
  return {std::move(calls), std::move(groups)};
}

}  // namespace rehearse::program
