// One pipeline stage: its chunks of units (one unless the schedule interleaves), the bodies made of them, the transfers
// to the neighbours, and the slot order.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "sim/lower/model/prediction.h"
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
  // `layers`: of each of the stage's chunks, in the model's order. The schedule says which stages are around each.
  StageLowering(const Context& context, int stage, const std::vector<LayerRange>& layers);
  // `theirs`: by stage of `alike`, which have the same chunks of other layers, their slots with this stage's bodies;
  // none where they need bodies that this stage does not have.
  program::Role build(const std::vector<int>& alike = {}, std::vector<std::vector<program::Slot>>* theirs = nullptr) &&;

 private:
  // The bodies of a backward: one, or the two parts of it.
  struct Backward {
    BodyId input = -1, weight = -1;
  };

  static constexpr int kOther = 0, kFirst = 1, kLast = 2;  // of Chunk::backward, in the order they are emitted

  struct Chunk {
    int index = 0;
    LayerRange layers;
    bool first = false, last = false;  // of the model
    // The forward comes from the stage after and goes to the one before. Of two chunks of a stage that follow one
    // another: from the one before, or into the one after, nothing is sent.
    bool up = false, from_here = false, into_here = false;
    bool receives() const { return !first && !from_here; }
    bool sends() const { return !last && !into_here; }
    std::vector<std::unique_ptr<Unit>> units;
    std::vector<BufferId> unit_inputs;
    int first_unit = 0;  // number of its first unit in the stage
    // By unit, what leaves the device between forward and backward, and where it goes: its input
    // (plan.offload_activations), or all that backward reads of it (plan.offload_layers).
    struct Kept {
      BufferId on_device = -1, on_host = -1;
    };
    std::vector<std::vector<Kept>> kept;
    // By unit, where it is a graph of its own (plan.cuda_graphs): what comes in, and where the graph reads it.
    struct Static {
      BufferId from = -1, input = -1;
    };
    std::vector<Static> graphs;
    BufferId output = -1;
    Boundary input, output_gradient;
    // Between two stages of a decoder beside an encoder: the encoder's output, and its gradient, that cross with them.
    Boundary memory, memory_gradient;
    // What comes in, or comes back.
    std::vector<Boundary> inputs() const { return together(input, memory); }
    std::vector<Boundary> gradients() const { return together(output_gradient, memory_gradient); }
    static std::vector<Boundary> together(const Boundary& main, const Boundary& memory) {
      return memory.whole >= 0 ? std::vector<Boundary>{main, memory} : std::vector<Boundary>{main};
    }
    // Of the first micro-batch and of the others: the same, unless the first casts weights for 8-bit products.
    BodyId forward_first = -1, forward = -1;
    // By micro-batch: of the last, of the first where its gradients are not added to others
    // (FrameworkProfile::takes_first_gradient), of any other. Whole and in two parts, as far as the schedule has them.
    Backward backward[3][2];
  };

  const plan::PipelineSchedule& schedule() const {
    return plan::schedule_of(context_.plan().schedule, context_.stages);
  }
  plan::PipelinePlace place() const {
    return {stage_, static_cast<int>(context_.stages), static_cast<int>(chunks_.size()), overlaps(),
            context_.profile().alternates_in_one_round};
  }
  // A forward and the backward behind it run beside one another.
  bool overlaps() const { return context_.plan().overlap_expert_exchange && !context_.plan().forward_only; }
  // "forward", or "forward.chunk1" where there are several.
  std::string named(const std::string& name, const Chunk& chunk) const;

  void add_chunks_of_copies(const std::vector<LayerRange>& layers);
  // All bodies; the order of slots.
  std::vector<program::Slot> emit();
  void make_units(Chunk& chunk);
  void make_first(Chunk& chunk);
  void make_layer(Chunk& chunk, std::int64_t layer);
  void make_layer_of_two(Chunk& chunk, std::int64_t layer);
  void make_last(Chunk& chunk);
  void make_predictions(Chunk& chunk);
  UnitScope next_scope(const Context& context) { return {context, builder_, parameters_, units_++}; }
  void add_unit(Chunk& chunk, std::unique_ptr<Unit> unit);
  void declare_memory(Chunk& chunk);
  void send_gradients(Chunk& chunk, BodyId body, BufferId gradient);
  std::vector<std::int64_t> boundary_shape(std::int64_t layer) const;
  void declare_buffers(Chunk& chunk);

  void emit_begin();
  void emit_forward(Chunk& chunk);
  // `only`: of the step's one micro-batch.
  void emit_backward(Chunk& chunk, int which, bool only, bool parted);
  void emit_backwards();
  void emit_step();
  void keep_on_host(Chunk& chunk, std::size_t unit, BufferId on_device);
  void keep_activations_on_host(Chunk& chunk, std::size_t unit, const RoleBuilder::Mark& since);
  void copy_out(const Chunk& chunk, std::size_t unit);
  // Of the chunk's layers, in its order; -1: the unit is none.
  static std::int64_t layer_of(const Chunk& chunk, std::size_t unit) {
    const std::int64_t layer = static_cast<std::int64_t>(unit) - (chunk.first ? 1 : 0);
    return layer < chunk.layers.count ? layer : -1;
  }
  bool is_graph(const Chunk& chunk, std::size_t unit) const;
  static bool is_head(const Chunk& chunk, std::size_t unit) { return chunk.last && unit + 1 == chunk.units.size(); }
  BufferId declare_static_input(Chunk& chunk, std::size_t unit, BufferId input);
  void copy_into_graph(BufferId from, BufferId to);
  void forward_of(Chunk& chunk, std::size_t unit);
  BufferId backward_of(Chunk& chunk, std::size_t unit, BufferId gradient, bool needed);
  void copy_back(const Chunk& chunk, int unit);
  void come_back(const Chunk& chunk, BodyId body);
  void gather_for(const Chunk& chunk, int unit, int previous);
  void gather_alone(OpRef before, int ops_before);
  // Of each chunk the micro-batches that may have bodies of their own: its first forward, and the first and the last
  // that gives gradients, of its products' weights where those come apart.
  struct Ends {
    std::vector<int> forward, first, last;
  };
  Ends ends_of(const std::vector<plan::ScheduleSlot>& order) const;
  int which_backward(const plan::ScheduleSlot& slot, const Ends& ends) const;
  BodyId body_of(const plan::ScheduleSlot& slot, const Ends& ends) const;
  std::vector<plan::ScheduleSlot> order_of(int micro_batches) const;
  std::vector<program::Slot> slots(int micro_batches);
  std::vector<program::Slot> slots_of(int stage, int micro_batches);
  std::vector<program::Slot> sample_slots(const std::vector<program::Slot>& all, int micro_batches);

  // The loads that micro-batches have in turn: those after the first.
  void add_loads(std::vector<program::Slot>& slots);

  const Context& context_;
  Context decoder_;  // of a decoder beside an encoder; else the same
  int stage_;
  RoleBuilder builder_;
  ParameterStore parameters_;
  PipelineTransfers transfers_;
  std::vector<Chunk> chunks_;
  int units_ = 0;
  bool table_shared_ = false;  // the head uses the embedding's table on this stage
  // Of an encoder with a decoder: the encoder's output here; the tokens' table and the unit that has it; the table of
  // biases of the stack whose layers are being made, and the units that have one.
  CrossMemory memory_;
  ParamId table_ = -1, positions_ = -1, relative_bias_ = -1;
  int table_unit_ = 0;
  std::vector<int> bias_units_;
  Predictions predictions_;  // of multi-token prediction
  BodyId begin_ = -1, step_ = -1, outer_ = -1;
  std::map<std::tuple<BodyId, BodyId, int>, BodyId> merged_;  // forward, backward, its micro-batch against forward's
};

}  // namespace rehearse::lower
