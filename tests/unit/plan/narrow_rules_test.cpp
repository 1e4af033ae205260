// What is kept or sent in few bits, or made again: where each key is refused.
#include <tuple>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using Texts = std::vector<std::string>;

TEST(NarrowRules, SayWhatAKeyNeeds) {
  const std::string gpt = "family: gpt, layers: 2", bert = "family: bert, layers: 2";
  const std::string experts = "family: moe, layers: 2, experts: 4, experts_per_token: 2, expert_ffn_hidden: 128";
  const std::string blocks = "precision: fp8, fp8_recipe: blockwise";
  const std::tuple<std::string, std::string, std::string, std::string> refused[] = {
      {bert, "recompute_norms: true", "", "plan.recompute_norms: is of layers with a norm before each branch"},
      {gpt, "zero: 1", "precision: fp8, fp8_recipe: rowwise, fp8_params: true",
       "training.fp8_params: backward scales columns of weights, so 16 bits are gathered"},
      {experts, "zero: 1", "precision: fp8, fp8_recipe: rowwise",
       "training.fp8_recipe: scales of rows are of linear layers, and routed experts are none"},
      {gpt, "recompute_norms: true", "lora_rank: 4", "plan.recompute_norms: adapters read what norms give in backward"},
      {gpt, "recompute_expert_activation: true", "", "plan.recompute_expert_activation: this model has no experts"},
      {gpt, "weigh_in_experts: true", "", "plan.weigh_in_experts: this model has no experts"},
      {experts, "expert: 2", "fp8_dispatch: true", "training.fp8_dispatch: rows of 8 bits bring the scales of their"},
      {experts, "expert: 2", "precision: fp8, fp8_dispatch: true", "training.fp8_dispatch: rows of 8 bits bring"},
      {gpt, "zero: 1", blocks + ", fp8_dispatch: true", "training.fp8_dispatch: this model has no experts"},
      {experts, "zero: 1", blocks + ", fp8_dispatch: true", "training.fp8_dispatch: experts are not spread over ranks"},
      {experts, "expert: 2, expert_dispatch: all_gather", blocks + ", fp8_dispatch: true",
       "training.fp8_dispatch: all_gather brings each rank the rows of all, in 16 bits"},
      {experts, "zero: 1", "precision: bf16, fp8_activation_input: true", "training.fp8_activation_input: rows of 8"},
      {experts, "zero: 1", "precision: fp8, fp8_recipe: mxfp8, e5m6_attention_output: true",
       "training.e5m6_attention_output: is of the recipe that has it"},
      {experts, "context: 2", blocks + ", e5m6_attention_output: true",
       "training.e5m6_attention_output: ranks of a context group trade"},
  };
  for (const auto& [model, plan, training, message] : refused) {
    const Texts found =
        problems("rehearse: 1\nmodel: {hidden: 128, heads: 4, vocab: 100, max_seq_len: 64, " + model +
                 "}\ncluster: {topology: dgx-h100, gpus: 8}\nplan: {" + plan + "}\ntraining: {" + training + "}\n");
    ASSERT_EQ(found.size(), 1U) << message;
    EXPECT_NE(found[0].find(message), std::string::npos) << found[0];
  }
  const Texts performed =
      problems("rehearse: 1\nmodel: {hidden: 128, heads: 4, vocab: 100, max_seq_len: 128, " + experts +
                   "}\ncluster: {topology: local, gpus: 1}\ntraining: {" + blocks + ", e5m6_attention_output: true}\n",
               {}, Purpose::perform);
  ASSERT_EQ(performed.size(), 1U);
  EXPECT_NE(performed[0].find("numbers of 12 bits are simulated, and not performed"), std::string::npos);
}

// By the framework's default a plan has it whatever the model: only what differs from it asks for experts.
TEST(NarrowRules, WeighInExpertsByTheFramework) {
  const auto text = [](const std::string& model, const std::string& framework, const std::string& plan) {
    return "rehearse: 1\nframework: " + framework + "\nmodel: {hidden: 128, heads: 4, vocab: 128, max_seq_len: 64, " +
           model + "}\ncluster: {topology: dgx-h100, gpus: 8}\nplan: {" + plan + "}\n";
  };
  const std::string gpt = "family: gpt, layers: 2";
  const std::string experts = "family: moe, layers: 2, experts: 4, experts_per_token: 2, expert_ffn_hidden: 128";
  for (const char* const framework : {"megatron-core", "nemo"}) {
    EXPECT_TRUE(read(text(experts, framework, "zero: 1")).plan.weigh_in_experts) << framework;
    EXPECT_FALSE(read(text(experts, framework, "weigh_in_experts: false")).plan.weigh_in_experts) << framework;
    EXPECT_EQ(problems(text(gpt, framework, "zero: 1")), Texts{}) << framework;
    EXPECT_EQ(problems(text(gpt, framework, "weigh_in_experts: false")), Texts{}) << framework;
  }
  const Texts found = problems(text(gpt, "rehearse", "weigh_in_experts: true"));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].find("plan.weigh_in_experts: this model has no experts"), std::string::npos) << found[0];
  EXPECT_EQ(problems(text(gpt, "rehearse", "weigh_in_experts: false")), Texts{});
  EXPECT_FALSE(read(text(experts, "torch-fsdp2", "zero: 1")).plan.weigh_in_experts);
}

}  // namespace
}  // namespace rehearse::plan
