// See waits.h.
#include "sim/program/link/waits.h"

#include "sim/base/interrupt.h"

namespace rehearse::program {
namespace {

struct Recorder {
  BodyId body = -1;
  std::int32_t op = -1;
  StreamId stream = 0;
};

std::vector<Recorder> recorders_of(const Role& role) {
  std::vector<Recorder> recorders(role.events.size());
  for (std::size_t b = 0; b < role.bodies.size(); ++b)
    for (std::size_t i = 0; i < role.bodies[b].ops.size(); ++i) {
      const Op& op = role.bodies[b].ops[i];
      if (op.records < 0) continue;
      recorders.at(static_cast<std::size_t>(op.records)) = {static_cast<BodyId>(b), static_cast<std::int32_t>(i),
                                                            stream_of(op)};
    }
  return recorders;
}

}  // namespace

StreamId stream_of(const Op& op) {
  return std::holds_alternative<HostSync>(op.shape) ? kHostStream : op.stream;
}

RoleWaits resolve_waits(const Role& role) {
  const std::vector<Recorder> recorders = recorders_of(role);
  std::vector<char> used(role.bodies.size(), 0);
  for (const Slot& slot : role.slots) used.at(static_cast<std::size_t>(slot.body)) = 1;
  RoleWaits result;
  for (std::size_t b = 0; b < role.bodies.size(); ++b) {
    const auto body = static_cast<BodyId>(b);
    result.first_op_.push_back(result.first_wait_.size());
    for (std::size_t i = 0; i < role.bodies[b].ops.size(); ++i) {
      const Op& op = role.bodies[b].ops[i];
      result.first_wait_.push_back(result.waits_.size());
      for (const EventId event : op.waits) {
        const Recorder& r = recorders.at(static_cast<std::size_t>(event));
        if (r.body < 0 || r.stream == stream_of(op) || !used[static_cast<std::size_t>(r.body)]) continue;
        result.waits_.push_back({event, r.stream, r.body, r.op, r.body == body && r.op < static_cast<int>(i)});
      }
    }
  }
  result.first_wait_.push_back(result.waits_.size());
  return result;
}

StepOrder::StepOrder(const Role& role) : bodies_(role.bodies.size()) {
  std::vector<std::int32_t> latest(bodies_, 0), runs(bodies_, 0);
  const auto slots = static_cast<std::int32_t>(role.slots.size());
  for (std::int32_t s = 0; s < slots; ++s)
    latest[static_cast<std::size_t>(role.slots[static_cast<std::size_t>(s)].body)] = s - slots;
  for (std::int32_t s = 0; s < slots; ++s) {
    check_interrupt();
    latest_.insert(latest_.end(), latest.begin(), latest.end());
    runs_.insert(runs_.end(), runs.begin(), runs.end());
    const auto body = static_cast<std::size_t>(role.slots[static_cast<std::size_t>(s)].body);
    latest[body] = s;
    ++runs[body];
  }
}

}  // namespace rehearse::program
