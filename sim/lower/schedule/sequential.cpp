// sequential: F0 B0 F1 B1 ..., one micro-batch in the whole pipeline at a time; a stage is busy 1/p of the step.
#include <algorithm>

#include "sim/lower/schedule/schedule.h"

namespace rehearse::lower {
namespace {

class Sequential : public Schedule {
 public:
  std::vector<ScheduleSlot> slots(const PipelinePlace& /*place*/, int micro_batches) const override {
    std::vector<ScheduleSlot> slots;
    for (int m = 0; m < micro_batches; ++m) {
      slots.push_back({SlotKind::forward, m});
      slots.push_back({SlotKind::backward, m});
    }
    return slots;
  }
  int sample_micro_batches(const PipelinePlace& /*place*/, int micro_batches) const override {
    return std::min(micro_batches, 3);
  }
};

}  // namespace

const Schedule& sequential_schedule() {
  static const Sequential schedule;
  return schedule;
}

}  // namespace rehearse::lower
