// 8-bit linear layers: which casts each recipe launches and where, in which type products are, what is sent, and what
// is kept for backward.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "sim/program/memory_plan.h"
#include "sim/program/work.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

using program::DType;
using program::Gemm;
using program::Op;
using program::Role;

constexpr const char* kEightBits =
    "rehearse: 1\nmodel: {family: llama, layers: 3, hidden: 64, heads: 4, kv_heads: 4, ffn_hidden: 192, vocab: 128, "
    "max_seq_len: 32}\nframework: megatron-core\ntraining: {precision: fp8}\n";
constexpr std::int64_t kFp8Tokens = 32, kFp8Hidden = 64, kFp8Ffn = 192, kFp8Layers = 3;

program::Program fp8_program(std::vector<std::string> more, const std::string& text = kEightBits) {
  return lower::lower(scenario_from(text, more));
}

// How often each kind stands in a body.
std::map<std::string, int> kinds_in(const Role& role, const std::string& body) {
  std::map<std::string, int> found;
  for (const program::Body& b : role.bodies)
    if (b.name == body)
      for (const Op& op : b.ops) ++found[std::string(program::kind_name(op.shape))];
  return found;
}

TEST(Fp8, DelayedScalingCastsEveryOperandOnceAndWeightsOnceAStep) {
  const auto program = fp8_program({"training.global_batch=3"});
  const Role& role = program.roles.front();
  auto first = kinds_in(role, "forward"), later = kinds_in(role, "forward.later"),
       backward = kinds_in(role, "backward");
  EXPECT_EQ(first["fp8_cast_transpose"], kFp8Layers * (4 + 2)) << "four weights, attention's result and the activation";
  EXPECT_EQ(later["fp8_cast_transpose"], kFp8Layers * 2) << "norms give 8 bits themselves";
  EXPECT_EQ(later["fp8_cast"], 0);
  EXPECT_EQ(backward["fp8_cast_transpose"], kFp8Layers * 4) << "the gradient of each output";
  EXPECT_EQ(backward["fp8_transpose"], kFp8Layers * 2) << "what norms gave";
  for (auto* body : {&first, &later, &backward}) {
    EXPECT_EQ((*body)["fp8_scale_update"], 1);
    EXPECT_EQ((*body)["fp8_amax"], 0);
  }
  EXPECT_EQ(program.groups.size(), 0U) << "no other rank shares largest values";
}

TEST(Fp8, SharedLargestValuesAreReducedOverAllRanksOfAStage) {
  const auto program =
      fp8_program({"training.global_batch=8", "cluster.gpus=8", "plan.tensor=2", "plan.pipeline=2", "model.layers=4"});
  int reduced = 0;
  for (const program::Body& body : program.roles.front().bodies)
    for (const Op& op : body.ops)
      if (const auto* c = std::get_if<program::Collective>(&op.shape);
          c != nullptr && op.name == "fp8_amax.all_reduce") {
        ++reduced;
        EXPECT_EQ(program.groups[static_cast<std::size_t>(c->group)].axes,
                  (std::vector<Axis>{Axis::tensor, Axis::data}));
        EXPECT_EQ(c->reduce, program::ReduceOp::max);
      }
  EXPECT_EQ(reduced, 4) << "forward, later forwards, backward, last backward";
}

TEST(Fp8, ProductsAreE4m3ForwardAndE5m2BackwardAndTheHeadStaysBf16) {
  for (const auto& [recipe, gradients] : {std::pair{"delayed", DType::e5m2}, {"mxfp8", DType::e4m3}}) {
    const auto program = fp8_program({std::string("training.fp8_recipe=") + recipe});
    for (const program::Body& body : program.roles.front().bodies)
      for (const Op& op : body.ops) {
        if (!std::holds_alternative<Gemm>(op.shape)) continue;
        const bool head = op.name.starts_with("head"), forward = op.name.ends_with(".forward");
        EXPECT_EQ(op.dtype, head ? DType::bf16 : forward ? DType::e4m3 : gradients) << recipe << " " << op.name;
        const Role& role = program.roles.front();
        const auto& a = role.buffers[static_cast<std::size_t>(op.reads[0].buffer)];
        EXPECT_EQ(is_fp8(a.dtype), !head) << op.name;
        const bool gradient = op.name.ends_with(".backward_weight");
        EXPECT_EQ(role.buffers[static_cast<std::size_t>(op.writes[0].buffer)].dtype,
                  gradient ? DType::f32 : DType::bf16);
      }
  }
}

