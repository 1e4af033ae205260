// See send_slots.h.
#include "sim/program/link/send_slots.h"

#include <algorithm>

#include "sim/base/in_parallel.h"
#include "sim/program/link/token_run.h"

namespace rehearse::program {
namespace {

constexpr int kMostSlots = 1024;

}  // namespace

bool sends_alone(const Op& op) {
  const auto* p = std::get_if<PointToPoint>(&op.shape);
  return p != nullptr && p->legs.size() == 1 && p->legs.front().send;
}

std::vector<std::int64_t> send_slot_bytes(const Role& role) {
  std::vector<std::int64_t> bytes(role.streams.size(), 0);
  for (const Body& body : role.bodies)
    for (const Op& op : body.ops) {
      if (!sends_alone(op)) continue;
      std::int64_t& most = bytes[static_cast<std::size_t>(op.stream)];
      most = std::max(most, std::get<PointToPoint>(op.shape).legs.front().elements * size_of(op.dtype));
    }
  return bytes;
}

Arenas lay_out_arenas(const Program& program, const GridView& grid, bool sends_wait, int threads) {
  Arenas arenas;
  arenas.places.resize(program.roles.size());
  in_parallel(threads, program.roles.size(), [&](std::size_t r) {
    const Role& role = program.roles[r];
    arenas.places[r] = place_buffers(role, resolve_waits(role), kArenaAlignment);
  });
  const SendSlots sends = send_slots(program, arenas.by_role(), grid, sends_wait);
  arenas.send_slots = sends.slots;
  arenas.drains = sends.drains;
  return arenas;
}

SendSlots send_slots(const Program& program, const std::vector<const ArenaPlaces*>& places, const GridView& grid,
                     bool sends_wait) {
  std::vector<RoleCalls> calls;
  for (const Role& role : program.roles) calls.push_back(number_calls(role, grid.size));
  const RoleMatches matches = match_roles(program, calls, grid);
  const auto drains = [&](int slots) { return TokenRun(program, calls, matches, places, slots).run(); };
  if (!sends_wait) return {kBufferedSends, drains(kBufferedSends)};
  const bool sends = std::any_of(program.roles.begin(), program.roles.end(), [](const Role& role) {
    const std::vector<std::int64_t> bytes = send_slot_bytes(role);
    return std::any_of(bytes.begin(), bytes.end(), [](std::int64_t slot) { return slot > 0; });
  });
  for (int slots = 0; slots <= (sends ? kMostSlots : 0); slots = std::max(1, 2 * slots))
    if (drains(slots)) return {slots, true};
  return {0, false};
}

}  // namespace rehearse::program
