// Low-rank adaptation performed: what is frozen stays as it was drawn, to the last bit, whatever the plan, and every
// adapter moves; its weight alpha / rank is felt. That its steps are right is held against the plain GPT
// (against_plain_test.cpp) and one rank (plans_test.cpp, precision_test.cpp).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "execute/performer.h"
#include "sim/base/half.h"
#include "tests/numerics/plain_runs.h"
#include "tests/support/lowered.h"

namespace rehearse::numerics {
namespace {

const char* const kAdapted = R"(
rehearse: 1
model: {family: llama, layers: 2, hidden: 32, heads: 8, kv_heads: 4, ffn_hidden: 64, vocab: 250, max_seq_len: 16}
cluster: {topology: local, gpus: 1}
plan: {bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, seed: 7, lora_rank: 4}
)";

execute::Outcome performed(const plan::Scenario& scenario, int steps) {
  execute::Options options;
  options.steps = steps;
  options.keep_parameters = true;
  return execute::perform(scenario, lower::lower(scenario), options);
}

bool is_of_adapter(const std::string& name) {
  return name.find(".lora_") != std::string::npos;
}

class FrozenParameters : public testing::TestWithParam<PlainCase> {};

TEST_P(FrozenParameters, StayAsDrawnWhileAdaptersMove) {
  for (const std::string precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    std::vector<std::string> assignments = GetParam().assignments;
    assignments.push_back("training.precision=" + precision);
    const plan::Scenario scenario = scenario_from(kAdapted, assignments);
    const execute::Parameters after = performed(scenario, 4).parameters;
    const auto drawn = initial_values(scenario);
    std::size_t frozen = 0, adapters = 0;
    for (const auto& [name, values] : after) {
      std::size_t changed = 0, compared = 0;
      // The vocabulary's padding is drawn too, but by a table's global shape.
      for (std::size_t i = 0; i < values.size(); ++i, ++compared) {
        const float first = drawn(name, static_cast<std::int64_t>(i));
        const float kept = precision == "fp32" || is_of_adapter(name) ? first : float_of_bf16(bf16_of_float(first));
        changed += values[i] != kept;
      }
      if (is_of_adapter(name)) {
        ++adapters;
        EXPECT_GT(changed, compared * 9 / 10) << name;
      } else {
        ++frozen;
        EXPECT_EQ(changed, 0u) << name;
      }
    }
    EXPECT_EQ(adapters, 2u * 4 * 2);
    EXPECT_EQ(frozen, 2u * 6 + 3) << "four products and two norms a layer; two tables and the last norm";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, FrozenParameters,
    testing::Values(PlainCase{"OneRank", {}}, PlainCase{"Data", split(2, {})},
                    PlainCase{"Zero1", split(2, {"plan.zero=1"})}, PlainCase{"Zero2", split(2, {"plan.zero=2"})},
                    PlainCase{"Zero3", split(2, {"plan.zero=3"})}, PlainCase{"Tensor", split(2, {"plan.tensor=2"})},
                    PlainCase{"TensorSequence", split(2, {"plan.tensor=2", "plan.sequence_parallel=true"})},
                    PlainCase{"Pipeline", split(2, {"plan.pipeline=2"})},
                    PlainCase{"Fsdp2", split(2, {"plan.zero=3", "framework=torch-fsdp2"})}),
    plain_case_name);

// With B = 0 at first the losses of the first step are those without adapters; after it they part by alpha.
TEST(LoraAlpha, IsFeltFromTheSecondStepOn) {
  const auto losses = [](const std::string& alpha) {
    return performed(scenario_from(kAdapted, {"training.lora_alpha=" + alpha}), 3).result.loss;
  };
  const std::vector<double> four = losses("4"), eight = losses("8");
  EXPECT_EQ(performed(scenario_from(kAdapted, {}), 3).result.loss, four) << "alpha is the rank unless it is given";
  EXPECT_EQ(performed(scenario_from(kAdapted, {"training.lora_rank=0"}), 1).result.loss.front(), four.front());
  EXPECT_EQ(eight.front(), four.front());
  EXPECT_GT(std::fabs(eight.back() / four.back() - 1), 1e-4);
}

}  // namespace
}  // namespace rehearse::numerics
