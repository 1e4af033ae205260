// Times from the ranks' accounts, everything else from the program itself, by the same counts a simulation uses.
#include "execute/measure.h"

#include <algorithm>
#include <numeric>

#include "sim/account/balance.h"
#include "sim/account/blame.h"
#include "sim/account/grid_view.h"
#include "sim/account/program_facts.h"
#include "sim/account/stage_memory.h"
#include "sim/base/check.h"
#include "sim/plan/documents.h"
#include "sim/program/link/send_slots.h"

namespace rehearse::execute {

using program::Op;
using program::Role;
using result::Share;

namespace {

constexpr std::size_t kWarmUpSteps = 2;

std::int64_t total(const Shares& shares) {
  return std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

// Steps that are looked at together.
struct StepRun {
  std::size_t first = 0, count = 1;
};

// Single steps, or whole rounds of local steps, without those that warm up; if there is none, with them, and if there
// is no whole round, the steps there are together.
std::vector<StepRun> runs_of(std::size_t steps, std::size_t round, std::int64_t first_step) {
  std::vector<StepRun> all, warm;
  const auto into = static_cast<std::size_t>(first_step) % round;
  for (std::size_t s = (round - into) % round; s + round <= steps; s += round) {
    all.push_back({s, round});
    if (s >= std::min(kWarmUpSteps, steps - 1)) warm.push_back(all.back());
  }
  if (all.empty()) all.push_back({0, steps});
  return warm.empty() ? all : warm;
}

// What the rank that takes longest takes for them.
std::int64_t longest(const StepShares& shares, const StepRun& stretch) {
  std::int64_t longest = 0;
  for (const auto& rank : shares) {
    std::int64_t own = 0;
    for (std::size_t s = stretch.first; s < stretch.first + stretch.count; ++s) own += total(rank[s]);
    longest = std::max(longest, own);
  }
  return longest;
}

}  // namespace

Share late_share(const program::Program& program, const plan::RankGrid& grid, int rank, const Op& op, int last) {
  const bool collective = std::holds_alternative<program::Collective>(op.shape);
  if (!collective || last < 0) return account::late(program::within_role(program, op));
  return account::late(grid.coordinate(last, Axis::pipeline) == grid.coordinate(rank, Axis::pipeline));
}

void add_times(const StepShares& shares, const plan::Scenario& scenario, std::int64_t first_step, result::Result& out) {
  const plan::Plan& plan = scenario.plan;
  const auto round = static_cast<std::size_t>(std::max<std::int64_t>(1, plan.local_steps));
  const std::vector<StepRun> stretches = runs_of(shares.front().size(), round, first_step);
  std::vector<std::pair<std::int64_t, std::size_t>> slowest;  // duration, stretch
  for (std::size_t s = 0; s < stretches.size(); ++s) slowest.emplace_back(longest(shares, stretches[s]), s);
  std::sort(slowest.begin(), slowest.end());
  const auto [together, chosen] = slowest[(slowest.size() - 1) / 2];
  const StepRun& stretch = stretches[chosen];
  const auto steps = static_cast<std::int64_t>(stretch.count);
  const std::int64_t duration = together / steps;

  Shares sum{};
  for (const auto& rank : shares) {
    std::int64_t own = 0;
    for (std::size_t s = stretch.first; s < stretch.first + stretch.count; ++s) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += rank[s][i];
      own += total(rank[s]);
    }
    sum[static_cast<std::size_t>(Share::other)] += together - own;
  }
  std::int64_t left = duration;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    out.breakdown_ps[i] = sum[i] / (static_cast<std::int64_t>(shares.size()) * steps);
    left -= out.breakdown_ps[i];
  }
  *std::max_element(out.breakdown_ps.begin(), out.breakdown_ps.end()) += left;
  if (plan.steps_apart() && stretch.count == round) {
    const std::int64_t outer = longest(shares, {stretch.first + stretch.count - 1, 1});
    out.local_steps = result::local_steps(steps, plan.workers(), together, outer);
    out.local_steps.outer = plan.outer_optimizer == plan::OuterOptimizer::average ? "average" : "nesterov";
  }

  out.step_time_ps = duration;
  const double seconds = Time::from_ps(duration).seconds();
  const auto& t = scenario.training;
  const double per_step = static_cast<double>(t.global_batch * (scenario.model.reads_text() ? t.seq_len : 1));
  out.tokens_per_s = seconds > 0 ? per_step / seconds : 0;
  out.tokens_per_s_per_gpu = out.tokens_per_s / static_cast<double>(out.ranks);
  out.interval_low_s = Time::from_ps(slowest.front().first / steps).seconds();
  out.interval_high_s = Time::from_ps(slowest.back().first / steps).seconds();
}

void add_program(const program::Program& program, const plan::Scenario& scenario, const plan::RankGrid& grid,
                 bool names, result::Result& out) {
  const auto& t = scenario.training;
  const std::int64_t document = plan::equal_document_length(t);
  out.model_flops = model::model_flops(scenario.model, t.global_batch, t.seq_len, t.adapters(), document);
  out.hardware_flops = account::hardware_flops(program, grid);
  out.flop_formula = model::flop_formula(scenario.model, t.seq_len, t.adapters(), document);
  out.notes = account::balance_notes(scenario, program, account::flops_of, "by its FLOPs");
  const program::Arenas arenas = program::lay_out_arenas(program, account::grid_view(program, grid), false);
  out.stages = account::stage_memory(program, grid, scenario.framework, true, &arenas);
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const Coordinates at = grid.coordinates(rank);
    for (std::size_t r = 0; r < program.roles.size(); ++r)
      if (program.roles[r].ranks.contains(at))
        out.planned_bytes += arenas.places[r].arena_bytes + arenas.places[r].host_bytes;
  }
  const std::int64_t ranks_a_role = grid.ranks() / static_cast<int>(program.roles.size());
  for (const Role& role : program.roles)
    for (const program::Slot& slot : role.slots) {
      const program::Body& body = role.bodies[static_cast<std::size_t>(slot.body)];
      out.ops += static_cast<std::int64_t>(body.ops.size()) * ranks_a_role * (out.steps / body.every);
    }
  if (names) account::name_ops(program, grid, {}, out);
}

}  // namespace rehearse::execute
