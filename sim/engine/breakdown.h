// Where the compute stream's time goes in the last step. The window is the same for every rank: from the end of the
// step before over all ranks to the end of the last step. Inside it the intervals a rank reports tile the time, so its
// shares sum to the window. A wait is blamed on what ends it, with three shares: the time before that transfer was
// posted on this rank (it was queued behind others), the time from then until all its peers had posted, and the time
// its bytes moved.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "sim/engine/wide.h"
#include "sim/program/program.h"
#include "sim/result/result.h"

namespace rehearse::engine {

// What a wait is blamed on.
struct Blame {
  result::Share queued = result::Share::other, peers = result::Share::other, moving = result::Share::other;
};

// The end of a wait: whose, and when that op was posted and could start (a kernel: both -1, all of it counts as
// moving).
struct Before {  // what the op itself waited for until it was posted, from when its stream was free; -1: nothing
  Blame blame;
  std::int64_t from = -1, posted = -1, started = -1;
};
struct Cause {
  Blame blame;
  std::int64_t posted = -1, started = -1;
  Before before = {};
};

Blame blame_for_group(program::GroupKind kind, bool several_roles);
Blame blame_for_messages(Axis axis);
Blame blame_for_kernel(program::StreamKind stream);  // a kernel on another stream
inline constexpr Blame kHostBlame{result::Share::host, result::Share::host, result::Share::host};

class Breakdown {
 public:
  explicit Breakdown(std::size_t ranks) : shares_(ranks) {}

  // The step before the last has ended everywhere; intervals reported from now on count from here.
  void open(std::int64_t now) { from_ = now; }
  // [begin, end) of a rank, end <= now.
  void add(std::int32_t rank, result::Share share, std::int64_t begin, std::int64_t end) {
    if (end <= from_) return;
    shares_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(share)] +=
        std::max<std::int64_t>(0, end - std::max(begin, from_));
  }
  void add_wait(std::int32_t rank, std::int64_t begin, std::int64_t end, const Cause& cause) {
    if (end <= from_) return;
    const std::int64_t posted = std::clamp(cause.posted, begin, end);
    if (cause.before.from >= 0 && cause.before.from < posted) {
      const std::int64_t from = std::max(cause.before.from, begin);
      add(rank, cause.blame.queued, begin, from);
      add_parts(rank, cause.before.blame, from, cause.before.posted, cause.before.started, posted);
      begin = posted;
    }
    add_parts(rank, cause.blame, begin, cause.posted, cause.started, end);
  }
  // Mean over the first `ranks`, rounded down; the remainder goes to the largest share. Every one must sum to `window`.
  std::array<std::int64_t, result::kShares> mean(std::size_t ranks, std::int64_t window) const;

 private:
  void add_parts(std::int32_t rank, const Blame& blame, std::int64_t begin, std::int64_t posted, std::int64_t started,
                 std::int64_t end) {
    posted = std::clamp(posted, begin, end);
    started = std::clamp(started, posted, end);
    add(rank, blame.queued, begin, posted);
    add(rank, blame.peers, posted, started);
    add(rank, blame.moving, started, end);
  }

  std::int64_t from_ = kNever;
  std::vector<std::array<std::int64_t, result::kShares>> shares_;
};

}  // namespace rehearse::engine