TEST(Fp8, CurrentScalingReadsATensorForItsLargestValueBeforeEveryCast) {
  const auto program = fp8_program({"training.fp8_recipe=tensorwise"});
  for (const program::Body& body : program.roles.front().bodies) {
    const Op* before = nullptr;
    for (const Op& op : body.ops) {
      const std::string kind(program::kind_name(op.shape));
      if (kind == "fp8_cast" || kind == "fp8_cast_transpose") {
        ASSERT_NE(before, nullptr) << op.name;
        EXPECT_EQ(program::kind_name(before->shape), "fp8_amax") << op.name;
        EXPECT_EQ(before->reads[0].buffer, op.reads[0].buffer) << op.name;
      }
      before = &op;
    }
  }
  EXPECT_EQ(kinds_in(program.roles.front(), "forward")["fp8_amax"], kFp8Layers * 8) << "four weights and their inputs";
  EXPECT_EQ(kinds_in(program.roles.front(), "forward")["fp8_scale_update"], 0);
}

TEST(Fp8, NothingIsTransposedWhereProductsTakeAnyLayout) {
  const auto program = fp8_program({"training.fp8_recipe=tensorwise", "training.fp8_transposes=false"});
  for (const program::Body& body : program.roles.front().bodies)
    for (const Op& op : body.ops)
      EXPECT_EQ(std::string(program::kind_name(op.shape)).find("transpose"), std::string::npos) << op.name;
}

// torchao's: of each product both operands are cast for it alone, by columns behind a pass for the largest values.
TEST(Fp8, WithScalesOfRowsEachProductCastsBothOfItsOperandsFrom16Bits) {
  const auto program =
      fp8_program({"training.fp8_recipe=rowwise", "framework=torch-fsdp2", "cluster.gpus=2", "plan.zero=3"});
  const Role& role = program.roles.front();
  auto forward = kinds_in(role, "forward"), backward = kinds_in(role, "backward.last");
  EXPECT_EQ(forward["fp8_cast"], kFp8Layers * 8) << "four weights and what goes into them";
  EXPECT_EQ(forward["fp8_amax"] + forward["fp8_cast_transpose"], 0);
  EXPECT_EQ(backward["fp8_cast"], kFp8Layers * 4) << "the gradient of each output, by rows";
  EXPECT_EQ(backward["fp8_cast_transpose"], kFp8Layers * 12) << "by columns; each weight; each input";
  EXPECT_EQ(backward["fp8_amax"], backward["fp8_cast_transpose"]);
  EXPECT_EQ(backward["fp8_transpose"], 0);
  int products = 0;
  for (const program::Body& body : role.bodies)
    for (const Op& op : body.ops) {
      if (const auto* g = std::get_if<Gemm>(&op.shape)) {
        EXPECT_EQ(g->row_scales, op.dtype == DType::e4m3) << op.name;
        products += g->row_scales ? 1 : 0;
        continue;
      }
      const auto& first = role.buffers[static_cast<std::size_t>(op.reads.empty() ? 0 : op.reads[0].buffer)];
      if (!std::string(program::kind_name(op.shape)).starts_with("fp8_")) continue;
      EXPECT_EQ(first.dtype, DType::bf16) << op.name;
    }
  EXPECT_GE(products, kFp8Layers * 12);
  const auto bytes = [&](const std::string& name) -> std::int64_t {
    for (const program::Buffer& b : role.buffers)
      if (b.name == name) return b.bytes();
    return -1;
  };
  EXPECT_EQ(bytes("layer1.mlp.activation.fp8"), kFp8Tokens * (kFp8Ffn + 4)) << "a scale behind each row";
  EXPECT_EQ(bytes("layer1.mlp.down.weight.fp8.columns"), (kFp8Hidden + 4) * kFp8Ffn) << "one for each column";
}

// torchao's casts are Inductor's, whose transposes are slower; Transformer Engine has kernels for them.
TEST(Fp8, TransposesThatInductorGeneratesAreMarked) {
  const auto marked = [](const std::string& framework, const std::string& recipe) {
    const auto program = fp8_program({"framework=" + framework, "training.fp8_recipe=" + recipe});
    int all = 0, unrolled = 0;
    for (const program::Body& body : program.roles.front().bodies)
      for (const Op& op : body.ops)
        if (const auto* e = std::get_if<program::Elementwise>(&op.shape);
            e != nullptr && std::string(program::kind_name(op.shape)).starts_with("fp8_")) {
          const bool transposes = e->fn == program::ElementwiseFn::fp8_cast_transpose;
          all += transposes ? 1 : 0, unrolled += e->unrolled ? 1 : 0;
        }
    EXPECT_GT(all, 0) << framework;
    return unrolled == 0 ? 0.0 : static_cast<double>(unrolled) / all;
  };
  for (const char* recipe : {"tensorwise", "rowwise"}) {
    EXPECT_EQ(marked("torch-fsdp2-compile", recipe), 1) << recipe;
    EXPECT_EQ(marked("megatron-core", recipe), 0) << recipe;
  }
}

