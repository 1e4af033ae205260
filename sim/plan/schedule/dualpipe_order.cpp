// The order in which a stage of DualPipe runs its slots, as its authors' files have it (DeepSeek's dualpipe/dualpipe.py
// and dualpipe/dualpipev.py, whose phases are alike: a pair of stages of the one, which lie at equal distances from
// both ends, runs what a stage of the other does). `stage`: how far from an end of `stages`; micro-batches: of each
// chunk.
#include <deque>
#include <utility>

#include "sim/plan/schedule/schedule.h"

namespace rehearse::plan {
namespace {

// The slots of one stage, phase by phase of the authors' files; what is counted is passes of each chunk.
class DualPipeOrder {
 public:
  std::vector<ScheduleSlot> of(int stage, int stages, int micro_batches) && {
    const int below = stages - stage - 1;
    for (int i = 0; i < 2 * below; ++i) forward(0);
    for (int i = 0; i < stage + 1; ++i) {
      forward(0);
      forward(1);
    }
    for (int i = 0; i < below; ++i) {
      backward(1, true);
      oldest_weight_gradients();
      forward(1);
    }
    for (int i = 0; i < micro_batches - 2 * stages + stage + 1; ++i) {
      pair(0, 1);
      pair(1, 0);
    }
    for (int i = 0; i < below; ++i) {
      backward(1, false);
      pair(1, 0);
    }
    // From the middle of these on backwards are parted.
    for (int i = 0; i < 2 * (stage + 1); ++i) backward(1 - i % 2, i > stage);
    for (int i = 0; i < below; ++i) {
      oldest_weight_gradients();
      backward(0, true);
    }
    while (!waiting_.empty()) oldest_weight_gradients();
    return std::move(slots_);
  }

 private:
  void forward(int chunk) { slots_.push_back({SlotKind::forward, forwards_[chunk]++, chunk}); }
  void backward(int chunk, bool parted) {
    slots_.push_back({parted ? SlotKind::backward_input : SlotKind::backward, backwards_[chunk]++, chunk});
    if (parted) waiting_.push_back(slots_.back());
  }
  void pair(int forward_chunk, int backward_chunk) {
    forward(forward_chunk);
    slots_.back().with_next = true;
    backward(backward_chunk, false);
  }
  void oldest_weight_gradients() {
    slots_.push_back({SlotKind::backward_weight, waiting_.front().micro_batch, waiting_.front().chunk});
    waiting_.pop_front();
  }

  std::vector<ScheduleSlot> slots_;
  int forwards_[2] = {0, 0}, backwards_[2] = {0, 0};
  std::deque<ScheduleSlot> waiting_;  // input gradients whose weight gradients are yet to come
};

}  // namespace

std::vector<ScheduleSlot> dualpipe_order(int stage, int stages, int micro_batches) {
  return DualPipeOrder().of(stage, stages, micro_batches);
}

}  // namespace rehearse::plan
