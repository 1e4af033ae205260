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
  bool with_next = false;  // a forward that may run beside the backward that follows it

  bool forward() const { return kind == SlotKind::forward; }
};

// The pipeline as a stage sees it. stage: 0 to stages - 1.
struct PipelinePlace {
  int stage = 0, stages = 1, chunks = 1;
  // Forwards run beside the backwards that follow them (schedules that alternate; which is said with the slots). More
  // forwards may come first: none is followed by the backward that needs its outcome, and a neighbour's pair of the two
  // need not wait for ours.
  bool pairs = false;
  // interleaved: forwards and backwards alternate where there is one round of micro-batches too
  // (ScheduleInterleaved1F1B of pytorch torch/distributed/pipelining/schedules.py); else all forwards come first then,
  // as in Megatron-LM.
  bool alternates_in_one_round = false;
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
  // Backward comes in two parts (see above).
  virtual bool parts_backward() const { return false; }
  // So many chunks a stage has whatever the plan says.
  virtual std::optional<std::int64_t> own_chunks() const { return {}; }
  // Two copies of the model, which micro-batches go through from either end: stage i has part i of it and part stages -
  // 1 - i of the other copy. Its chunks are these two parts in the model's order, so that both stages of a pair have
  // the same chunks; what goes through a chunk are micro-batches of one direction.
  virtual bool bidirectional() const { return false; }
  // Which stage has part `part` of the model: chunk part / stages of it; with two copies of the first of these.
  virtual int stage_of(int part, int stages) const { return part % stages; }

  // A stage's slots alternate with its neighbours', so that a framework may send the output of one slot and receive the
  // input of the next in one group operation, as Megatron-LM does.
  virtual bool may_batch_transfers() const { return true; }
  // Forwards and backwards of a stage alternate, so that they may run in pairs.
  virtual bool alternates(std::int64_t /*stages*/) const { return false; }
};

const PipelineSchedule& schedule_of(Schedule schedule);
// With one stage every schedule is the sequential one.
const PipelineSchedule& schedule_of(Schedule schedule, std::int64_t stages);
// nullptr if there is no such schedule.
const PipelineSchedule* find_schedule(std::string_view name);
// In the order of the enumeration.
std::vector<std::string_view> schedule_names();

// For the schedules' files. Of a stage's slots, forwards and backwards by turns: each forward that a backward follows
// runs with it. Where all forwards come first, none does: the last of them and the first backward may wait for one
// another through neighbours.
void run_in_pairs(std::vector<ScheduleSlot>& slots);
// How many of the slots' passes have begun and are not over at once, at most.
int most_held(const std::vector<ScheduleSlot>& slots);
// The stage of part `part` of a model that goes down the stages in one chunk each and back up in another.
inline int there_and_back(int part, int stages) {
  return part < stages ? part : 2 * stages - 1 - part;
}
// The order of DualPipe's slots, by chunk and passes of each chunk (dualpipe_order.cpp).
std::vector<ScheduleSlot> dualpipe_order(int stage, int stages, int micro_batches);
// What a backward in two parts asks of a plan.
std::vector<ScheduleProblem> problems_of_parted_backward(std::string_view schedule, const Plan& plan);

// One a file.
const PipelineSchedule& sequential_schedule();
const PipelineSchedule& gpipe_schedule();
const PipelineSchedule& one_f_one_b_schedule();
const PipelineSchedule& interleaved_schedule();
const PipelineSchedule& zero_bubble_schedule();
const PipelineSchedule& zero_bubble_v_schedule();
const PipelineSchedule& dualpipe_v_schedule();
const PipelineSchedule& dualpipe_schedule();

}  // namespace rehearse::plan
