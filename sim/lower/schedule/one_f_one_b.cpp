// 1f1b: p - stage - 1 forwards, then one forward, one backward in turn, then the rest (Narayanan et al. 2021, arXiv
// 2104.04473): at most p micro-batches' activations are kept. With p equal stages and free communication the bubble is
// (p - 1) / (m + p - 1) of the step.
#include <algorithm>

#include "sim/lower/schedule/schedule.h"

namespace rehearse::lower {
namespace {

class OneFOneB : public Schedule {
 public:
  std::vector<ScheduleSlot> slots(const PipelinePlace& place, int micro_batches) const override {
    const int warm_up = std::min(place.stages - place.stage - 1, micro_batches);
    std::vector<ScheduleSlot> slots;
    for (int m = 0; m < warm_up; ++m) slots.push_back({SlotKind::forward, m});
    for (int m = 0; m + warm_up < micro_batches; ++m) {
      slots.push_back({SlotKind::forward, m + warm_up});
      slots.push_back({SlotKind::backward, m});
    }
    for (int m = micro_batches - warm_up; m < micro_batches; ++m) slots.push_back({SlotKind::backward, m});
    return slots;
  }
  int sample_micro_batches(const PipelinePlace& place, int micro_batches) const override {
    return std::min(micro_batches, place.stages - place.stage + 2);
  }
};

}  // namespace

const Schedule& one_f_one_b_schedule() {
  static const OneFOneB schedule;
  return schedule;
}

}  // namespace rehearse::lower
