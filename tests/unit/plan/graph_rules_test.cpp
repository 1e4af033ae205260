// What plan.cuda_graphs cannot hold.
#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

using GraphTexts = std::vector<std::string>;

TEST(GraphRules, HoldWhatTheHostDoesNotDecide) {
  const auto of = [](const std::string& plan, const std::string& rest = "") {
    return problems("rehearse: 1\n" + kSmallModel + "cluster: {topology: dgx-a100, gpus: 2}\nplan: {" + plan + "}\n" +
                    (rest.starts_with("framework") ? "" : "framework: rehearse\n") + rest);
  };
  EXPECT_EQ(of("cuda_graphs: layer"), GraphTexts{});
  EXPECT_EQ(of("cuda_graphs: step, recompute: full"), GraphTexts{});
  EXPECT_EQ(of("cuda_graphs: step", "framework: nemo\n"), GraphTexts{});
  EXPECT_EQ(of("cuda_graphs: layer, recompute: full"),
            (GraphTexts{"4:21 plan.cuda_graphs: layers that are recomputed (recompute: full) are captured with the "
                        "whole step alone (cuda_graphs: step, or recompute: selective or none)"}));
  EXPECT_EQ(of("cuda_graphs: layer", "framework: torch-ddp\n"),
            (GraphTexts{"4:21 plan.cuda_graphs: framework torch-ddp launches no graphs (cuda_graphs: none)"}));
  EXPECT_EQ(of("cuda_graphs: step, zero: 3").size(), 1U);
  EXPECT_EQ(of("cuda_graphs: step, zero: 1, offload_optimizer: true").size(), 1U);
  EXPECT_EQ(of("cuda_graphs: layer", "training: {documents: fixed, document_length: 32}\n").size(), 1U);
  EXPECT_EQ(of("cuda_graphs: layers"),
            (GraphTexts{"4:21 plan.cuda_graphs: expected one of none, layer, step, found 'layers' (did you mean "
                        "'layer'?)"}));
}

TEST(GraphRules, NeedACapacityOfExperts) {
  const auto of = [](const std::string& capacity) {
    return problems(
        "rehearse: 1\nmodel: {family: moe, layers: 2, hidden: 32, heads: 4, vocab: 100, max_seq_len: 32, experts: 4, "
        "experts_per_token: 2, expert_ffn_hidden: 24, capacity_factor: " +
        capacity + "}\ncluster: {topology: dgx-a100, gpus: 2}\nplan: {expert: 2, cuda_graphs: layer}\n");
  };
  EXPECT_EQ(of("1"), GraphTexts{});
  EXPECT_EQ(of("0"),
            (GraphTexts{"4:32 plan.cuda_graphs: without a capacity the host waits in each layer for how many rows "
                        "experts get, which no graph can (model.capacity_factor, or cuda_graphs: none)"}));
}

}  // namespace
}  // namespace rehearse::plan
