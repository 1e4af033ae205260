// Low-rank adaptation (training.lora_rank): what a rank keeps of frozen parameters and of adapters, what it sends, and
// what its backward leaves out, against hand counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tests/support/lowered.h"

namespace rehearse {
namespace {

using program::BufferClass;
using program::Collective;
using program::CollectiveKind;
using program::Op;
using program::Program;
using program::Role;

constexpr const char* kLoraModel =
    "rehearse: 1\nmodel: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 2, ffn_hidden: 192, vocab: 128, "
    "max_seq_len: 32}\ncluster: {gpus: 4}\ntraining: {global_batch: 4, precision: bf16, lora_rank: 8}\n";
// Two tables of 128 x 64; in each layer queries, keys and values 64 x 128, the projection 64 x 64, gate, up and down
// 64 x 192; two norms a layer and one.
constexpr std::int64_t kFrozenElements = 2 * 128 * 64 + 2 * (64 * 128 + 64 * 64 + 3 * 64 * 192) + 5 * 64;
// Rank 8 times inputs and outputs: of attention's two products, of the feed-forward layer's two.
constexpr std::int64_t kOfAttention = 2 * 8 * (64 + 128 + 64 + 64), kOfMlp = 2 * 8 * (64 + 384 + 192 + 64);
constexpr std::int64_t kAdapterElements = kOfAttention + kOfMlp;

struct LoweredAdapters {
  plan::Scenario scenario;
  Program program;
};

LoweredAdapters adapted_with(const std::vector<std::string>& assignments) {
  plan::Scenario scenario = scenario_from(kLoraModel, assignments);
  Program program = lower::lower(scenario);
  EXPECT_EQ(violations(program, scenario.grid()), "") << testing::PrintToString(assignments);
  return {std::move(scenario), std::move(program)};
}

std::int64_t kept_of_class(const Role& role, BufferClass cls) {
  std::int64_t bytes = 0;
  for (const program::Buffer& b : role.buffers)
    if (!b.is_view() && b.lifetime == program::Lifetime::persistent && b.cls == cls) bytes += b.bytes();
  return bytes;
}

// Of the ops of a step; those of names with `part` in them.
std::vector<std::string> step_ops_named(const Role& role, const std::string& part) {
  std::vector<std::string> names;
  for (const program::Slot& slot : role.slots)
    for (const Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops)
      if (op.name.find(part) != std::string::npos) names.push_back(op.name);
  return names;
}

// Elements of the collectives of a kind on a group, in a step.
std::int64_t elements_sent(const Program& program, CollectiveKind kind, const std::string& group) {
  return sum_over_step(program.roles.front(), [&](const Role&, const Op& op) -> std::int64_t {
    const auto* c = std::get_if<Collective>(&op.shape);
    if (c == nullptr || c->kind != kind || program.groups[static_cast<std::size_t>(c->group)].name != group) return 0;
    return c->elements;
  });
}

// bf16 values of everything; an fp32 gradient, an fp32 copy and two moments of adapters alone.
TEST(Lora, FrozenParametersHaveNoGradientsAndNoOptimizerStates) {
  const auto check = [](const std::vector<std::string>& more, std::int64_t adapters) {
    const LoweredAdapters l = adapted_with(more);
    const Role& role = l.program.roles.front();
    EXPECT_EQ(kept_of_class(role, BufferClass::parameter), 2 * (kFrozenElements + adapters));
    EXPECT_EQ(kept_of_class(role, BufferClass::gradient), 4 * adapters);
    EXPECT_EQ(kept_of_class(role, BufferClass::optimizer), 12 * adapters);
    EXPECT_EQ(model::adapter_parameter_count(l.scenario.model, l.scenario.training.adapters()), adapters);
    EXPECT_EQ(model::parameter_count(l.scenario.model), kFrozenElements);
  };
  check({}, kAdapterElements);
  check({"training.lora_targets=[attention]"}, kOfAttention);
  check({"training.lora_targets=[mlp]"}, kOfMlp);
  check({"training.lora_rank=16"}, 2 * kAdapterElements);
}

// Four ranks. All sizes divide by them, so nothing is padded.
TEST(Lora, ZeroShardsStatesOfAdaptersAndTheThirdFrozenValuesToo) {
  struct {
    int zero;
    std::int64_t values, gradients, states;
  } const rows[] = {{0, 2 * (kFrozenElements + kAdapterElements), 4 * kAdapterElements, 12 * kAdapterElements},
                    {1, 2 * (kFrozenElements + kAdapterElements), 4 * kAdapterElements, 3 * kAdapterElements},
                    {2, 2 * (kFrozenElements + kAdapterElements), kAdapterElements, 3 * kAdapterElements},
                    {3, (kFrozenElements + kAdapterElements) / 2, kAdapterElements, 3 * kAdapterElements}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.zero);
    const LoweredAdapters l = adapted_with({"plan.zero=" + std::to_string(row.zero)});
    const Role& role = l.program.roles.front();
    EXPECT_EQ(kept_of_class(role, BufferClass::parameter), row.values);
    EXPECT_EQ(kept_of_class(role, BufferClass::gradient), row.gradients);
    EXPECT_EQ(kept_of_class(role, BufferClass::optimizer), row.states);
  }
}

TEST(Lora, OnlyAdaptersGradientsAreReducedAndOnlyAdaptersGatheredAfterTheUpdate) {
  EXPECT_EQ(elements_sent(adapted_with({}).program, CollectiveKind::all_reduce, "data"), kAdapterElements);
  for (const char* zero : {"1", "2"}) {
    const LoweredAdapters l = adapted_with({std::string("plan.zero=") + zero});
    EXPECT_EQ(elements_sent(l.program, CollectiveKind::reduce_scatter, "data"), kAdapterElements) << zero;
    EXPECT_EQ(elements_sent(l.program, CollectiveKind::all_gather, "data"), kAdapterElements) << zero;
  }
  // Everything in forward; in backward everything again but the embedding's table.
  const LoweredAdapters l = adapted_with({"plan.zero=3"});
  EXPECT_EQ(elements_sent(l.program, CollectiveKind::reduce_scatter, "data"), kAdapterElements);
  EXPECT_EQ(elements_sent(l.program, CollectiveKind::all_gather, "data"),
            2 * (kFrozenElements + kAdapterElements) - 128 * 64);
}

// DeepSpeed keeps small parameters whole with ZeRO-3, and gathers them after the update: all of this model's.
TEST(Lora, FrozenParametersThatStayWholeAreNotGathered) {
  const LoweredAdapters l = adapted_with({"framework=deepspeed", "plan.zero=3"});
  EXPECT_EQ(elements_sent(l.program, CollectiveKind::all_gather, "data"), kAdapterElements);
}

// A and B that all ranks of a tensor group hold whole: A of queries, keys and values and of the way up, 8 x 64 each, B
// of the projection and of the way down, 64 x 8 each, in two layers; their gradients are sums over the group, with
// sequence parallelism or without.
TEST(Lora, GradientsOfWholeMatricesAreSummedOverTheTensorGroup) {
  for (const char* sequence : {"false", "true"})
    for (const char* zero : {"0", "1", "2", "3"}) {
      const LoweredAdapters l = adapted_with({"plan.tensor=2", std::string("plan.sequence_parallel=") + sequence,
                                              std::string("plan.zero=") + zero, "training.global_batch=2"});
      const Role& role = l.program.roles.front();
      const std::int64_t summed = sum_over_step(role, [](const Role&, const Op& op) -> std::int64_t {
        const auto* c = std::get_if<Collective>(&op.shape);
        return c != nullptr && op.name.starts_with("tensor_reduce.") ? c->elements : 0;
      });
      EXPECT_EQ(summed, 2 * 4 * 8 * 64) << sequence << " " << zero;
    }
}

// Nothing of a frozen weight, bias, norm or table is computed; of the first layer nothing below its first adapter.
TEST(Lora, BackwardEndsAtTheFirstAdapter) {
  const auto names = [](const std::vector<std::string>& more, const std::string& part) {
    const std::vector<std::string> found = step_ops_named(adapted_with(more).program.roles.front(), part);
    return std::set<std::string>(found.begin(), found.end());
  };
  using Names = std::set<std::string>;
  const Names weights = names({}, ".backward_weight");
  EXPECT_EQ(weights.size(), 2u * 4 * 2) << "A and B of four products in two layers";
  for (const std::string& name : weights) EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
  EXPECT_EQ(names({}, "embedding.word.backward"), Names{});
  EXPECT_EQ(names({}, "qkv.backward_input"), Names{"layer1.attention.qkv.backward_input"});
  EXPECT_EQ(names({}, "qkv.lora_a.backward_input"), Names{"layer1.attention.qkv.lora_a.backward_input"});
  EXPECT_EQ(names({}, "norm1.backward"), Names{"layer1.norm1.backward_input"});
  EXPECT_EQ(names({}, "norm2.backward"), (Names{"layer0.norm2.backward_input", "layer1.norm2.backward_input"}));
  const std::vector<std::string> mlp = {"training.lora_targets=[mlp]"};
  EXPECT_EQ(names(mlp, "qkv.backward_input"), Names{"layer1.attention.qkv.backward_input"});
  EXPECT_EQ(names(mlp, "layer0.attention.flash_backward"), Names{});
  EXPECT_EQ(names(mlp, "norm2.backward"), Names{"layer1.norm2.backward_input"});
  EXPECT_EQ(names(mlp, "layer0.mlp.up.backward_input"), Names{});
  EXPECT_EQ(names(mlp, "layer0.mlp.down.backward_input"), Names{"layer0.mlp.down.backward_input"});
  EXPECT_EQ(names(mlp, "attention.qkv.lora"), Names{});
}

// Of every stage but the first, the stage before wants the gradient.
TEST(Lora, AStageBehindAnotherGivesItsInputsGradient) {
  const LoweredAdapters l = adapted_with({"plan.pipeline=2", "cluster.gpus=2", "training.global_batch=2"});
  EXPECT_EQ(step_ops_named(l.program.roles[0], "qkv.backward_input").size(), 0u);
  EXPECT_EQ(step_ops_named(l.program.roles[1], "qkv.backward_input").size(), 2u) << "of two micro-batches";
}

TEST(Lora, OfEveryPlanAreSound) {
  const std::vector<std::string> splits[] = {{},
                                             {"plan.zero=1"},
                                             {"plan.zero=2"},
                                             {"plan.zero=3"},
                                             {"plan.tensor=2"},
                                             {"plan.tensor=2", "plan.sequence_parallel=true"},
                                             {"plan.tensor=2", "plan.zero=3", "plan.sequence_parallel=true"},
                                             {"plan.pipeline=2"},
                                             {"plan.pipeline=2", "plan.schedule=gpipe", "plan.zero=1"},
                                             {"plan.tensor=2", "plan.pipeline=2", "plan.overlap_tensor_backward=false"},
                                             {"plan.context=2", "plan.zero=2"}};
  for (const auto& split : splits)
    for (const char* targets : {"[attention]", "[mlp]", "[attention, mlp]"})
      for (const char* recompute : {"none", "selective", "full"})
        for (const char* batch : {"4", "12"}) {
          std::vector<std::string> all = split;
          all.insert(all.end(),
                     {std::string("training.lora_targets=") + targets, std::string("plan.recompute=") + recompute,
                      std::string("training.global_batch=") + batch});
          adapted_with(all);
        }
  for (const char* framework : {"megatron-core", "megatron-2021"})
    for (const char* zero : {"0", "1"})
      adapted_with({std::string("framework=") + framework, "plan.tensor=2", "plan.pipeline=2",
                    "plan.sequence_parallel=true", std::string("plan.zero=") + zero});
  for (const char* framework :
       {"torch-fsdp2", "torch-fsdp", "torch-fsdp2-compile", "deepspeed", "deepspeed-2021", "llm-foundry", "accelerate"})
    for (const char* recompute : {"none", "full"})
      adapted_with({std::string("framework=") + framework, "plan.zero=3", std::string("plan.recompute=") + recompute});
  adapted_with({"framework=torch-ddp"});
  adapted_with({"framework=nanotron", "plan.zero=1"});
}

// Of the buffer of that name, one of which there must be.
const program::Buffer& buffer_named(const Role& role, const std::string& name) {
  const auto found =
      std::find_if(role.buffers.begin(), role.buffers.end(), [&](const program::Buffer& b) { return b.name == name; });
  EXPECT_NE(found, role.buffers.end()) << name;
  return found == role.buffers.end() ? role.buffers.front() : *found;
}

// What goes into a product is kept for the gradient of its adapter alone.
TEST(Lora, WhatFrozenProductsReadIsNotKept) {
  const auto kept = [](const std::string& targets, const std::string& name) {
    const LoweredAdapters l = adapted_with({"training.lora_targets=" + targets});
    return buffer_named(l.program.roles.front(), "layer1." + name).lifetime == program::Lifetime::micro_batch;
  };
  struct {
    std::string targets;
    bool norm1, norm2, activation;
  } const rows[] = {{"[attention, mlp]", true, true, true},
                    {"[attention_qkv]", true, false, false},
                    {"[attention_dense]", false, false, false},
                    {"[mlp_fc1]", false, true, false},
                    {"[mlp_fc2]", false, false, true}};
  for (const auto& row : rows) {
    EXPECT_EQ(kept(row.targets, "norm1.out"), row.norm1) << row.targets;
    EXPECT_EQ(kept(row.targets, "norm2.out"), row.norm2) << row.targets;
    EXPECT_EQ(kept(row.targets, "mlp.activation"), row.activation) << row.targets;
  }
}

// Frozen products are in 8 bits and have no weight's gradient to make copies for; adapters are in 16 bits, and read
// what was not cast.
TEST(Lora, ProductsInEightBitsStandBesideAdaptersInSixteen) {
  for (const std::string recipe : {"delayed", "tensorwise", "blockwise", "mxfp8", "rowwise"})
    for (const std::string targets : {"[attention, mlp]", "[attention_qkv]", "[attention_dense, mlp_fc2]"})
      for (const char* sequence : {"false", "true"}) {
        SCOPED_TRACE(recipe + targets + sequence);
        const LoweredAdapters l =
            adapted_with({"training.precision=fp8", "training.fp8_recipe=" + recipe, "training.lora_targets=" + targets,
                          "model.hidden=256", "model.ffn_hidden=512", "plan.tensor=2", "plan.micro_batch=4",
                          "training.global_batch=8", "plan.sequence_parallel=" + std::string(sequence)});
        int narrow = 0, wide = 0;
        for (const program::Body& body : l.program.roles.front().bodies)
          for (const Op& op : body.ops) {
            const bool product = std::holds_alternative<program::Gemm>(op.shape);
            const bool adapter = op.name.find(".lora_") != std::string::npos;
            if (product && adapter) {
              EXPECT_EQ(op.dtype, DType::bf16) << op.name;
              ++wide;
            } else if (product && op.name.find("layer") == 0 && op.name.find("core") == std::string::npos) {
              narrow += is_narrow(op.dtype) ? 1 : 0;
            }
            const auto* pass = std::get_if<program::Elementwise>(&op.shape);
            const bool transposes = pass != nullptr && (pass->fn == program::ElementwiseFn::fp8_cast_transpose ||
                                                        pass->fn == program::ElementwiseFn::fp8_transpose);
            EXPECT_TRUE(!transposes || op.name.find("weight") != std::string::npos)
                << op.name << " is a copy that nobody reads";
          }
        const bool first = l.scenario.training.lora_qkv;  // else the projection is the first with an adapter
        EXPECT_EQ(narrow, 2 * 2 * 4 - (first ? 1 : 2)) << "forward and inputs' gradients, but below the first adapter";
        EXPECT_GT(wide, 0);
      }
}

// Of experts and latent attention: adapters lie where their experts do; A's and B's of two products of 4 own experts,
// of shared ones and of five products of attention, in two layers.
TEST(Lora, OfExpertsAreOnTheRanksOfTheirExperts) {
  constexpr const char* kLoraOfExperts =
      "rehearse: 1\nmodel: {family: moe, layers: 2, hidden: 64, heads: 4, kv_lora_rank: 16, q_lora_rank: 24, "
      "qk_nope_head_dim: 12, qk_rope_head_dim: 4, v_head_dim: 16, vocab: 128, max_seq_len: 32, experts: 8, "
      "experts_per_token: 2, expert_ffn_hidden: 48, shared_experts: 1, capacity_factor: 2}\ncluster: {gpus: 4}\n"
      "training: {global_batch: 4, precision: bf16, lora_rank: 8}\n";
  const std::int64_t expert = 8 * (64 + 96 + 48 + 64);
  const std::int64_t latent = 8 * (64 + 24 + 24 + 64 + 64 + 20 + 16 + 112 + 64 + 64);
  const auto kept = [&](const std::vector<std::string>& more, BufferClass cls) {
    const plan::Scenario scenario = scenario_from(kLoraOfExperts, more);
    const Program program = lower::lower(scenario);
    EXPECT_EQ(violations(program, scenario.grid()), "") << testing::PrintToString(more);
    return kept_of_class(program.roles.front(), cls);
  };
  EXPECT_EQ(kept({}, BufferClass::gradient), 4 * 2 * (latent + 9 * expert));
  EXPECT_EQ(kept({"plan.expert=2"}, BufferClass::gradient), 4 * 2 * (latent + 5 * expert));
  EXPECT_EQ(kept({"plan.expert=2", "plan.zero=1"}, BufferClass::optimizer),
            12 * 2 * ((latent + expert) / 4 + 2 * expert));
  EXPECT_EQ(kept({"plan.expert=4", "training.lora_targets=[mlp]"}, BufferClass::gradient), 4 * 2 * 3 * expert);
  for (const char* recompute : {"none", "full"})
    for (const char* targets : {"[attention]", "[mlp]", "[mlp_fc2]", "[attention, mlp]"})
      for (const char* tensor : {"1", "2"})
        kept({"plan.expert=2", "plan.zero=3", std::string("plan.tensor=") + tensor, "plan.sequence_parallel=true",
              "training.global_batch=8", std::string("plan.recompute=") + recompute,
              std::string("training.lora_targets=") + targets},
             BufferClass::gradient);
}

// Without adapters a program does not know of them: alpha and targets change nothing.
TEST(Lora, OfRankZeroIsNone) {
  const auto of = [](const std::vector<std::string>& more) {
    const plan::Scenario scenario = scenario_from(kLoraModel, more);
    return step_ops_named(lower::lower(scenario).roles.front(), "");
  };
  const std::vector<std::string> none = of({"training.lora_rank=0"});
  EXPECT_EQ(of({"training.lora_rank=0", "training.lora_alpha=5", "training.lora_targets=[mlp]"}), none);
  EXPECT_TRUE(std::none_of(none.begin(), none.end(),
                           [](const std::string& name) { return name.find("lora") != std::string::npos; }));
}

}  // namespace
}  // namespace rehearse
