// What the first job reports.
#include <algorithm>
#include <map>

#include "sim/account/blame.h"
#include "sim/engine/collective_use.h"
#include "sim/engine/link_use.h"
#include "sim/engine/simulator/simulator.h"

namespace rehearse::engine {

// When the last stream that ends steps has ended, by stage.
std::map<int, Time> Simulator::last_ends() const {
  std::map<int, Time> ends;
  for (const RankId rank : jobs_.ranks(kReported)) {
    Time& end = ends[ranks_[rank].code->role->pipeline];
    for (const StreamId id : ranks_[rank].streams())
      if (streams_.ends_steps(id)) end = std::max(end, streams_.idle_since(id));
  }
  return ends;
}

// The stream of a rank that ended last, if it was not the main one.
StreamId Simulator::last_beside(RankId rank) const {
  const StreamId main = ranks_[rank].main_stream;
  Time latest = main.exists() ? streams_.idle_since(main) : Time();
  StreamId last;
  for (const StreamId id : ranks_[rank].streams())
    if (streams_.ends_steps(id) && streams_.idle_since(id) > latest) {
      last = id;
      latest = streams_.idle_since(id);
    }
  return last;
}

// After its last op a rank's compute stream idles: in a single step first beside what its other streams still do, then
// until the last rank has finished, of its own role or of another.
void Simulator::account_tails() {
  const Time end = jobs_.step_ends(kReported).back();
  const std::map<int, Time> ends = last_ends();
  for (const RankId rank : jobs_.ranks(kReported)) {
    const StreamId main = ranks_[rank].main_stream, last = last_beside(rank);
    Time idle = main.exists() ? streams_.idle_since(main) : Time();
    if (last.exists()) {
      accounts_.add_wait(rank, Accounts::cause(last), idle, streams_.idle_since(last));
      idle = streams_.idle_since(last);
    }
    const int stage = ranks_[rank].code->role->pipeline;
    bool others = false;
    for (const auto& [other, ended] : ends) others |= other != stage && ended == end;
    accounts_.add(rank, account::late(!others), idle, end);
  }
}

Outcome Simulator::outcome() {
  Outcome result;
  result.step_ends = jobs_.step_ends(kReported);
  const Time end = result.step_ends.back(),
             before = steps_ > 1 ? result.step_ends[result.step_ends.size() - 2] : Time();
  result.step_time = end - before;
  account_tails();
  result.breakdown_ps = accounts_.mean(jobs_.ranks(kReported).size(), result.step_time);
  BusyTime busy;
  kernels_.add_busy(kReported, busy);
  for (const PlanCode& plan : matching_.plans())
    if (plan.busy > Time() && plan.job == kReported)
      busy.add(plan.busy, static_cast<int>(plan.coverage), plan.low, plan.high);
  for (const PlanCode& plan : matching_.plans()) {
    if (plan.job != kReported) continue;
    result.transfer_memory_bytes += static_cast<double>(plan.ended) * plan.memory_bytes;
    result.port_bytes += static_cast<double>(plan.ended) * plan.port_bytes;
  }
  result.coverage_busy_s = busy.by_coverage_s;
  result.busy_low_s = busy.low_s, result.busy_high_s = busy.high_s, result.busy_s = busy.total_s;
  describe_collectives(matching_, result);
  describe_links(network_, matching_, cluster_, before, end, result);
  result.slow_ranks = jobs_.noise(kReported).slow_ranks();
  result.faulty_links = faults_.counts();
  result.records = records_.take();
  return result;
}

}  // namespace rehearse::engine
