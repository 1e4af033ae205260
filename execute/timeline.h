// One step of a role laid out for performing: every op of every slot with the place of its operands in the rank's
// arena, what it must wait for on other streams, and the numbers of its transfer calls (sim/program/link/calls.h).
// Ranks of a role share it; every step is alike.
//
// Waits come from three rules, all stated by position in program order, so that step n needs no memory of step n - 1:
// events (CUDA's rule, program.h); HostSync, which holds back everything later; and reuse of memory: the first op that
// writes an instance waits for the last ops, stream by stream, that touched whatever lay in those bytes before, in this
// step or the one before.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/plan/rank_grid.h"
#include "sim/program/link/calls.h"
#include "sim/program/memory_plan.h"
#include "sim/program/program.h"

namespace rehearse::execute {

inline constexpr std::int64_t kArenaAlignment = 256;  // plan_memory's default, by which simulations count

// The wait is met once `stream` has done `position` ops of the step (0 or less: counted back from the step's
// beginning).
struct Wait {
  std::int32_t stream;
  std::int64_t position;
};

// Where an operand is: bytes from the arena's beginning to its base instance.
struct Place {
  std::int64_t offset;
  program::BufferId buffer;
};

// An op in a slot of the step.
struct Instance {
  std::int32_t slot, body, op, stream;
  std::int64_t position;  // among the ops of its stream in the step, from 1
  std::size_t first_wait = 0, last_wait = 0;
  std::size_t first_place = 0;  // reads, then writes
  bool awaited = false;         // another stream waits for it
  bool ends_loss = false;       // the last of the step to write the loss
};

struct Timeline {
  const program::Role* role = nullptr;
  program::MemoryPlan memory;
  std::vector<std::int64_t> persistent;            // buffer -> offset in the arena; -1: not persistent
  std::vector<Instance> instances;                 // program order
  std::vector<std::vector<std::int32_t>> streams;  // stream -> its instances
  std::vector<Wait> waits;
  std::vector<Place> places;
  program::RoleCalls calls;
  program::BufferId loss = -1;  // of the last stage

  const program::Op& op(const Instance& i) const {
    return role->bodies[static_cast<std::size_t>(i.body)].ops[static_cast<std::size_t>(i.op)];
  }
  // How many calls of the sequence come before that of a collective op, or of a leg, since the run began.
  std::int64_t call_number(const Instance& i, std::size_t leg, std::int64_t step) const {
    return calls.number(calls.of(i.body, i.op)[leg], step, i.slot);
  }
  const program::Slot& slot(const Instance& i) const { return role->slots[static_cast<std::size_t>(i.slot)]; }
  std::int64_t per_step(std::int32_t stream) const {
    return static_cast<std::int64_t>(streams[static_cast<std::size_t>(stream)].size());
  }
};

// `role` must outlive it.
Timeline make_timeline(const program::Role& role, const plan::RankGrid& grid);

}  // namespace rehearse::execute
