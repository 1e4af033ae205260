// Products that go on beside what tensor groups gather and scatter (plan.async_tensor_parallel) train as one rank does.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/numerics/plan_runs.h"

namespace rehearse::async_tensor_test {
namespace {

class AsyncTensorPlans : public testing::TestWithParam<Case> {};
TEST_P(AsyncTensorPlans, TrainAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam());
}

Assignments async_with(Assignments more) {
  more.insert(more.end(), {"plan.sequence_parallel=true", "plan.async_tensor_parallel=true"});
  return more;
}

std::vector<Case> async_cases() {
  const std::string whole = "plan.overlap_tensor_backward=true", parts = "plan.overlap_tensor_backward=false",
                    fused = "plan.fused_epilogues=all";
  return {
      {"gpt_fused_whole", kGpt, grid(2, 2, 1, 0, async_with({fused, whole}))},
      {"gpt_fused_parts", kGpt, grid(2, 2, 1, 0, async_with({fused, parts}))},
      {"gpt_tensor4", kGpt, grid(4, 4, 1, 0, async_with({parts})), {"model.dropout=0.1"}},
      {"llama_2x2x2_zero1", kLlama, grid(8, 2, 2, 1, async_with({"plan.recompute=full"}))},
      {"gpt_zero_bubble", kGpt, grid(4, 2, 2, 0, async_with({"plan.schedule=zero_bubble"}))},
      {"llama_torch_zero3",
       kLlama,
       grid(4, 2, 1, 3, async_with({"framework=torch-fsdp2-compile", "plan.recompute=ops"})),
       {"model.dropout=0"}},
  };
}

INSTANTIATE_TEST_SUITE_P(Tensor, AsyncTensorPlans, testing::ValuesIn(async_cases()), name_of_case);

}  // namespace
}  // namespace rehearse::async_tensor_test
