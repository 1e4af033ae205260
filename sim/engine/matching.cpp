// See matching.h.
#include "sim/engine/matching.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "sim/base/check.h"
#include "sim/base/interrupt.h"

namespace rehearse::engine {

Matching::Matching(const IdVector<JobId, JobCode>& jobs, const Folding& folding, const cluster::Cluster& cluster,
                   InterferenceStates& states, Network& network, StepRuns& step_runs)
    : jobs_(jobs), cluster_(cluster), states_(states), network_(network), step_runs_(step_runs) {
  for (const JobId job : jobs.ids()) add_job(job, folding.job(job));
}

void Matching::add_job(JobId job, const Folding::JobClasses& classes) {
  const program::ProcessGroups& groups = jobs_[job].link().groups;
  const ProcessGroupId first_group = groups_.next();
  const ProgramCode& code = jobs_[job].code;
  for (std::size_t c = 0; c < classes.groups.first.size(); ++c) {
    const program::ProcessGroup& group = groups[classes.groups.first[c]];
    groups_.push_back({job,
                       {},
                       &group,
                       classes.posts[c],
                       classes.groups.alike[c],
                       &classes,
                       static_cast<std::int32_t>(c),
                       plan_of_.size()});
    plan_of_.resize(plan_of_.size() + (group.group < 0
                                           ? code.leg_bytes.size()
                                           : code.collectives[static_cast<std::size_t>(group.group)].size()));
  }
  for (const std::int32_t rank : classes.ranks.first) {
    first_sequence_.push_back(static_cast<std::int32_t>(group_of_.size()));
    for (const std::int32_t group : groups.of(rank))
      group_of_.push_back(group < 0 ? ProcessGroupId()
                                    : first_group + classes.groups.of[static_cast<std::size_t>(group)]);
  }
}

TransferId Matching::slot_for_one_more() {
  if (free_.empty()) return transfers_.push_back({});
  const TransferId slot = free_.back();
  free_.pop_back();
  return slot;
}

TransferId Matching::find_or_open(ProcessGroupId id, std::int64_t call, std::int32_t size) {
  GroupState& group = groups_[id];
  for (TransferId t = group.open; t.exists(); t = transfers_[t].next_open) {
    const Transfer& open = transfers_[t];
    if (open.call != call) continue;
    REHEARSE_CHECK(open.size == size, "ranks of {} disagree about the size of call {}",
                   group.channel()
                       ? "a channel"
                       : jobs_[group.job].job->program.groups[static_cast<std::size_t>(group.group->group)].name,
                   call);
    return t;
  }
  const TransferId slot = slot_for_one_more();
  PlanId& plan = plan_of_[group.first_plan + static_cast<std::size_t>(size)];
  if (!plan.exists()) plan = make_plan(group, size);
  Transfer& made = transfers_[slot];
  made = Transfer();
  made.plan = plan, made.group = id, made.call = call, made.size = size;
  made.expected = group.posts;
  made.next_open = group.open;
  group.open = slot;
  return slot;
}

void Matching::close(TransferId id) {
  const Transfer& closed = transfers_[id];
  TransferId* link = &groups_[closed.group].open;
  while (*link != id) link = &transfers_[*link].next_open;
  *link = closed.next_open;
}

std::vector<TransferId> Matching::live() const {
  std::vector<char> ended(transfers_.size(), 0);
  for (const TransferId id : free_) ended[id.index()] = 1;
  std::vector<TransferId> live;
  for (const TransferId id : transfers_.ids())
    if (ended[id.index()] == 0) live.push_back(id);
  std::sort(live.begin(), live.end(), [&](TransferId a, TransferId b) {
    return std::pair(transfers_[a].group, transfers_[a].call) < std::pair(transfers_[b].group, transfers_[b].call);
  });
  return live;
}

// The name stands for all instances of the group, and for all channels of the axis.
std::int32_t Matching::user_of(const GroupState& state, std::int32_t size) {
  const JobCode& job = jobs_[state.job];
  std::string name = std::string(name_of(state.group->axis)) + " send";
  if (!state.channel()) {
    const auto group = static_cast<std::size_t>(state.group->group);
    const CollectiveSize& what = job.code.collectives[group][static_cast<std::size_t>(size)];
    name = fmt::format("{} {}", job.job->program.groups[group].name,
                       program::kind_name(program::Collective{what.kind, 0, 0, {}}));
  }
  if (state.job > JobId(0)) name = fmt::format("{}: {}", job.job->name, name);
  const auto found = std::find(users_.begin(), users_.end(), name);
  if (found != users_.end()) return static_cast<std::int32_t>(found - users_.begin());
  users_.push_back(std::move(name));
  return static_cast<std::int32_t>(users_.size() - 1);
}

result::CollectiveUse Matching::describe(const GroupState& state, std::int32_t size,
                                         const collective::TransferPlan& plan) const {
  constexpr std::array<const char*, 4> kCoverages = {"exact", "interpolated", "extrapolated", "spec"};
  result::CollectiveUse use;
  if (state.channel() || state.group->ranks.size() < 2) return use;
  const JobCode& job = jobs_[state.job];
  const auto group = static_cast<std::size_t>(state.group->group);
  const CollectiveSize& what = job.code.collectives[group][static_cast<std::size_t>(size)];
  use.kind = collective::name_of(what.kind);
  use.group = job.job->program.groups[group].name;
  use.ranks = static_cast<std::int64_t>(state.group->ranks.size());
  std::set<int> nodes;
  for (const int member : state.group->ranks) nodes.insert(cluster_.node_of(member));
  use.nodes = static_cast<std::int64_t>(nodes.size());
  use.bytes = what.bytes;
  use.algorithm = plan.algorithm, use.protocol = plan.protocol, use.pinned = plan.pinned;
  use.channels = plan.sms;
  const bool crosses = plan.threads > 0 || std::any_of(plan.activities.begin(), plan.activities.end(),
                                                       [](const auto& activity) { return !activity.uses.empty(); });
  use.fidelity = plan.steps != nullptr ? "step" : crosses ? "flow" : "analytic";
  use.coverage = kCoverages[static_cast<std::size_t>(plan.coverage)];
  use.low = plan.low, use.high = plan.high;
  use.alone_ps = plan.alone().ps();
  return use;
}

Int128 Matching::port_bytes(const collective::TransferPlan& plan) const {
  using cluster::ResourceKind;
  Int128 sum = 0;
  for (const collective::Activity& activity : plan.activities)
    for (const collective::Use& use : activity.uses) {
      const ResourceKind kind = cluster_.resources()[static_cast<std::size_t>(use.resource)].kind;
      if (kind == ResourceKind::nvlink || kind == ResourceKind::pcie || kind == ResourceKind::nic) sum += use.bytes;
    }
  return sum;
}

PlanId Matching::make_plan(GroupState& state, std::int32_t size) {
  check_interrupt();
  const collective::TransferPlan plan = plan_of(jobs_[state.job], *state.group, size);
  PlanCode code;
  code.startup = plan.startup;
  code.activities.first = network_.definitions();
  Time longest;
  const auto counts = state.classes->activities.find({state.number, size});
  for (std::size_t a = 0; a < plan.activities.size(); ++a) {
    const collective::Activity& activity = plan.activities[a];
    longest = std::max(longest, activity.min_duration);
    if (activity.min_duration <= Time() || plan.threads > 0 || plan.steps != nullptr) continue;
    const std::int64_t alike = counts == state.classes->activities.end() ? 1 : counts->second.at(a);
    if (alike > 0) network_.define(activity, alike, state.part);
  }
  code.activities.last = network_.definitions();
  if (plan.steps != nullptr) {
    longest = plan.alone();  // latencies lie between its messages: the traffic is spread over all of it
    code.steps = step_runs_.define(plan.steps, state.alike);
    code.startup = Time();
  }
  // Activities of steps are the process group's too.
  if (network_.definitions() > user_.next()) user_.resize(network_.definitions().index(), user_of(state, size));
  code.threads = plan.threads;
  if (plan.threads > 0) code.core_time = longest;
  code.copy_out = plan.copy_out, code.copy_in = plan.copy_in;
  code.sms = plan.sms;
  code.sms_hold = states_.hold({plan.sms, 0});
  if (longest > Time() && plan.memory_bytes > 0)
    code.bandwidth_hold = states_.hold({0, mul_div_down(plan.memory_bytes, kPicosecondsPerSecond, longest.ps())});
  code.coverage = plan.coverage, code.low = plan.low, code.high = plan.high;
  code.job = state.job;
  code.groups = state.alike;
  code.participants = state.alike * static_cast<std::int64_t>(state.group->ranks.size());
  code.memory_bytes = Int128{plan.memory_bytes} * code.participants;
  code.port_bytes = port_bytes(plan) * state.alike;
  described_.push_back(describe(state, size, plan));
  return plans_.push_back(code);
}

}  // namespace rehearse::engine
