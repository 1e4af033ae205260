// What a body does to the buffers that are not persistent: each op's writes and releases, in program order.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/program.h"

namespace rehearse::program {

// A write or a release of a base buffer. domain: 0 the slot's instances, 1 the step's, 2 + i those of micro-batch
// slot.micro_batch + deltas[i].
struct BodyChange {
  std::int32_t op;
  bool release;
  int domain;
  BufferId buffer;
};

struct BodyChanges {
  std::vector<int> deltas;
  std::vector<BodyChange> changes;  // an op's writes before its releases
};

BodyChanges changes_of(const Role& role, const Body& body);

}  // namespace rehearse::program
