// One pipeline stage: its chunks of units (one unless the schedule interleaves), the bodies made of them, the transfers
// to the neighbours, and the slot order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/lower/model/unit.h"
#include "sim/lower/parallel/parameters.h"
#include "sim/lower/parallel/pipeline.h"

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
    // Of the first micro-batch and of the others: the same, unless the first casts weights for 8-bit products.
    BodyId forward_first = -1, forward = -1;
    Backward backward, backward_last;  // the last is that of the last micro-batch
  };

  const plan::PipelineSchedule& schedule() const {
    return plan::schedule_of(context_.plan().schedule, context_.stages);
  }
  plan::PipelinePlace place() const {
    return {stage_, static_cast<int>(context_.stages), static_cast<int>(chunks_.size())};
  }
  // "forward", or "forward.chunk1" where there are several.
  std::string named(const std::string& name, const Chunk& chunk) const;

  void make_units(Chunk& chunk);
  std::vector<std::int64_t> boundary_shape(std::int64_t layer) const;
  void declare_buffers(Chunk& chunk);

  void emit_begin();
  void emit_forward(Chunk& chunk);
  void emit_backward(Chunk& chunk, bool last_micro_batch);
  void emit_step();
  void gather_for(const Chunk& chunk, int unit, int previous);
  void wait_for_gathers(OpRef before, int ops_before);
  std::vector<program::Slot> slots(int micro_batches);

  const Context& context_;
  int stage_;
  RoleBuilder builder_;
  ParameterStore parameters_;
  PipelineTransfers transfers_;
  std::vector<Chunk> chunks_;
  int units_ = 0;
  bool table_shared_ = false;  // the head uses the embedding's table on this stage
  BodyId begin_ = -1, step_ = -1;
};

}  // namespace rehearse::lower
