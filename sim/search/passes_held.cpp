// What a schedule holds of passes at once, found once for each place; see layer_floor.h.
#include <algorithm>
#include <mutex>
#include <tuple>
#include <vector>

#include "sim/search/layer_floor.h"

namespace rehearse::search {

PassesHeld::Held PassesHeld::of(const plan::PipelineSchedule& schedule, const plan::PipelinePlace& place,
                                int micro_batches) {
  const std::tuple key{&schedule,    place.stage, place.stages, place.chunks, place.alternates_in_one_round,
                       micro_batches};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
  }
  Held now, most;
  std::vector<int> forwards(static_cast<std::size_t>(micro_batches), 0);  // that have ended; -1: a backward has begun
  for (const plan::ScheduleSlot& slot : schedule.slots(place, micro_batches)) {
    int& ended = forwards[static_cast<std::size_t>(slot.micro_batch)];
    if (slot.forward()) {
      most.passes = std::max(most.passes, ++now.passes);
      if (++ended == place.chunks) most.micro_batches = std::max(most.micro_batches, ++now.micro_batches);
    }
    if (slot.kind != plan::SlotKind::backward && slot.kind != plan::SlotKind::backward_input) continue;
    --now.passes;
    if (ended == place.chunks) --now.micro_batches;
    ended = -1;
  }
  const std::lock_guard lock(mutex_);
  return known_[key] = most;
}

}  // namespace rehearse::search
