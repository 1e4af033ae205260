// Products that go on beside their collectives: what they need.
#include <tuple>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

std::string text(const std::string& plan, const std::string& training) {
  return "rehearse: 1\nmodel: {family: gpt, layers: 2, hidden: 128, heads: 4, vocab: 100, max_seq_len: 64}\n"
         "cluster: {topology: dgx-h100, gpus: 8}\nplan: {async_tensor_parallel: true, " +
         plan + "}\ntraining: {" + training + "}\n";
}

TEST(AsyncTensorParallel, SaysWhatItNeeds) {
  const std::string sequence = "tensor: 2, sequence_parallel: true";
  const std::tuple<std::string, std::string, std::string> refused[] = {
      {"tensor: 2, sequence_parallel: false", "precision: bf16", "rows of the sequence are gathered and scattered"},
      {sequence, "lora_rank: 4", "adapters read what is gathered whole"},
      {sequence, "precision: fp8, fp8_recipe: blockwise", "rows in 8 or 4 bits with scales of blocks"},
      {sequence, "precision: fp8, fp8_recipe: mxfp8", "rows in 8 or 4 bits with scales of blocks"},
  };
  for (const auto& [plan, training, message] : refused) {
    const std::vector<std::string> found = problems(text(plan, training));
    ASSERT_EQ(found.size(), 1U) << message;
    EXPECT_NE(found[0].find("plan.async_tensor_parallel: " + message), std::string::npos) << found[0];
  }
  for (const char* recipe : {"tensorwise", "delayed", "rowwise"})
    EXPECT_TRUE(problems(text(sequence, std::string("precision: fp8, fp8_recipe: ") + recipe)).empty()) << recipe;
}

TEST(AsyncTensorParallel, IsNothingWithoutATensorGroup) {
  EXPECT_TRUE(problems(text("tensor: 1", "precision: bf16")).empty());
}

}  // namespace
}  // namespace rehearse::plan
