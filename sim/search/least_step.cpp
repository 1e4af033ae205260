// See least_step.h. Stages take turns: each goes on until it waits for a message or for the others of a collective. A
// program that passes the static check always gets on this way, since senders do not wait.
#include "sim/search/least_step.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "sim/base/check.h"
#include "sim/search/body_paths.h"

namespace rehearse::search {
namespace {

constexpr std::int64_t kNotThere = INT64_MIN / 4;

// What the ranks that a role stands for run on, and which they are: one of each stage that has it, or all.
struct RoleRanks {
  const cost::CostModel* costs = nullptr;
  std::vector<int> ranks;
};

std::vector<RoleRanks> one_a_stage(const lower::DistinctStages& lowered, const plan::RankGrid& grid,
                                   const cost::CostModel& costs) {
  std::vector<RoleRanks> roles;
  for (std::size_t r = 0; r < lowered.program.roles.size(); ++r) {
    const int first = grid.rank(lowered.program.roles[r].ranks.first());
    RoleRanks& role = roles.emplace_back(RoleRanks{&costs, {}});
    for (std::size_t s = 0; s < lowered.role_of.size(); ++s)
      if (lowered.role_of[s] == r)
        role.ranks.push_back(
            grid.peer(first, Axis::pipeline, static_cast<int>(s) - grid.coordinate(first, Axis::pipeline)));
  }
  return roles;
}

// One of each stage's ranks, step after step.
class Steps {
 public:
  Steps(const lower::DistinctStages& lowered, const plan::RankGrid& grid, const std::vector<RoleRanks>& roles,
        const collective::CollectiveModel& collectives)
      : program_(lowered.program), lowered_(lowered), stages_(lowered.role_of.size()) {
    for (std::size_t r = 0; r < program_.roles.size(); ++r)
      paths_.push_back(paths_of(program_, program_.roles[r], grid, roles[r].ranks, *roles[r].costs, collectives));
  }

  // The ends of so many steps of all stages, if each is ready at `starts`; nothing if they wait for one another.
  std::optional<std::vector<std::int64_t>> ends(const std::vector<std::int64_t>& starts, int steps) {
    begin(starts, steps);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < stages_; ++s) moved |= run(s);
    }
    std::vector<std::int64_t> last(static_cast<std::size_t>(steps), kNotThere);
    for (const Stage& stage : at_) {
      if (stage.ends.size() < last.size()) return std::nullopt;
      for (std::size_t i = 0; i < last.size(); ++i) last[i] = std::max(last[i], stage.ends[i]);
    }
    return last;
  }

  std::size_t stages() const { return stages_; }
  // Of a stage's step, as last asked for.
  std::int64_t end_of(std::size_t stage, std::size_t step) const { return at_[stage].ends[step]; }
  // Whether all stages meet between the steps.
  bool meet() const {
    if (stages_ == 1) return true;
    for (const program::Role& role : program_.roles) {
      bool found = false;
      for (const program::Op& op : role.bodies[static_cast<std::size_t>(role.slots.back().body)].ops)
        if (const auto* c = std::get_if<program::Collective>(&op.shape)) found |= of_all_stages(c->group);
      if (!found) return false;
    }
    return true;
  }

 private:
  struct Stage {
    std::vector<std::int64_t> state, values;
    std::vector<std::int64_t> ends;
    std::size_t slot = 0, meeting = 0;
    bool in_body = false;
    bool announced = false;             // what the meeting sends is sent
    std::map<std::int32_t, int> calls;  // of collectives, by group
  };
  // By stages and channel: when senders were ready.
  using Mailbox = std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::deque<std::int64_t>>;
  struct Call {
    std::size_t here = 0;
    std::int64_t ready = kNotThere;
  };

  bool of_all_stages(program::GroupId id) const {
    const program::Group& group = program_.groups[static_cast<std::size_t>(id)];
    return group.pipeline_only.empty() &&
           std::find(group.axes.begin(), group.axes.end(), Axis::pipeline) != group.axes.end();
  }
  std::size_t expected(std::int32_t id) const {
    const program::Group& group = program_.groups[static_cast<std::size_t>(id)];
    return group.pipeline_only.empty() ? stages_ : group.pipeline_only.size();
  }

