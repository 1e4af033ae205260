// See hosts.h.
#include "sim/engine/simulator/hosts.h"

#include <algorithm>

#include "sim/engine/simulator/jobs.h"

namespace rehearse::engine {

Hosts::Hosts(Clock& clock, const Ranks& ranks, std::int32_t steps, Streams& streams, Jobs& jobs, Accounts& accounts,
             OpRecords& records)
    : clock_(clock),
      ranks_(ranks),
      steps_(steps),
      streams_(streams),
      jobs_(jobs),
      accounts_(accounts),
      records_(records),
      hosts_(ranks.size()) {
  if (steps != 1) return;
  for (const RankInfo& rank : ranks)
    if (!rank.code->syncs.empty()) jobs_.add_host(rank.code->job);
}

bool Hosts::done(JobId job) const {
  for (const RankId rank : jobs_.ranks(job))
    if (!ranks_[rank].code->syncs.empty() && hosts_[rank].step < jobs_.stop(job)) return false;
  return true;
}

void Hosts::start(RankId rank) {
  if (ranks_[rank].code->syncs.empty()) return;
  set_limit(rank);
  advance(rank);
}

void Hosts::recorded(RankId rank, std::int32_t stream, std::int64_t progress, Cause by) {
  Host& host = hosts_[rank];
  if (!host.held.wait.exists() || host.held.stream != stream || host.held.needed > progress) return;
  host.ended = by;
  advance(rank);
}

void Hosts::reach_record(RankId rank, std::uint32_t sync) {
  hosts_[rank].progress = sync;
  accounts_.histories().spent(accounts_.host(rank), result::Share::host, clock_.now(), streams_.asked_since(rank));
  streams_.record(rank, -1, sync);
}

void Hosts::set_limit(RankId rank) {
  const RoleCode& code = *ranks_[rank].code;
  Host& host = hosts_[rank];
  host.limit = INT64_MAX;
  if (host.step == jobs_.stop(code.job)) return;
  host.limit = code.issues_before(host.step) + code.syncs[host.sync].issue;
}

// Passes the HostSyncs whose waits are met, and lets go of the streams they held.
void Hosts::advance(RankId rank) {
  const RoleCode& code = *ranks_[rank].code;
  Host& host = hosts_[rank];
  bool moved = false;
  while (host.step < jobs_.stop(code.job)) {
    const SyncCode& sync = code.syncs[host.sync];
    host.held = streams_.unmet(rank, sync.waits, host.step, sync.slot);
    if (host.held.wait.exists()) break;
    pass(rank, sync);
    moved = true;
  }
  if (moved) streams_.release(rank, host.ended);
}

void Hosts::pass(RankId rank, const SyncCode& sync) {
  const RoleCode& code = *ranks_[rank].code;
  Host& host = hosts_[rank];
  host.ended = streams_.who_ended(rank, sync.waits, host.step, sync.slot, host.ended);
  accounts_.histories().waited(accounts_.host(rank), host.ended, clock_.now(), streams_.asked_since(rank));
  const std::int64_t issue = host.limit;
  const auto progress =
      static_cast<std::uint32_t>(host.step * static_cast<std::int32_t>(code.syncs.size()) + host.sync.value() + 1);
  host.base = std::max(clock_.now(), host.base + code.launch_cost * (issue - host.base_issue));
  host.base_issue = issue;
  accounts_.count_ops(rank, ranks_[rank].alike);
  if (records_.wanted(rank, host.step)) records_.keep_sync(rank, sync, clock_.now(), host.base, host.ended);
  if (++host.sync == code.syncs.next()) {
    host.sync = SyncId(0);
    if (steps_ == 1) jobs_.end_of_step(code.job, 0);
    ++host.step;
  }
  set_limit(rank);
  // Through the queue even if it is now: a record may come back here.
  if (sync.awaited) clock_.at(host.base, EventKind::host_record, rank, progress);
}

}  // namespace rehearse::engine
