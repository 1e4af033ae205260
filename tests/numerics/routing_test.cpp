// What tokens chose where they were performed (Options::record_routing), and a simulation with it (model.routing:
// recorded): rank by rank and micro-batch by micro-batch the same rows are sent and multiplied.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <map>
#include <numeric>

#include "execute/performer.h"
#include "sim/plan/expert_loads.h"
#include "sim/run/run.h"
#include "tests/numerics/plan_runs.h"
#include "tests/support/temporary.h"

namespace rehearse {
namespace {

const std::string kRouted =
    "rehearse: 1\n"
    "model: {family: moe, layers: 3, hidden: 32, heads: 4, vocab: 250, max_seq_len: 16, experts: 4, "
    "experts_per_token: 2, expert_ffn_hidden: 24, ffn_hidden: 32, dense_layers: 1, buffer_factor: 4}\n" +
    kTraining;

execute::Outcome recorded(const Assignments& plan, int steps, const Assignments& more = {}) {
  Assignments all = plan;
  all.insert(all.end(), more.begin(), more.end());
  plan::Scenario scenario = scenario_from(kRouted, all);
  scenario.purpose = plan::Purpose::perform;
  execute::Options options;
  options.steps = steps;
  options.record_routing = true;
  return execute::perform(scenario, lower::lower(scenario), options);
}

std::string written(const execute::Outcome& outcome) {
  const std::string path = test::temporary_path("routing.csv");
  std::ofstream(path) << model::routing_table_text(outcome.routing);
  return path;
}

Assignments with_table(Assignments plan, const std::string& file, int step) {
  plan.insert(plan.end(), {"model.routing=recorded", "model.routing_file=" + file,
                           "model.routing_step=" + std::to_string(step), "cluster.topology=dgx-a100"});
  return plan;
}

// By micro-batch, layer, and whose tokens they are: data, context, tensor.
using Rows = std::map<std::array<std::int64_t, 5>, std::vector<std::int64_t>>;

Rows rows_of(const execute::Outcome& outcome, int step) {
  Rows rows;
  for (const model::RoutedTokens& t : outcome.routing)
    if (t.step == step) rows[{t.micro_batch, t.layer, t.data, t.context, t.tensor}] = t.rows;
  return rows;
}

// Rows that the tokens of `from` have for the experts of the member at `to` of a group of `members`.
std::int64_t sent(const Rows& rows, const plan::Scenario& s, std::int64_t micro_batch, std::int64_t layer, int from,
                  std::size_t to, std::size_t members) {
  const plan::RankGrid grid = s.grid();
  const auto& chosen = rows.at({micro_batch, layer, grid.position(from, {Axis::expert, Axis::data, Axis::replica}),
                                grid.coordinate(from, Axis::context),
                                s.plan.sequence_parallel ? grid.coordinate(from, Axis::tensor) : 0});
  const auto each = static_cast<std::ptrdiff_t>(chosen.size() / members);
  const auto begin = chosen.begin() + static_cast<std::ptrdiff_t>(to) * each;
  return std::accumulate(begin, begin + each, std::int64_t{0});
}

struct Found {
  int exchanges = 0, products = 0;
};

// Compares what a rank's ops of the micro-batch say with the choices that were recorded.
void expect_recorded(const program::Program& program, const plan::Scenario& s, const Rows& rows, int rank,
                     const program::Op& op, std::int64_t micro_batch, Found& found) {
  const std::size_t at = op.name.find("layer");
  if (at == std::string::npos) return;
  const std::int64_t layer = std::stoi(op.name.substr(at + 5));
  const auto group = std::find_if(program.groups.begin(), program.groups.end(),
                                  [](const program::Group& g) { return g.name == "expert"; });
  ASSERT_NE(group, program.groups.end());
  const std::vector<int> members = s.grid().members(rank, group->axes);
  const std::size_t n = members.size();
  if (const auto* c = std::get_if<program::Collective>(&op.shape);
      c != nullptr && c->kind == program::CollectiveKind::all_to_all) {
    ++found.exchanges;
    const auto& parts = program.parts.at(static_cast<std::size_t>(c->parts));
    ASSERT_EQ(parts.size(), n * n) << op.name;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        EXPECT_EQ(parts[i * n + j], 32 * sent(rows, s, micro_batch, layer, members[i], j, n)) << op.name;
  }
  if (const auto* g = std::get_if<program::GroupedGemm>(&op.shape)) {
    ++found.products;
    const auto place = static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
    std::int64_t come = 0;
    for (const int from : members) come += sent(rows, s, micro_batch, layer, from, place, n);
    EXPECT_EQ(g->rows, std::max<std::int64_t>(1, come)) << op.name << " of rank " << rank;
  }
}

class RecordedRouting : public testing::TestWithParam<Case> {};

TEST_P(RecordedRouting, IsSimulatedAsItWasPerformed) {
  const execute::Outcome outcome = recorded(GetParam().plan, 2);
  const std::string file = written(outcome);
  const Rows rows = rows_of(outcome, 1);
  const plan::Scenario s = scenario_from(kRouted, with_table(GetParam().plan, file, 1));
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(s.training.micro_batches(s.plan) * 2 * s.plan.data * s.plan.context *
                                                  (s.plan.sequence_parallel ? s.plan.tensor : 1)));
  const program::Program program = lower::lower(s);
  EXPECT_EQ(violations(program, s.grid()), "");
  Found found;
  for (const program::Role& role : program.roles)
    for (int rank = 0; rank < s.cluster.gpus; ++rank) {
      if (!role.ranks.contains(s.grid().coordinates(rank))) continue;
      for (const program::Slot& slot : role.slots)
        for (const program::Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops)
          expect_recorded(program, s, rows, rank, op, slot.micro_batch, found);
    }
  EXPECT_GT(found.products, 0);
  EXPECT_EQ(found.exchanges > 0, s.plan.expert_dispatch == plan::ExpertDispatch::all_to_all);
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  const result::Result folded = run::simulate_scenario(s, options);
  options.fold = false;
  EXPECT_EQ(folded.step_time_ps, run::simulate_scenario(s, options).step_time_ps);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, RecordedRouting,
    testing::Values(Case{"OfOneGroup", "", grid(4, 1, 1, 0, {"plan.expert=4"})},
                    Case{"OfTwoGroups", "", grid(4, 1, 1, 1, {"plan.expert=2", "plan.micro_batch=1"})},
                    Case{"OverStages", "", grid(4, 1, 2, 0, {"plan.expert=2", "plan.recompute=full"})},
                    Case{"OfContexts", "", grid(4, 1, 1, 0, {"plan.expert=4", "plan.context=2"})},
                    Case{"OfTensorGroups", "", grid(4, 2, 1, 0, {"plan.expert=2"})},
                    Case{"OfWholeExperts", "",
                         grid(4, 2, 1, 0, {"plan.expert=4", "plan.expert_tensor=1", "plan.sequence_parallel=true"})},
                    Case{"Gathered", "", grid(4, 1, 1, 0, {"plan.expert=4", "plan.expert_dispatch=all_gather"})}),
    name_of_case);

// However the tokens are spread, those of a batch choose as one rank's do.
TEST(RecordedChoices, AddUpToThoseOfOneRank) {
  const auto sums = [](const execute::Outcome& outcome) {
    std::map<std::int64_t, std::vector<std::int64_t>> of_layer;
    for (const auto& [place, rows] : rows_of(outcome, 1)) {
      auto& sum = of_layer[place[1]];
      sum.resize(rows.size(), 0);
      for (std::size_t e = 0; e < rows.size(); ++e) sum[e] += rows[e];
    }
    return of_layer;
  };
  const auto one = sums(recorded({"cluster.gpus=1", "plan.micro_batch=12"}, 1));
  ASSERT_EQ(one.size(), 2U);
  for (const auto& [layer, rows] : one) {
    EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), 12 * 16 * 2) << layer;
    EXPECT_NE(rows, (std::vector<std::int64_t>(4, 96))) << "nothing would be uneven";
  }
  EXPECT_EQ(sums(recorded(grid(4, 1, 1, 0, {"plan.expert=4"}), 1)), one);
  EXPECT_EQ(sums(recorded(grid(4, 2, 1, 0, {"plan.expert=2"}), 1)), one) << "a tensor group's tokens count once";
  EXPECT_EQ(sums(recorded(grid(4, 1, 1, 0, {"plan.context=2"}), 1)), one);
}

// With a capacity what is beyond it is dropped from the rank whose tokens they are.
TEST(RecordedChoices, BeyondACapacityAreDropped) {
  const Assignments plan = grid(4, 1, 1, 0, {"plan.expert=4", "model.buffer_factor=0", "model.capacity_factor=1"});
  const execute::Outcome outcome = recorded(plan, 1);
  std::int64_t dropped = 0, all = 0;
  for (const model::RoutedTokens& t : outcome.routing)
    for (const std::int64_t rows : t.rows) {
      const std::int64_t capacity = 12 / 4 * 16 * 2 / 4 / (12 / 4);  // a micro-batch is one sequence
      dropped += std::max<std::int64_t>(0, rows - capacity);
      all += rows;
    }
  ASSERT_GT(dropped, 0);
  const plan::Scenario s = scenario_from(kRouted, with_table(plan, written(outcome), 0));
  EXPECT_DOUBLE_EQ(plan::ExpertLoads(s).balance().dropped, static_cast<double>(dropped) / static_cast<double>(all));
}

}  // namespace
}  // namespace rehearse
