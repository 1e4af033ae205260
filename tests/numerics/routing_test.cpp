// What tokens chose where they were performed (Options::record_routing), and a simulation with it (model.routing:
// recorded): rank by rank and micro-batch by micro-batch the same rows are sent and multiplied.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>

#include "execute/performer.h"
#include "sim/plan/expert_loads.h"
#include "sim/run/run.h"
#include "tests/numerics/plan_runs.h"
#include "tests/support/older_routing_table.h"
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
  all.insert(all.begin(), "framework=rehearse");
  const std::string path = test::temporary_path("routed.yaml");
  std::ofstream(path) << kRouted;
  const plan::Scenario scenario = plan::read_scenario(path, all, REHEARSE_SOURCE_DIR, plan::Purpose::perform);
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
                    Case{"OfGroupsThatShardApart", "",
                         grid(4, 1, 1, 1, {"plan.expert=2", "plan.zero_group=2", "plan.micro_batch=1"})},
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

// Also where every replica has all experts, or ranks of a tensor group have tokens of their own.
TEST(RecordedChoices, DroppedAreThoseOfAllRanks) {
  for (const Assignments& plan :
       {grid(3, 1, 1, 0), grid(4, 2, 1, 0, {"plan.sequence_parallel=true", "plan.expert=2", "plan.micro_batch=2"})}) {
    const execute::Outcome outcome = recorded(plan, 1, {"model.buffer_factor=0", "model.capacity_factor=1"});
    const std::int64_t choices = std::accumulate(outcome.routing[0].rows.begin(), outcome.routing[0].rows.end(), 0);
    std::int64_t dropped = 0, all = 0;
    for (const model::RoutedTokens& t : outcome.routing)
      for (const std::int64_t rows : t.rows) {
        dropped += std::max<std::int64_t>(0, rows - choices / 4);
        all += rows;
      }
    ASSERT_GT(dropped, 0);
    Assignments simulated = plan;
    simulated.insert(simulated.end(), {"model.buffer_factor=0", "model.capacity_factor=1"});
    const plan::Scenario s = scenario_from(kRouted, with_table(simulated, written(outcome), 0));
    EXPECT_DOUBLE_EQ(plan::ExpertLoads(s).balance().dropped, static_cast<double>(dropped) / static_cast<double>(all));
  }
}

// Choices of a run with other weights, replayed token by token.
Assignments replay(const std::string& file, int step = 0) {
  return {"model.routing=recorded", "model.routing_file=" + file, "model.routing_step=" + std::to_string(step)};
}

constexpr int kReplayed = 6;
const Assignments kOneRank = {"cluster.gpus=1", "plan.micro_batch=12"};

const std::string& table_of_other_weights() {
  static const std::string file = [] {
    const std::string path = test::temporary_path("other_routing.csv");
    std::ofstream(path) << model::routing_table_text(recorded(kOneRank, kReplayed, {"training.seed=99"}).routing);
    return path;
  }();
  return file;
}

std::shared_ptr<const model::RecordedChoices> choices_in(const std::string& file, std::int64_t step = 0) {
  return model::RecordedChoices::read(file, step, {1, 2, 12, 16, 4, 2});
}

class ReplayedRouting : public testing::TestWithParam<Case> {};

TEST_P(ReplayedRouting, TakesTheRecordsChoicesOnAnyGrid) {
  const std::string& file = table_of_other_weights();
  static const execute::Outcome one = recorded(kOneRank, kReplayed, replay(file));
  const execute::Outcome many = recorded(GetParam().plan, kReplayed, replay(file));
  ASSERT_EQ(many.result.loss.size(), one.result.loss.size());
  for (std::size_t step = 0; step < one.result.loss.size(); ++step)
    EXPECT_NEAR(many.result.loss[step] / one.result.loss[step], 1, kLossTolerance) << "step " << step;
  const auto wanted = choices_in(file), taken = choices_in(written(many));
  ASSERT_NE(taken, nullptr);
  for (std::int64_t step = 1; step <= kReplayed; ++step)
    for (std::int64_t layer = 1; layer <= 2; ++layer)
      for (std::int64_t sequence = 0; sequence < 12; ++sequence)
        for (std::int64_t position = 0; position < 16; ++position)
          for (int k = 0; k < 2; ++k)
            ASSERT_EQ(taken->of(step, layer, sequence, position)[k], wanted->of(step, layer, sequence, position)[k])
                << "step " << step << ", layer " << layer << ", sequence " << sequence << ", position " << position;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, ReplayedRouting,
    testing::Values(Case{"OneRank", "", {"cluster.gpus=1", "plan.micro_batch=3"}},
                    Case{"Data", "", grid(3, 1, 1, 1, {"plan.micro_batch=2"})},
                    Case{"Experts", "", grid(4, 1, 1, 0, {"plan.expert=4"})},
                    Case{"Stages", "", grid(4, 1, 2, 0, {"plan.expert=2", "plan.recompute=full"})},
                    Case{"Ring", "", grid(4, 1, 1, 0, {"plan.expert=4", "plan.context=2"})},
                    Case{"AllToAll", "", grid(2, 1, 1, 0, {"plan.context=2", "plan.context_kind=all_to_all"})},
                    Case{"Tensor", "", grid(4, 2, 1, 0, {"plan.expert=2", "plan.sequence_parallel=true"})},
                    Case{"WholeExperts", "",
                         grid(4, 2, 1, 0, {"plan.expert=4", "plan.expert_tensor=1", "plan.sequence_parallel=true"})},
                    Case{"Gathered", "", grid(4, 1, 1, 0, {"plan.expert=4", "plan.expert_dispatch=all_gather"})}),
    name_of_case);

