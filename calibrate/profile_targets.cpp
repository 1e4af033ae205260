#include "calibrate/profile_targets.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "execute/performer.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/units.h"
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
    // The last few roles are profiled beside the first ones again, or beside more ranks of the same.
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
  std::map<std::tuple<int, int, int>, std::vector<double>> occurrences;  // rank, slot, op: durations by step
  std::map<std::pair<int, int>, std::int64_t> ends;                      // rank, stream: of its last op
  for (const result::OpRecord& r : done.records) {
    const program::Role& role = role_of(target, r.rank);
    const program::Op& op = role.bodies[static_cast<std::size_t>(r.body)].ops[static_cast<std::size_t>(r.op)];
    const auto [last, first_of_stream] = ends.try_emplace({r.rank, op.stream}, 0);
    if (!first_of_stream && op.waits.empty())
      learnt.gaps.push_back(static_cast<double>(r.start_ps - last->second) * 1e-12);
    last->second = r.start_ps + r.duration_ps;
    // What took no tick of the clock took less than one.
    if (is_kernel(op))
      occurrences[{r.rank, r.slot, r.op}].push_back(static_cast<double>(std::max<std::int64_t>(r.duration_ps, 1000)) *
                                                    1e-12);
  }
  for (auto& [place, samples] : occurrences) {
    const auto [rank, slot, index] = place;
    const program::Role& role = role_of(target, rank);
    const auto body = static_cast<std::size_t>(role.slots[static_cast<std::size_t>(slot)].body);
    const program::Op& op = role.bodies[body].ops[static_cast<std::size_t>(index)];
    if (samples.size() > 1) samples.erase(samples.begin());
    const program::Work work = program::work_of(role, op);
    learnt.times.add(key_of(role, op, target.threads, planned.busy), work.flops,
                     static_cast<double>(work.bytes_read + work.bytes_written), std::move(samples));
  }
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
    request.seconds = share_of(weights, i, soft.left());
    check_memory(request);
    const ProfileRun done = profile(request, budget);
    learn(planned, done, learnt);
    if (done.whole_steps < 2)
      report.shortfalls.push_back(
          fmt::format("{}: {} of a step with {} busy core(s) fitted into the budget", target.scenario.name,
                      done.whole_steps == 0 ? "only part" : "only the first, cold one", planned.busy));
  }
  return report;
}

}  // namespace rehearse::calibrate
