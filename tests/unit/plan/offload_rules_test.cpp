// What of plan.offload_optimizer and plan.offload_activations cannot be, and why.
#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using OffloadTexts = std::vector<std::string>;

OffloadTexts offload_problems(const std::string& rest) {
  return problems("rehearse: 1\n" + kSmallModel + rest);
}

TEST(OffloadRules, TheOptimizerIsNotWhereForwardReadsItsCopy) {
  EXPECT_EQ(offload_problems("plan: {offload_optimizer: true}\n"), OffloadTexts{});
  for (const char* framework : {"megatron-core", "deepspeed", "torch-fsdp2", "rehearse"})
    EXPECT_EQ(offload_problems("framework: " + std::string(framework) + "\nplan: {offload_optimizer: true, zero: 1}\n"),
              OffloadTexts{})
        << framework;
  EXPECT_EQ(
      offload_problems("framework: torch-ddp\nplan: {offload_optimizer: true}\n"),
      (OffloadTexts{"4:27 plan.offload_optimizer: with framework torch-ddp forward reads the optimizer's fp32 copy "
                    "of the parameters, which has to be on the device (leave it out, or another framework)"}));
  EXPECT_EQ(
      offload_problems("plan: {offload_optimizer: true}\ntraining: {precision: fp8, fp8_params: true}\n"),
      (OffloadTexts{"3:27 plan.offload_optimizer: weights that are held in 8 bits alone are made of the optimizer's "
                    "fp32 copy on the device (training.fp8_params: false)"}));
  EXPECT_EQ(offload_problems("plan: {offload_optimizer: true}\ntraining: {moments: int8}\n"),
            (OffloadTexts{"3:27 plan.offload_optimizer: moments in 8 bits have no step on the host yet "
                          "(training.moments: fp32 or bf16)"}));
  EXPECT_EQ(offload_problems("plan: {offload_optimizer: true}\ntraining: {optimizer: adafactor}\n"),
            (OffloadTexts{"3:27 plan.offload_optimizer: Adafactor has no step on the host yet (training.optimizer: "
                          "adamw)"}));
}

TEST(OffloadRules, ParametersAreThoseThatAreGathered) {
  const std::string all = "cluster: {gpus: 2}\ntraining: {global_batch: 4}\nplan: {offload_parameters: true, ";
  EXPECT_EQ(offload_problems(all + "offload_optimizer: true, zero: 3}\n"), OffloadTexts{});
  EXPECT_EQ(offload_problems(all + "zero: 3}\n"),
            (OffloadTexts{"5:28 plan.offload_parameters: what updates parameters on the host is the optimizer's step "
                          "there (plan.offload_optimizer: true)"}));
  const OffloadTexts not_gathered = {
      "5:28 plan.offload_parameters: it is of parameters that ranks gather layer by layer (plan.zero: 3 with several "
      "ranks that shard)"};
  EXPECT_EQ(offload_problems(all + "offload_optimizer: true, zero: 2}\n"), not_gathered);
  EXPECT_EQ(offload_problems(all + "offload_optimizer: true, zero: 3, tensor: 2}\n"), not_gathered);
}

TEST(OffloadRules, ActivationsAreOfRecomputedLayers) {
  EXPECT_EQ(offload_problems("plan: {offload_activations: true, recompute: full}\n"), OffloadTexts{});
  const std::string rule =
      "plan.offload_activations: it is of the inputs of layers that are computed again in backward, which alone are "
      "kept then";
  for (const char* kept : {"none", "selective", "ops"})
    EXPECT_EQ(offload_problems("plan: {offload_activations: true, recompute: " + std::string(kept) + "}\n"),
              (OffloadTexts{"3:29 " + rule + " (plan.recompute: full)"}));
  EXPECT_EQ(problems("rehearse: 1\nmodel: mlp-mnist\nplan: {offload_activations: true, recompute: full}\n"),
            (OffloadTexts{"3:29 " + rule + " (leave it out)"}));
  EXPECT_EQ(offload_problems("cluster: {gpus: 2}\nplan: {offload_activations: true, recompute: full, pipeline: 2, "
                             "schedule: zero_bubble}\ntraining: {global_batch: 4}\n"),
            (OffloadTexts{"4:29 plan.offload_activations: schedule zero_bubble reads the inputs of layers again in a "
                          "part of its own for weight gradients (schedule: 1f1b)"}));
}

TEST(OffloadRules, LayersAreThoseOfOneStageThatKeepAll) {
  const auto with = [](const std::string& plan, const std::string& more = "") {
    return offload_problems("plan: {" + plan + "}\n" + more);
  };
  EXPECT_EQ(with("offload_layers: 3"), OffloadTexts{});
  const auto refuses = [](const OffloadTexts& found, const std::string& words) {
    ASSERT_EQ(found.size(), 1U) << words;
    EXPECT_NE(found.front().find("plan.offload_layers: " + words), std::string::npos) << found.front();
  };
  refuses(with("offload_layers: 100"), "100 of ");
  refuses(with("offload_layers: 1, recompute: selective"), "layers that are recomputed keep little");
  refuses(with("offload_layers: 1, recompute_norms: true"), "layers that are recomputed keep little");
  refuses(with("offload_layers: 1, pipeline: 2", "cluster: {gpus: 2}\ntraining: {global_batch: 4}\n"),
          "stages keep the activations of several micro-batches");
  refuses(problems("rehearse: 1\nmodel: mlp-mnist\nplan: {offload_layers: 1}\n"), "it is of layers of transformers");
}

}  // namespace
}  // namespace rehearse::plan
