// zero_bubble_v: ZB-V (Qi et al. 2024, Pipeline Parallelism with Controllable Memory, arXiv 2405.15362, section 4), in
// the order written out for equal times that torch.distributed.pipelining's ScheduleZBVZeroBubble has: two chunks a
// stage, down the stages and back up as in dualpipe_v, and every backward in two parts. A stage's slots are placed so
// that with p equal stages, free communication and a chunk's forward F, input gradients B and weight gradients W all
// alike it works without a gap from its first forward to its last weight gradients, p micro-batches' activations at
// most, as many as the first stage of 1f1b. What is left is the way to the last stage, (p - 1) F a step; with F <= B
// and W <= B, and 2 p - 1 micro-batches or more, it is (p - 1) max(B, 2 (B - W)). Optimizer steps stay where they are,
// as in zero_bubble.
#include <algorithm>

#include "sim/plan/schedule/schedule.h"

namespace rehearse::plan {
namespace {

// The slots of one stage, in the phases of that class, of micro-batches below `micro_batches`.
class ZeroBubbleVOrder {
 public:
  explicit ZeroBubbleVOrder(int micro_batches) : micro_batches_(micro_batches) {}

  std::vector<ScheduleSlot> of(int stage, int stages) && {
    const int all = std::max(2 * stages - 1, micro_batches_), below = stages - stage;
    for (int i = 0; i < 2 * below - 1; ++i) forward(0);
    for (int i = 0; i < stage; ++i) {
      forward(1);
      forward(0);
    }
    for (int i = 0; i < below; ++i) {
      forward(1);
      backward(1);
    }
    while (forwards_[1] < forwards_[0] || forwards_[0] < all) {
      if (forwards_[0] < all) forward(0);
      backward(0);
      forward(1);
      backward(1);
    }
    for (int i = 0; i < stage; ++i) {
      input_gradients(0);
      input_gradients(1);
    }
    for (int i = 0; i < below; ++i) backward(0);
    for (const int chunk : {1, 0})
      while (weights_[chunk] < inputs_[chunk]) weight_gradients(chunk);
    return std::move(slots_);
  }

 private:
  void add(SlotKind kind, int micro_batch, int chunk) {
    if (micro_batch < micro_batches_) slots_.push_back({kind, micro_batch, chunk});
  }
  void forward(int chunk) { add(SlotKind::forward, forwards_[chunk]++, chunk); }
  void input_gradients(int chunk) { add(SlotKind::backward_input, inputs_[chunk]++, chunk); }
  void weight_gradients(int chunk) { add(SlotKind::backward_weight, weights_[chunk]++, chunk); }
  // Weight gradients of the earliest micro-batch that lacks them: this one's, or one's of the end.
  void backward(int chunk) {
    input_gradients(chunk);
    weight_gradients(chunk);
  }

  int micro_batches_;
  std::vector<ScheduleSlot> slots_;
  int forwards_[2] = {0, 0}, inputs_[2] = {0, 0}, weights_[2] = {0, 0};  // of each chunk, so far
};

class ZeroBubbleV : public PipelineSchedule {
 public:
  std::string_view name() const override { return "zero_bubble_v"; }
  std::string_view summary() const override {
    return "ZB-V: two chunks a stage, down the stages and back up, every backward in two parts; needs `zero` 0 or 1";
  }
  std::string title(std::int64_t /*chunks*/) const override { return "ZB-V"; }
  bool parts_backward() const override { return true; }
  std::vector<ScheduleSlot> slots(const PipelinePlace& place, int micro_batches) const override {
    return ZeroBubbleVOrder(micro_batches).of(place.stage, place.stages);
  }
  // All phases whole, and three turns of the steady one.
  int sample_micro_batches(const PipelinePlace& place, int micro_batches) const override {
    return std::min(micro_batches, 2 * place.stages + 3);
  }
  int held(const PipelinePlace& place, int micro_batches) const override {
    return most_held(slots(place, std::min(micro_batches, 2 * place.stages + 3)));
  }
  double bubble(const PassTimes& times, const PipelinePlace& place, int /*micro_batches*/) const override {
    return (place.stages - 1) * std::max(times.backward_input, 2 * (times.backward_input - times.backward_weight)) / 2;
  }
  std::vector<ScheduleProblem> problems(const Plan& plan,
                                        std::optional<std::int64_t> /*micro_batches*/) const override {
    return problems_of_parted_backward(name(), plan);
  }
  std::optional<std::int64_t> own_chunks() const override { return 2; }
  bool may_batch_transfers() const override { return false; }
  int stage_of(int part, int stages) const override { return there_and_back(part, stages); }
};

}  // namespace

const PipelineSchedule& zero_bubble_v_schedule() {
  static const ZeroBubbleV schedule;
  return schedule;
}

}  // namespace rehearse::plan
