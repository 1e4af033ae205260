// See calls.h. Calls are counted once a body; over the slots of a step the counts are added up.
#include "sim/program/link/calls.h"

#include <algorithm>

#include "sim/base/interrupt.h"

namespace rehearse::program {
namespace {

CallSequence sequence_of(const Leg& leg, int size) {
  CallSequence sequence;
  sequence.send = leg.send;
  sequence.channel = leg.channel;
  sequence.offset = (leg.offset % size + size) % size;
  if (sequence.offset != 0) sequence.axis = leg.axis;  // a message to oneself goes along no axis
  return sequence;
}

bool same_calls(const CallSequence& a, const CallSequence& b) {
  return a.group == b.group && a.send == b.send && a.axis == b.axis && a.offset == b.offset && a.channel == b.channel;
}

}  // namespace

void RoleCalls::add_call(const CallSequence& sequence, std::vector<std::int32_t>& in_body) {
  auto known = std::find_if(sequences.begin(), sequences.end(),
                            [&](const CallSequence& other) { return same_calls(sequence, other); });
  if (known == sequences.end()) known = sequences.insert(known, sequence);
  const auto id = static_cast<std::size_t>(known - sequences.begin());
  in_body.resize(std::max(in_body.size(), id + 1), 0);
  calls_.push_back({static_cast<std::int32_t>(id), in_body[id]++});
}

RoleCalls number_calls(const Role& role, const std::function<int(Axis)>& axis_size) {
  RoleCalls result;
  std::vector<std::vector<std::int32_t>> in_body(role.bodies.size());  // by body and sequence: calls
  for (std::size_t b = 0; b < role.bodies.size(); ++b) {
    result.first_op_.push_back(result.first_call_.size());
    for (const Op& op : role.bodies[b].ops) {
      result.first_call_.push_back(result.calls_.size());
      if (const auto* c = std::get_if<Collective>(&op.shape)) {
        CallSequence sequence;
        sequence.group = c->group;
        result.add_call(sequence, in_body[b]);
      } else if (const auto* p = std::get_if<PointToPoint>(&op.shape)) {
        for (const Leg& leg : p->legs) result.add_call(sequence_of(leg, axis_size(leg.axis)), in_body[b]);
      }
    }
  }
  result.first_call_.push_back(result.calls_.size());
  for (std::size_t s = 0; s < result.sequences.size(); ++s) {
    check_interrupt();
    CallSequence& sequence = result.sequences[s];
    for (const Slot& slot : role.slots) {
      const std::vector<std::int32_t>& calls = in_body[static_cast<std::size_t>(slot.body)];
      sequence.before.push_back(static_cast<std::int32_t>(sequence.per_step));
      if (s < calls.size()) sequence.per_step += calls[s];
    }
  }
  return result;
}

}  // namespace rehearse::program
