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

}  // namespace

Share late_share(const program::Program& program, const plan::RankGrid& grid, int rank, const Op& op, int last) {
  const bool collective = std::holds_alternative<program::Collective>(op.shape);
  if (!collective || last < 0) return account::late(program::within_role(program, op));
  return account::late(grid.coordinate(last, Axis::pipeline) == grid.coordinate(rank, Axis::pipeline));
}

void add_times(const StepShares& shares, const plan::Scenario& scenario, result::Result& out) {
  const std::size_t steps = shares.front().size();
  std::vector<std::pair<std::int64_t, std::size_t>> slowest;  // duration, step
  for (std::size_t s = std::min(kWarmUpSteps, steps - 1); s < steps; ++s) {
    std::int64_t longest = 0;
    for (const auto& rank : shares) longest = std::max(longest, total(rank[s]));
    slowest.emplace_back(longest, s);
  }
  std::sort(slowest.begin(), slowest.end());
  const auto [duration, step] = slowest[(slowest.size() - 1) / 2];

  Shares sum{};
  for (const auto& rank : shares) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += rank[step][i];
    sum[static_cast<std::size_t>(Share::other)] += duration - total(rank[step]);
  }
  std::int64_t left = duration;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    out.breakdown_ps[i] = sum[i] / static_cast<std::int64_t>(shares.size());
    left -= out.breakdown_ps[i];
  }
  *std::max_element(out.breakdown_ps.begin(), out.breakdown_ps.end()) += left;

  out.step_time_ps = duration;
  const double seconds = Time::from_ps(duration).seconds();
  const auto& t = scenario.training;
  const double per_step = static_cast<double>(t.global_batch * (scenario.model.reads_text() ? t.seq_len : 1));
  out.tokens_per_s = seconds > 0 ? per_step / seconds : 0;
  out.tokens_per_s_per_gpu = out.tokens_per_s / static_cast<double>(out.ranks);
  out.interval_low_s = Time::from_ps(slowest.front().first).seconds();
  out.interval_high_s = Time::from_ps(slowest.back().first).seconds();
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
    for (const program::Slot& slot : role.slots)
      out.ops += static_cast<std::int64_t>(role.bodies[static_cast<std::size_t>(slot.body)].ops.size()) * ranks_a_role *
                 out.steps;
  if (names) account::name_ops(program, grid, {}, out);
}

}  // namespace rehearse::execute
