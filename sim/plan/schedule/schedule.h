// Pipeline schedules: in which order a stage runs its slots. One file a schedule, which holds everything that is its
// own: the scenario's word for it, the order, what it needs of a plan, how many micro-batches a stage holds, the closed
// form of its bubble, and what it asks of lowering. schedule.cpp lists them.
//
// A slot is the forward or the backward of one micro-batch through one chunk of the stage. A schedule may part backward
// in two: backward_input gives the gradient that the stage before waits for, backward_weight the gradients of the
// products' weights, which nobody waits for before the step ends.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/plan/plan.h"

namespace rehearse::plan {

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

// What a micro-batch takes on a stage, in any unit of time: all chunks' forward, the gradients of inputs, of weights.
struct PassTimes {
  double forward = 0, backward_input = 0, backward_weight = 0;

  double whole() const { return forward + backward_input + backward_weight; }
};

// Why a plan cannot have a schedule. Told at the first of `keys` that the scenario gives (else at the last).
struct ScheduleProblem {
  std::vector<std::string> keys;
  std::string message;
};

class PipelineSchedule {
 public:
  virtual ~PipelineSchedule() = default;
  // The scenario's word for it.
  virtual std::string_view name() const = 0;
  // What it does, as the documentation of plan.schedule has it.
  virtual std::string_view summary() const = 0;
  // As a heading of reports.
  virtual std::string title(std::int64_t /*chunks*/) const { return std::string(name()); }

  // The slots of one step in order; every micro-batch passes each chunk forward, then backward.
  virtual std::vector<ScheduleSlot> slots(const PipelinePlace& place, int micro_batches) const = 0;
  // So many micro-batches show every neighbourhood of slots that a stage has (or, where that is not needed, run every
  // body); at most micro_batches.
  virtual int sample_micro_batches(const PipelinePlace& place, int micro_batches) const = 0;

  // Passes of a micro-batch through a chunk whose activations the stage holds at once, at most.
  virtual int held(const PipelinePlace& place, int micro_batches) const = 0;
  // How long a stage waits a step, with equal stages and free communication (closed form, with its source in the file).
  virtual double bubble(const PassTimes& times, const PipelinePlace& place, int micro_batches) const = 0;

  // What keeps this plan of several stages from having the schedule. `micro_batches` of a step: nothing if not known.
  virtual std::vector<ScheduleProblem> problems(const Plan& /*plan*/,
                                                std::optional<std::int64_t> /*micro_batches*/) const {
    return {};
  }
  // A stage may have several chunks of the model. With one chunk the schedule is `with_one_chunk`.
  virtual bool takes_chunks() const { return false; }
  virtual Schedule with_one_chunk(Schedule self) const { return self; }

  // Backward slots are parted in backward_input and backward_weight.
  virtual bool parts_backward() const { return false; }
  // A stage's slots alternate with its neighbours', so that a framework may send the output of one slot and receive the
  // input of the next in one group operation, as Megatron-LM does.
  virtual bool may_batch_transfers() const { return true; }
};

const PipelineSchedule& schedule_of(Schedule schedule);
// With one stage every schedule is the sequential one.
const PipelineSchedule& schedule_of(Schedule schedule, std::int64_t stages);
// nullptr if there is no such schedule.
const PipelineSchedule* find_schedule(std::string_view name);
// In the order of the enumeration.
std::vector<std::string_view> schedule_names();

// One a file.
const PipelineSchedule& sequential_schedule();
const PipelineSchedule& gpipe_schedule();
const PipelineSchedule& one_f_one_b_schedule();
const PipelineSchedule& interleaved_schedule();
const PipelineSchedule& zero_bubble_schedule();

}  // namespace rehearse::plan
