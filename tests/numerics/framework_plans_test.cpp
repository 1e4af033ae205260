// What frameworks launch trains as one rank of the ideal framework does (plans_test.cpp): biases of products that are
// split over a tensor group, where kernels are not fused; and deterministic algorithms, whose fills change no number.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/numerics/plan_runs.h"

namespace rehearse {
namespace {

class FrameworkPlans : public testing::TestWithParam<Case> {};
TEST_P(FrameworkPlans, TrainAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam());
}

std::string with_dashes_under(std::string text) {
  for (char& c : text)
    if (c == '-') c = '_';
  return text;
}

std::vector<Case> split_bias_cases() {
  std::vector<Case> cases;
  const Assignments biases = {"model.bias=true"};
  for (const std::string framework : {"torch-fsdp2", "nanotron", "torch-fsdp2-compile"})
    for (const std::string dropout : {"0", "0.1"})
      for (const std::string sequence : {"false", "true"}) {
        const std::string name =
            with_dashes_under(framework) + (dropout == "0" ? "" : "_dropout") + (sequence == "true" ? "_sequence" : "");
        const Assignments plan = {"framework=" + framework, "plan.sequence_parallel=" + sequence};
        Assignments model = biases;
        model.push_back("model.dropout=" + dropout);
        cases.push_back({"gpt_" + name + "2", kGpt, grid(2, 2, 1, 0, plan), model});
        cases.push_back({"llama_" + name + "4", kLlama, grid(4, 4, 1, 0, plan), model});
      }
  cases.push_back({"gpt_parallel_block2",
                   kGpt,
                   grid(2, 2, 1, 0, {"framework=torch-fsdp2"}),
                   {"model.parallel_block=one_norm", "model.dropout=0.1"}});
  cases.push_back({"gpt_data2_tensor2_recompute",
                   kGpt,
                   grid(4, 2, 1, 3, {"framework=torch-fsdp2", "plan.recompute=full"}),
                   {"model.dropout=0.1"}});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(SplitBiases, FrameworkPlans, testing::ValuesIn(split_bias_cases()), name_of_case);

std::vector<Case> deterministic_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, Assignments plan, const Assignments& model) {
    plan.emplace_back("training.deterministic=true");
    cases.push_back({name, kGpt, plan, model});
  };
  const Assignments dropout = {"model.dropout=0.1"};
  add("ddp_recompute", grid(2, 1, 1, 0, {"framework=torch-ddp", "plan.recompute=full"}), dropout);
  add("zero3", grid(2, 1, 1, 3, {"framework=torch-fsdp"}), dropout);
  add("nanotron_tensor2", grid(2, 2, 1, 0, {"framework=nanotron"}), dropout);
  add("megatron_pipeline2_tensor2", grid(4, 2, 2, 1, {"framework=megatron-core", "plan.sequence_parallel=true"}),
      dropout);
  add("nemo_unfused", grid(2, 1, 2, 0, {"framework=nemo"}), {"model.dropout=0.1", "model.attention=unfused"});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Deterministic, FrameworkPlans, testing::ValuesIn(deterministic_cases()), name_of_case);

}  // namespace
}  // namespace rehearse
