// 1f1b: p - stage - 1 forwards, then one forward, one backward in turn, then the rest (Narayanan et al. 2021, arXiv
// 2104.04473, section 2.2): at most p - stage micro-batches' activations are kept. With p equal stages and free
// communication the bubble is (p - 1) / (m + p - 1) of the step.
#include <algorithm>

#include "sim/plan/schedule/schedule.h"

namespace rehearse::plan {
namespace {

class OneFOneB : public PipelineSchedule {
 public:
  std::string_view name() const override { return "1f1b"; }
  std::string_view summary() const override { return "one forward, one backward"; }
  std::string title(std::int64_t /*chunks*/) const override { return "1F1B: one forward, one backward"; }
  std::vector<ScheduleSlot> slots(const PipelinePlace& place, int micro_batches) const override {
    const int warm_up = std::min(forwards_first(place), micro_batches);
    std::vector<ScheduleSlot> slots;
    for (int m = 0; m < warm_up; ++m) slots.push_back({SlotKind::forward, m});
    for (int m = 0; m + warm_up < micro_batches; ++m) {
      slots.push_back({SlotKind::forward, m + warm_up});
      slots.push_back({SlotKind::backward, m});
    }
    for (int m = micro_batches - warm_up; m < micro_batches; ++m) slots.push_back({SlotKind::backward, m});
    if (place.pairs) run_in_pairs(slots);
    return slots;
  }
  int sample_micro_batches(const PipelinePlace& place, int micro_batches) const override {
    return std::min(micro_batches, forwards_first(place) + 3);
  }
  int held(const PipelinePlace& place, int micro_batches) const override {
    return std::min(micro_batches, forwards_first(place) + 1);
  }
  double bubble(const PassTimes& times, const PipelinePlace& place, int /*micro_batches*/) const override {
    return (place.stages - 1) * times.whole();
  }
  bool alternates(std::int64_t /*stages*/) const override { return true; }

 private:
  // In pairs a stage's forward is two slots ahead of the next one's, not one: a pair gives its output and its gradient
  // at its end.
  static int forwards_first(const PipelinePlace& place) {
    const int after = place.stages - place.stage - 1;
    return place.pairs ? 2 * after + 1 : after;
  }
};

}  // namespace

const PipelineSchedule& one_f_one_b_schedule() {
  static const OneFOneB schedule;
  return schedule;
}

}  // namespace rehearse::plan
