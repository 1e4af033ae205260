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

namespace {

// Of a round of steps the mean of one, rounded down; what is left of the time goes to the largest share.
void take_mean(std::int64_t steps, Outcome& o) {
  const auto n = static_cast<double>(steps);
  const auto mean = [steps](Time t) { return Time::from_ps(t.ps() / steps); };
  o.step_time = mean(o.step_time);
  std::int64_t left = o.step_time.ps();
  for (std::int64_t& share : o.breakdown_ps) left -= share /= steps;
  *std::max_element(o.breakdown_ps.begin(), o.breakdown_ps.end()) += left;
  for (double& busy : o.coverage_busy_s) busy /= n;
  for (double* sum : {&o.busy_low_s, &o.busy_high_s, &o.busy_s, &o.transfer_memory_bytes, &o.port_bytes}) *sum /= n;
  for (std::int64_t& bytes : o.link_bytes) bytes /= steps;
  o.links.bytes /= steps;
  for (result::LinkUse& link : o.links.busiest) {
    link.bytes = 0, link.busy_ps /= steps;
    for (result::LinkUser& user : link.users) link.bytes += user.bytes /= steps;
  }
}

}  // namespace

Outcome Simulator::outcome() {
  Outcome result;
  result.step_ends = jobs_.step_ends(kReported);
  const auto reported = static_cast<std::size_t>(jobs_.reported_steps());
  const Time end = result.step_ends.back(),
             before = steps_ > 1 ? result.step_ends[result.step_ends.size() - 1 - reported] : Time();
  result.step_time = end - before;
  account_tails();
  std::vector<std::int64_t> alike;
  for (const RankId rank : jobs_.ranks(kReported)) alike.push_back(ranks_[rank].alike);
  result.breakdown_ps = accounts_.mean(alike, result.step_time);
  result.ranks_simulated = static_cast<std::int64_t>(alike.size());
  BusyTime busy;
  kernels_.add_busy(kReported, busy);
  for (const PlanCode& plan : matching_.plans())
    if (plan.busy_ps > 0 && plan.job == kReported)
      busy.add(plan.busy_ps, static_cast<int>(plan.coverage), plan.low, plan.high);
  Int128 memory_bytes = 0, port_bytes = 0;
  for (const PlanCode& plan : matching_.plans()) {
    if (plan.job != kReported) continue;
    memory_bytes += plan.memory_bytes * plan.ended;
    port_bytes += plan.port_bytes * plan.ended;
  }
  result.transfer_memory_bytes = static_cast<double>(memory_bytes);
  result.port_bytes = static_cast<double>(port_bytes);
  const BusyTime::Seconds seconds = busy.seconds();
  result.coverage_busy_s = seconds.by_coverage;
  result.busy_low_s = seconds.low, result.busy_high_s = seconds.high, result.busy_s = seconds.total;
  describe_collectives(matching_, result);
  describe_links(network_, matching_, cluster_, before, end, result);
  result.slow_ranks = jobs_.noise(kReported).slow_ranks();
  result.faulty_links = faults_.counts();
  result.records = records_.take();
  if (jobs_.keeps_rank_steps())
    for (const std::int32_t of : folding_.job(kReported).ranks.of)
      result.rank_step_ends.push_back(jobs_.rank_step_ends().at(static_cast<std::size_t>(of)));
  result.round = result.step_time;
  if (reported > 1) take_mean(static_cast<std::int64_t>(reported), result);
  return result;
}

}  // namespace rehearse::engine
