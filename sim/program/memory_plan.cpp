// The memory curve of a role over one step. What a slot allocates and frees depends only on its body and on which
// instances live when it begins, so a step is walked slot by slot over an automaton: the live buffers of one
// micro-batch are an interned state, as are the live step buffers, and the curve of (body, states at entry) is computed
// once. The cost is that of the distinct curves (about one a body), not of all op instances; the result equals the walk
// op by op exactly. Leaves out: what placing the buffers takes beyond it (link/places.h).
#include "sim/program/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"
#include "sim/program/body_changes.h"
#include "sim/program/describe.h"

namespace rehearse::program {
namespace {

using ByClass = std::array<std::int64_t, kBufferClasses>;
using LiveSet = std::vector<std::uint64_t>;  // bits by buffer

std::int64_t round_up(std::int64_t bytes, std::int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

struct OwnBytes {
  int op;
  std::int64_t bytes;
};

// What a body does to memory when it begins in given states, relative to its beginning.
struct Curve {
  ByClass net{}, at_peak{}, highest{};
  std::int64_t peak = 0;
  int peak_op = -1;          // -1: never above the beginning, so no peak of the step either
  std::vector<int> outcome;  // states at the end: step, then one a delta
};

class PeakWalk {
 public:
  PeakWalk(const Role& role, std::int64_t alignment, bool on_host, const OwnMemory& own);
  MemoryPeak run();

 private:
  int intern(const LiveSet& set);
  const Curve& curve_of(const std::vector<int>& key);
  Curve compute(const std::vector<int>& key);
  void apply(const Slot& slot, const Curve& curve);

  const Role& role_;
  const LiveSet empty_;
  std::vector<std::int64_t> bytes_;
  std::vector<BodyChanges> bodies_;
  std::vector<std::vector<OwnBytes>> own_;  // of each body's kernels, in their order
  std::vector<LiveSet> states_;
  std::map<LiveSet, int> state_ids_;
  std::map<std::vector<int>, Curve> curves_;  // key: body, step state, state a delta
  ByClass live_{};
  std::int64_t total_ = 0;
  MemoryPeak peak_;
};

// Buffers of the other memory are of no bytes.
PeakWalk::PeakWalk(const Role& role, std::int64_t alignment, bool on_host, const OwnMemory& own)
    : role_(role), empty_((role.buffers.size() + 63) / 64, 0), own_(role.bodies.size()) {
  for (const Buffer& b : role.buffers) bytes_.push_back(b.on_host == on_host ? round_up(b.bytes(), alignment) : 0);
  for (const Body& body : role.bodies) bodies_.push_back(changes_of(role, body));
  if (!own) return;
  for (std::size_t b = 0; b < role.bodies.size(); ++b)
    for (std::size_t i = 0; i < role.bodies[b].ops.size(); ++i)
      if (const std::int64_t bytes = own(role.bodies[b].ops[i]); bytes > 0)
        own_[b].push_back({static_cast<int>(i), bytes});
}

int PeakWalk::intern(const LiveSet& set) {
  const auto [it, added] = state_ids_.emplace(set, static_cast<int>(states_.size()));
  if (added) states_.push_back(set);
  return it->second;
}

const Curve& PeakWalk::curve_of(const std::vector<int>& key) {
  const auto it = curves_.find(key);
  if (it != curves_.end()) return it->second;
  return curves_.emplace(key, compute(key)).first->second;
}

Curve PeakWalk::compute(const std::vector<int>& key) {
  const BodyChanges& body = bodies_[static_cast<std::size_t>(key[0])];
  std::vector<LiveSet> live(1, empty_);
  for (std::size_t i = 1; i < key.size(); ++i) live.push_back(states_[static_cast<std::size_t>(key[i])]);
  Curve curve;
  std::int64_t total = 0;
  constexpr auto kWorkspace = static_cast<std::size_t>(BufferClass::workspace);
  const std::vector<OwnBytes>& own = own_[static_cast<std::size_t>(key[0])];
  auto taken = own.begin();
  // While an op runs, what it writes is there and what it releases still is.
  const auto take = [&] {
    curve.highest[kWorkspace] = std::max(curve.highest[kWorkspace], curve.net[kWorkspace] + taken->bytes);
    if (total + taken->bytes > curve.peak) {
      curve.peak = total + taken->bytes;
      curve.at_peak = curve.net;
      curve.at_peak[kWorkspace] += taken->bytes;
      curve.peak_op = taken->op;
    }
    ++taken;
  };
  for (std::size_t i = 0; i < body.changes.size(); ++i) {
    const BodyChange& t = body.changes[i];
    while (taken != own.end() && (taken->op < t.op || (taken->op == t.op && t.release))) take();
    const auto buffer = static_cast<std::size_t>(t.buffer);
    std::uint64_t& word = live[static_cast<std::size_t>(t.domain)][buffer / 64];
    const std::uint64_t flag = std::uint64_t{1} << (buffer % 64);
    if (((word & flag) != 0) != t.release) continue;  // written again while alive, or released while not
    word ^= flag;
    const auto cls = static_cast<std::size_t>(role_.buffers[buffer].cls);
    const std::int64_t change = t.release ? -bytes_[buffer] : bytes_[buffer];
    curve.net[cls] += change;
    total += change;
    if (t.release) continue;
    curve.highest[cls] = std::max(curve.highest[cls], curve.net[cls]);
    if (total > curve.peak) {
      curve.peak = total;
      curve.at_peak = curve.net;
      curve.peak_op = t.op;
    }
  }
  while (taken != own.end()) take();
  for (std::size_t i = 1; i < live.size(); ++i) curve.outcome.push_back(intern(live[i]));
  return curve;
}

void PeakWalk::apply(const Slot& slot, const Curve& curve) {
  for (std::size_t c = 0; c < kBufferClasses; ++c)
    peak_.highest[c] = std::max(peak_.highest[c], live_[c] + curve.highest[c]);
  if (curve.peak_op >= 0 && total_ + curve.peak > peak_.peak_bytes) {
    peak_.peak_bytes = total_ + curve.peak;
    for (std::size_t c = 0; c < kBufferClasses; ++c) peak_.at_peak[c] = live_[c] + curve.at_peak[c];
    const Body& body = role_.bodies[static_cast<std::size_t>(slot.body)];
    peak_.where = fmt::format("{}: {}", slot_text(role_, slot), body.ops[static_cast<std::size_t>(curve.peak_op)].name);
  }
  for (std::size_t c = 0; c < kBufferClasses; ++c) {
    live_[c] += curve.net[c];
    total_ += curve.net[c];
  }
}

MemoryPeak PeakWalk::run() {
  int micro_batches = 0;
  for (const Slot& s : role_.slots) micro_batches = std::max(micro_batches, s.micro_batch + 1);
  for (std::size_t b = 0; b < role_.buffers.size(); ++b) {
    if (role_.buffers[b].is_view() || role_.buffers[b].lifetime != Lifetime::persistent) continue;
    live_[static_cast<std::size_t>(role_.buffers[b].cls)] += bytes_[b];
    total_ += bytes_[b];
  }
  peak_ = {live_, live_, total_, "persistent buffers"};
  const int empty = intern(empty_);
  std::vector<int> states(static_cast<std::size_t>(micro_batches), empty);
  int step_state = empty;
  std::vector<int> key;
  for (const Slot& slot : role_.slots) {
    check_interrupt();
    const auto& deltas = bodies_[static_cast<std::size_t>(slot.body)].deltas;
    key.assign({slot.body, step_state});
    for (const int delta : deltas) {
      const int m = slot.micro_batch + delta;
      REHEARSE_CHECK(m >= 0 && m < micro_batches, "{}: {} touches micro-batch {} of {}", role_.name,
                     slot_text(role_, slot), m, micro_batches);
      key.push_back(states[static_cast<std::size_t>(m)]);
    }
    const Curve& curve = curve_of(key);
    apply(slot, curve);
    step_state = curve.outcome[0];
    for (std::size_t i = 0; i < deltas.size(); ++i)
      states[static_cast<std::size_t>(slot.micro_batch + deltas[i])] = curve.outcome[i + 1];
  }
  return peak_;
}

}  // namespace

MemoryPeak memory_peak(const Role& role, std::int64_t alignment, bool on_host, const OwnMemory& own) {
  REHEARSE_CHECK(alignment >= 1, "alignment {} is not positive", alignment);
  return PeakWalk(role, alignment, on_host, own).run();
}

}  // namespace rehearse::program
