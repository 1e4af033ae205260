// Pipeline schedules: in which order a stage runs its slots. One file a schedule, which holds the order, the closed
// form of its bubble and what it needs of the lowering; schedule.cpp lists them.
//
// A slot is the forward or the backward of one micro-batch through one chunk of the stage. A schedule may part backward
// in two: backward_input gives the gradient that the stage before waits for, backward_weight the gradients of the
// products' weights, which nobody waits for before the step ends.
#pragma once

#include <vector>

#include "sim/plan/plan.h"

namespace rehearse::lower {

enum class SlotKind : unsigned char { forward, backward, backward_input, backward_weight };

struct ScheduleSlot {
  SlotKind kind = SlotKind::forward;
  int micro_batch = 0;
  int chunk = 0;

  bool forward() const { return kind == SlotKind::forward; }
};

// The pipeline as a stage sees it. stage: 0 to stages - 1.
struct PipelinePlace {
  int stage = 0, stages = 1, chunks = 1;
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  // The slots of one step in order; every micro-batch passes each chunk forward, then backward.
  virtual std::vector<ScheduleSlot> slots(const PipelinePlace& place, int micro_batches) const = 0;
  // So many micro-batches show every neighbourhood of slots that a stage has (or, where that is not needed, run every
  // body); at most micro_batches.
  virtual int sample_micro_batches(const PipelinePlace& place, int micro_batches) const = 0;
  // Backward slots are parted in backward_input and backward_weight.
  virtual bool parts_backward() const { return false; }
  // A stage's slots alternate with its neighbours', so that a framework may send the output of one slot and receive the
  // input of the next in one group operation, as Megatron-LM does.
  virtual bool may_batch_transfers() const { return true; }
};

// With one stage every schedule is the sequential one.
const Schedule& schedule_of(plan::Schedule schedule, int stages);

// One a file.
const Schedule& sequential_schedule();
const Schedule& gpipe_schedule();
const Schedule& one_f_one_b_schedule();
const Schedule& interleaved_schedule();
const Schedule& zero_bubble_schedule();

}  // namespace rehearse::lower
