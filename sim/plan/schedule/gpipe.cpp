// gpipe: F0 .. F(m-1), B(m-1) .. B0 (Huang et al. 2019, arXiv 1811.06965). All micro-batches' activations are kept.
// With p equal stages and free communication the bubble is (p - 1) / (m + p - 1) of the step.
#include <algorithm>

#include "sim/plan/schedule/schedule.h"

namespace rehearse::plan {
namespace {

class Gpipe : public PipelineSchedule {
 public:
  std::string_view name() const override { return "gpipe"; }
  std::string_view summary() const override { return "all forwards, then all backwards"; }
  std::string title(std::int64_t /*chunks*/) const override { return "GPipe: all forwards, then all backwards"; }
  std::vector<ScheduleSlot> slots(const PipelinePlace& /*place*/, int micro_batches) const override {
    std::vector<ScheduleSlot> slots;
    for (int m = 0; m < micro_batches; ++m) slots.push_back({SlotKind::forward, m});
    for (int m = micro_batches - 1; m >= 0; --m) slots.push_back({SlotKind::backward, m});
    return slots;
  }
  int sample_micro_batches(const PipelinePlace& /*place*/, int micro_batches) const override {
    return std::min(micro_batches, 3);
  }
  int held(const PipelinePlace& /*place*/, int micro_batches) const override { return micro_batches; }
  double bubble(const PassTimes& times, const PipelinePlace& place, int /*micro_batches*/) const override {
    return (place.stages - 1) * times.whole();
  }
};

}  // namespace

const PipelineSchedule& gpipe_schedule() {
  static const Gpipe schedule;
  return schedule;
}

}  // namespace rehearse::plan