// Weights too, in each forward and backward, whatever stays gathered.
TEST(Fp8, WithScalesOfRowsWeightsAreCastInEveryMicroBatch) {
  const auto program = fp8_program({"training.fp8_recipe=rowwise", "training.global_batch=3"});
  const Role& role = program.roles.front();
  EXPECT_EQ(kinds_in(role, "forward")["fp8_cast"], kFp8Layers * 8);
  for (const program::Body& body : role.bodies) EXPECT_NE(body.name, "forward.later");
  for (const program::Buffer& b : role.buffers)
    EXPECT_TRUE(!is_fp8(b.dtype) || b.lifetime != program::Lifetime::persistent) << b.name;
}

TEST(Fp8, WithScalesOfRowsASpreadSequenceIsGatheredIn16BitsAndKept) {
  const auto program =
      fp8_program({"training.fp8_recipe=rowwise", "cluster.gpus=2", "plan.tensor=2", "plan.sequence_parallel=true"});
  const Role& role = program.roles.front();
  int gathered = 0;
  for (const program::Body& body : role.bodies)
    for (const Op& op : body.ops)
      if (op.name.ends_with(".all_gather") && op.name.find("layer1") != std::string::npos) {
        ++gathered;
        EXPECT_EQ(op.dtype, DType::bf16) << op.name;
      }
  EXPECT_EQ(gathered, 6) << "before two products, once more in backward for each, and two gradients";
  for (const program::Buffer& b : role.buffers)
    EXPECT_TRUE(!is_fp8(b.dtype) || b.lifetime != program::Lifetime::micro_batch) << b.name;
}

TEST(Fp8, BlocksHaveScalesAndTwoCopies) {
  const auto program = fp8_program({"training.fp8_recipe=mxfp8"});
  const Role& role = program.roles.front();
  int copies = 0;
  for (const program::Buffer& b : role.buffers)
    if (b.name == "layer1.mlp.activation.fp8" || b.name == "layer1.mlp.activation.fp8.columns") {
      ++copies;
      EXPECT_EQ(b.bytes(), kFp8Tokens * kFp8Ffn * 33 / 32) << "a byte of scale for 32 elements";
    }
  EXPECT_EQ(copies, 2);
  for (const program::Body& body : role.bodies)
    for (const Op& op : body.ops)
      if (op.name == "layer1.mlp.activation.fp8_cast_transpose") {
        const program::Work work = program::work_of(role, op);
        EXPECT_EQ(work.bytes_read, kFp8Tokens * kFp8Ffn * 2);
        EXPECT_EQ(work.bytes_written, kFp8Tokens * kFp8Ffn * 2 * 33 / 32);
      }
}

TEST(Fp8, ASequenceSpreadOverTheTensorGroupIsGatheredInEightBits) {
  const auto program = fp8_program({"cluster.gpus=2", "plan.tensor=2", "plan.sequence_parallel=true"});
  int gathered = 0;
  for (const program::Body& body : program.roles.front().bodies)
    for (const Op& op : body.ops)
      if (op.name.ends_with(".all_gather") && op.name.find("layer1") != std::string::npos) {
        ++gathered;
        EXPECT_TRUE(is_fp8(op.dtype)) << op.name;
        EXPECT_EQ(program::collective_bytes(op), kFp8Tokens * kFp8Hidden);
      }
  EXPECT_EQ(gathered, 2 + 4) << "forward the input of two products; backward these and two gradients";
}

TEST(Fp8, EightBitsAreKeptForBackwardInPlaceOfSixteen) {
  const auto kept = [&](const char* precision) {
    const auto program = fp8_program({std::string("training.precision=") + precision, "training.global_batch=1"});
    std::int64_t bytes = 0;
    for (const program::Buffer& b : program.roles.front().buffers)
      if (b.lifetime == program::Lifetime::micro_batch && !b.is_view() && b.name.starts_with("layer1."))
        bytes += b.bytes();
    return bytes;
  };
  // Of the norms' outputs and the activation a byte less an element; attention's result is kept for attention's own
  // backward and has a copy besides.
  EXPECT_EQ(kept("bf16") - kept("fp8"), kFp8Tokens * (2 * kFp8Hidden + kFp8Ffn - kFp8Hidden));
}

