// Which buffers of a role ever live at the same time, and of micro-batch buffers over how many consecutive
// micro-batches instances do. A step is walked slot by slot over an automaton, as in memory_plan.cpp: the live buffers
// of a micro-batch are an interned state, and what a body does is worked out once for each set of states it meets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/program/program.h"

namespace rehearse::program {

using BufferSet = std::vector<std::uint64_t>;  // bits by buffer

inline bool contains(const BufferSet& set, BufferId id) {
  return set[static_cast<std::size_t>(id) / 64] >> (static_cast<std::size_t>(id) % 64) & 1;
}

// The first write of an instance.
struct Birth {
  BodyId body;
  std::int32_t op;
  BufferId buffer;  // no view
  int micro_batch_delta;
  friend auto operator<=>(const Birth&, const Birth&) = default;
};

struct Lifetimes {
  std::vector<BufferSet> beside;  // by buffer: those of which an instance lives beside one of its own
  std::vector<int> ring;          // by buffer: consecutive micro-batches that hold all that live at once

  // Of an op, in their order.
  std::span<const Birth> births(BodyId body, std::int32_t op) const {
    const std::size_t at = first_op[static_cast<std::size_t>(body)] + static_cast<std::size_t>(op);
    return {all_births.data() + first_birth[at], all_births.data() + first_birth[at + 1]};
  }

  std::vector<Birth> all_births;         // in their order, each once
  std::vector<std::size_t> first_op;     // by body, in first_birth
  std::vector<std::size_t> first_birth;  // by op, in all_births; one more at the end
};

// Of buffers that are neither views nor persistent.
Lifetimes lifetimes_of(const Role& role);

}  // namespace rehearse::program
