// See program_check.h.
#include "execute/program_check.h"

#include <fmt/format.h>

#include "sim/account/grid_view.h"
#include "sim/base/diagnostics.h"
#include "sim/program/link/send_slots.h"
#include "sim/program/static_check.h"

namespace rehearse::execute {
namespace {

void throw_if_any(const std::vector<program::Violation>& found) {
  if (!found.empty())
    throw InternalError(fmt::format("the program breaks {} rule(s); first: {}: {}", found.size(), found.front().rule,
                                    found.front().message));
}

}  // namespace

void check_program(const program::Program& program, const plan::RankGrid& grid) {
  std::vector<program::Violation> found = program::check_ranks(program, account::grid_view(program, grid));
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    const auto more = program::check_role(program, static_cast<program::RoleId>(r));
    found.insert(found.end(), more.begin(), more.end());
  }
  throw_if_any(found);
}

int check_memory_reuse(const program::Program& program, const plan::RankGrid& grid,
                       const std::vector<Timeline>& timelines, bool on_gpus) {
  const program::GridView view = account::grid_view(program, grid);
  std::vector<const program::ArenaPlaces*> places;
  for (const Timeline& t : timelines) places.push_back(&t.memory);
  const program::SendSlots sends = program::send_slots(program, places, view, on_gpus);
  if (!sends.drains) throw_if_any(program::check_memory_reuse(program, view, places, sends.slots));
  return sends.slots;
}

}  // namespace rehearse::execute