TEST(Fp8, FullRecomputationKeepsNoCopies) {
  const auto program = fp8_program({"plan.recompute=full"});
  for (const program::Buffer& b : program.roles.front().buffers)
    if (is_fp8(b.dtype)) {
      EXPECT_NE(b.lifetime, program::Lifetime::micro_batch) << b.name;
    }
}

TEST(Fp8, LayersAtTheEndsMayStayBf16) {
  const auto program = fp8_program({"training.fp8_bf16_layers=1"});
  for (const program::Body& body : program.roles.front().bodies)
    for (const Op& op : body.ops)
      if (std::holds_alternative<Gemm>(op.shape)) {
        EXPECT_EQ(is_fp8(op.dtype), op.name.starts_with("layer1.")) << op.name;
      }
}

// torchao casts again in backward what Transformer Engine keeps.
TEST(Fp8, ShardedWeightsAreCastInTheBodyThatReadsThem) {
  const auto program = fp8_program({"cluster.gpus=2", "plan.zero=3", "framework=torch-fsdp2",
                                    "training.fp8_recipe=tensorwise", "training.global_batch=4"});
  const Role& role = program.roles.front();
  EXPECT_EQ(kinds_in(role, "forward.later").size(), 0U);
  auto backward = kinds_in(role, "backward");
  EXPECT_EQ(backward["fp8_cast_transpose"], kFp8Layers * 4 * 3) << "weights, gradients and inputs";
  for (const program::Buffer& b : role.buffers)
    if (is_fp8(b.dtype)) {
      EXPECT_EQ(b.lifetime, program::Lifetime::slot) << b.name;
    }
}

TEST(Fp8, EveryPlanPassesTheStaticCheck) {
  const std::string model =
      "rehearse: 1\nmodel: {family: MODEL, layers: 4, hidden: 64, heads: 4, vocab: 128, max_seq_len: 32}\n"
      "framework: megatron-core\ntraining: {precision: fp8, global_batch: 16}\ncluster: {gpus: 8}\n";
  const std::string experts = "moe, experts: 4, experts_per_token: 2, expert_ffn_hidden: 64, capacity_factor: 1";
  const std::string latent =
      "llama, ffn_hidden: 192, kv_lora_rank: 32, q_lora_rank: 32, qk_nope_head_dim: 16, qk_rope_head_dim: 8, "
      "v_head_dim: 16";
  for (const std::string& family : {std::string("gpt"), std::string("gpt, parallel_block: one_norm"), experts, latent})
    for (const char* recipe : {"delayed", "tensorwise", "blockwise", "mxfp8"})
      for (const std::vector<std::string>& plan : std::vector<std::vector<std::string>>{
               {"plan.tensor=2", "plan.sequence_parallel=true", "plan.pipeline=2"},
               {"plan.pipeline=2", "plan.schedule=interleaved", "plan.chunks=2", "plan.recompute=full"},
               {"plan.pipeline=2", "plan.schedule=zero_bubble"},
               {"plan.zero=3", "framework=torch-fsdp2"},
               {"plan.zero=1", "plan.context=2"}}) {
        std::string text = model;
        text.replace(text.find("MODEL"), 5, family);
        std::vector<std::string> assigned = plan;
        assigned.push_back(std::string("training.fp8_recipe=") + recipe);
        if (family == experts)
          std::erase_if(assigned, [](const std::string& a) { return a.starts_with("plan.context"); });
        const plan::Scenario scenario = scenario_from(text, assigned);
        EXPECT_EQ(violations(lower::lower(scenario), scenario.grid()), "") << family << " " << recipe << " " << plan[0];
      }
}

// Chunks whose layers are all in 16 bits, or that have the embedding or the head alone.
TEST(Fp8, WhereNothingIsCastNoScaleIsUpdated) {
  for (const std::vector<std::string>& plan : std::vector<std::vector<std::string>>{
           {"model.layers=6", "plan.chunks=4", "plan.schedule=interleaved", "plan.embedding_as_layer=true"},
           {"model.layers=4", "plan.chunks=2", "plan.schedule=interleaved", "training.fp8_bf16_layers=1"}}) {
    std::vector<std::string> all = plan;
    all.insert(all.end(), {"training.global_batch=16", "cluster.gpus=8", "plan.tensor=2", "plan.pipeline=2"});
    const plan::Scenario scenario = scenario_from(kEightBits, all);
    const program::Program program = lower::lower(scenario);
    EXPECT_EQ(violations(program, scenario.grid()), "") << testing::PrintToString(plan);
    EXPECT_EQ(kinds_in(program.roles.front(), "forward.chunk0")["fp8_scale_update"], 0);
    EXPECT_EQ(kinds_in(program.roles.front(), "forward.chunk1")["fp8_scale_update"], 1);
  }
}

