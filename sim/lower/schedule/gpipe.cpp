// gpipe: F0 .. F(m-1), B(m-1) .. B0 (Huang et al. 2019, arXiv 1811.06965). All micro-batches' activations are kept.
// With p equal stages and free communication the bubble is (p - 1) / (m + p - 1) of the step.
#include <algorithm>

#include "sim/lower/schedule/schedule.h"

namespace rehearse::lower {
namespace {

class Gpipe : public Schedule {
 public:
  std::vector<ScheduleSlot> slots(const PipelinePlace& /*place*/, int micro_batches) const override {
    std::vector<ScheduleSlot> slots;
    for (int m = 0; m < micro_batches; ++m) slots.push_back({SlotKind::forward, m});
    for (int m = micro_batches - 1; m >= 0; --m) slots.push_back({SlotKind::backward, m});
    return slots;
  }
  int sample_micro_batches(const PipelinePlace& /*place*/, int micro_batches) const override {
    return std::min(micro_batches, 3);
  }
};

}  // namespace

const Schedule& gpipe_schedule() {
  static const Gpipe schedule;
  return schedule;
}

}  // namespace rehearse::lower
