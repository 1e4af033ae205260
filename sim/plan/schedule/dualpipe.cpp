// dualpipe: DualPipe (DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1 and figure 5; dualpipe/dualpipe.py). The model
// is there twice: stage i of p has part i and part p - 1 - i, half of the micro-batches enter at the first stage and
// half at the last, and each passes one of the two copies. Gradients of the copies are summed over each pair of stages.
// Stages i and p - 1 - i run the same slots, those of dualpipe_v of p / 2 stages with half of the micro-batches:
// forwards of one direction run beside backwards of the other, and backwards at both ends of the step are parted.
//
// With p equal stages, free communication and times F of a stage's forward, B of its input gradients and W of its
// weight gradients, B <= F, a stage waits (p / 2 - 1) (F + max(0, B - W)) a step. Where pairs give their results only
// at their end and take F&B, it is the paper's table 2, (p / 2 - 1) (F&B + B - 3 W) with W counted into B. A stage
// holds p + 1 passes, and the parameters twice.
#include <fmt/format.h>

#include <algorithm>

#include "sim/plan/schedule/schedule.h"

namespace rehearse::plan {
namespace {

class DualPipe : public PipelineSchedule {
 public:
  std::string_view name() const override { return "dualpipe"; }
  std::string_view summary() const override {
    return "DualPipe: two copies of the parameters, micro-batches from both ends, forwards beside backwards; needs an "
           "even `pipeline`, an even number of micro-batches, 2 x `pipeline` at least, and `zero` 0 or 1";
  }
  std::string title(std::int64_t /*chunks*/) const override { return "DualPipe"; }
  bool parts_backward() const override { return true; }
  bool bidirectional() const override { return true; }
  // Micro-batches of even numbers go down the stages, those of odd ones up.
  std::vector<ScheduleSlot> slots(const PipelinePlace& place, int micro_batches) const override {
    const bool upper = place.stage >= place.stages / 2;
    const int from_end = upper ? place.stages - 1 - place.stage : place.stage;
    std::vector<ScheduleSlot> all = dualpipe_order(from_end, place.stages / 2, micro_batches / 2);
    for (ScheduleSlot& slot : all) slot.micro_batch = 2 * slot.micro_batch + ((slot.chunk == 0) == upper ? 1 : 0);
    return all;
  }
  // All phases whole, and three turns of the steady one.
  int sample_micro_batches(const PipelinePlace& place, int micro_batches) const override {
    return std::min(micro_batches, 2 * place.stages + 6);
  }
  int held(const PipelinePlace& place, int micro_batches) const override {
    return most_held(slots(place, std::min(micro_batches, 2 * place.stages + 6)));
  }
  double bubble(const PassTimes& times, const PipelinePlace& place, int /*micro_batches*/) const override {
    const int waited = place.stages / 2 - 1;
    return waited * (times.forward + std::max(0.0, times.backward_input - times.backward_weight));
  }
  std::vector<ScheduleProblem> problems(const Plan& plan, std::optional<std::int64_t> micro_batches) const override {
    std::vector<ScheduleProblem> found = problems_of_parted_backward(name(), plan);
    if (plan.pipeline % 2 != 0) {
      found.push_back(
          {{"plan.pipeline", "plan.schedule"},
           fmt::format("schedule dualpipe has a copy of the model from either end, and stages in pairs, but "
                       "pipeline = {}; nearest: {} and {}",
                       plan.pipeline, plan.pipeline - 1, plan.pipeline + 1)});
      return found;
    }
    if (micro_batches && (*micro_batches < 2 * plan.pipeline || *micro_batches % 2 != 0))
      found.push_back({{"training.global_batch", "plan.schedule"},
                       fmt::format("schedule dualpipe needs an even number of micro-batches, 2 * pipeline = {} at "
                                   "least, but there are {} (global_batch / (data * micro_batch))",
                                   2 * plan.pipeline, *micro_batches)});
    return found;
  }
  bool may_batch_transfers() const override { return false; }
  bool alternates(std::int64_t /*stages*/) const override { return true; }
};

}  // namespace

const PipelineSchedule& dualpipe_schedule() {
  static const DualPipe schedule;
  return schedule;
}

}  // namespace rehearse::plan