// Programs that are performed have scales of whole tensors: every cast writes one and every product reads two. Of what
// was there already nothing else is different.
TEST(Fp8, PerformedProgramsHoldTheirScales) {
  const std::string text =
      "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 128, heads: 4, vocab: 128, max_seq_len: 64}\n"
      "cluster: {topology: local, gpus: 8}\ntraining: {precision: fp8, global_batch: 16}\nplan: {micro_batch: 2}\n";
  for (const std::string recipe : {"delayed", "tensorwise", "mxfp8"})
    for (const std::vector<std::string>& plan : std::vector<std::vector<std::string>>{
             {"plan.tensor=2", "plan.sequence_parallel=true", "plan.pipeline=2"},
             {"plan.pipeline=2", "plan.schedule=interleaved", "plan.chunks=2", "plan.recompute=full"},
             {"plan.pipeline=2", "plan.schedule=zero_bubble"},
             {"plan.pipeline=2", "plan.layers_per_stage=[1, 3]"},
             {"plan.zero=3", "framework=torch-fsdp2"},
             {"plan.zero=1", "plan.context=2"},
             {"plan.fused_epilogues=all"}}) {
      std::vector<std::string> assigned = plan;
      assigned.push_back("training.fp8_recipe=" + recipe);
      plan::Scenario scenario = scenario_from(text, assigned);
      const program::Program simulated = lower::lower(scenario);
      scenario.purpose = plan::Purpose::perform;
      const program::Program performed = lower::lower(scenario);
      EXPECT_EQ(violations(performed, scenario.grid()), "") << recipe << " " << plan[0];
      ASSERT_EQ(simulated.roles.size(), performed.roles.size());
      for (std::size_t r = 0; r < simulated.roles.size(); ++r) {
        const Role &one = simulated.roles[r], &other = performed.roles[r];
        ASSERT_EQ(one.bodies.size(), other.bodies.size());
        for (std::size_t b = 0; b < one.bodies.size(); ++b) {
          ASSERT_EQ(one.bodies[b].ops.size(), other.bodies[b].ops.size());
          for (std::size_t i = 0; i < one.bodies[b].ops.size(); ++i) {
            const Op &before = one.bodies[b].ops[i], &op = other.bodies[b].ops[i];
            ASSERT_EQ(before.name, op.name);
            const std::size_t read = op.reads.size() - before.reads.size();
            const bool scaled = recipe != "mxfp8";
            if (std::holds_alternative<Gemm>(op.shape)) {
              EXPECT_EQ(read, is_fp8(op.dtype) && scaled ? 2U : 0U) << op.name;
            } else if (op.name.ends_with("fp8_cast") || op.name.ends_with("fp8_cast_transpose")) {
              EXPECT_EQ(op.writes.size() - before.writes.size(), scaled ? 1U : 0U) << op.name;
            }
          }
        }
      }
    }
}

// Recomputed op by op, attention's result is kept where heads are traded too; and what experts add up over context
// ranks is ordered before a backward right behind its forward.
TEST(Fp8, PlansThatTradeBetweenContextRanksAreSound) {
  const std::string split = "cluster: {topology: dgx-h100, gpus: 4}\n",
                    experts =
                        "rehearse: 1\nmodel: {family: moe, layers: 4, hidden: 64, heads: 4, kv_heads: 4, vocab: "
                        "128, max_seq_len: 32, experts: 4, experts_per_token: 2, expert_ffn_hidden: 64, aux_loss: "
                        "0.01}\nframework: torch-fsdp2-compile\ntraining: {precision: fp8, global_batch: 4}\n";
  const auto expect_sound = [](const std::string& text, const std::vector<std::string>& plan) {
    const plan::Scenario s = scenario_from(text, plan);
    EXPECT_EQ(violations(lower::lower(s), s.grid()), "") << plan.back();
  };
  for (const char* framework : {"rehearse", "megatron-core", "torch-fsdp2"})
    for (const char* recipe : {"delayed", "tensorwise", "blockwise", "mxfp8"})
      expect_sound(kEightBits + split,
                   {"plan.context=2", "plan.context_kind=all_to_all", "plan.recompute=ops", "training.global_batch=4",
                    std::string("framework=") + framework, std::string("training.fp8_recipe=") + recipe});
  for (const char* kind : {"ring", "all_to_all", "all_gather"})
    expect_sound(experts + split, {"plan.pipeline=2", "plan.schedule=interleaved", "plan.chunks=2", "plan.context=2",
                                   std::string("plan.context_kind=") + kind});
}

}  // namespace
}  // namespace rehearse
