// One pipeline stage: its chunks of units (one unless the schedule interleaves), the bodies made of them, the transfers
// to the neighbours, and the slot order.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "sim/lower/parameters.h"
#include "sim/lower/schedule/schedule.h"
#include "sim/lower/unit.h"

namespace rehearse::lower {

// Consecutive layers of the model (units of cnn and mlp count as layers).
struct LayerRange {
  std::int64_t first = 0, count = 0;
};

class StageLowering {
 public:
  // `layers`: of each of the stage's chunks. Chunk c of the last stage is followed by chunk c + 1 of the first.
  StageLowering(const Context& context, int stage, const std::vector<LayerRange>& layers);
  program::Role build() &&;

 private:
  // A tensor that crosses a stage boundary, as its receiver holds it. `slice` is what is sent: a 1/tensor part of it
  // where the framework splits it over the tensor group (the receiver gathers), else the whole.
  struct Boundary {
    BufferId whole = -1, slice = -1;
    bool split() const { return slice != whole; }
  };

  // The bodies of a backward: one, or the two parts of it.
  struct Backward {
    BodyId input = -1, weight = -1;
  };

  struct Chunk {
    int index = 0;
    LayerRange layers;
    bool first = false, last = false;  // of the model
    std::vector<std::unique_ptr<Unit>> units;
    int first_unit = 0;  // number of its first unit in the stage
    BufferId output = -1;
    Boundary input, output_gradient;
    BodyId forward = -1;
    Backward backward, backward_last;  // the last is that of the last micro-batch
  };

  const Schedule& schedule() const { return schedule_of(context_.plan().schedule, static_cast<int>(context_.stages)); }
  PipelinePlace place() const { return {stage_, static_cast<int>(context_.stages), static_cast<int>(chunks_.size())}; }
  bool batched() const { return context_.profile().batched_point_to_point && schedule().may_batch_transfers(); }
  // "forward", or "forward.chunk1" where there are several.
  std::string named(const std::string& name, const Chunk& chunk) const;

  void make_units(Chunk& chunk);
  std::vector<std::int64_t> boundary_shape(std::int64_t layer) const;
  bool splits(std::int64_t elements) const;
  Boundary declare_boundary(const std::string& name, std::vector<std::int64_t> shape);
  void declare_buffers(Chunk& chunk);

  void emit_begin();
  void emit_forward(Chunk& chunk);
  void emit_backward(Chunk& chunk, bool last_micro_batch);
  void emit_step();
  void gather_for(const Chunk& chunk, int unit, int previous);
  void receive(const Boundary& boundary, bool forward);
  void unpack(const Boundary& boundary, bool forward);
  // What is sent of a whole tensor.
  BufferId packed(BufferId whole, const std::string& name);
  void send(BufferId slice, bool forward);
  program::Leg leg(bool send, bool forward, std::int64_t elements) const;

  std::vector<program::Slot> slots(int micro_batches);
  program::BodyId exchange(program::BodyId before, const ScheduleSlot* sent, const ScheduleSlot* received);

  const Context& context_;
  int stage_;
  RoleBuilder builder_;
  ParameterStore parameters_;
  std::vector<Chunk> chunks_;
  int units_ = 0;
  bool table_shared_ = false;  // the head uses the embedding's table on this stage
  BodyId begin_ = -1, step_ = -1;
  std::map<BodyId, BufferId> sent_by_;  // body -> what is sent after it (batched point-to-point)
  std::map<std::tuple<BodyId, int, int>, BodyId> exchanges_;
};

}  // namespace rehearse::lower
