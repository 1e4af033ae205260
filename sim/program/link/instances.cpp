// See instances.h.
#include "sim/program/link/instances.h"

#include <algorithm>

#include "sim/base/check.h"

namespace rehearse::program {
namespace {

int micro_batches_of(const Role& role) {
  int micro_batches = 0;
  for (const Slot& slot : role.slots) micro_batches = std::max(micro_batches, slot.micro_batch + 1);
  return micro_batches;
}

}  // namespace

BufferInstances::BufferInstances(const Role& role) : BufferInstances(role, micro_batches_of(role)) {}

BufferInstances::BufferInstances(const Role& role, int micro_batches) : role_(role), micro_batches_(micro_batches) {
  for (const Buffer& b : role.buffers) {
    first_.push_back(size_);
    if (b.is_view()) continue;
    size_ += b.lifetime == Lifetime::micro_batch ? static_cast<std::size_t>(micro_batches) : 1;
  }
  for (std::size_t b = 0; b < role.buffers.size(); ++b)
    first_[b] = first_[static_cast<std::size_t>(base(static_cast<BufferId>(b)))];
}

std::size_t BufferInstances::of(const Operand& operand, const Slot& slot) const {
  const BufferId id = base(operand.buffer);
  const Buffer& b = role_.buffers[static_cast<std::size_t>(id)];
  if (b.lifetime != Lifetime::micro_batch) return first(id);
  const int m = slot.micro_batch + operand.micro_batch_delta;
  REHEARSE_CHECK(m >= 0 && m < micro_batches_, "{}: '{}' of micro-batch {}", role_.name, b.name, m);
  return first(id) + static_cast<std::size_t>(m);
}

}  // namespace rehearse::program
