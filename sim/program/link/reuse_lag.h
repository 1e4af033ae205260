// What reusing a place at once would cost in overlap. A buffer that is given the place of one which another stream used
// last waits for that use. How far may the two streams then drift apart? The lag of a pair of buffers is how much may
// still be under way during what is waited for, in multiples of that (both in bytes of operands), the least over all
// places of a step where one of them is first written after the other's last use by another stream:
//   a transfer is waited for: the later ones of its stream that in turn wait for later ops of the waiting stream;
//   a kernel is waited for, by a transfer: those of the transfer's stream that the kernel need not have waited for, in
//   multiples of the transfer.
// Lag 0: nothing is left to overlap with (the next kernel waits for the transfer just begun). 1: as much may be under
// way as is waited for, as with two buffers used in turn.
//
// Pairs whose order events imply, and whose lag is kEnoughLag or more, are left out: it costs nothing if they share a
// place. Found by a walk over two steps in program order.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "sim/program/link/lifetimes.h"
#include "sim/program/link/repetition.h"
#include "sim/program/link/waits.h"
#include "sim/program/program.h"

namespace rehearse::program {

inline constexpr int kEnoughLag = 8;

struct ReuseLags {
  using Others = std::vector<std::pair<BufferId, int>>;  // a buffer and the lag, by buffer
  std::vector<Others> of;                                // by buffer: the others'; symmetric
  std::vector<int> own;                                  // by buffer: of a ring's next round; kEnoughLag: that or more
};

ReuseLags reuse_lags(const Role& role, const RoleWaits& waits, const Lifetimes& lifetimes);
// The walk that finds them, where rounds of `repeats` need not all be walked; none if they had to be.
std::optional<ReuseLags> walk_lags(const Role& role, const RoleWaits& waits, const Lifetimes& lifetimes,
                                   const Repetition& repeats);

}  // namespace rehearse::program
