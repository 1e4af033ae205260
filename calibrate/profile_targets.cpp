#include "calibrate/profile_targets.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "execute/performer.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/units.h"
#include "sim/cost/kernel_shape.h"
#include "sim/lower/lower.h"
#include "sim/program/work.h"

namespace rehearse::calibrate {
namespace {

constexpr std::size_t kMostRecords = 2'000'000;  // of a run: 100 MB

const program::Role& role_of(const Target& target, int rank) {
  const program::RoleId role = program::role_of(target.program, target.grid.coordinates(rank));
  return target.program.roles[static_cast<std::size_t>(role)];
}

// visit(op) for every op of a step in program order.
template <class Visit>
void for_each_op(const program::Role& role, Visit visit) {
  for (const program::Slot& slot : role.slots)
    for (const program::Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops) visit(op);
}

// Seconds of a step on any CPU of these years: only ratios matter.
double rough_step(const program::Role& role) {
  constexpr double kFlopRate = 5e10, kBandwidth = 1e10, kOp = 1e-6;
  double seconds = 0;
  for_each_op(role, [&](const program::Op& op) {
    if (!is_kernel(op)) return;
    const program::Work work = program::work_of(role, op);
    seconds += kOp + work.flops / kFlopRate + static_cast<double>(work.bytes_read + work.bytes_written) / kBandwidth;
  });
  return seconds;
}

std::int64_t available_memory() {
  return std::int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
}

// The first rank of every role, then the others in order.
std::vector<int> by_role(const Target& target) {
  std::vector<int> firsts, others;
  std::set<program::RoleId> seen;
  for (int r = 0; r < target.grid.ranks(); ++r)
    (seen.insert(program::role_of(target.program, target.grid.coordinates(r))).second ? firsts : others).push_back(r);
  firsts.insert(firsts.end(), others.begin(), others.end());
  return firsts;
}

std::size_t ops_of_step(const PlannedRun& run) {
  std::size_t ops = 0;
  for (const int rank : run.ranks) for_each_op(role_of(*run.target, rank), [&](const program::Op&) { ++ops; });
  return ops;
}

const program::Op& op_of(const Target& target, const result::OpRecord& r) {
  return role_of(target, r.rank).bodies[static_cast<std::size_t>(r.body)].ops[static_cast<std::size_t>(r.op)];
}

// What took no tick of the clock took less than one.
double seconds_of(const result::OpRecord& r) {
  return static_cast<double>(std::max<std::int64_t>(r.duration_ps, 1000)) * 1e-12;
}

// An op of a slot of a rank, and how long it took in the steps that count.
struct Occurrence {
  int rank = 0;
  const program::Role* role = nullptr;
  const program::Op* op = nullptr;
  KernelKey key;
  std::vector<double> samples;
};
// Repetitions whose own median tells a delay from the rest; of fewer the median of all that are alike in the run does,
// if they are so many.
constexpr std::size_t kOften = 4, kAlike = 8;

// What lies between the ops of a stream, from records by rank and start; without the first step, with its cold caches
// and pages. An op may also have waited for another stream to be done with its memory, which is no event of the op:
// where another stream's op ended in a gap, nothing is learnt from the gap.
class Gaps {
 public:
  void add(const result::OpRecord& r, const program::Op& op) {
    auto& ends = ends_[r.rank];
    const auto [own, first] = ends.try_emplace(op.stream);
    const std::int64_t awaited = last_awaited(r.rank, op);
    // Whoever waited for less than this need not have gone to sleep.
    const bool slept = !first && awaited > own->second.last + kSleeps;
    const std::int64_t from = std::max(own->second.last, awaited);
    // Each of a stream's ends but its last lies before the start of what came next, and so before ours.
    const bool other = std::any_of(ends.begin(), ends.end(), [&](const auto& end) {
      return end.first != op.stream &&
             (end.second.before > from || (end.second.last > from && end.second.last <= r.start_ps));
    });
    if (!first && !other && (op.waits.empty() || slept) && r.step > 0)
      (slept ? wakes_ : gaps_).push_back(static_cast<double>(std::max<std::int64_t>(r.start_ps - from, 0)) * 1e-12);
    own->second = {own->second.last, r.start_ps + r.duration_ps};
    if (op.records >= 0) events_[{r.rank, op.records}] = own->second.last;
  }
  void hand_over(Learnt& learnt) {
    learnt.jitter.add_dispatches(gaps_);
    learnt.jitter.add_wakes(wakes_);
    learnt.gaps.insert(learnt.gaps.end(), gaps_.begin(), gaps_.end());
    learnt.wakes.insert(learnt.wakes.end(), wakes_.begin(), wakes_.end());
  }

