// Where a role's buffers lie in an arena, so that the same place comes up again and again: one place for a buffer of a
// slot or of the step, for a micro-batch buffer a ring of as many as live at once. What must be waited for before a
// place is written again is then a property of the op that writes it, not of the slot it runs in, and both are found
// without a look at every op of every slot: what a slot does to memory depends on its body and on what lives when it
// begins, and of those there are few (memory_plan.cpp).
//
// Waits are for all that can have touched the bytes before: of whatever else lies there the latest execution of every
// op that is the last of its stream and body to touch it, of the same ring the latest that touched this very place.
// Later ops of a stream are done after earlier ones, so no more is needed, and sometimes less would do.
//
// Of two uses of a place by different streams the second waits for the first. So a buffer is kept away from where one
// lay that another stream used shortly before (reuse_lag.h): as far as a slightly larger arena has room for it, so that
// streams drift apart as they like; and where none would be left to overlap, two places are used in turn, as gradients
// that are sent away while the next ones are computed need, if the arena is at most an eighth larger for it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/program/link/waits.h"
#include "sim/program/program.h"

namespace rehearse::program {

inline constexpr std::int64_t kArenaAlignment = 256;

struct Place {
  std::int64_t offset = 0, bytes = 0;  // of the first instance, from the arena's beginning; of each
  int ring = 1;                        // instances of micro-batch m lie at offset + m % ring * bytes

  std::int64_t of(int micro_batch) const { return offset + (ring > 1 ? micro_batch % ring * bytes : 0); }
  std::int64_t end() const { return offset + ring * bytes; }
};

struct ReuseWait {
  // latest: the latest execution in an earlier slot, perhaps of the step before. same_place: the latest of those in
  // slots whose micro-batch and `touched`, modulo `ring`, are the waiting slot's and `written`.
  enum class Which : unsigned char { same_slot, latest, same_place };
  Which which;
  StreamId stream;  // of the op waited for
  BodyId body;
  std::int32_t op;
  int ring = 1, written = 0, touched = 0;
  friend bool operator==(const ReuseWait&, const ReuseWait&) = default;
};

struct ArenaPlaces {
  std::vector<Place> places;  // by buffer; a view's is its base's
  std::int64_t arena_bytes = 0;
  // Buffers in the host's memory have an arena of their own; their offsets count on from where this one ends, which is
  // `arena_bytes` rounded up to the alignment.
  std::int64_t host_begin = 0, host_bytes = 0;

  // Beside the op's waits for events; none that those or earlier ops of its stream in the slot imply.
  std::span<const ReuseWait> waits(BodyId body, int op) const {
    const std::size_t at = first_op[static_cast<std::size_t>(body)] + static_cast<std::size_t>(op);
    return {all_waits.data() + first_wait[at], all_waits.data() + first_wait[at + 1]};
  }

  std::vector<ReuseWait> all_waits;
  std::vector<std::size_t> first_op;    // by body, in first_wait
  std::vector<std::size_t> first_wait;  // by op, in all_waits; one more at the end
};

// Each instance is rounded up to `alignment` bytes.
ArenaPlaces place_buffers(const Role& role, const RoleWaits& waits, std::int64_t alignment);

}  // namespace rehearse::program
