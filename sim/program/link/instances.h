// The instances of a role's buffers in a step, numbered: one for each micro-batch of a micro-batch buffer, one of any
// other. Views have those of their base.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/program/program.h"

namespace rehearse::program {

class BufferInstances {
 public:
  // Micro-batches as many as the slots name.
  explicit BufferInstances(const Role& role);
  BufferInstances(const Role& role, int micro_batches);

  std::size_t size() const { return size_; }
  int micro_batches() const { return micro_batches_; }
  BufferId base(BufferId id) const {
    const Buffer& b = role_.buffers[static_cast<std::size_t>(id)];
    return b.is_view() ? b.base : id;
  }
  // The first instance of a buffer, or of its base.
  std::size_t first(BufferId id) const { return first_[static_cast<std::size_t>(id)]; }
  // The instance that an op of the slot means; its micro-batch must exist.
  std::size_t of(const Operand& operand, const Slot& slot) const;

 private:
  const Role& role_;
  int micro_batches_;
  std::size_t size_ = 0;
  std::vector<std::size_t> first_;  // by buffer
};

}  // namespace rehearse::program