  void begin(const std::vector<std::int64_t>& starts, int steps) {
    at_.assign(stages_, {});
    for (std::size_t s = 0; s < stages_; ++s)
      at_[s].state.assign(static_cast<std::size_t>(paths_of_stage(s).state), starts[s]);
    steps_ = static_cast<std::size_t>(steps);
    mail_.clear();
    calls_.clear();
  }

  static std::int64_t latest(const Paths& paths, const std::vector<std::int64_t>& values) {
    std::int64_t latest = kNotThere;
    for (const Path& path : paths) latest = std::max(latest, values[static_cast<std::size_t>(path.source)] + path.ps);
    return latest;
  }

  // Until it waits; whether it got on at all.
  bool run(std::size_t s) {
    Stage& stage = at_[s];
    const std::vector<program::Slot>& slots = lowered_.slots[s];
    const RolePaths& own = paths_of_stage(s);
    bool moved = false;
    while (stage.ends.size() < steps_) {
      const BodyPaths& body = own.bodies[static_cast<std::size_t>(slots[stage.slot].body)];
      if (!stage.in_body && passed_over(s, slots[stage.slot].body)) {  // not in every step: a bound leaves it out
        moved = true;
        next_slot(stage, slots.size());
        continue;
      }
      if (!stage.in_body) {
        stage.values.assign(static_cast<std::size_t>(body.sources), kNotThere);
        for (std::size_t e = 0; e < body.entries.size(); ++e)
          stage.values[e] = stage.state[static_cast<std::size_t>(body.entries[e])];
        stage.in_body = true, stage.meeting = 0, stage.announced = false;
      }
      for (; stage.meeting < body.meetings.size(); ++stage.meeting, stage.announced = false) {
        if (!meet(s, body.meetings[stage.meeting])) return moved;
        moved = true;
      }
      for (const auto& [state, paths] : body.leaves)
        stage.state[static_cast<std::size_t>(state)] = latest(paths, stage.values);
      stage.in_body = false;
      moved = true;
      next_slot(stage, slots.size());
    }
    return moved;
  }

  bool passed_over(std::size_t s, program::BodyId body) const {
    const program::Role& role = program_.roles[lowered_.role_of[s]];
    return role.bodies[static_cast<std::size_t>(body)].every > 1;
  }

  static void next_slot(Stage& stage, std::size_t slots) {
    if (++stage.slot < slots) return;
    stage.slot = 0;
    stage.ends.push_back(*std::max_element(stage.state.begin(), stage.state.end()));
  }

  // Whether it is over.
  bool meet(std::size_t s, const Meeting& meeting) {
    Stage& stage = at_[s];
    const auto own = static_cast<std::int32_t>(s);
    if (!stage.announced) {
      const std::int64_t ready = latest(meeting.ready, stage.values);
      stage.values[static_cast<std::size_t>(meeting.source)] = ready;
      for (const Meeting::Message& to : meeting.sends)
        mail_[{own, stage_from(s, to.offset), to.channel}].push_back(ready);
      if (meeting.group >= 0) {
        Call& call = calls_[{meeting.group, stage.calls[meeting.group]}];
        ++call.here;
        call.ready = std::max(call.ready, ready);
      }
      stage.announced = true;
    }
    std::int64_t& value = stage.values[static_cast<std::size_t>(meeting.source)];
    if (meeting.group >= 0) {
      const Call& call = calls_[{meeting.group, stage.calls[meeting.group]}];
      if (call.here < expected(meeting.group)) return false;
      ++stage.calls[meeting.group];
      value = call.ready + meeting.ps;
      return true;
    }
    for (const Meeting::Message& from : meeting.receives)
      if (mail_[{stage_from(s, from.offset), own, from.channel}].empty()) return false;
    // Each leg takes its own time from when its two sides are there.
    const std::int64_t ready = value;
    value = ready + meeting.ps;
    for (const Meeting::Message& from : meeting.receives) {
      std::deque<std::int64_t>& box = mail_[{stage_from(s, from.offset), own, from.channel}];
      value = std::max(value, std::max(ready, box.front()) + from.ps);
      box.pop_front();
    }
    return true;
  }

