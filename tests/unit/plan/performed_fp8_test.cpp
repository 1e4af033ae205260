// Products in fewer than 16 bits that are performed: what a scenario is refused for.
#include <tuple>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using Texts = std::vector<std::string>;

TEST(PerformedPrecision, EightBitsThatAreNotPerformedAreSaid) {
  const auto performed = [](const std::string& training, const std::string& model = "family: gpt, layers: 2",
                            const Texts& assignments = {}) {
    return problems("rehearse: 1\nmodel: {hidden: 128, heads: 4, vocab: 100, max_seq_len: 64, " + model +
                        "}\ncluster: {topology: local, gpus: 1}\ntraining: {" + training + "}\n",
                    assignments, Purpose::perform);
  };
  for (const char* recipe : {"delayed", "tensorwise", "mxfp8", "rowwise"})
    EXPECT_EQ(performed(std::string("precision: fp8, fp8_recipe: ") + recipe), Texts{}) << recipe;
  EXPECT_EQ(performed("precision: nvfp4"), Texts{});
  EXPECT_EQ(performed("precision: fp8, fp8_recipe: blockwise", "family: gpt, layers: 2", {"plan.micro_batch=2"}),
            Texts{});
  const std::string experts = "family: moe, layers: 2, experts: 4, experts_per_token: 2, expert_ffn_hidden: 64";
  const std::string latent =
      "family: llama, layers: 2, ffn_hidden: 128, kv_lora_rank: 32, q_lora_rank: 32, qk_nope_head_dim: 16, "
      "qk_rope_head_dim: 8, v_head_dim: 16";
  const std::string gpt = "family: gpt, layers: 2";
  const std::tuple<std::string, std::string, Texts, std::string> refused[] = {
      {"precision: nvfp4",
       experts,
       {},
       "training.precision: 4-bit products of experts are simulated, and not performed"},
      {"precision: nvfp4", latent, {}, "training.precision: 4-bit products of latent attention are simulated, and not"},
      {"precision: nvfp4",
       gpt,
       {"cluster.gpus=2", "plan.tensor=2", "plan.sequence_parallel=true"},
       "training.precision: shards of a sequence that are transformed have scales of their own"},
      {"precision: nvfp4",
       gpt,
       {"model.hidden=120"},
       "blocks of 16 elements do not divide model.hidden = 120 (multiples"},
      {"precision: fp8, fp8_recipe: mxfp8",
       latent,
       {},
       "blocks of 32 elements do not divide model.kv_lora_rank with model.qk_rope_head_dim = 40 (multiples, or"},
      {"precision: fp8, fp8_recipe: blockwise",
       experts,
       {"plan.micro_batch=2"},
       "blocks of 128 elements do not divide model.expert_ffn_hidden of a rank = 64 (multiples"},
      {"precision: fp8, fp8_params: true", gpt, {}, "training.fp8_params: weights in 8 bits alone are simulated, and"},
      {"precision: fp8, fp8_recipe: blockwise",
       gpt,
       {},
       "blocks of 128 elements do not divide tokens of a rank's micro-batch = 64 (multiples, or fp8_recipe: mxfp8"},
      {"precision: fp8, fp8_recipe: mxfp8",
       gpt,
       {"model.hidden=120"},
       "blocks of 32 elements do not divide model.hidden = 120 (multiples, or fp8_recipe: tensorwise)"},
      {"precision: fp8, fp8_recipe: mxfp8",
       gpt,
       {"cluster.gpus=4", "plan.tensor=4", "plan.sequence_parallel=true"},
       "blocks of 32 elements do not divide tokens of a rank's micro-batch = 16"}};
  for (const auto& [training, model, assignments, expected] : refused) {
    const Texts found = performed(training, model, assignments);
    ASSERT_EQ(found.size(), 1U) << training << " " << testing::PrintToString(found);
    EXPECT_NE(found[0].find(expected), std::string::npos) << found[0];
  }
}

}  // namespace
}  // namespace rehearse::plan
