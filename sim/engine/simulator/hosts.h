// The host of each rank launches ops in program order, launch_cost each (Op::launches: several; the op begins at the
// first of them, what follows it at the last); at a HostSync it waits until the sync's waits are met and goes on from
// there. A sync itself launches nothing and costs nothing. With no launch cost and no HostSync none of this does any
// work.
#pragma once

#include <cstdint>

#include "sim/base/units.h"
#include "sim/engine/code.h"
#include "sim/engine/ids.h"
#include "sim/engine/simulator/accounts.h"
#include "sim/engine/simulator/clock.h"
#include "sim/engine/simulator/op_records.h"
#include "sim/engine/simulator/ranks.h"
#include "sim/engine/simulator/streams.h"

namespace rehearse::engine {

class Jobs;

class Hosts {
 public:
  // `steps` as Options::steps.
  Hosts(Clock& clock, const Ranks& ranks, std::int32_t steps, Streams& streams, Jobs& jobs, Accounts& accounts,
        OpRecords& records);

  // Goes on from the step that the rank's host has come to.
  void start(RankId rank);
  // The HostSync that the host waits at may be waiting for this record (Streams::record); `by` is whose it is.
  void recorded(RankId rank, std::int32_t stream, std::int64_t progress, Cause by);
  // The event of the HostSync with this number is recorded.
  void reach_record(RankId rank, std::uint32_t sync);

  // Whether the segment is behind a HostSync that is pending.
  bool holds(const Place& place, const Segment& segment) const {
    if (place.code->syncs.empty()) return false;
    return first_issue(place) + place.code->ops[segment.ops.first].issue >= hosts_[place.rank].limit;
  }
  // When the first op of the stream's slot is launched. Later ops of the body follow launch_cost apart: a HostSync
  // between them has moved the base by the time they are looked at, and no segment reaches over one.
  Time launch_base(const Place& place) const {
    const Host& host = hosts_[place.rank];
    return host.base + place.code->launch_cost * (first_issue(place) - host.base_issue + 1);
  }
  // When the op at a position of the slot is.
  Time launch(const Place& place, Position position) const {
    return launch_base(place) + place.code->launch_cost * place.code->ops[position].issue;
  }
  // HostSyncs of a rank of which the record is out.
  std::int64_t progress(RankId rank) const { return hosts_[rank].progress; }
  // Whether those of a job have no HostSync left.
  bool done(JobId job) const;

  // The HostSync that the host of a rank is at, and the wait that holds it.
  SyncId sync(RankId rank) const { return hosts_[rank].sync; }
  const UnmetWait& held_by(RankId rank) const { return hosts_[rank].held; }
  // The step of that HostSync.
  std::int32_t step(RankId rank) const { return hosts_[rank].step; }

  // Something of the rank was to begin and was not launched yet; how often that was.
  void note_late(RankId rank) { ++hosts_[rank].late; }
  std::int64_t late(RankId rank) const { return hosts_[rank].late; }

  template <class Visitor>
  void show(RankId rank, Visitor& visitor) {
    Host& host = hosts_[rank];
    visitor.same(host.step);
    visitor.count(host.sync);
    visitor.count(host.progress);
    visitor.count(host.base_issue);
    visitor.count(host.limit);
    visitor.time(host.base);
    visitor.same(host.ended);
    if (ranks_[rank].code->syncs.empty()) return;
    visitor.count(host.held.wait);  // waits of HostSyncs are of one slot each
    visitor.same(host.held.stream);
    visitor.count(host.held.needed);
  }

 private:
  struct Host {
    std::int32_t step = 0;
    SyncId sync{0};  // the next
    Time base;       // op i is launched by base + launch_cost * (i - base_issue + 1)
    std::int64_t base_issue = 0;
    std::int64_t limit = INT64_MAX;  // ops from this one on are behind a HostSync that is pending
    std::int64_t progress = 0;
    UnmetWait held;
    Cause ended = kNobody;  // who ended its last wait
    std::int64_t late = 0;
  };

  // How many ops the host issues before the stream's slot, from the beginning of the run.
  static std::int64_t first_issue(const Place& place) {
    return place.code->issues_before(place.step) + place.code->slot_issue[place.slot];
  }
  void advance(RankId rank);
  void pass(RankId rank, const SyncCode& sync);
  void set_limit(RankId rank);

  Clock& clock_;
  const Ranks& ranks_;
  const std::int32_t steps_;
  Streams& streams_;
  Jobs& jobs_;
  Accounts& accounts_;
  OpRecords& records_;
  IdVector<RankId, Host> hosts_;
};

}  // namespace rehearse::engine
