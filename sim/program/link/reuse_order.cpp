// See reuse_order.h.
#include "sim/program/link/reuse_order.h"

namespace rehearse::program {

ReuseOrder::ReuseOrder(const Role& role, const ArenaPlaces* arena) : order_(role) {
  if (arena == nullptr) return;
  for (const ReuseWait& wait : arena->all_waits)
    if (wait.which == ReuseWait::Which::same_place && row_of_.emplace(ring_of(wait), rows_.size()).second)
      rows_.push_back(make_row(role, wait));
}

std::int32_t ReuseOrder::slot_of(const ReuseWait& wait, std::int32_t slot) const {
  switch (wait.which) {
    case ReuseWait::Which::same_slot:
      return slot;
    case ReuseWait::Which::latest:
      return order_.latest(slot, wait.body);
    case ReuseWait::Which::same_place:
      break;
  }
  return slot_in(row(wait), slot);
}

// The latest earlier slot of the body that touched the place which the wait's own slot writes.
std::vector<std::int32_t> ReuseOrder::make_row(const Role& role, const ReuseWait& wait) {
  const auto slots = static_cast<std::int32_t>(role.slots.size());
  std::vector<std::int32_t> row(role.slots.size(), kNoSlot), latest(static_cast<std::size_t>(wait.ring), kNoSlot);
  for (int step = 0; step < 2; ++step)
    for (std::int32_t s = 0; s < slots; ++s) {
      const Slot& slot = role.slots[static_cast<std::size_t>(s)];
      if (step == 1 && slot.micro_batch + wait.written >= 0)
        row[static_cast<std::size_t>(s)] =
            latest[static_cast<std::size_t>((slot.micro_batch + wait.written) % wait.ring)];
      if (slot.body == wait.body)
        latest[static_cast<std::size_t>((slot.micro_batch + wait.touched) % wait.ring)] = step == 0 ? s - slots : s;
    }
  return row;
}

}  // namespace rehearse::program
