// The host of each rank launches ops in program order, launch_cost each; at a HostSync it waits until the sync's waits
// are met and goes on from there. A sync itself launches nothing and costs nothing. With no launch cost and no HostSync
// none of this does any work.
#include <algorithm>

#include "sim/engine/simulator.h"

namespace rehearse::engine {

// How many ops the host issues before the op at `position` of the lane's slot, from the beginning of the run.
std::int64_t Simulator::issue_index(const Lane& lane, std::int32_t position) const {
  return lane.step * lane.code->issues_per_step + lane.code->slot_issue[static_cast<std::size_t>(lane.slot)] +
         lane.code->ops[static_cast<std::size_t>(position)].issue;
}

bool Simulator::held_by_host(const Lane& lane, const Item& item) const {
  if (lane.code->syncs.empty()) return false;
  return issue_index(lane, item.first) >= hosts_[static_cast<std::size_t>(lane.rank)].limit;
}

// When the first op of the lane's slot is launched. Later ops of the body follow launch_cost apart: a HostSync between
// them has moved the base by the time they are looked at, and no item reaches over one.
std::int64_t Simulator::launch_base(const Lane& lane) const {
  const Host& host = hosts_[static_cast<std::size_t>(lane.rank)];
  const std::int64_t first =
      lane.step * lane.code->issues_per_step + lane.code->slot_issue[static_cast<std::size_t>(lane.slot)];
  return host.base + lane.code->launch_cost * (first - host.base_issue + 1);
}

void Simulator::set_limit(std::int32_t index) {
  const Rank& rank = ranks_[static_cast<std::size_t>(index)];
  Host& host = hosts_[static_cast<std::size_t>(index)];
  host.limit = INT64_MAX;
  if (host.step == jobs_[static_cast<std::size_t>(rank.code->job)].stop) return;
  host.limit = host.step * rank.code->issues_per_step + rank.code->syncs[static_cast<std::size_t>(host.sync)].issue;
}

// Passes the HostSyncs whose waits are met, and lets go of the lanes they held.
void Simulator::advance_host(std::int32_t index) {
  Rank& rank = ranks_[static_cast<std::size_t>(index)];
  Host& host = hosts_[static_cast<std::size_t>(index)];
  bool moved = false;
  const JobState& job = jobs_[static_cast<std::size_t>(rank.code->job)];
  while (host.step < job.stop) {
    const SyncCode& sync = rank.code->syncs[static_cast<std::size_t>(host.sync)];
    const Range waits{sync.wait_first, sync.wait_last};
    host.held = unmet(index, waits, host.step, sync.slot);
    if (host.held.wait >= 0) break;
    host.ended = who_ended(rank, waits, host.step, sync.slot, host.ended);
    histories_.tell_by(host_of(index), host.ended, now_, asked_since(index));
    const std::int64_t issue = host.limit;
    const auto syncs = static_cast<std::int32_t>(rank.code->syncs.size());
    const auto progress = static_cast<std::uint32_t>(host.step * syncs + host.sync + 1);
    host.base = std::max(now_, host.base + rank.code->launch_cost * (issue - host.base_issue));
    host.base_issue = issue;
    moved = true;
    ++ops_done_;
    if (rank.recorded && host.step == steps_ - 1) {
      result::OpRecord& record =
          records_.emplace_back(result::OpRecord{index, host.step, sync.slot, sync.body, sync.op, host.base, 0});
      record.queued_ps = host.base - now_;
      record.woken_by = stream_of(index, host.ended);
    }
    if (++host.sync == syncs) {
      host.sync = 0;
      if (steps_ == 1) end_of_step(rank.code->job, 0);
      ++host.step;
    }
    set_limit(index);
    // Through the queue even if it is now: a record may come back here.
    if (sync.awaited) queue_.push(host.base, target(EventKind::host_record, index), progress);
  }
  if (!moved) return;
  for (std::int32_t stream = 0; stream < rank.code->streams; ++stream) {
    Lane& lane = lanes_[static_cast<std::size_t>(rank.first_lane + stream)];
    if (lane.status != Status::held_by_host) continue;
    ended_[static_cast<std::size_t>(rank.first_lane + stream)] = host.ended;
    wake(rank.first_lane + stream);
  }
}

}  // namespace rehearse::engine
