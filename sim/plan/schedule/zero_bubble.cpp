// zero_bubble: ZB-H1 (Qi et al. 2023, arXiv 2401.10241, section 2.2): 1f1b whose backward is parted. Stage s runs its
// weight gradients s micro-batches behind its input gradients, so every stage keeps at most p micro-batches, as the
// first stage of 1f1b does, and the weight gradients left over fill the wait at the step's end. With p equal stages,
// free communication and times F, B (input gradients) and W (weight gradients) a stage waits (p - 1) (F + B - W) a step
// where W <= F + B and m >= p, against (p - 1) (F + B + W) of 1f1b. Optimizer steps stay where they are: the paper's
// post-validation, which lets them start early, is left out.
#include <algorithm>

#include "sim/plan/schedule/schedule.h"

namespace rehearse::plan {
namespace {

class ZeroBubble : public PipelineSchedule {
 public:
  std::string_view name() const override { return "zero_bubble"; }
  std::string_view summary() const override {
    return "ZB-H1: 1f1b whose weight gradients come apart and fill the wait at the end; needs `zero` 0 or 1";
  }
  bool parts_backward() const override { return true; }
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
  int held(const PipelinePlace& place, int micro_batches) const override {
    return std::min(micro_batches, place.stages);
  }
  double bubble(const PassTimes& times, const PipelinePlace& place, int /*micro_batches*/) const override {
    return (place.stages - 1) * (times.forward + times.backward_input - times.backward_weight);
  }
  std::vector<ScheduleProblem> problems(const Plan& plan,
                                        std::optional<std::int64_t> /*micro_batches*/) const override {
    return problems_of_parted_backward(name(), plan);
  }
  bool may_batch_transfers() const override { return false; }
};

}  // namespace

const PipelineSchedule& zero_bubble_schedule() {
  static const ZeroBubble schedule;
  return schedule;
}

}  // namespace rehearse::plan
