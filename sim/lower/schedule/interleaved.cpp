// interleaved: 1f1b over `chunks` model chunks a stage, p micro-batches through a chunk at a time (Narayanan et al.
// 2021, arXiv 2104.04473, section 2.2, as Megatron-LM's forward_backward_pipelining_with_interleaving orders them).
// With p equal stages, v chunks and free communication the bubble is (p - 1) / (m v + p - 1) of the step. Micro-batches
// must be a multiple of p (sim/plan/feasibility.cpp).
#include <algorithm>

#include "sim/lower/schedule/schedule.h"

namespace rehearse::lower {
namespace {

// The k-th forward (or backward) of a stage: groups of `stages` micro-batches pass chunk after chunk.
ScheduleSlot slot(SlotKind kind, int k, const PipelinePlace& place) {
  const int round = place.stages * place.chunks;
  const int chunk = k % round / place.stages;
  return {kind, k / round * place.stages + k % place.stages,
          kind == SlotKind::forward ? chunk : place.chunks - 1 - chunk};
}

class Interleaved : public Schedule {
 public:
  std::vector<ScheduleSlot> slots(const PipelinePlace& place, int micro_batches) const override {
    const int all = micro_batches * place.chunks;
    // With one round there is nothing to alternate with: all forwards come first, as in Megatron-LM.
    const int warm_up = micro_batches == place.stages
                            ? all
                            : std::min((place.stages - place.stage - 1) * 2 + (place.chunks - 1) * place.stages, all);
    std::vector<ScheduleSlot> slots;
    for (int k = 0; k < warm_up; ++k) slots.push_back(slot(SlotKind::forward, k, place));
    for (int k = 0; k + warm_up < all; ++k) {
      slots.push_back(slot(SlotKind::forward, k + warm_up, place));
      slots.push_back(slot(SlotKind::backward, k, place));
    }
    for (int k = all - warm_up; k < all; ++k) slots.push_back(slot(SlotKind::backward, k, place));
    return slots;
  }
  int sample_micro_batches(const PipelinePlace& place, int micro_batches) const override {
    return std::min(micro_batches, place.stages);
  }
  // A stage sends as soon as it can: its neighbours' slots do not alternate with its own.
  bool may_batch_transfers() const override { return false; }
};

}  // namespace

const Schedule& interleaved_schedule() {
  static const Interleaved schedule;
  return schedule;
}

}  // namespace rehearse::lower
