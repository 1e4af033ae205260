// Experts together with what else splits a plan: groups that shard apart (plan.zero_group), states and activations in
// the host's memory, ZB-V; and runs of split contexts, of hybrid sharding and of offloading twice.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/numerics/plan_runs.h"

namespace rehearse {
namespace {

const std::string kRouted =
    "rehearse: 1\n"
    "model: {family: moe, layers: 4, hidden: 32, heads: 8, kv_heads: 4, ffn_hidden: 64, vocab: 250, max_seq_len: 16, "
    "experts: 8, experts_per_token: 2, expert_ffn_hidden: 24, aux_loss: 0.05, capacity_factor: 4}\n" +
    kTraining;

// All choices of a token have room.
std::vector<Case> together_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, int ranks, int expert, int tensor, int pipeline, int zero,
                       const Assignments& more = {}, const Assignments& model = {}) {
    Assignments plan = grid(ranks, tensor, pipeline, zero, more);
    plan.push_back("plan.expert=" + std::to_string(expert));
    cases.push_back({name, kRouted, plan, model});
  };
  add("zero_bubble_v", 4, 2, 1, 2, 1, {"plan.schedule=zero_bubble_v"});
  // Of the ranks that shard together one has each expert, or two.
  for (const int zero : {1, 2, 3}) {
    const std::string suffix = "_zero" + std::to_string(zero);
    add("hybrid" + suffix, 4, 2, 1, 1, zero, {"plan.zero_group=2"});
    add("hybrid_data6" + suffix, 6, 2, 1, 1, zero, {"plan.zero_group=2"});
    add("hybrid_of_two" + suffix, 8, 2, 1, 1, zero, {"plan.zero_group=4"}, {"training.global_batch=16"});
  }
  add("hybrid_no_overlap", 4, 2, 1, 1, 1, {"plan.zero_group=2", "plan.overlap_grad_reduce=false"});
  add("hybrid_whole_context2", 16, 4, 2, 1, 3,
      {"plan.sequence_parallel=true", "plan.expert_tensor=1", "plan.context=2", "plan.zero_group=4"});
  add("hybrid_tensor2_pipeline2", 16, 2, 2, 2, 1, {"plan.sequence_parallel=true", "plan.zero_group=2"});
  add("hybrid_data_fastest", 8, 2, 2, 1, 3,
      {"plan.zero_group=2", "plan.rank_order=[expert, data, tensor, context, pipeline]"});
  add("hybrid_megatron_core", 8, 2, 2, 1, 1,
      {"plan.zero_group=2", "plan.sequence_parallel=true", "framework=megatron-core"});
  // A middle stage has 17 streams.
  add("dualpipe_over_all_axes", 32, 2, 2, 4, 1,
      {"plan.sequence_parallel=true", "plan.context=2", "plan.zero_group=2", "plan.schedule=dualpipe",
       "plan.overlap_expert_exchange=true", "plan.micro_batch=1"},
      {"training.global_batch=16"});
  add("hybrid_dropless", 4, 2, 1, 1, 3, {"plan.zero_group=2", "model.capacity_factor=0", "model.buffer_factor=2"});
  add("hybrid_muon", 8, 2, 1, 1, 1, {"plan.zero_group=4"}, {"training.global_batch=16", "training.optimizer=muon"});
  add("hybrid_adafactor", 4, 2, 1, 1, 1, {"plan.zero_group=2"}, {"training.optimizer=adafactor", "training.lr=1e-2"});
  add("hybrid_offloaded", 4, 2, 1, 1, 2, {"plan.zero_group=2", "plan.offload_optimizer=true"});
  add("hybrid_offloaded_zero1", 4, 2, 1, 1, 1, {"plan.zero_group=2", "plan.offload_optimizer=true"});
  add("hybrid_offloaded_zero3", 4, 2, 1, 1, 3,
      {"plan.zero_group=2", "plan.offload_optimizer=true", "plan.offload_parameters=true"});
  add("offloaded", 4, 2, 1, 1, 1, {"plan.offload_optimizer=true"});
  add("offloaded_zero3", 4, 2, 1, 1, 3, {"plan.offload_optimizer=true", "plan.offload_parameters=true"});
  add("activations_offloaded", 4, 2, 1, 2, 1, {"plan.recompute=full", "plan.offload_activations=true"});
  // Recomputed op by op: what ranks traded is kept, all else made again.
  const Assignments dropless = {"model.capacity_factor=0", "model.buffer_factor=2"};
  const auto ops = [&](const std::string& name, int ranks, int expert, int tensor, int pipeline, int zero,
                       Assignments more = {}, const Assignments& model = {}) {
    more.emplace_back("plan.recompute=ops");
    add("ops_" + name, ranks, expert, tensor, pipeline, zero, more, model);
  };
  ops("one_rank", 1, 1, 1, 1, 0);
  ops("data2", 2, 2, 1, 1, 0);
  ops("zero3_shared_dense", 4, 2, 1, 1, 3, {}, {"model.shared_experts=1", "model.dense_layers=1"});
  ops("overlapped_shared", 4, 2, 1, 1, 1, {"plan.overlap_shared_experts=true"}, {"model.shared_experts=1"});
  const Assignments roomy = {"model.capacity_factor=0", "model.buffer_factor=4"};
  // A tensor group gathers its ranks' parts, each with room behind it, and there is nothing to sort by experts.
  const std::string sequence = "plan.sequence_parallel=true";
  const auto one_own = [&](const std::string& name, int experts, Assignments more = {}) {
    const std::string number = std::to_string(experts);
    more.push_back(sequence);
    add("dropless_one_of_" + number + name, 2 * experts, experts, 2, 1, 1, more,
        {"model.experts=" + number, "model.capacity_factor=0", "model.buffer_factor=" + number});
  };
  one_own("", 2);
  one_own("", 4);
  one_own("_weighed", 4, {"plan.weigh_in_experts=true"});
  one_own("_ops", 4, {"plan.recompute=ops"});
  one_own("_gathered", 4, {"plan.expert_dispatch=all_gather"});
  ops("dropless", 4, 4, 1, 1, 1, {}, roomy);
  ops("dropout", 2, 2, 1, 1, 0, {}, {"model.dropout=0.1"});
  ops("one_expert_a_rank", 8, 8, 1, 1, 0, {}, {"training.global_batch=16"});
  ops("tensor2", 4, 2, 2, 1, 0, {}, dropless);
  ops("tensor2_sequence", 4, 2, 2, 1, 1, {"plan.sequence_parallel=true"}, dropless);
  ops("whole_tensor2", 4, 2, 2, 1, 1, {"plan.sequence_parallel=true", "plan.expert_tensor=1"}, dropless);
  ops("gathered", 4, 2, 2, 1, 1, {"plan.sequence_parallel=true", "plan.expert_dispatch=all_gather"}, dropless);
  ops("context2_pipeline2", 8, 2, 1, 2, 1, {"plan.context=2"}, dropless);
  ops("interleaved", 4, 2, 1, 2, 1, {"plan.schedule=interleaved", "plan.chunks=2", "plan.recompute_layers=1"});
  ops("zero_bubble", 4, 2, 1, 2, 1, {"plan.schedule=zero_bubble"});
  // Behind latent attention, as DeepSeek's models have it: a dense layer first, then shared experts; of queries a
  // latent or none.
  for (const std::string rank : {"6", "0"}) {
    const Assignments latents = {"model.kv_heads=8",         "model.q_lora_rank=" + rank, "model.kv_lora_rank=10",
                                 "model.qk_nope_head_dim=6", "model.qk_rope_head_dim=2",  "model.v_head_dim=5",
                                 "model.dense_layers=1",     "model.shared_experts=1"};
    const auto dropped = [&] {
      Assignments all = latents;
      all.emplace_back("model.dropout=0.1");
      return all;
    };
    Assignments turned = latents;
    turned.insert(turned.end(), {"model.rope_base=100", "model.rope_scaling=yarn", "model.rope_factor=4",
                                 "model.rope_trained_len=8", "model.qk_nope_head_dim=4", "model.qk_rope_head_dim=4"});
    add("latents" + rank + "_yarn_ring2_tensor2", 8, 2, 2, 1, 1, {"plan.context=2", sequence}, turned);
    ops("latents" + rank + "_data2", 2, 2, 1, 1, 0, {}, latents);
    ops("latents" + rank + "_dropout", 2, 2, 1, 1, 1, {}, dropped());
    ops("latents" + rank + "_fsdp2", 8, 2, 2, 2, 3, {"framework=torch-fsdp2", sequence}, latents);
  }
  const std::string weigh = "plan.weigh_in_experts=true";
  ops("weighed_one_rank", 1, 1, 1, 1, 0, {weigh});
  ops("weighed_capacity", 2, 2, 1, 1, 0, {weigh});
  ops("weighed_shared", 4, 4, 1, 1, 1, {weigh, "plan.overlap_shared_experts=true"},
      {"model.capacity_factor=0", "model.buffer_factor=4", "model.shared_experts=1"});
  ops("weighed_tensor2_sequence", 4, 2, 2, 1, 1, {weigh, "plan.sequence_parallel=true"}, dropless);
  ops("weighed_gathered", 2, 2, 1, 1, 1, {weigh, "plan.expert_dispatch=all_gather"}, dropless);
  ops("weighed_fsdp2", 4, 2, 1, 1, 3, {weigh, "framework=torch-fsdp2"}, dropless);
  ops("megatron_core", 4, 2, 2, 1, 1, {"plan.sequence_parallel=true", "framework=megatron-core"}, dropless);
  // As torchtitan has them: experts sharded over the ranks that have the same.
  for (const std::string framework : {"torch-fsdp2", "torch-fsdp2-compile"}) {
    const std::string suffix = framework == "torch-fsdp2" ? "" : "_compile";
    const Assignments with = {"framework=" + framework};
    for (const int zero : {2, 3}) add("fsdp2_zero" + std::to_string(zero) + suffix, 4, 2, 1, 1, zero, with, dropless);
    ops("fsdp2" + suffix, 4, 2, 1, 1, 3, with, {"model.shared_experts=1"});
    add("fsdp2_hybrid" + suffix, 8, 2, 1, 1, 3, {"framework=" + framework, "plan.zero_group=4"},
        {"training.global_batch=16"});
    ops("fsdp2_tensor2_pipeline2" + suffix, 8, 2, 2, 2, 3,
        {"framework=" + framework, "plan.sequence_parallel=true", "plan.expert_tensor=1"});
    add("fsdp2_context2" + suffix, 4, 4, 1, 1, 3, {"framework=" + framework, "plan.context=2"}, roomy);
  }
  return cases;
}
class ExpertsTogether : public testing::TestWithParam<Case> {};
TEST_P(ExpertsTogether, TrainAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam(), 1);
}
INSTANTIATE_TEST_SUITE_P(Plans, ExpertsTogether, testing::ValuesIn(together_cases()), name_of_case);