TEST(ReplayedChoices, OfARunItselfAreItsRunAgain) {
  const execute::Outcome run = recorded(kOneRank, kReplayed);
  EXPECT_EQ(recorded(kOneRank, kReplayed, replay(written(run))).result.loss, run.result.loss);
  EXPECT_NE(recorded(kOneRank, kReplayed, replay(table_of_other_weights())).result.loss, run.result.loss);
}

// Of packed documents a ring has other tokens in every micro-batch.
TEST(ReplayedChoices, OfDocumentsInARingAreThoseOfEachToken) {
  Assignments more = replay(table_of_other_weights());
  more.insert(more.end(), {"training.documents=table", "training.document_lengths=[4, 8]"});
  const execute::Outcome one = recorded(kOneRank, kReplayed, more),
                         ring = recorded(grid(4, 1, 1, 0, {"plan.expert=4", "plan.context=2", "plan.micro_batch=1"}),
                                         kReplayed, more);
  for (std::size_t step = 0; step < one.result.loss.size(); ++step)
    EXPECT_NEAR(ring.result.loss.at(step) / one.result.loss[step], 1, kLossTolerance) << "step " << step;
  const auto wanted = choices_in(table_of_other_weights()), taken = choices_in(written(ring));
  ASSERT_NE(taken, nullptr);
  for (std::int64_t step = 1; step <= kReplayed; ++step)
    for (std::int64_t sequence = 0; sequence < 12; ++sequence)
      for (std::int64_t position = 0; position < 16; ++position)
        ASSERT_EQ(taken->of(step, 2, sequence, position)[0], wanted->of(step, 2, sequence, position)[0])
            << "step " << step << ", sequence " << sequence << ", position " << position;
}

TEST(ReplayedChoices, OfOneStepAreTheSameInEveryStep) {
  const execute::Outcome outcome = recorded(grid(2, 1, 1, 0), 3, replay(table_of_other_weights(), 2));
  const auto taken = choices_in(written(outcome)), wanted = choices_in(table_of_other_weights());
  for (std::int64_t step = 1; step <= 3; ++step)
    for (std::int64_t position = 0; position < 16; ++position)
      EXPECT_EQ(taken->of(step, 2, 7, position)[0], wanted->of(2, 2, 7, position)[0]);
}

// Tables of before choices were written: simulated as ever; performed, routers choose.
TEST(ReplayedChoices, OfOlderTablesAreTheRouters) {
  const execute::Outcome outcome = recorded(kOneRank, 2, {"training.seed=99"});
  const std::string file = test::temporary_path("older_routing.csv");
  std::ofstream(file) << older_routing_table(
      std::vector<model::RoutedTokens>(outcome.routing.begin(), outcome.routing.end()));
  EXPECT_EQ(choices_in(file), nullptr);
  EXPECT_EQ(recorded(kOneRank, 2, replay(file)).result.loss, recorded(kOneRank, 2).result.loss);
  EXPECT_EQ(model::RecordedRouting(file, 0).experts(), 4);
}

std::string why_not(const std::string& file, const Assignments& more, int steps = 1) {
  Assignments all = replay(file);
  all.insert(all.end(), more.begin(), more.end());
  try {
    recorded(kOneRank, steps, all);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ReplayedChoices, OfAnotherModelOrBatchAreRefused) {
  const std::string& file = table_of_other_weights();
  const auto expect = [](const std::string& found, const std::string& wanted) {
    EXPECT_NE(found.find(wanted), std::string::npos) << found;
  };
  expect(why_not(file, {"model.experts=8"}), ":2:1: error: the record has 4 experts, the model has 8");
  expect(why_not(file, {"model.dense_layers=2"}), "the record has layer 1, the model's layers with experts are 2 to 2");
  expect(why_not(file, {"model.experts_per_token=1"}), "192 tokens that choose 1 experts each have 192");
  expect(why_not(file, {"training.global_batch=24", "plan.micro_batch=24"}),
         "has no choices of sequence 12, position 0");
  expect(why_not(file, {"training.global_batch=6", "plan.micro_batch=6"}), "sequence 11 of a step, the batch has 6");
  expect(why_not(file, {"training.seq_len=8"}), "position 15, a sequence has 8 tokens");
  expect(why_not(file, {"model.max_seq_len=32", "training.seq_len=32"}), "has no choices of sequence 0, position 16");
  expect(why_not(file, {}, kReplayed + 1), "the record has steps 1 to 6, and step 7 is to be performed");
  execute::Outcome outcome = recorded(kOneRank, 1);
  ++outcome.routing[0].rows[0], --outcome.routing[0].rows[1];
  expect(why_not(written(outcome), {}), "other choices than `rows` counts");
}

}  // namespace
}  // namespace rehearse
