// Kernels of a kind take the same: asking for one of each (KernelKinds) gives what asking for every kernel gives.
#include "sim/program/kernel_kinds.h"

#include <gtest/gtest.h>

#include <optional>

#include "sim/run/prepared.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

constexpr char kGpt[] =
    "rehearse: 1\nmodel: {family: gpt, layers: 16, hidden: 512, heads: 8, vocab: 1000, max_seq_len: 256}\n"
    "plan: {tensor: 2, pipeline: 4, zero: 1, recompute: selective}\ntraining: {global_batch: 32, precision: bf16}\n"
    "cluster: {topology: dgx-a100, gpus: 16}\n";
constexpr char kMoe[] =
    "rehearse: 1\nmodel: {family: moe, layers: 6, hidden: 256, heads: 8, expert_ffn_hidden: 512, vocab: 1000, "
    "max_seq_len: "
    "128, "
    "experts: 8, experts_per_token: 2}\nplan: {expert: 4, pipeline: 2}\n"
    "training: {global_batch: 32, precision: bf16}\ncluster: {topology: dgx-h100, gpus: 8}\n";
constexpr char kCnn[] =
    "rehearse: 1\nmodel: cnn-cifar\nplan: {micro_batch: 32}\ntraining: {global_batch: 256, optimizer: sgd}\n"
    "cluster: {topology: dgx-a100, gpus: 8}\n";

struct Case {
  const char* text;
  std::vector<std::string> assignments;
};
const std::vector<Case> kCases = {{kGpt, {}},
                                  {kGpt, {"framework=megatron-core"}},
                                  {kGpt, {"framework=torch-ddp", "plan.tensor=1", "plan.pipeline=1", "plan.zero=0"}},
                                  {kGpt, {"plan.offload_optimizer=true", "plan.pipeline=1", "plan.tensor=1"}},
                                  {kMoe, {}},
                                  {kMoe, {"framework=megatron-core"}},
                                  {kCnn, {}}};

run::Options options_of_tests() {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  return options;
}

// Another model's answers, counted.
class Counted : public cost::CostModel {
 public:
  Counted(const cost::CostModel& costs, bool by_kind) : costs_(costs), by_kind_(by_kind) {}
  const cost::Device& device() const override { return costs_.device(); }
  bool by_kind() const override { return by_kind_; }
  cost::Estimate kernel(const program::Role& role, const program::Op& op,
                        const cost::Interference& beside) const override {
    ++asked;
    return costs_.kernel(role, op, beside);
  }
  mutable std::int64_t asked = 0;

 private:
  const cost::CostModel& costs_;
  const bool by_kind_;
};

TEST(KernelKinds, EveryKernelTakesWhatTheFirstOfItsKindTakes) {
  const run::Options options = options_of_tests();
  for (const Case& one : kCases) {
    const plan::Scenario scenario = scenario_from(one.text, one.assignments);
    const run::Prepared prepared(scenario, options);
    const program::Program& program = prepared.program();
    const program::KernelKinds kinds(program);
    ASSERT_TRUE(prepared.costs().by_kind());
    std::vector<std::optional<cost::Estimate>> of_kind(kinds.count());
    std::size_t kernels = 0;
    for (std::size_t r = 0; r < program.roles.size(); ++r)
      for (std::size_t b = 0; b < program.roles[r].bodies.size(); ++b)
        for (std::size_t i = 0; i < program.roles[r].bodies[b].ops.size(); ++i) {
          const program::Op& op = program.roles[r].bodies[b].ops[i];
          const std::int32_t kind = kinds.of(r, static_cast<program::BodyId>(b), static_cast<std::int32_t>(i));
          const bool kernel = !program::is_transfer(op) && !std::holds_alternative<program::HostSync>(op.shape);
          ASSERT_EQ(kind != program::KernelKinds::kNone, kernel) << op.name;
          if (!kernel) continue;
          ++kernels;
          std::optional<cost::Estimate>& first = of_kind.at(static_cast<std::size_t>(kind));
          const cost::Estimate own = prepared.costs().kernel(program.roles[r], op, {});
          if (!first) first = own;
          ASSERT_EQ(own.duration, first->duration) << op.name;
          ASSERT_EQ(own.coverage, first->coverage) << op.name;
          ASSERT_EQ(std::pair(own.low, own.high), std::pair(first->low, first->high)) << op.name;
        }
    for (const auto& first : of_kind) EXPECT_TRUE(first);
    if (one.text == kGpt) {
      EXPECT_LT(2 * kinds.count(), kernels);
    }
  }
}

TEST(KernelKinds, AStepAskedByKindIsTheStep) {
  const run::Options options = options_of_tests();
  for (const Case& one : kCases) {
    const plan::Scenario scenario = scenario_from(one.text, one.assignments);
    const run::Prepared prepared(scenario, options);
    const Counted each(prepared.costs(), false), by_kind(prepared.costs(), true);
    const auto simulate = [&](const cost::CostModel& costs) {
      return engine::simulate(prepared.program(), prepared.grid(), prepared.cluster(), prepared.collectives(), costs,
                              prepared.engine_options());
    };
    const engine::Outcome expected = simulate(each), outcome = simulate(by_kind);
    EXPECT_EQ(outcome.step_time, expected.step_time);
    EXPECT_EQ(outcome.step_ends, expected.step_ends);
    EXPECT_EQ(outcome.breakdown_ps, expected.breakdown_ps);
    EXPECT_EQ(outcome.coverage_busy_s, expected.coverage_busy_s);
    EXPECT_EQ(std::pair(outcome.busy_low_s, outcome.busy_high_s), std::pair(expected.busy_low_s, expected.busy_high_s));
    EXPECT_LE(by_kind.asked, each.asked);
    if (one.text == kGpt) {
      EXPECT_LT(2 * by_kind.asked, each.asked);
    }
  }
}

}  // namespace
}  // namespace rehearse
