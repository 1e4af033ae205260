// training.deterministic: what goes with it by itself, and what is refused with its reason.
#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

std::string with(const std::string& framework, const std::string& training) {
  return "rehearse: 1\n" + kSmallModel + "framework: " + framework + "\ntraining: {" + training + "}\n";
}

TEST(Deterministic, MegatronTakesRingsAndNoFusedLossAndFills) {
  const Scenario off = read(with("nemo", ""));
  EXPECT_TRUE(off.framework.fused_loss);
  EXPECT_TRUE(off.cluster.collectives.empty());
  EXPECT_FALSE(off.training.fill_uninitialized);
  const Scenario on = read(with("nemo", "deterministic: true"));
  EXPECT_FALSE(on.framework.fused_loss);
  EXPECT_TRUE(on.training.fill_uninitialized);
  ASSERT_EQ(on.cluster.collectives.size(), 3u);
  EXPECT_EQ(on.cluster.collectives.front().kind, "all_reduce");
  for (const PinnedCollective& pinned : on.cluster.collectives) {
    EXPECT_EQ(pinned.algorithm, "ring");
    EXPECT_EQ(pinned.protocol, "auto");
  }
  EXPECT_FALSE(read(with("nemo", "deterministic: true, fill_uninitialized: false")).training.fill_uninitialized);
}

TEST(Deterministic, WhatIsPinnedStays) {
  const Scenario own =
      read(with("megatron-core", "deterministic: true"), {"cluster.collectives=[{kind: all_reduce, algorithm: tree}]"});
  ASSERT_EQ(own.cluster.collectives.size(), 1u);
  EXPECT_EQ(own.cluster.collectives.front().algorithm, "tree");
}

TEST(Deterministic, OtherFrameworksKeepTheirCollectivesAndLosses) {
  const Scenario ddp = read(with("torch-ddp", "deterministic: true"));
  EXPECT_TRUE(ddp.cluster.collectives.empty());
  EXPECT_TRUE(ddp.training.fill_uninitialized);
  const Scenario ours = read(with("rehearse", "deterministic: true"));
  EXPECT_TRUE(ours.framework.fused_loss);
  EXPECT_FALSE(ours.training.fill_uninitialized);
  EXPECT_FALSE(read(with("torch-fsdp2-compile", "deterministic: true")).training.fill_uninitialized);
}

TEST(Deterministic, FillsAreRefusedWhereNobodyFills) {
  EXPECT_EQ(
      problems(with("megatron-core", "fill_uninitialized: true")),
      (std::vector<std::string>{
          "4:32 training.fill_uninitialized: needs deterministic: true, without which PyTorch fills nothing of what "
          "it allocates (deterministic: true too, or leave it out)"}));
  EXPECT_EQ(problems(with("rehearse", "deterministic: true, fill_uninitialized: true")),
            (std::vector<std::string>{
                "4:53 training.fill_uninitialized: framework rehearse does not fill what it allocates: it is no "
                "PyTorch, or one before 2.1, or its kernels are compiled (false, or leave it out)"}));
}

TEST(Deterministic, KernelsWithoutADeterministicBackwardAreRefused) {
  const std::vector<std::string> found =
      problems(with("megatron-core", "deterministic: true"), {"model.attention=flash1"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("training.deterministic: how long the deterministic backward of FlashAttention 1"),
            std::string::npos)
      << found[0];
  EXPECT_EQ(problems(with("megatron-core", "deterministic: true"), {"model.attention=unfused"}),
            std::vector<std::string>{});
  const std::string cnn =
      "rehearse: 1\nmodel: {family: cnn, image: {channels: 3, size: 32}, residual_block: basic, residual_layers: [1, "
      "1], "
      "widths: [8]}\nframework: torch-ddp\ntraining: {deterministic: true, optimizer: sgd}\n";
  const std::vector<std::string> convolutions = problems(cnn);
  ASSERT_EQ(convolutions.size(), 1u);
  EXPECT_NE(convolutions[0].find("cuDNN's deterministic convolutions"), std::string::npos) << convolutions[0];
  EXPECT_EQ(problems(cnn, {"framework=rehearse"}), std::vector<std::string>{});
}

}  // namespace
}  // namespace rehearse::plan
