// One step of a role laid out for performing: every op of every slot with the place of its operands in the rank's
// arena, what it must wait for on other streams, and the numbers of its transfer calls (sim/program/link/calls.h).
// Ranks of a role share it; every step is alike.
//
// Waits come from three rules, all stated by position in program order, so that step n needs no memory of step n - 1:
// events (CUDA's rule, program.h); HostSync, which holds back everything later; and reuse of memory: the first op that
// writes an instance waits for those that used its place before (places.h), in this step or the one before.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/program/link/calls.h"
#include "sim/program/link/places.h"
#include "sim/program/program.h"

namespace rehearse::program {

// The wait is met once `stream` has done `position` ops of the step (0 or less: counted back from the step's
// beginning).
struct StreamWait {
  std::int32_t stream;
  std::int64_t position;
};

// Where an operand is: bytes from the arena's beginning to its base instance.
struct OperandPlace {
  std::int64_t offset;
  BufferId buffer;
};

// An op in a slot of the step.
struct OpInstance {
  std::int32_t slot, body, op, stream;
  std::int64_t position;  // among the ops of its stream in the step, from 1
  std::size_t first_wait = 0, last_wait = 0;
  std::size_t first_place = 0;  // reads, then writes
  bool awaited = false;         // another stream waits for it
  bool ends_loss = false;       // the last of the step to write the loss
};

struct Timeline {
  const Role* role = nullptr;
  ArenaPlaces memory;
  std::vector<std::int64_t> persistent;            // buffer -> offset in the arena; -1: not persistent
  std::vector<OpInstance> instances;               // program order
  std::vector<std::vector<std::int32_t>> streams;  // stream -> its instances
  std::vector<StreamWait> waits;
  std::vector<OperandPlace> places;
  RoleCalls calls;
  BufferId loss = -1;  // of the stage that ends the model; of several elements: the model's and its modules'

  // The op whose end a wait is for.
  const OpInstance& awaited(const StreamWait& wait) const {
    const auto& stream = streams[static_cast<std::size_t>(wait.stream)];
    const auto n = static_cast<std::int64_t>(stream.size());
    return instances[static_cast<std::size_t>(stream[static_cast<std::size_t>(((wait.position - 1) % n + n) % n)])];
  }
  const Op& op(const OpInstance& i) const {
    return role->bodies[static_cast<std::size_t>(i.body)].ops[static_cast<std::size_t>(i.op)];
  }
  // How many calls of the sequence come before that of a collective op, or of a leg, since the run began.
  std::int64_t call_number(const OpInstance& i, std::size_t leg, std::int64_t step) const {
    return calls.number(calls.of(i.body, i.op)[leg], step, i.slot);
  }
  // Whether the op's body is run in the step (Body::every), and the op itself.
  bool runs(const OpInstance& i, std::int64_t step) const {
    return (step + 1) % role->bodies[static_cast<std::size_t>(i.body)].every == 0 && op(i).acts_in(step);
  }
  const Slot& slot(const OpInstance& i) const { return role->slots[static_cast<std::size_t>(i.slot)]; }
  std::int64_t per_step(std::int32_t stream) const {
    return static_cast<std::int64_t>(streams[static_cast<std::size_t>(stream)].size());
  }
};

// `role` must outlive it; axis_size: GridView::size.
Timeline make_timeline(const Role& role, const std::function<int(Axis)>& axis_size);

}  // namespace rehearse::program
