// sequential: F0 B0 F1 B1 ..., one micro-batch in the whole pipeline at a time; a stage is busy 1/p of the step.
#include <algorithm>

#include "sim/plan/schedule/schedule.h"

namespace rehearse::plan {
namespace {

class Sequential : public PipelineSchedule {
 public:
  std::string_view name() const override { return "sequential"; }
  std::string_view summary() const override { return "one micro-batch at a time"; }
  std::vector<ScheduleSlot> slots(const PipelinePlace& place, int micro_batches) const override {
    const int ahead = place.pairs ? 1 : 0;
    std::vector<ScheduleSlot> slots;
    for (int m = 0; m < micro_batches + ahead; ++m) {
      if (m < micro_batches) slots.push_back({SlotKind::forward, m});
      if (m >= ahead) slots.push_back({SlotKind::backward, m - ahead});
    }
    if (place.pairs) run_in_pairs(slots);
    return slots;
  }
  int sample_micro_batches(const PipelinePlace& place, int micro_batches) const override {
    return std::min(micro_batches, place.pairs ? 4 : 3);
  }
  int held(const PipelinePlace& place, int micro_batches) const override {
    return std::min(micro_batches, place.pairs ? 2 : 1);
  }
  bool alternates(std::int64_t stages) const override { return stages == 1; }
  double bubble(const PassTimes& times, const PipelinePlace& place, int micro_batches) const override {
    return (place.stages - 1) * micro_batches * times.whole();
  }
};

}  // namespace

const PipelineSchedule& sequential_schedule() {
  static const Sequential schedule;
  return schedule;
}

}  // namespace rehearse::plan
