// Where a role's slots repeat: in 1F1B, once the pipeline is full, a forward and a backward alternate until its
// micro-batches run out, each round the same bodies of micro-batches that are `advance` further on. A walk over a step
// that has found one round to go as the round before may leave the others out: what comes after them finds all as it
// would, but for the numbers of micro-batches and of ops.
#pragma once

#include <cstdint>

#include "sim/program/program.h"

namespace rehearse::program {

// Of the slots of a step those from `first` on, in `times` rounds of `period` slots. times 0: none repeat.
struct Repetition {
  std::int32_t first = 0, period = 0, times = 0;
  int advance = 0;  // of micro-batches from one round to the next; positive

  // How many rounds are behind at the beginning of a slot; -1: it begins none.
  std::int32_t rounds_before(std::int32_t slot) const {
    const std::int32_t into = slot - first;
    return times == 0 || into < 0 || into % period != 0 || into / period > times ? -1 : into / period;
  }

  // Micro-batches that ops of slots before the repetition touch, of its first round, and of slots after it.
  int highest_before = -1, least_in_first = 0, least_after = INT32_MAX;

  // How many of the rounds that are left after `done` may be left out because micro-batches do not tell them apart:
  // those of the last round have all been touched in the repetition alone, and so has whatever stands for one that is
  // touched afterwards.
  std::int32_t most_left_out(std::int32_t done) const;
};

// The one that covers most slots.
Repetition repetition_of(const Role& role);

}  // namespace rehearse::program