class TwoRuns : public testing::TestWithParam<Case> {};
TEST_P(TwoRuns, AreTheSameInEveryBit) {
  const Case& c = GetParam();
  const execute::Outcome first = perform(c.text, c.plan, 6), second = perform(c.text, c.plan, 6);
  EXPECT_EQ(first.result.loss, second.result.loss);
  EXPECT_EQ(first.parameters, second.parameters);
}
INSTANTIATE_TEST_SUITE_P(
    Plans, TwoRuns,
    testing::Values(
        Case{"ring2_2x2", kLlama, grid(8, 2, 2, 1, {"plan.context=2", "plan.sequence_parallel=true"})},
        Case{"gathered_keys2", kLlama, grid(4, 1, 1, 3, {"plan.context=2", "plan.context_kind=all_gather"})},
        Case{"traded_heads2", kGpt, grid(4, 1, 1, 1, {"plan.context=2", "plan.context_kind=all_to_all"})},
        Case{"hybrid", kGpt, grid(4, 1, 1, 3, {"plan.zero_group=2"})},
        Case{"experts_hybrid", kRouted, grid(4, 1, 1, 3, {"plan.expert=2", "plan.zero_group=2"})},
        Case{"experts_ops_fsdp2", kRouted,
             grid(4, 1, 1, 3, {"plan.expert=2", "plan.recompute=ops", "framework=torch-fsdp2"})},
        Case{"offloaded", kGpt, grid(2, 1, 1, 2, {"plan.offload_optimizer=true"})},
        Case{"activations_offloaded", kGpt, grid(2, 1, 2, 0, {"plan.recompute=full", "plan.offload_activations=true"})},
        Case{"packed", kLlama, grid(4, 2, 1, 1, {"training.documents=lognormal", "training.document_length=5"})}),
    name_of_case);

}  // namespace
}  // namespace rehearse
