// What crosses the boundaries between pipeline stages: outputs forward, their gradients back. Either each slot receives
// at its start and sends at its end on streams of their own, during compute, or (batched, as Megatron-LM does) a group
// op between two slots sends the one's output and receives the other's input while the host waits.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "sim/lower/stage.h"
#include "sim/plan/schedule/schedule.h"

namespace rehearse::lower {

// Between stages of a decoder that reads an encoder's output this output goes on with the decoder's, and its gradient
// back with theirs: two tensors of one transfer.
//
// A tensor that crosses a stage boundary, as its receiver holds it. `slice` is what is sent: a 1/tensor part of it
// where the framework splits it over the tensor group (the receiver gathers), else the whole.
struct Boundary {
  BufferId whole = -1, slice = -1;
  bool split() const { return slice != whole; }
};

class PipelineTransfers {
 public:
  PipelineTransfers(const Context& context, RoleBuilder& builder, bool batched)
      : context_(context), builder_(builder), batched_(batched) {}

  bool batched() const { return batched_; }
  Boundary declare_boundary(const std::string& name, std::vector<std::int64_t> shape);

  // What follows is of a chunk whose forward goes from the stage after to the one before (`up`), or the other way.
  void set_way(bool up) { up_ = up; }
  // In the current body, unless batched. `forward`: an input of the chunk; else a gradient of its output.
  void receive(const std::vector<Boundary>& boundaries, bool forward);
  // Makes the whole tensor of what was received.
  void unpack(const Boundary& boundary, bool forward);
  // What is sent of a whole tensor.
  BufferId packed(BufferId whole, const std::string& name);
  // At the end of the current body; batched: by the group op after it.
  void send(const std::vector<BufferId>& slices, bool forward);
  // Batched: the body `copy` sends what `of` does.
  void sends_alike(BodyId copy, BodyId of) {
    if (const auto sent = sent_by_.find(of); sent != sent_by_.end()) sent_by_[copy] = sent->second;
  }

  // Batched: the group op between two slots, from the view of the one before (of the one after, if that is the first).
  // `before` is the body of `sent`; `targets` are what `received` waits for; none: nothing. Returns the body, -1 if
  // nothing is transferred.
  BodyId exchange(BodyId before, const plan::ScheduleSlot* sent, const plan::ScheduleSlot* received,
                  const std::vector<BufferId>& targets);

 private:
  bool splits(std::int64_t elements) const;
  program::Leg leg(bool is_send, bool forward, std::int64_t elements) const;
  // Of transfers to or from the next stage, or the previous one. What goes the same way in another order, gradients of
  // chunks that go up beside outputs of those that go down, has a stream of its own.
  std::string stream(bool is_send, bool forward) const;

  const Context& context_;
  RoleBuilder& builder_;
  bool batched_;
  bool up_ = false;
  std::map<BodyId, std::vector<BufferId>> sent_by_;  // body -> what is sent after it (batched)
  std::map<std::tuple<BodyId, int, int>, BodyId> exchanges_;
};

}  // namespace rehearse::lower
