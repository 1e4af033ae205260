// The time of steps whose sequences are packed of documents. Fused attention of a layer takes F forward and B backward
// where documents are equal (program::Attention::document), nothing else takes any time: a rank of L layers computes L
// (F
// + B) times the sum of its micro-batches' loads, its pairs over those of equal documents, and the step waits for the
// replica that has most.
#include "sim/plan/documents.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/run/document_loads.h"
#include "tests/support/simulated.h"

namespace rehearse::documents_test {
namespace {

constexpr Time kForward = Time::from_us(40), kBackward = Time::from_us(100);
constexpr const char* kText =
    "rehearse: 1\nmodel: {family: gpt, layers: 3, hidden: 64, heads: 4, vocab: 100, max_seq_len: 512, attention: "
    "flash}\n"
    "plan: {micro_batch: 2}\n"
    "training: {global_batch: 48, seq_len: 512, documents: lognormal, document_length: 90, clip: 0}\n";

GivenCosts attention_costs() {
  return GivenCosts([](const program::Op& op) {
    const auto* a = std::get_if<program::Attention>(&op.shape);
    if (a == nullptr) return Time();
    return a->part == program::AttentionPart::flash_forward ? kForward : kBackward;
  });
}

engine::Outcome run(const plan::Scenario& scenario, bool fold, int steps = 1) {
  const auto cluster = cluster::build_cluster("dgx-a100", scenario.grid().ranks(), {}, 0, REHEARSE_SOURCE_DIR);
  const auto collectives = collective::make_free_model();
  const auto loads = run::document_loads(scenario, steps);
  engine::Options options;
  options.steps = steps;
  options.fold = fold;
  options.attention_loads = loads ? &*loads : nullptr;
  return engine::simulate(lower::lower(scenario), scenario.grid(), *cluster, *collectives, attention_costs(), options);
}

plan::Scenario with(std::vector<std::string> assignments) {
  return scenario_from(kText, std::move(assignments));
}

// Loads of a step's micro-batches, of a replica's queries.
double loads_of(const plan::Scenario& s, std::int64_t step, std::int64_t replica,
                const std::vector<plan::TokenRun>& queries) {
  const plan::Training& t = s.training;
  const std::int64_t each = t.global_batch / s.plan.data;
  std::int64_t pairs = 0, tokens = 0;
  for (std::int64_t i = 0; i < each; ++i)
    pairs += plan::document_pairs(t, step * t.global_batch + replica * each + i, queries);
  for (const plan::TokenRun& run : queries) tokens += run.count;
  const double equal = static_cast<double>(tokens) * static_cast<double>(plan::equal_document_length(t) + 1) / 2;
  return static_cast<double>(pairs) / (equal * static_cast<double>(s.plan.micro_batch));
}

double picoseconds(double loads) {
  return 3 * loads * static_cast<double>((kForward + kBackward).ps());
}

TEST(PackedSteps, WaitForTheReplicaWithMostPairs) {
  const plan::Scenario s = with({"cluster.gpus=4", "plan.zero=1"});
  double most = 0, least = 1e9;
  for (std::int64_t replica = 0; replica < 4; ++replica) {
    const double loads = loads_of(s, 0, replica, {{0, 512}});
    most = std::max(most, loads), least = std::min(least, loads);
  }
  EXPECT_GT(most / least, 1.05) << "replicas have much the same documents";
  const engine::Outcome every = run(s, false), folded = run(s, true);
  EXPECT_NEAR(static_cast<double>(every.step_time.ps()), picoseconds(most), 100) << "a picosecond a kernel";
  EXPECT_EQ(folded.step_time, every.step_time);
  EXPECT_EQ(folded.breakdown_ps, every.breakdown_ps);
  EXPECT_EQ(folded.ranks_simulated, 4) << "no replica stands for another";
}

TEST(PackedSteps, DifferFromStepToStep) {
  const plan::Scenario s = with({"cluster.gpus=1"});
  const engine::Outcome two = run(s, true, 2);
  EXPECT_NEAR(static_cast<double>(two.step_time.ps()), picoseconds(loads_of(s, 1, 0, {{0, 512}})), 300);
  EXPECT_GT(std::abs(loads_of(s, 0, 0, {{0, 512}}) - loads_of(s, 1, 0, {{0, 512}})), 0.01);
}

// Ranks of a tensor group have the same sequences; of a context group that gathers keys each has its own queries.
TEST(PackedSteps, AreAlikeInTensorGroupsAndNotWhereKeysAreGathered) {
  EXPECT_EQ(run(with({"cluster.gpus=4", "plan.tensor=4"}), true).ranks_simulated, 1);
  EXPECT_EQ(run(with({"cluster.gpus=4", "training.documents=fixed", "plan.zero=1"}), true).ranks_simulated, 1);
  EXPECT_EQ(run(with({"cluster.gpus=4", "plan.context=4", "plan.context_kind=all_to_all"}), true).ranks_simulated, 1);
  const plan::Scenario gather = with({"cluster.gpus=4", "plan.context=4", "plan.context_kind=all_gather"});
  const engine::Outcome every = run(gather, false), folded = run(gather, true);
  EXPECT_EQ(folded.ranks_simulated, 4);
  EXPECT_EQ(folded.breakdown_ps, every.breakdown_ps);
  // Each layer's keys are gathered, so its slowest rank decides micro-batch by micro-batch.
  double longest = 0;
  for (int rank = 0; rank < 4; ++rank)
    longest = std::max(longest, loads_of(gather, 0, 0, plan::context_tokens(gather.plan, 512, rank)));
  EXPECT_GE(static_cast<double>(every.step_time.ps()), picoseconds(longest) - 100);
}

}  // namespace
}  // namespace rehearse::documents_test
