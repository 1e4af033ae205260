// Low-rank adaptation performed: what is frozen stays as it was drawn, to the last bit, whatever the plan, and every
// adapter moves; its weight alpha / rank is felt. That its steps are right is held against the plain GPT
// (against_plain_test.cpp) and, here and in precision_test.cpp, one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "sim/base/half.h"
#include "tests/numerics/performed.h"
#include "tests/numerics/plain_runs.h"
#include "tests/numerics/plan_runs.h"
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

// Low-rank adaptation, on the single rank too. With frozen tables of small numbers little can be learnt, so what holds
// plans to it is how near their losses are.
std::vector<Case> lora_cases() {
  std::vector<Case> cases;
  const Assignments lora = {"training.lora_rank=4", "training.lora_alpha=8", "training.lr=1e-2"};
  const auto both = [&](Assignments more) {
    more.insert(more.end(), lora.begin(), lora.end());
    return more;
  };
  const std::string sequence = "plan.sequence_parallel=true";
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}}) {
    const auto add = [&](const std::string& what, const Assignments& plan, const Assignments& model = {}) {
      cases.push_back({name + "_lora_" + what, text, plan, both(model)});
    };
    add("accumulation", grid(1, 1, 1, 0));
    add("ddp2", grid(2, 1, 1, 0));
    for (const int zero : {1, 2, 3}) add("zero" + std::to_string(zero), grid(4, 1, 1, zero));
    add("zero2_one_micro_batch", grid(4, 1, 1, 2, {"plan.micro_batch=3"}));
    add("zero3_odd", grid(3, 1, 1, 3, {"plan.micro_batch=2"}));
    add("recompute_full", grid(2, 1, 1, 0, {"plan.recompute=full"}));
    add("dropout", grid(2, 1, 1, 0), {"model.dropout=0.1"});
    add("dropout_recompute", grid(2, 1, 1, 0, {"plan.recompute=full"}), {"model.dropout=0.1"});
    add("selective", grid(2, 2, 1, 0, {"plan.recompute=selective"}), {"model.dropout=0.1", "model.attention=unfused"});
    add("tensor2", grid(2, 2, 1, 0));
    add("tensor4_zero1", grid(4, 4, 1, 1));
    add("tensor2_recompute", grid(2, 2, 1, 0, {"plan.recompute=full"}));
    add("tensor2_sequence", grid(2, 2, 1, 0, {sequence}));
    add("tensor2_sequence_zero2", grid(4, 2, 1, 2, {sequence}));
    add("tensor2_sequence_zero3_recompute", grid(4, 2, 1, 3, {sequence, "plan.recompute=full"}));
    add("pipeline2", grid(2, 1, 2, 0));
    add("pipeline4_gpipe", grid(4, 1, 4, 0, {"plan.schedule=gpipe"}));
    add("2x2x2", grid(8, 2, 2, 0, {sequence}), {"model.dropout=0.1"});
    add("2x2x2_zero3", grid(8, 2, 2, 3, {sequence}));
    add("mlp_2x2x2_zero1", grid(8, 2, 2, 1, {sequence}), {"training.lora_targets=[mlp]"});
    add("attention_2x2x2_zero2", grid(8, 2, 2, 2), {"training.lora_targets=[attention]"});
    for (const std::string framework : {"deepspeed", "llm-foundry", "torch-fsdp2", "accelerate"})
      add(framework.substr(framework.find_last_of('-') + 1), grid(2, 1, 1, 3, {"framework=" + framework}),
          {"model.dropout=0.1"});
    add("torch", grid(2, 1, 1, 0, {"framework=torch-ddp"}), {"model.dropout=0.1"});
    add("lists", grid(2, 1, 1, 1, {"framework=nanotron"}), {"model.dropout=0.1"});
    add("megatron", grid(4, 2, 2, 0, {"framework=megatron-2021", sequence}), {"model.dropout=0.1"});
    add("context2", grid(2, 1, 1, 0, {"plan.context=2"}));
    add("hybrid", grid(4, 1, 1, 3, {"plan.zero_group=2"}));
  }
  return cases;
}
class LoraPlans : public testing::TestWithParam<Case> {};
TEST_P(LoraPlans, TrainAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam());
}
INSTANTIATE_TEST_SUITE_P(Lora, LoraPlans, testing::ValuesIn(lora_cases()), name_of_case);

}  // namespace
}  // namespace rehearse::numerics
