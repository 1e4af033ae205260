// The calls of a role's transfers, numbered in program order, so that ranks agree on which call is which: the k-th call
// of a process group's members is one collective, the k-th send on a channel is received by the k-th receive.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sim/program/link/grid_view.h"

namespace rehearse::program {

// Calls that match other ranks' in order: on a group, or one direction of a channel to a peer.
struct CallSequence {
  GroupId group = -1;  // -1: messages
  bool send = false;   // messages
  Axis axis = Axis::pipeline;
  int offset = 0;  // of the peer, in [0, size of the axis)
  int channel = 0;
  std::int64_t per_step = 0;         // calls a step; 0: only in bodies that no slot uses
  std::vector<std::int32_t> before;  // by slot: calls of the step in the slots before it

  // How many calls come before this one since the run began.
  std::int64_t number(std::int64_t step, std::int32_t slot, std::int32_t ordinal) const {
    return step * per_step + before[static_cast<std::size_t>(slot)] + ordinal;
  }
};

// A collective op, or a leg of a point-to-point op.
struct TransferCall {
  std::int32_t sequence;  // RoleCalls::sequences
  std::int32_t ordinal;   // among the calls of its sequence in the body
};

class RoleCalls {
 public:
  std::vector<CallSequence> sequences;  // in the order in which bodies first call

  // Of an op, in leg order; none of a kernel.
  std::span<const TransferCall> of(BodyId body, int op) const {
    const std::size_t at = first_op_[static_cast<std::size_t>(body)] + static_cast<std::size_t>(op);
    return {calls_.data() + first_call_[at], calls_.data() + first_call_[at + 1]};
  }
  std::int64_t number(const TransferCall& call, std::int64_t step, std::int32_t slot) const {
    return sequences[static_cast<std::size_t>(call.sequence)].number(step, slot, call.ordinal);
  }

 private:
  friend RoleCalls number_calls(const Role& role, const std::function<int(Axis)>& axis_size);
  void add_call(const CallSequence& sequence, std::vector<std::int32_t>& in_body);

  std::vector<TransferCall> calls_;
  std::vector<std::size_t> first_op_;    // by body, in first_call_
  std::vector<std::size_t> first_call_;  // by op, in calls_; one more at the end
};

// axis_size: GridView::size.
RoleCalls number_calls(const Role& role, const std::function<int(Axis)>& axis_size);

}  // namespace rehearse::program
