// See op_records.h.
#include "sim/engine/simulator/op_records.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "sim/engine/simulator/streams.h"

namespace rehearse::engine {

result::OpRecord& OpRecords::keep(StreamId id, const Place& place, Position position, Time start, Time end) {
  const OpRef& op = place.code->ops[position];
  Release& released = released_[id];
  const Time waited = released.there - released.asked;
  if (waited > Time()) start = released.asked;
  result::OpRecord& record = records_.emplace_back(
      result::OpRecord{place.rank.value(), step_, place.slot.value(), op.body, op.op, start.ps(), (end - start).ps()});
  record.queued_ps = (start - released.at).ps();
  record.woken_by = stream_of(place.rank, released.by);
  if (waited > Time()) {
    record.waited_ps = waited.ps();
    record.waited_for = result::Share::exposed_input;
  }
  released = {end, kNobody, {}, {}};
  return record;
}

void OpRecords::keep_sync(RankId rank, const SyncCode& sync, Time met, Time passed, Cause by) {
  result::OpRecord& record = records_.emplace_back(
      result::OpRecord{rank.value(), step_, sync.slot.value(), sync.body, sync.op, passed.ps(), 0});
  record.queued_ps = (passed - met).ps();
  record.woken_by = stream_of(rank, by);
}

// Of its rank; -1: none. HostSyncs stand on one of their own.
std::int32_t OpRecords::stream_of(RankId rank, Cause by) const {
  if (!by.exists()) return -1;
  const RankInfo& info = ranks_[rank];
  if (by != accounts_.host(rank)) return by.value() - info.first_stream.value();
  const SyncCode& sync = info.code->syncs[SyncId(0)];
  return info.code->role->bodies[static_cast<std::size_t>(sync.body)].ops[static_cast<std::size_t>(sync.op)].stream;
}

std::vector<result::OpRecord> OpRecords::take() {
  std::vector<result::OpRecord> of_all;
  of_all.reserve(records_.size());
  for (const result::OpRecord& record : records_)
    for (const std::int32_t rank : ranks_[RankId(record.rank)].recorded) of_all.emplace_back(record).rank = rank;
  records_ = std::move(of_all);
  std::sort(records_.begin(), records_.end(), [](const result::OpRecord& a, const result::OpRecord& b) {
    return std::tie(a.rank, a.start_ps, a.slot, a.op) < std::tie(b.rank, b.start_ps, b.slot, b.op);
  });
  return std::move(records_);
}

}  // namespace rehearse::engine
