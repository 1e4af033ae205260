// dualpipe_v: DualPipeV, the half of DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1) that one set of parameters
// needs ("cut in half", as its authors' dualpipe/dualpipev.py orders it). A stage has two chunks, the model goes down
// the stages through the first and back up through the second, so the first stage has both ends of it and the last
// passes its first chunk's output on to itself. Forwards of one chunk run beside backwards of the other, and backwards
// at both ends of the step are parted, so that weight gradients fill its waits. With p equal stages, free communication
// and times F of a chunk's forward, B of its input gradients and W of its weight gradients, B <= F, a stage waits (p -
// 1) (F + max(0, B - W)) a step. Where pairs give their results only at their end and take F&B, it is (p - 1) (F&B + B
// - 2 W) for F = B = W, as its authors' README has it (which counts 2 p stages, and W into B). A stage holds 2 p + 1
// passes of a chunk, what p + 1/2 micro-batches take.
#include <fmt/format.h>

#include <algorithm>

#include "sim/plan/schedule/schedule.h"

namespace rehearse::plan {
namespace {

class DualPipeV : public PipelineSchedule {
 public:
  std::string_view name() const override { return "dualpipe_v"; }
  std::string_view summary() const override {
    return "DualPipeV: two chunks a stage, down the stages and back up, forwards beside backwards; needs 2 x "
           "`pipeline` micro-batches and `zero` 0 or 1";
  }
  std::string title(std::int64_t /*chunks*/) const override { return "DualPipeV"; }
  bool parts_backward() const override { return true; }
  std::vector<ScheduleSlot> slots(const PipelinePlace& place, int micro_batches) const override {
    return dualpipe_order(place.stage, place.stages, micro_batches);
  }
  // All phases whole, and three turns of the steady one.
  int sample_micro_batches(const PipelinePlace& place, int micro_batches) const override {
    return std::min(micro_batches, 2 * place.stages + 3);
  }
  int held(const PipelinePlace& place, int micro_batches) const override {
    return most_held(slots(place, std::min(micro_batches, 2 * place.stages + 3)));
  }
  double bubble(const PassTimes& times, const PipelinePlace& place, int /*micro_batches*/) const override {
    return (place.stages - 1) * (times.forward + std::max(0.0, times.backward_input - times.backward_weight)) / 2;
  }
  std::vector<ScheduleProblem> problems(const Plan& plan, std::optional<std::int64_t> micro_batches) const override {
    std::vector<ScheduleProblem> found = problems_of_parted_backward(name(), plan);
    if (micro_batches && *micro_batches < 2 * plan.pipeline)
      found.push_back({{"training.global_batch", "plan.schedule"},
                       fmt::format("schedule dualpipe_v needs 2 * pipeline = {} micro-batches at least, but there are "
                                   "{} (global_batch / (data * micro_batch))",
                                   2 * plan.pipeline, *micro_batches)});
    return found;
  }
  std::optional<std::int64_t> own_chunks() const override { return 2; }
  bool may_batch_transfers() const override { return false; }
  bool alternates(std::int64_t /*stages*/) const override { return true; }
  int stage_of(int part, int stages) const override { return there_and_back(part, stages); }
};

}  // namespace

const PipelineSchedule& dualpipe_v_schedule() {
  static const DualPipeV schedule;
  return schedule;
}

}  // namespace rehearse::plan
