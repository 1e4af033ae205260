// What backward makes again in the place of keeping it, and routers' weights that go to the experts: training is the
// same. Norms and activations that are made again have the bits that they had; weights that are multiplied with
// activations, in place of with what comes back, change where sums are rounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "tests/numerics/performed.h"

namespace rehearse::numerics {
namespace {

using Assignments = std::vector<std::string>;

const std::string kKeptDense =
    "rehearse: 1\n"
    "model: {family: llama, layers: 4, hidden: 32, heads: 4, ffn_hidden: 64, vocab: 250, max_seq_len: 32}\n"
    "cluster: {topology: local, gpus: 1}\n"
    "plan: {micro_batch: 2}\n"
    "training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-3, seed: 3}\n";
const std::string kKeptExperts =
    "rehearse: 1\n"
    "model: {family: moe, layers: 2, hidden: 32, heads: 4, vocab: 250, max_seq_len: 32, experts: 4, "
    "experts_per_token: 2, expert_ffn_hidden: 32, shared_experts: 1, capacity_factor: 0, buffer_factor: 4, "
    "q_lora_rank: 16, kv_lora_rank: 16, qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 8}\n"
    "cluster: {topology: local, gpus: 1}\n"
    "plan: {micro_batch: 2}\n"
    "training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-3, seed: 3}\n";

struct KeptCase {
  std::string name;
  bool experts = false;
  Assignments plan, less;
  double tolerance = 0;
};
std::ostream& operator<<(std::ostream& out, const KeptCase& c) {
  return out << c.name;
}

std::vector<double> kept_losses(const KeptCase& c, const Assignments& more) {
  Assignments all = c.plan;
  all.insert(all.end(), more.begin(), more.end());
  plan::Scenario scenario = scenario_from(c.experts ? kKeptExperts : kKeptDense, all);
  scenario.purpose = plan::Purpose::perform;
  return performed(scenario, 6).result.loss;
}

class KeptLess : public testing::TestWithParam<KeptCase> {};

TEST_P(KeptLess, TrainsAsWithEverythingKept) {
  const KeptCase& c = GetParam();
  const std::vector<double> kept = kept_losses(c, {}), less = kept_losses(c, c.less);
  ASSERT_EQ(kept.size(), less.size());
  for (std::size_t i = 0; i < kept.size(); ++i)
    EXPECT_LE(std::abs(less[i] / kept[i] - 1), c.tolerance) << "step " << i << ": " << less[i] << " for " << kept[i];
  EXPECT_LT(kept.back(), kept.front()) << "nothing is learnt";
}

std::vector<KeptCase> kept_cases() {
  const std::string norms = "plan.recompute_norms=true", act = "plan.recompute_expert_activation=true",
                    weigh = "plan.weigh_in_experts=true", latent = "plan.recompute_latent=true",
                    sequence = "plan.sequence_parallel=true", capacity = "model.capacity_factor=1";
  const auto gpus = [](int n, Assignments more) {
    more.push_back("cluster.gpus=" + std::to_string(n));
    return more;
  };
  const double rounding = 2e-6;
  const Assignments dualpipe = gpus(4, {"plan.expert=2", "plan.pipeline=2", "plan.schedule=dualpipe", "model.layers=4",
                                        "plan.overlap_expert_exchange=true", "training.global_batch=16"});
  return {
      {"Norms", false, {}, {norms}},
      {"NormsParallelBlock", false, {"model.parallel_block=one_norm"}, {norms}},
      {"NormsPostNorms", false, {"model.post_norms=true"}, {norms}},
      {"NormsTensorSequence", false, gpus(2, {"plan.tensor=2", sequence}), {norms}},
      {"NormsZeroBubble", false, gpus(2, {"plan.pipeline=2", "plan.schedule=zero_bubble"}), {norms}},
      {"NormsZero3", false, gpus(2, {"plan.zero=3"}), {norms}},
      {"NormsEager", false, gpus(2, {"framework=torch-fsdp2", "plan.zero=3"}), {norms}},
      {"NormsFullRecompute", false, {"plan.recompute=full"}, {norms}},
      {"ExpertsNorms", true, {}, {norms}},
      {"ExpertsAllAgain", true, {}, {norms, act, latent}},
      {"ExpertsAgainSpread", true, gpus(2, {"plan.expert=2"}), {norms, act}},
      {"ExpertsAgainZeroBubble",
       true,
       gpus(4, {"plan.expert=2", "plan.pipeline=2", "plan.schedule=zero_bubble"}),
       {norms, act}},
      {"ExpertsAgainDualPipe", true, dualpipe, {norms, act, latent}},
      {"ExpertsFullRecompute", true, {"plan.recompute=full"}, {norms, act}},
      {"Weighed", true, {}, {weigh}, rounding},
      {"WeighedAgain", true, {}, {weigh, act, norms}, rounding},
      {"WeighedCapacity", true, {capacity}, {weigh}, rounding},
      {"WeighedSpread", true, gpus(2, {"plan.expert=2"}), {weigh}, rounding},
      {"WeighedSpreadCapacity", true, gpus(2, {"plan.expert=2", capacity}), {weigh}, rounding},
      {"WeighedGathered", true, gpus(2, {"plan.expert=2", "plan.expert_dispatch=all_gather"}), {weigh}, rounding},
      {"WeighedTensor", true, gpus(2, {"plan.tensor=2"}), {weigh}, rounding},
      {"WeighedTensorSequence", true, gpus(4, {"plan.expert=2", "plan.tensor=2", sequence}), {weigh}, rounding},
      {"WeighedWhole",
       true,
       gpus(2, {"plan.expert=2", "plan.tensor=2", sequence, "plan.expert_tensor=1"}),
       {weigh},
       rounding},
      {"WeighedDualPipe", true, dualpipe, {weigh, act}, rounding},
      {"WeighedBesideShared", true, gpus(2, {"plan.expert=2", "plan.overlap_shared_experts=true"}), {weigh}, rounding},
      {"WeighedMegatron",
       true,
       gpus(4, {"framework=megatron-core", "plan.expert=2", "plan.pipeline=2", "plan.zero=1"}),
       {weigh, norms, act, latent},
       rounding},
      {"WeighedFullRecompute", true, gpus(2, {"plan.expert=2", "plan.recompute=full"}), {weigh}, rounding},
  };
}
INSTANTIATE_TEST_SUITE_P(Plans, KeptLess, testing::ValuesIn(kept_cases()),
                         [](const testing::TestParamInfo<KeptCase>& tested) { return tested.param.name; });

}  // namespace
}  // namespace rehearse::numerics