 private:
  static constexpr std::int64_t kSleeps = 20'000'000;  // ps
  std::int64_t last_awaited(int rank, const program::Op& op) const {
    std::int64_t last = INT64_MIN;
    for (const program::EventId event : op.waits)
      if (const auto found = events_.find({rank, event}); found != events_.end()) last = std::max(last, found->second);
    return last;
  }

  struct Ends {
    std::int64_t before = 0, last = 0;
  };
  std::map<int, std::map<program::StreamId, Ends>> ends_;            // by rank and stream: of its last two ops
  std::map<std::pair<int, program::EventId>, std::int64_t> events_;  // rank, event: end of the op that recorded it last
  std::vector<double> gaps_, wakes_;
};

void check_memory(const ProfileRequest& request) {
  const std::int64_t needed = arena_bytes(request), there = available_memory();
  if (needed > there)
    throw execute::DoesNotFit(fmt::format("does not fit in memory: {} rank(s) of {} need {} of this machine's {}",
                                          request.ranks.size(), request.scenario.name, format_bytes(Bytes(needed)),
                                          format_bytes(Bytes(there))));
}

}  // namespace

Target make_target(const plan::Scenario& scenario) {
  try {
    execute::check_performable(scenario, 1);
  } catch (const InputError& error) {
    Diagnostics others;  // a profile run performs a few ranks of however many there are
    for (const Diagnostic& d : error.diagnostics())
      if (d.path != "cluster.gpus") others.add(d);
    others.throw_if_any();
  }
  return {scenario, lower::lower(scenario), scenario.grid(),
          execute::threads_per_rank(scenario, static_cast<int>(scenario.cluster.gpus))};
}

std::vector<PlannedRun> plan_runs(const Target& target, int cores) {
  const auto together =
      static_cast<std::size_t>(std::clamp(cores / std::max(1, target.threads), 1, target.grid.ranks()));
  const std::vector<int> ranks = by_role(target);
  const std::size_t roles = target.program.roles.size();
  const auto busy = [&](std::size_t n) { return std::min(cores, static_cast<int>(n) * target.threads); };
  const auto weight = [&](const std::vector<int>& of) {
    double seconds = 0;
    for (const int rank : of) seconds = std::max(seconds, rough_step(role_of(target, rank)));
    return seconds;
  };
  std::vector<PlannedRun> runs;
  for (std::size_t first = 0; first < roles; first += together) {
    // The last few roles are profiled beside the first ones again, or alongside more ranks of the same.
    std::vector<int> of;
    for (std::size_t i = 0; i < together; ++i) of.push_back(ranks[(first + i) % ranks.size()]);
    runs.push_back({&target, of, busy(together), weight(of)});
  }
  if (together > 1)
    for (std::size_t role = 0; role < roles; ++role)
      runs.push_back({&target, {ranks[role]}, busy(1), weight({ranks[role]}) / 2});
  return runs;
}

bool adds_to(const KernelTimes& times, const PlannedRun& run) {
  bool adds = false;
  for (const int rank : run.ranks) {
    const program::Role& role = role_of(*run.target, rank);
    for_each_op(role, [&](const program::Op& op) {
      adds = adds || (is_kernel(op) && !times.contains(key_of(role, op, run.target->threads, run.busy)));
    });
  }
  return adds;
}

void learn(const PlannedRun& planned, const ProfileRun& done, Learnt& learnt) {
  const Target& target = *planned.target;
  std::map<std::tuple<int, int, int>, std::vector<double>> durations;  // rank, slot, op: by step
  Gaps gaps;
  for (const result::OpRecord& r : done.records) {
    const program::Op& op = op_of(target, r);
    gaps.add(r, op);
    if (is_kernel(op)) durations[{r.rank, r.slot, r.op}].push_back(seconds_of(r));
  }
  gaps.hand_over(learnt);
  std::vector<Occurrence> occurrences;
  std::map<KernelKey, std::vector<double>> pooled;  // of what was not repeated often
  for (auto& [place, samples] : durations) {
    const auto [rank, slot, index] = place;
    const program::Role& role = role_of(target, rank);
    const auto body = static_cast<std::size_t>(role.slots[static_cast<std::size_t>(slot)].body);
    const program::Op& op = role.bodies[body].ops[static_cast<std::size_t>(index)];
    if (samples.size() > 1) samples.erase(samples.begin());
    occurrences.push_back({rank, &role, &op, key_of(role, op, target.threads, planned.busy), std::move(samples)});
    const Occurrence& o = occurrences.back();
    if (o.samples.size() < kOften) pooled[o.key].insert(pooled[o.key].end(), o.samples.begin(), o.samples.end());
  }
  std::vector<KernelSample> scatter;
  for (Occurrence& o : occurrences) {
    std::optional<double> typical;
    std::size_t repetitions = o.samples.size();
    if (repetitions >= kOften) {
      typical = median(o.samples);
    } else if (const auto& alike = pooled.at(o.key); alike.size() >= kAlike) {
      typical = median(alike);
      repetitions = alike.size();
    }
    for (std::size_t i = 0; typical && i < o.samples.size(); ++i)
      scatter.push_back({o.rank, static_cast<std::int64_t>(i), cost::kernel_class(o.op->shape), o.samples[i], *typical,
                         static_cast<std::int64_t>(repetitions)});
    const program::Work work = program::work_of(*o.role, *o.op);
    learnt.times.add(o.key, cost::comparable_flops(*o.op, work.flops),
                     static_cast<double>(work.bytes_read + work.bytes_written), std::move(o.samples), typical);
  }
  if (!scatter.empty()) learnt.jitter.add_run(target.threads, planned.busy, scatter);
}

ProfileReport profile_targets(const std::vector<Target>& targets, int cores, double seconds, const Budget& budget,
                              Learnt& learnt) {
  const Budget soft = budget.part(seconds);
  std::vector<PlannedRun> runs;
  for (const Target& target : targets)
    for (PlannedRun& run : plan_runs(target, cores)) runs.push_back(std::move(run));
  // Runs with other busy cores come before those alone: the former are what a step mostly is.
  std::stable_sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.busy > b.busy; });
  std::vector<double> weights;
  for (const PlannedRun& w : runs) weights.push_back(w.weight);
  ProfileReport report;
  double busy_seconds = 0, profiled = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const PlannedRun& planned = runs[i];
    const Target& target = *planned.target;
    if (!adds_to(learnt.times, planned)) continue;
    if (budget.spent()) {
      report.shortfalls.push_back(fmt::format("{}: no time left to profile rank {} with {} busy core(s)",
                                              target.scenario.name, planned.ranks.front(), planned.busy));
      continue;
    }
    ProfileRequest request{target.scenario, target.program, target.grid, planned.ranks, target.threads};
    request.steps = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(kMostRecords / std::max<std::size_t>(1, ops_of_step(planned))), 2, 200);
    request.generates = target.generates;
    request.seconds = share_of(weights, i, soft.left());
    check_memory(request);
    const auto began = Clock::now();
    const ProfileRun done = profile(request, budget);
    const double took = seconds_between(began, Clock::now());
    busy_seconds += planned.busy * took, profiled += took;
    learn(planned, done, learnt);
    if (done.whole_steps < 2)
      report.shortfalls.push_back(
          fmt::format("{}: {} of a step with {} busy core(s) fitted into the budget", target.scenario.name,
                      done.whole_steps == 0 ? "only part" : "only the first, cold one", planned.busy));
  }
  if (profiled > 0) report.busy = busy_seconds / profiled;
  return report;
}

}  // namespace rehearse::calibrate