  const RolePaths& paths_of_stage(std::size_t stage) const { return paths_[lowered_.role_of[stage]]; }
  // The stage so much further on, around.
  std::int32_t stage_from(std::size_t stage, std::int32_t offset) const {
    const auto n = static_cast<std::int32_t>(stages_);
    return ((static_cast<std::int32_t>(stage) + offset) % n + n) % n;
  }

  const program::Program& program_;
  const lower::DistinctStages& lowered_;
  const std::size_t stages_;
  std::vector<RolePaths> paths_;
  std::vector<Stage> at_;
  std::size_t steps_ = 0;
  Mailbox mail_;
  std::map<std::pair<std::int32_t, int>, Call> calls_;
};

// Ends of transfers are rounded to picoseconds, one by one.
Time below(std::int64_t ps) {
  constexpr std::int64_t kMillion = 1'000'000;
  return Time::from_ps(std::max<std::int64_t>(ps - ps / kMillion - 1, 0));
}

}  // namespace

namespace {

Time least_of(Steps& steps, bool together) {
  if (together) {
    const auto ends = steps.ends(std::vector<std::int64_t>(steps.stages(), 0), 2);
    return ends ? below((*ends)[1] - (*ends)[0]) : Time();
  }
  std::int64_t least = INT64_MAX;
  for (std::size_t s = 0; s < steps.stages(); ++s) {
    std::vector<std::int64_t> starts(steps.stages(), kNotThere);
    starts[s] = 0;
    const auto ends = steps.ends(starts, 2);
    least = std::min(least, ends ? (*ends)[1] - steps.end_of(s, 0) : 0);
  }
  return below(least);
}

// By the kinds of devices of one rank a stage: of all that lie so, the ranks of each stage.
std::map<std::vector<int>, std::vector<std::vector<int>>> ranks_by_kinds(const plan::RankGrid& grid,
                                                                         const cluster::Cluster& cluster) {
  const int stages = grid.size(Axis::pipeline);
  std::map<std::vector<int>, std::vector<std::vector<int>>> all;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (grid.coordinate(rank, Axis::pipeline) != 0) continue;
    std::vector<int> ranks, kinds;
    for (int s = 0; s < stages; ++s) {
      ranks.push_back(grid.peer(rank, Axis::pipeline, s));
      kinds.push_back(cluster.kind_of(ranks.back()));
    }
    std::vector<std::vector<int>>& of_stages = all[kinds];
    of_stages.resize(ranks.size());
    for (std::size_t s = 0; s < ranks.size(); ++s) of_stages[s].push_back(ranks[s]);
  }
  return all;
}

}  // namespace

Time least_step(const lower::DistinctStages& lowered, const plan::RankGrid& grid, const cost::CostModel& costs,
                const collective::CollectiveModel& collectives, bool together) {
  Steps steps(lowered, grid, one_a_stage(lowered, grid, costs), collectives);
  return least_of(steps, together && steps.meet());
}

Time least_step(const lower::DistinctStages& lowered, const plan::RankGrid& grid, const run::Machine& machine,
                bool together) {
  const collective::CollectiveModel& collectives = machine.collectives.model();
  if (machine.kinds() == 1) return least_step(lowered, grid, *machine.costs, collectives, together);
  // Roles of one place among others (of experts, of tables) are those of rank 0's.
  const bool unlike = !lowered.program.parts.empty();
  std::optional<Time> found;
  for (const auto& [kinds, ranks] : ranks_by_kinds(grid, *machine.cluster)) {
    if (unlike && ranks.front().front() != 0) continue;
    std::vector<RoleRanks> roles(lowered.program.roles.size());
    for (std::size_t s = 0; s < kinds.size(); ++s) {
      RoleRanks& role = roles[lowered.role_of[s]];
      REHEARSE_CHECK(role.ranks.empty(), "stage {} shares its role with another", s);
      role.costs = &machine.costs_of(kinds[s]);
      role.ranks = unlike ? std::vector<int>{ranks[s].front()} : ranks[s];
    }
    Steps steps(lowered, grid, roles, collectives);
    const bool meet = together && steps.meet();
    if (unlike && !meet) return Time();
    const Time own = least_of(steps, meet);
    found = !found ? own : meet ? std::max(*found, own) : std::min(*found, own);
  }
  return found.value_or(Time());
}

}  // namespace rehearse::search
