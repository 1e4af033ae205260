// zero_bubble: ZB-H1 (Qi et al. 2023, arXiv 2401.10241, section 2.2): 1f1b whose backward is parted. Stage s runs its
// weight gradients s micro-batches behind its input gradients, so every stage keeps at most p micro-batches, as the
// first stage of 1f1b does, and the weight gradients left over fill the wait at the step's end. With p equal stages,
// free communication and times F, B (input gradients) and W (weight gradients) a stage waits (p - 1) (F + B - W) a step
// where W <= F + B and m >= p, against (p - 1) (F + B + W) of 1f1b. Optimizer steps stay where they are: the paper's
// post-validation, which lets them start early, is left out.
#include <algorithm>

#include "sim/lower/schedule/schedule.h"

namespace rehearse::lower {
namespace {

class ZeroBubble : public Schedule {
 public:
  std::vector<ScheduleSlot> slots(const PipelinePlace& place, int micro_batches) const override {
    const int warm_up = std::min(place.stages - place.stage - 1, micro_batches), behind = place.stage;
    std::vector<ScheduleSlot> slots;
    for (int m = 0; m < warm_up; ++m) slots.push_back({SlotKind::forward, m});
    for (int m = 0; m < micro_batches; ++m) {
      if (m + warm_up < micro_batches) slots.push_back({SlotKind::forward, m + warm_up});
      slots.push_back({SlotKind::backward_input, m});
      if (m >= behind) slots.push_back({SlotKind::backward_weight, m - behind});
    }
    for (int m = std::max(0, micro_batches - behind); m < micro_batches; ++m)
      slots.push_back({SlotKind::backward_weight, m});
    return slots;
  }
  // The steady part begins once weight gradients have, and lasts as long as there are forwards.
  int sample_micro_batches(const PipelinePlace& place, int micro_batches) const override {
    return std::min(micro_batches, place.stages + 3);
  }
  bool parts_backward() const override { return true; }
  bool may_batch_transfers() const override { return false; }
};

}  // namespace

const Schedule& zero_bubble_schedule() {
  static const ZeroBubble schedule;
  return schedule;
}

}  // namespace rehearse::lower
