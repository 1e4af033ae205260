// The ops of the last step of the ranks whose ops are recorded.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/code.h"
#include "sim/engine/histories.h"
#include "sim/engine/ids.h"
#include "sim/engine/simulator/accounts.h"
#include "sim/engine/simulator/ranks.h"
#include "sim/result/result.h"

namespace rehearse::engine {

struct Place;

class OpRecords {
 public:
  // Of a run whose step number steps - 1 is recorded.
  OpRecords(const Ranks& ranks, std::size_t streams, std::int32_t steps, const Accounts& accounts)
      : ranks_(ranks), accounts_(accounts), step_(steps - 1), released_(streams) {}

  bool wanted(RankId rank, std::int32_t step) const { return step == step_ && !ranks_[rank].recorded.empty(); }
  // From `now` on nothing but its launch (on a CPU: its thread's turn) holds back the op at the stream's head; `by`
  // ended its wait, if there was one.
  void release(StreamId id, Time now, Cause by) { released_[id] = {now, by, {}, {}}; }
  // The op at the stream's head, which takes a micro-batch, asked for it at `asked`, and it was there at `there`.
  void loaded(StreamId id, Time asked, Time there) { released_[id].asked = asked, released_[id].there = there; }
  // Keeps one that is wanted, which the stream ran at a position of its slot; its next is released at `end`. What only
  // transfers have is for the caller to fill in.
  result::OpRecord& keep(StreamId id, const Place& place, Position position, Time start, Time end);
  // The same of a HostSync whose waits were met at `met`, the last of them by `by`, and which the host, once it had
  // launched all before it, passed at `passed`.
  void keep_sync(RankId rank, const SyncCode& sync, Time met, Time passed, Cause by);
  // What was kept since the record number `first` was kept once more, so many times, each time `period` later and
  // slots_of(rank) slots further on; 0: not that of this rank.
  std::size_t kept() const { return records_.size(); }
  template <class Slots>
  void keep_again(std::size_t first, std::int64_t times, Time period, const Slots& slots_of) {
    const std::size_t last = records_.size();
    records_.reserve(last + (last - first) * static_cast<std::size_t>(times));
    for (std::int64_t time = 1; time <= times; ++time)
      for (std::size_t i = first; i < last; ++i) {
        const std::int32_t slots = slots_of(RankId(records_[i].rank));
        if (slots == 0) continue;
        result::OpRecord record = records_[i];
        record.start_ps += (period * time).ps();
        record.slot += static_cast<std::int32_t>(slots * time);
        records_.push_back(record);
      }
  }
  template <class Visitor>
  void show(StreamId id, Visitor& visitor) {
    Release& released = released_[id];
    visitor.time(released.at);
    visitor.same(released.by);
  }
  // All, by rank and start.
  std::vector<result::OpRecord> take();

 private:
  struct Release {
    Time at;
    Cause by = kNobody;
    Time asked, there;  // of a micro-batch; the same: there was none to wait for
  };

  std::int32_t stream_of(RankId rank, Cause by) const;

  const Ranks& ranks_;
  const Accounts& accounts_;
  std::int32_t step_;
  IdVector<StreamId, Release> released_;
  std::vector<result::OpRecord> records_;
};

}  // namespace rehearse::engine
