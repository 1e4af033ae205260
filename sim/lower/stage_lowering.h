// One pipeline stage: its units, the bodies made of them, the transfers to the neighbours, and the slot order.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "sim/lower/parameters.h"
#include "sim/lower/schedule.h"
#include "sim/lower/unit.h"

namespace rehearse::lower {

class StageLowering {
 public:
  // `first_layer`, `layers`: the stage's share of the model's layers (units of cnn and mlp count as layers).
  StageLowering(const Context& context, int stage, std::int64_t first_layer, std::int64_t layers);
  program::Role build() &&;

 private:
  // A tensor that crosses a stage boundary, as its receiver holds it. `slice` is what is sent: a 1/tensor part of it
  // where the framework splits it over the tensor group (the receiver gathers), else the whole.
  struct Boundary {
    BufferId whole = -1, slice = -1;
    bool split() const { return slice != whole; }
  };

  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ == context_.stages - 1; }
  bool batched() const { return context_.profile().batched_point_to_point; }

  void make_units(std::int64_t first_layer, std::int64_t layers);
  std::vector<std::int64_t> boundary_shape(std::int64_t layer) const;
  bool splits(std::int64_t elements) const;
  Boundary declare_boundary(const std::string& name, std::vector<std::int64_t> shape);
  void declare_buffers();

  void emit_begin();
  void emit_forward();
  void emit_backward(const std::string& name, bool last_micro_batch);
  void emit_step();
  void gather_for(int unit, int previous);
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
  std::int64_t first_layer_, layers_;
  RoleBuilder builder_;
  ParameterStore parameters_;
  std::vector<std::unique_ptr<Unit>> units_;
  bool table_shared_ = false;  // the head uses the embedding's table on this stage
  BufferId output_ = -1;
  Boundary input_, output_gradient_;
  BodyId begin_ = -1, forward_ = -1, backward_ = -1, backward_last_ = -1, step_ = -1;
  std::map<BodyId, BufferId> sent_by_;  // body -> what is sent after it (batched point-to-point)
  std::map<std::tuple<BodyId, int, int>, BodyId> exchanges_;
};

}  // namespace rehearse::lower
