// What ops wait for by events, and where ops stand in a step.
//
// An execution of a wait refers to the latest record before it in program order (program.h). An event is recorded by
// one op of one body, so that is the record in the wait's own slot if the recording op comes earlier in its body, else
// the one in the latest earlier slot of the recorder's body, which may be of the step before. Waits for a record on the
// op's own stream are always met and are left out, as are those for events that nothing in a step records.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/program/program.h"

namespace rehearse::program {

// The host, which is done with a HostSync when that one's waits are met, is a stream of its own.
inline constexpr StreamId kHostStream = -1;
StreamId stream_of(const Op& op);

struct EventWait {
  EventId event;
  StreamId stream;  // of the recording op
  BodyId body;      // the recording op
  std::int32_t op;
  bool same_slot;  // else in the latest earlier slot of `body`
};

class RoleWaits {
 public:
  // In the order of Op::waits.
  std::span<const EventWait> of(BodyId body, int op) const {
    const std::size_t at = first_op_[static_cast<std::size_t>(body)] + static_cast<std::size_t>(op);
    return {waits_.data() + first_wait_[at], waits_.data() + first_wait_[at + 1]};
  }
  std::span<const EventWait> all() const { return waits_; }

 private:
  friend RoleWaits resolve_waits(const Role& role);
  std::vector<EventWait> waits_;
  std::vector<std::size_t> first_op_;    // by body, in first_wait_
  std::vector<std::size_t> first_wait_;  // by op, in waits_; one more at the end
};

RoleWaits resolve_waits(const Role& role);

class StepOrder {
 public:
  explicit StepOrder(const Role& role);

  // The latest slot of `body` before `slot`: negative if it is of the step before, -1 being that step's last slot. Some
  // slot must have the body.
  std::int32_t latest(std::int32_t slot, BodyId body) const {
    return latest_[static_cast<std::size_t>(slot) * bodies_ + static_cast<std::size_t>(body)];
  }
  // Slots of `body` in the step before `slot`.
  std::int32_t runs_before(std::int32_t slot, BodyId body) const {
    return runs_[static_cast<std::size_t>(slot) * bodies_ + static_cast<std::size_t>(body)];
  }

 private:
  std::size_t bodies_;
  std::vector<std::int32_t> latest_, runs_;  // by slot and body
};

}  // namespace rehearse::program
