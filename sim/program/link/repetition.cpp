// See repetition.h.
#include "sim/program/link/repetition.h"

#include <algorithm>
#include <vector>

#include "sim/base/interrupt.h"

namespace rehearse::program {
namespace {

// The longest round looked for; that of an interleaved schedule has two slots for each chunk of each stage.
constexpr std::int32_t kLongestRound = 512;
// Fewer rounds are not worth the look.
constexpr std::int32_t kFewestRounds = 4;

// The micro-batches that a body's operands mean, relative to the slot's.
struct Deltas {
  int least = 0, most = 0;
};

std::vector<Deltas> deltas_of(const Role& role) {
  std::vector<Deltas> all;
  for (const Body& body : role.bodies) {
    Deltas& deltas = all.emplace_back();
    for (const Op& op : body.ops)
      for (const auto* operands : {&op.reads, &op.writes, &op.releases})
        for (const Operand& o : *operands) {
          deltas.least = std::min(deltas.least, o.micro_batch_delta);
          deltas.most = std::max(deltas.most, o.micro_batch_delta);
        }
  }
  return all;
}

// How much further on the micro-batch of the slot `period` later is, of the same body; 0: it is no such slot.
int advance_at(const std::vector<Slot>& slots, std::int32_t at, std::int32_t period) {
  const Slot &here = slots[static_cast<std::size_t>(at)], &there = slots[static_cast<std::size_t>(at + period)];
  return here.body == there.body && here.micro_batch >= 0 ? std::max(0, there.micro_batch - here.micro_batch) : 0;
}

void keep_longer(Repetition& best, const Repetition& other) {
  if (other.times >= kFewestRounds && other.times * other.period > best.times * best.period) best = other;
}

// Runs of slots that are each like the one `period` later.
void look(const std::vector<Slot>& slots, std::int32_t period, Repetition& best) {
  const auto count = static_cast<std::int32_t>(slots.size());
  Repetition open{0, period, 0, 0};
  std::int32_t length = 0;
  for (std::int32_t at = 0; at + period < count; ++at) {
    const int advance = advance_at(slots, at, period);
    if (advance == 0 || advance != open.advance) open.first = at, open.advance = advance, length = 0;
    if (advance == 0) continue;
    open.times = (++length + period) / period;
    keep_longer(best, open);
  }
}

}  // namespace

std::int32_t Repetition::most_left_out(std::int32_t done) const {
  if (done < 1 || least_in_first + (done - 1) * advance <= highest_before) return 0;
  const std::int64_t room = (std::int64_t{least_after} - highest_before - 1) / advance;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(room, 0, times - done));
}

Repetition repetition_of(const Role& role) {
  const auto count = static_cast<std::int32_t>(role.slots.size());
  Repetition best;
  for (std::int32_t period = 1; period <= std::min(kLongestRound, count / kFewestRounds); ++period) {
    check_interrupt();
    look(role.slots, period, best);
  }
  if (best.times == 0) return best;
  const std::vector<Deltas> deltas = deltas_of(role);
  const std::int32_t after = best.first + best.times * best.period;
  best.least_in_first = INT32_MAX;
  for (std::int32_t s = 0; s < count; ++s) {
    const Slot& slot = role.slots[static_cast<std::size_t>(s)];
    if (slot.micro_batch < 0) continue;
    const Deltas& d = deltas[static_cast<std::size_t>(slot.body)];
    if (s < best.first) best.highest_before = std::max(best.highest_before, slot.micro_batch + d.most);
    if (s >= best.first && s < best.first + best.period)
      best.least_in_first = std::min(best.least_in_first, slot.micro_batch + d.least);
    if (s >= after) best.least_after = std::min(best.least_after, slot.micro_batch + d.least);
  }
  return best;
}

}  // namespace rehearse::program
