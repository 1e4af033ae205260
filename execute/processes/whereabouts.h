// Where a rank is: the step, and by stream the op it is at. A rank's threads write, any thread - with ranks that are
// processes of one machine, any process, since this may lie in shared memory - reads it to say what a rank was doing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "execute/timeline.h"

namespace rehearse::execute {

struct Whereabouts {
  static constexpr std::size_t kStreams = 32;  // DualPipe over all axes has 17
  Whereabouts() {
    for (auto& i : instance) i.store(-1, std::memory_order_relaxed);
  }
  std::atomic<std::int64_t> step = 0;
  std::array<std::atomic<std::int32_t>, kStreams> instance;  // of Timeline::instances, by stream; -1: none
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<std::int32_t>::is_always_lock_free);

// "'layer2.forward' (slot 4: forward micro-batch 2)": the first stream that is at an op, the compute stream first,
// since the others mostly wait for it. Empty if none is.
std::string place_text(const Timeline& timeline, const Whereabouts& at);

// "rank 3 (stage1) was in 'layer2.forward' (slot 4: forward micro-batch 2)".
std::string whereabouts_text(const Timeline& timeline, int rank, const Whereabouts& at);

}  // namespace rehearse::execute
