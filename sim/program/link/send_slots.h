// Whether a program's sends may wait for their receivers, as NCCL's do. Memory is laid out in program order, so an op
// may have to wait until a send has read what lies where it writes; then ranks can wait for one another in a circle
// that the program itself does not have (and ranks on the CPU neither, where a send is a copy). Found out by an untimed
// execution (token_run.h). Places are chosen so that little has to wait for a send (places.h): copies are
// for what the arena has no room for.
#pragma once

#include <vector>

#include "sim/program/link/grid_view.h"
#include "sim/program/link/places.h"

namespace rehearse::program {

// Sends are copies that are made at once.
inline constexpr int kBufferedSends = -1;

// Arenas of a program's ranks.
struct Arenas {
  std::vector<ArenaPlaces> places;  // by role
  // How many messages each stream that sends keeps in copies of its own, so that the ranks go on: 0 if none (sends are
  // made from where the values lie), else a power of 2. kBufferedSends: every send is a copy, at once.
  int send_slots = 0;
  bool drains = true;  // so an untimed execution goes on to its end (token_run.h)

  std::vector<const ArenaPlaces*> by_role() const {
    std::vector<const ArenaPlaces*> all;
    for (const ArenaPlaces& role : places) all.push_back(&role);
    return all;
  }
};

// `sends_wait`: for their receivers. Roles are laid out several at once, if `threads` says so.
Arenas lay_out_arenas(const Program& program, const GridView& grid, bool sends_wait, int threads = 1);

// How sends are made by ranks whose places are known, by role, and whether the ranks then go on; if they do with no
// number of slots, 0.
struct SendSlots {
  int slots;
  bool drains;
};
SendSlots send_slots(const Program& program, const std::vector<const ArenaPlaces*>& places, const GridView& grid,
                     bool sends_wait);

// Whether an op is one that is made from a copy, where any is: a send that nothing is received with.
bool sends_alone(const Op& op);
// What a slot of a stream must hold: its largest message made from copies; 0 if it has none. By stream.
std::vector<std::int64_t> send_slot_bytes(const Role& role);

}  // namespace rehearse::program
