// Every plan trains as one rank does. A small model is performed for 20 steps under a plan and on a single rank, with
// the same examples: the losses agree to 1e-4 of their size, and the parameters at the end to 1e-3 in relative norm
// over all of them (Adam turns gradients that are only rounding noise into whole steps, so single elements may differ).
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/numerics/plan_runs.h"

namespace rehearse {
namespace {

// Rows for all choices that a router can make of a rank's tokens, so that none is dropped whatever the split; with one
// sequence a micro-batch, of which the auxiliary loss is, on the single rank too.
const std::string kMoe =
    "rehearse: 1\n"
    "model: {family: moe, layers: 4, hidden: 32, heads: 8, kv_heads: 4, ffn_hidden: 64, vocab: 250, max_seq_len: 16, "
    "experts: 8, experts_per_token: 2, expert_ffn_hidden: 24, aux_loss: 0.05, capacity_factor: 4}\n" +
    kTraining;
const std::string kCnn =
    "rehearse: 1\n"
    "model: {family: cnn, image: {channels: 2, size: 8}, convolutions: [{channels: 6, kernel: 3, pool: 2}, "
    "{channels: 8, kernel: 3, pool: 1}], widths: [24, 5]}\n"
    "training: {global_batch: 12, precision: fp32, optimizer: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.001, clip: "
    "0.5}\n";
const std::string kMlp =
    "rehearse: 1\n"
    "model: {family: mlp, widths: [20, 32, 24, 16, 7]}\n"
    "training: {global_batch: 12, precision: fp32, lr: 3e-3}\n";

const std::string kRegression =
    "rehearse: 1\n"
    "model: {family: mlp, widths: [20, 32, 24, 16, 3], loss: mse}\n"
    "training: {global_batch: 12, precision: fp32, optimizer: sgd, lr: 0.1, momentum: 0.5, weight_decay: 0, clip: "
    "0.5}\n";

class Plans : public testing::TestWithParam<Case> {};
TEST_P(Plans, TrainAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam());
}

std::vector<Case> data_parallel_cases() {
  std::vector<Case> cases;
  const std::vector<std::pair<std::string, std::string>> models = {
      {"gpt", kGpt}, {"llama", kLlama}, {"cnn", kCnn}, {"mlp", kMlp}, {"regression", kRegression}};
  for (const auto& [name, text] : models) {
    for (const int ranks : {2, 3, 4})
      cases.push_back({name + "_ddp" + std::to_string(ranks), text, grid(ranks, 1, 1, 0)});
    for (const int zero : {1, 2, 3})
      cases.push_back({name + "_zero" + std::to_string(zero), text, grid(4, 1, 1, zero)});
    cases.push_back({name + "_accumulation", text, grid(1, 1, 1, 0)});
    cases.push_back({name + "_zero2_one_micro_batch", text, grid(4, 1, 1, 2, {"plan.micro_batch=3"})});
    cases.push_back({name + "_zero3_odd", text, grid(3, 1, 1, 3, {"plan.micro_batch=2"})});
    cases.push_back({name + "_ddp_no_overlap", text, grid(2, 1, 1, 0, {"plan.overlap_grad_reduce=false"})});
    cases.push_back({name + "_zero1_no_overlap", text,
                     grid(4, 1, 1, 1, {"plan.overlap_grad_reduce=false", "plan.overlap_param_gather=false"})});
    cases.push_back({name + "_recompute_full", text, grid(2, 1, 1, 0, {"plan.recompute=full"})});
    for (const char* layers : {"plan.recompute_every=2", "plan.recompute_layers=1"})
      cases.push_back({name + (layers[15] == 'e' ? "_recompute_every_second" : "_recompute_one_layer"), text,
                       grid(2, 1, 1, 0, {"plan.recompute=full", layers})});
    cases.push_back({name + "_dropout", text, grid(2, 1, 1, 0), {"model.dropout=0.1"}});
    cases.push_back(
        {name + "_dropout_recompute", text, grid(2, 1, 1, 0, {"plan.recompute=full"}), {"model.dropout=0.1"}});
    cases.push_back({name + "_torch", text, grid(2, 1, 1, 0, {"framework=torch-ddp"}), {"model.dropout=0.1"}});
    cases.push_back({name + "_megatron", text, grid(2, 1, 1, 1, {"framework=megatron-2021"}), {"model.dropout=0.1"}});
    cases.push_back({name + "_lists", text, grid(2, 1, 1, 1, {"framework=nanotron"}), {"model.dropout=0.1"}});
    cases.push_back({name + "_released",
                     text,
                     grid(2, 1, 1, 3, {"framework=deepspeed-2021", "plan.recompute=full", "plan.reuse_distance=1"}),
                     {"model.dropout=0.1"}});
    for (const std::string framework : {"deepspeed", "llm-foundry", "torch-fsdp2", "accelerate"})
      cases.push_back({name + "_" + framework.substr(framework.find_last_of("-") + 1),
                       text,
                       grid(2, 1, 1, 3, {"framework=" + framework}),
                       {"model.dropout=0.1"}});
  }
  return cases;
}
// The single rank's programs have none.
std::vector<Case> fused_epilogues_cases() {
  std::vector<Case> cases;
  const Assignments all = {"plan.fused_epilogues=all"};
  const auto with = [&](const Assignments& more) {
    Assignments both = all;
    both.insert(both.end(), more.begin(), more.end());
    return both;
  };
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"mlp", kMlp}}) {
    cases.push_back({name + "_fused", text, grid(1, 1, 1, 0, all)});
    for (const int zero : {1, 2, 3})
      cases.push_back({name + "_fused_zero" + std::to_string(zero), text, grid(2, 1, 1, zero, all)});
    cases.push_back({name + "_fused_zero_bubble", text, grid(2, 1, 2, 0, with({"plan.schedule=zero_bubble"}))});
  }
  for (const std::string recompute : {"full", "ops"})
    cases.push_back(
        {"gpt_fused_recompute_" + recompute, kGpt, grid(2, 1, 1, 0, with({"plan.recompute=" + recompute}))});
  for (const std::string sequence : {"false", "true"})
    for (const std::string overlap : {"false", "true"})
      cases.push_back(
          {"gpt_fused_tensor" + std::string(sequence == "true" ? "_sequence" : "") +
               (overlap == "true" ? "" : "_no_overlap"),
           kGpt,
           grid(2, 2, 1, 0, with({"plan.sequence_parallel=" + sequence, "plan.overlap_tensor_backward=" + overlap}))});
  for (const char* one : {"gelu", "bias_gradient"})
    cases.push_back({std::string("gpt_fused_") + one,
                     kGpt,
                     grid(1, 1, 1, 0, {std::string("plan.fused_epilogues=") + one}),
                     {"model.dropout=0.1"}});
  cases.push_back({"gpt_fused_torch", kGpt, grid(2, 1, 1, 3, with({"framework=torch-fsdp2"}))});
  cases.push_back({"llama_fused_with_bias", kLlama, grid(2, 1, 1, 0, all), {"model.bias=true"}});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(FusedEpilogues, Plans, testing::ValuesIn(fused_epilogues_cases()), name_of_case);

std::vector<Case> recompute_ops_cases() {
  std::vector<Case> cases;
  const Assignments ops = {"plan.recompute=ops"};
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}}) {
    cases.push_back({name + "_ops", text, grid(2, 1, 1, 0, ops)});
    cases.push_back({name + "_ops_zero3", text, grid(2, 1, 1, 3, ops)});
    cases.push_back({name + "_ops_dropout", text, grid(2, 1, 1, 0, ops), {"model.dropout=0.1"}});
    cases.push_back(
        {name + "_ops_unfused", text, grid(2, 1, 1, 0, ops), {"model.dropout=0.1", "model.attention=unfused"}});
    cases.push_back(
        {name + "_ops_gated_with_bias", text, grid(1, 1, 1, 0, ops), {"model.activation=swiglu", "model.bias=true"}});
    cases.push_back(
        {name + "_ops_every_second", text, grid(1, 1, 1, 0, {"plan.recompute=ops", "plan.recompute_every=2"})});
    cases.push_back(
        {name + "_ops_of_one_layer_a_chunk", text,
         grid(2, 1, 2, 0,
              {"plan.recompute=ops", "plan.recompute_layers=1", "plan.chunks=2", "plan.schedule=interleaved"})});
    cases.push_back({name + "_ops_1f1b", text, grid(2, 1, 2, 1, ops)});
    for (const std::string framework : {"torch-fsdp2", "megatron-core"})
      cases.push_back({name + "_ops_" + framework.substr(framework.find('-') + 1), text,
                       grid(2, 1, 1, 3, {"plan.recompute=ops", "framework=" + framework})});
    for (const std::string sequence : {"false", "true"})
      for (const std::string overlap : {"false", "true"})
        cases.push_back(
            {name + "_ops_tensor" + (sequence == "true" ? "_sequence" : "") + (overlap == "true" ? "" : "_no_overlap"),
             text,
             grid(2, 2, 1, 0,
                  {"plan.recompute=ops", "plan.sequence_parallel=" + sequence,
                   "plan.overlap_tensor_backward=" + overlap})});
    cases.push_back(
        {name + "_ops_2x2x2", text, grid(8, 2, 2, 3, {"plan.recompute=ops", "plan.sequence_parallel=true"})});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(RecomputeOps, Plans, testing::ValuesIn(recompute_ops_cases()), name_of_case);

INSTANTIATE_TEST_SUITE_P(DataParallel, Plans, testing::ValuesIn(data_parallel_cases()), name_of_case);

// The optimizer's averages in bf16, on the single rank too: updates are element by element, so only gradients that are
// off by a rounding round to another bf16.
std::vector<Case> bf16_moments_cases() {
  std::vector<Case> cases;
  const Assignments moments = {"training.moments=bf16"};
  for (const auto& [name, text] :
       {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}, {"cnn", kCnn}, {"mlp", kMlp}}) {
    cases.push_back({name + "_ddp2", text, grid(2, 1, 1, 0), moments});
    for (const int zero : {1, 3})
      cases.push_back({name + "_zero" + std::to_string(zero), text, grid(4, 1, 1, zero), moments});
    cases.push_back({name + "_pipeline2", text, grid(2, 1, 2, 0), moments});
    if (name == "cnn" || name == "mlp") continue;
    cases.push_back({name + "_tensor2", text, grid(2, 2, 1, 0), moments});
    cases.push_back({name + "_2x2x2_zero1", text, grid(8, 2, 2, 1, {"plan.sequence_parallel=true"}), moments});
    cases.push_back({name + "_fsdp2", text, grid(2, 1, 1, 3, {"framework=torch-fsdp2"}), moments});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Bf16Moments, Plans, testing::ValuesIn(bf16_moments_cases()), name_of_case);

std::vector<Case> pipeline_cases() {
  std::vector<Case> cases;
  for (const std::string schedule : {"sequential", "gpipe", "1f1b", "zero_bubble"})
    for (const int stages : {2, 3, 4})
      for (const std::string framework : {"rehearse", "megatron-2021"}) {
        const std::string suffix =
            "_" + schedule + std::to_string(stages) + (framework == "rehearse" ? "" : "_megatron");
        const Assignments plan = grid(stages, 1, stages, 0, {"plan.schedule=" + schedule, "framework=" + framework});
        const Assignments model = {"model.dropout=0.1", "model.attention=unfused"};
        cases.push_back({"gpt" + suffix, kGpt, plan, model});
        cases.push_back({"llama" + suffix, kLlama, plan, {"model.dropout=0", "model.attention=flash"}});
        if (framework == "rehearse" && (schedule == "1f1b" || schedule == "zero_bubble")) {
          cases.push_back({"cnn" + suffix, kCnn, plan});
          cases.push_back({"mlp" + suffix, kMlp, plan});
          cases.push_back({"regression" + suffix, kRegression, plan});
        }
      }
  cases.push_back({"gpt_1f1b_untied", kGpt, grid(4, 1, 2, 0), {"model.tied_embeddings=false"}});
  cases.push_back({"gpt_1f1b_zero1", kGpt, grid(4, 1, 2, 1)});
  cases.push_back({"gpt_1f1b_zero2", kGpt, grid(4, 1, 2, 2)});
  cases.push_back({"gpt_1f1b_zero3", kGpt, grid(4, 1, 2, 3)});
  const Assignments zero_bubble = {"plan.schedule=zero_bubble"};
  cases.push_back({"gpt_zero_bubble_zero1", kGpt, grid(4, 1, 2, 1, zero_bubble)});
  cases.push_back({"gpt_zero_bubble_selective",
                   kGpt,
                   grid(3, 1, 3, 0, {"plan.schedule=zero_bubble", "plan.recompute=selective"}),
                   {"model.dropout=0.1", "model.attention=unfused"}});
  for (const std::string recompute : {"full", "ops"})
    cases.push_back({"gpt_zero_bubble_" + recompute,
                     kGpt,
                     grid(3, 1, 3, 0, {"plan.schedule=zero_bubble", "plan.recompute=" + recompute}),
                     {"model.dropout=0.1"}});
  cases.push_back(
      {"llama_zero_bubble_full_tensor2", kLlama,
       grid(4, 2, 2, 0, {"plan.schedule=zero_bubble", "plan.recompute=full", "plan.sequence_parallel=true"})});
  const Assignments v = {"plan.schedule=dualpipe_v"};
  cases.push_back({"llama_dualpipe_v_full", kLlama, grid(4, 1, 2, 1, {v.front(), "plan.recompute=full"})});
  cases.push_back({"gpt_dualpipe_v_ops", kGpt, grid(2, 1, 2, 0, {v.front(), "plan.recompute=ops"})});
  const Assignments six = {"model.layers=6", "model.dropout=0.1", "model.attention=unfused"};
  for (const std::string framework : {"rehearse", "megatron-2021"}) {
    const Assignments of = {v.front(), "framework=" + framework};
    const std::string suffix = framework == "rehearse" ? "" : "_megatron";
    cases.push_back(
        {"gpt_dualpipe_v2" + suffix, kGpt, grid(2, 1, 2, 0, of), {"model.dropout=0.1", "model.attention=unfused"}});
    cases.push_back(
        {"llama_dualpipe_v2" + suffix, kLlama, grid(2, 1, 2, 0, of), {"model.dropout=0", "model.attention=flash"}});
    cases.push_back({"gpt_dualpipe_v3" + suffix, kGpt, grid(3, 1, 3, 0, of), six});
  }
  cases.push_back({"gpt_dualpipe_v3_uneven",
                   kGpt,
                   grid(3, 1, 3, 0, {v.front(), "plan.layers_per_stage=[1,2,1,2,1,1]"}),
                   {"model.layers=8"}});
  cases.push_back({"gpt_dualpipe_v4", kGpt, grid(4, 1, 4, 0, v), {"model.layers=8"}});
  cases.push_back({"gpt_dualpipe_v_untied_zero1", kGpt, grid(4, 1, 2, 1, v), {"model.tied_embeddings=false"}});
  cases.push_back({"gpt_dualpipe_v_tied_zero1", kGpt, grid(4, 1, 2, 1, v)});
  cases.push_back({"gpt_dualpipe_v_2x2x2",
                   kGpt,
                   grid(8, 2, 2, 1, {v.front(), "plan.sequence_parallel=true"}),
                   {"model.dropout=0.1"}});
  const auto twice = [&](const std::string& name, const std::string& text, int ranks, int pipeline, int zero,
                         Assignments more, const Assignments& model = {}) {
    more.push_back("plan.schedule=dualpipe");
    cases.push_back({name, text, grid(ranks, 1, pipeline, zero, more), model});
  };
  const std::string more = "training.global_batch=24";
  twice("gpt_dualpipe2", kGpt, 2, 2, 0, {}, {"model.dropout=0.1", "model.attention=unfused"});
  twice("gpt_dualpipe2_megatron", kGpt, 2, 2, 0, {"framework=megatron-2021", "model.dropout=0"});
  twice("gpt_dualpipe4", kGpt, 4, 4, 0, {}, {"model.layers=4", more});
  twice("gpt_dualpipe4_uneven", kGpt, 4, 4, 0, {"plan.layers_per_stage=[2,1,1,3]"}, {"model.layers=7", more});
  twice("gpt_dualpipe_untied_zero1", kGpt, 4, 2, 1, {}, {"model.tied_embeddings=false"});
  twice("llama_dualpipe_full", kLlama, 4, 2, 1, {"plan.recompute=full"});
  twice("gpt_dualpipe_2x2x2", kGpt, 8, 2, 1, {"plan.tensor=2", "plan.sequence_parallel=true"}, {"model.dropout=0.1"});
  twice("mlp_dualpipe", kMlp, 2, 2, 0, {});
  const Assignments zero_bubble_v = {"plan.schedule=zero_bubble_v"};
  cases.push_back({"gpt_zero_bubble_v2", kGpt, grid(2, 1, 2, 0, zero_bubble_v), {"model.dropout=0.1"}});
  cases.push_back({"gpt_zero_bubble_v3_zero1", kGpt, grid(6, 1, 3, 1, zero_bubble_v), {"model.layers=6"}});
  cases.push_back(
      {"llama_zero_bubble_v_full", kLlama,
       grid(4, 2, 2, 0, {"plan.schedule=zero_bubble_v", "plan.recompute=full", "plan.sequence_parallel=true"})});
  cases.push_back({"cnn_dualpipe_v", kCnn, grid(2, 1, 2, 0, v)});
  cases.push_back({"mlp_dualpipe_v", kMlp, grid(2, 1, 2, 0, v)});
  // The first stage's first chunk has the embedding alone, the last one's last the head.
  const std::string counted = "plan.embedding_as_layer=true";
  cases.push_back({"gpt_counted_embedding", kGpt, grid(4, 1, 4, 0, {counted}), {"model.layers=6"}});
  cases.push_back({"gpt_embedding_alone", kGpt, grid(4, 1, 4, 0, {counted}), {"model.layers=2", "model.dropout=0.1"}});
  cases.push_back({"llama_embedding_alone_interleaved",
                   kLlama,
                   grid(4, 1, 2, 1, {counted, "plan.chunks=4", "plan.schedule=interleaved", "plan.recompute=full"}),
                   {"model.layers=6"}});
  cases.push_back({"gpt_embedding_alone_zero3", kGpt, grid(8, 1, 4, 3, {counted}), {"model.layers=2"}});
  cases.push_back({"gpt_embedding_alone_tensor2",
                   kGpt,
                   grid(8, 2, 4, 0, {counted, "plan.sequence_parallel=true", "plan.schedule=zero_bubble"}),
                   {"model.layers=2"}});
  cases.push_back({"gpt_embedding_alone_dualpipe_v", kGpt, grid(2, 1, 2, 0, {counted, v.front()}), {"model.layers=2"}});
  cases.push_back({"gpt_31_layers", kGpt, grid(3, 1, 3, 0, {"plan.layers_per_stage=[11,10,10]"}), {"model.layers=31"}});
  cases.push_back({"gpt_1f1b_recompute", kGpt, grid(2, 1, 2, 0, {"plan.recompute=full"}), {"model.dropout=0.1"}});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Pipeline, Plans, testing::ValuesIn(pipeline_cases()), name_of_case);

std::vector<Case> tensor_cases() {
  std::vector<Case> cases;
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}})
    for (const int ranks : {2, 4})
      for (const std::string sequence : {"false", "true"}) {
        const std::string suffix = std::to_string(ranks) + (sequence == "true" ? "_sequence" : "");
        const Assignments plan = grid(ranks, ranks, 1, 0, {"plan.sequence_parallel=" + sequence, "plan.micro_batch=3"});
        const auto with = [&](const std::string& assignment) {
          Assignments all = plan;
          all.push_back(assignment);
          return all;
        };
        cases.push_back({name + "_tensor" + suffix, text, plan});
        cases.push_back({name + "_tensor_dropout" + suffix, text, plan, {"model.dropout=0.1"}});
        cases.push_back(
            {name + "_tensor_unfused" + suffix, text, plan, {"model.dropout=0.1", "model.attention=unfused"}});
        cases.push_back({name + "_tensor_selective" + suffix,
                         text,
                         with("plan.recompute=selective"),
                         {"model.dropout=0.1", "model.attention=unfused"}});
        cases.push_back({name + "_tensor_full" + suffix, text, with("plan.recompute=full"), {"model.dropout=0.1"}});
        cases.push_back({name + "_tensor_megatron" + suffix,
                         text,
                         with("framework=megatron-2021"),
                         {"model.dropout=0.1", "model.attention=unfused"}});
        cases.push_back({name + "_tensor_no_overlap" + suffix, text, with("plan.overlap_tensor_backward=false")});
        cases.push_back({name + "_tensor_tied" + suffix,
                         text,
                         plan,
                         {name == "gpt" ? "model.tied_embeddings=false" : "model.tied_embeddings=true"}});
      }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Tensor, Plans, testing::ValuesIn(tensor_cases()), name_of_case);

std::vector<Case> combined_cases() {
  std::vector<Case> cases;
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}})
    for (const std::string sequence : {"false", "true"}) {
      const std::string suffix = sequence == "true" ? "_sequence" : "";
      const Assignments more = {"plan.sequence_parallel=" + sequence};
      Assignments megatron = more;
      megatron.push_back("framework=megatron-2021");
      const Assignments model = {"model.dropout=0.1", "model.attention=unfused", "model.tied_embeddings=true"};
      cases.push_back({name + "_zero3_tensor2" + suffix, text, grid(4, 2, 1, 3, more)});
      cases.push_back({name + "_2x2x2" + suffix, text, grid(8, 2, 2, 0, more), model});
      cases.push_back({name + "_2x2x2_zero1" + suffix, text, grid(8, 2, 2, 1, more), model});
      cases.push_back({name + "_2x2x2_zero2" + suffix, text, grid(8, 2, 2, 2, more), model});
      cases.push_back({name + "_2x2x2_zero3" + suffix, text, grid(8, 2, 2, 3, more), model});
      cases.push_back({name + "_2x2x2_megatron" + suffix, text, grid(8, 2, 2, 1, megatron), model});
      megatron.push_back("plan.schedule=zero_bubble");
      cases.push_back({name + "_2x2x2_zero_bubble_megatron" + suffix, text, grid(8, 2, 2, 1, megatron), model});
    }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Combined, Plans, testing::ValuesIn(combined_cases()), name_of_case);

// Sharded in groups of two, replicated over the groups.
std::vector<Case> hybrid_cases() {
  std::vector<Case> cases;
  const Assignments two = {"plan.zero_group=2"};
  const Assignments one_micro_batch = {"plan.zero_group=2", "plan.micro_batch=3"};
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}, {"cnn", kCnn}})
    for (const int zero : {1, 2, 3}) {
      const std::string suffix = "_zero" + std::to_string(zero);
      cases.push_back({name + suffix, text, grid(4, 1, 1, zero, two)});
      cases.push_back({name + suffix + "_one_micro_batch", text, grid(4, 1, 1, zero, one_micro_batch)});
      cases.push_back({name + suffix + "_no_overlap", text,
                       grid(4, 1, 1, zero, {"plan.zero_group=2", "plan.overlap_grad_reduce=false"})});
      if (text == kCnn) continue;
      cases.push_back({name + suffix + "_tensor2", text, grid(8, 2, 1, zero, two)});
      cases.push_back({name + suffix + "_pipeline2", text, grid(8, 1, 2, zero, two)});
      cases.push_back(
          {name + suffix + "_data_fastest", text,
           grid(8, 2, 1, zero, {"plan.zero_group=2", "plan.rank_order=[data, tensor, context, expert, pipeline]"})});
    }
  cases.push_back({"gpt_zero3_groups_of_3", kGpt, grid(6, 1, 1, 3, {"plan.zero_group=3"})});
  cases.push_back({"gpt_fsdp2", kGpt, grid(4, 1, 1, 3, {"plan.zero_group=2", "framework=torch-fsdp2"})});
  cases.push_back({"gpt_zero1_megatron",
                   kGpt,
                   grid(4, 1, 1, 1, {"plan.zero_group=2", "framework=megatron-2021"}),
                   {"model.dropout=0.1"}});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Hybrid, Plans, testing::ValuesIn(hybrid_cases()), name_of_case);

// Sequences split over a context group, by each way of exchanging keys and values.
std::vector<Case> context_cases() {
  std::vector<Case> cases;
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"gpt", kGpt}, {"llama", kLlama}})
    for (const std::string kind : {"all_to_all", "all_gather", "ring"}) {
      const std::string prefix = name + "_" + kind;
      const auto plan = [&](int ranks, int context, int tensor, int pipeline, int zero, const Assignments& more = {}) {
        Assignments all = grid(ranks, tensor, pipeline, zero);
        if (12 / (ranks / (context * tensor * pipeline)) % 2 == 0) all.push_back("plan.micro_batch=2");
        all.insert(all.end(), {"plan.context=" + std::to_string(context), "plan.context_kind=" + kind});
        all.insert(all.end(), more.begin(), more.end());
        return all;
      };
      const Assignments dropout = {"model.dropout=0.1"};
      cases.push_back({prefix + "2", text, plan(2, 2, 1, 1, 0)});
      cases.push_back({prefix + "4", text, plan(4, 4, 1, 1, 0)});
      cases.push_back({prefix + "2_dropout", text, plan(2, 2, 1, 1, 0, {"plan.micro_batch=3"}), dropout});
      cases.push_back({prefix + "2_recompute", text, plan(2, 2, 1, 1, 0, {"plan.recompute=full"}), dropout});
      cases.push_back({prefix + "2_tensor2", text, plan(4, 2, 2, 1, 0), dropout});
      cases.push_back(
          {prefix + "2_tensor2_sequence", text, plan(4, 2, 2, 1, 0, {"plan.sequence_parallel=true"}), dropout});
      cases.push_back({prefix + "2_pipeline2", text, plan(4, 2, 1, 2, 0), dropout});
      for (const int zero : {1, 2, 3}) {
        const std::string suffix = "2_data2_zero" + std::to_string(zero);
        cases.push_back({prefix + suffix, text, plan(4, 2, 1, 1, zero)});
      }
      cases.push_back({prefix + "2_data4_hybrid", text, plan(8, 2, 1, 1, 3, {"plan.zero_group=4"})});
      cases.push_back({prefix + "_2x2x2x2", text, plan(16, 2, 2, 2, 1, {"plan.sequence_parallel=true"})});
      if (kind == "all_to_all")
        cases.push_back(
            {prefix + "2_unfused", text, plan(2, 2, 1, 1, 0), {"model.dropout=0.1", "model.attention=unfused"}});
      cases.push_back({prefix + "2_megatron_core", text, plan(2, 2, 1, 1, 0, {"framework=megatron-core"}), dropout});
      cases.push_back({prefix + "2_fsdp2", text, plan(4, 2, 1, 1, 3, {"framework=torch-fsdp2"}), dropout});
    }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Context, Plans, testing::ValuesIn(context_cases()), name_of_case);

// Multi-token prediction: modules on the head's stage, table and head the model's own.
std::vector<Case> prediction_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const Assignments& plan, Assignments model = {}) {
    model.insert(model.end(), {"model.mtp_depth=2", "model.mtp_loss_weight=0.8"});
    cases.push_back({"mtp2_" + name, kLlama, plan, std::move(model)});
  };
  const Assignments sequence = {"plan.sequence_parallel=true"}, tied = {"model.tied_embeddings=true"};
  add("data2_zero1", grid(2, 1, 1, 1));
  add("data4_zero3", grid(4, 1, 1, 3));
  add("tensor2_pipeline2_zero2", grid(8, 2, 2, 2, sequence));
  add("pipeline2_tied", grid(2, 1, 2, 0), tied);
  add("pipeline4_dropout", grid(4, 1, 4, 0), {"model.dropout=0.1"});
  add("tensor2_sequence_dropout", grid(2, 2, 1, 0, sequence), {"model.dropout=0.1"});
  add("zero_bubble", grid(2, 1, 2, 0, {"plan.schedule=zero_bubble"}));
  add("interleaved", grid(2, 1, 2, 0, {"plan.schedule=interleaved", "plan.chunks=2"}), tied);
  add("dualpipe_v", grid(2, 1, 2, 0, {"plan.schedule=dualpipe_v"}));
  add("zero_bubble_v_tied", grid(2, 1, 2, 0, {"plan.schedule=zero_bubble_v"}), tied);
  add("megatron_core", grid(4, 2, 2, 1, {"framework=megatron-core", "plan.sequence_parallel=true"}));
  add("offloaded", grid(2, 1, 1, 2, {"plan.offload_optimizer=true"}));
  add("recomputed_offloaded", grid(2, 1, 2, 0, {"plan.recompute=full", "plan.offload_activations=true"}));
  add("graphs", grid(2, 1, 2, 0, {"plan.cuda_graphs=layer"}));
  add("muon", grid(4, 2, 1, 1), {"training.optimizer=muon"});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(MultiTokenPrediction, Plans, testing::ValuesIn(prediction_cases()), name_of_case);

// Graphs of layers read copies, and nothing else is new.
TEST(CapturedGraphs, TrainAsTheirKernelsDo) {
  const Assignments plans[] = {grid(2, 1, 1, 0), grid(8, 2, 2, 1, {"plan.sequence_parallel=true"}),
                               grid(2, 1, 2, 0, {"framework=megatron-core"})};
  for (const Assignments& plan : plans) {
    Assignments captured = plan;
    captured.emplace_back("plan.cuda_graphs=layer");
    const execute::Outcome without = perform(kGpt, plan, 5), with = perform(kGpt, captured, 5);
    EXPECT_EQ(with.result.loss, without.result.loss);
    EXPECT_EQ(with.parameters, without.parameters);
  }
}

// Experts spread over ranks, together with every other split. All choices of a token have room (kMoe).
std::vector<Case> expert_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, int ranks, int expert, int tensor, int pipeline, int zero,
                       const Assignments& more = {}, const Assignments& model = {}) {
    Assignments plan = grid(ranks, tensor, pipeline, zero, more);
    plan.push_back("plan.expert=" + std::to_string(expert));
    cases.push_back({name, kMoe, plan, model});
  };
  const Assignments sequence = {"plan.sequence_parallel=true"};
  add("one_tensor2", 2, 1, 2, 1, 0);
  add("one_tensor2_sequence", 2, 1, 2, 1, 0, sequence);
  add("one_data4_zero3", 4, 1, 1, 1, 3);
  add("expert2", 2, 2, 1, 1, 0);
  add("expert4", 4, 4, 1, 1, 0);
  add("expert4_zero1", 4, 4, 1, 1, 1);
  for (const int zero : {0, 1, 2, 3}) add("expert2_data4_zero" + std::to_string(zero), 4, 2, 1, 1, zero);
  add("expert2_tensor2_zero1", 4, 2, 2, 1, 1);
  add("expert2_tensor2_sequence_zero1", 4, 2, 2, 1, 1, sequence);
  add("expert4_whole", 8, 4, 2, 1, 0, {"plan.sequence_parallel=true", "plan.expert_tensor=1"});
  add("expert4_whole_zero1", 8, 4, 2, 1, 1, {"plan.sequence_parallel=true", "plan.expert_tensor=1"});
  add("expert4_whole_context2", 8, 4, 2, 1, 1,
      {"plan.sequence_parallel=true", "plan.expert_tensor=1", "plan.context=2"});
  add("expert2_pipeline2_zero1", 4, 2, 1, 2, 1);
  add("expert2_zero_bubble", 4, 2, 1, 2, 1, {"plan.schedule=zero_bubble"});
  add("expert2_interleaved", 4, 2, 1, 2, 0, {"plan.schedule=interleaved", "plan.chunks=2", "training.global_batch=12"});
  add("expert4_recompute", 4, 4, 1, 1, 1, {"plan.recompute=full"});
  add("expert2_context2", 4, 2, 1, 1, 1, {"plan.context=2"});
  add("expert4_context2", 4, 4, 1, 1, 0, {"plan.context=2", "plan.context_kind=all_to_all"});
  add("expert2_tensor2_pipeline2_data2", 8, 2, 2, 2, 1, sequence);
  add("expert2_shared_dense", 4, 2, 2, 1, 1, sequence, {"model.shared_experts=1", "model.dense_layers=1"});
  add("expert2_sigmoid_dropout", 4, 2, 1, 1, 1, {}, {"model.router=sigmoid", "model.dropout=0.1"});
  cases.push_back(
      {"dropless_expert2_tensor2_beside_shared",
       kMoe,
       grid(4, 2, 1, 1, {"plan.sequence_parallel=true", "plan.expert=2", "plan.overlap_shared_experts=true"}),
       {"model.capacity_factor=0", "model.buffer_factor=2", "model.shared_experts=1"}});
  add("expert2_megatron_core", 8, 2, 2, 2, 1, {"plan.sequence_parallel=true", "framework=megatron-core"});
  const std::string overlapped = "plan.overlap_expert_exchange=true";
  add("expert2_overlapped", 2, 2, 1, 1, 0, {overlapped});
  add("expert2_overlapped_data4_zero1", 4, 2, 1, 1, 1, {overlapped});
  add("expert2_overlapped_zero2", 4, 2, 1, 1, 2, {overlapped});
  add("expert2_overlapped_pipeline2", 4, 2, 1, 2, 1, {overlapped});
  add("expert2_overlapped_interleaved", 4, 2, 1, 2, 0,
      {"plan.schedule=interleaved", "plan.chunks=2", "training.global_batch=12", overlapped});
  add("expert2_dualpipe_v", 4, 2, 1, 2, 1, {"plan.schedule=dualpipe_v"});
  add("expert2_overlapped_dualpipe_v", 4, 2, 1, 2, 1, {"plan.schedule=dualpipe_v", overlapped});
  add("expert2_overlapped_dualpipe_v_8", 8, 2, 2, 2, 1,
      {"plan.schedule=dualpipe_v", "plan.sequence_parallel=true", overlapped}, {"model.dropout=0.1"});
  add("expert2_dualpipe", 4, 2, 1, 2, 1, {"plan.schedule=dualpipe"});
  add("expert2_overlapped_dualpipe", 4, 2, 1, 2, 1, {"plan.schedule=dualpipe", overlapped});
  add("expert2_overlapped_dualpipe_8", 8, 2, 2, 2, 1,
      {"plan.schedule=dualpipe", "plan.sequence_parallel=true", overlapped}, {"model.dropout=0.1"});
  add("expert2_overlapped_tensor2_pipeline2", 8, 2, 2, 2, 1, {"plan.sequence_parallel=true", overlapped});
  add("expert2_overlapped_dropout", 4, 2, 1, 2, 1, {overlapped}, {"model.dropout=0.1"});
  add("expert2_overlapped_selective", 2, 2, 1, 1, 1, {overlapped, "plan.recompute=selective"});
  add("expert2_overlapped_megatron_core", 8, 2, 2, 2, 1,
      {"plan.sequence_parallel=true", "framework=megatron-core", overlapped});
  return cases;
}
// Without a capacity: what each rank gets is what routers say, every step another number of rows.
std::vector<Case> dropless_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, int ranks, int expert, int tensor, int pipeline, int zero,
                       const Assignments& more = {}) {
    Assignments plan = grid(ranks, tensor, pipeline, zero, more);
    plan.push_back("plan.expert=" + std::to_string(expert));
    // Room for all rows on one rank.
    cases.push_back(
        {"dropless_" + name, kMoe, plan, {"model.capacity_factor=0", "model.buffer_factor=" + std::to_string(expert)}});
  };
  const Assignments sequence = {"plan.sequence_parallel=true"};
  add("expert2", 2, 2, 1, 1, 0);
  add("expert4_zero1", 4, 4, 1, 1, 1);
  add("expert2_data4_zero3", 4, 2, 1, 1, 3);
  add("one_tensor2_sequence", 2, 1, 2, 1, 0, sequence);
  add("expert2_tensor2", 4, 2, 2, 1, 1);
  add("expert2_tensor2_sequence", 4, 2, 2, 1, 1, sequence);
  add("expert4_whole_context2", 8, 4, 2, 1, 1,
      {"plan.sequence_parallel=true", "plan.expert_tensor=1", "plan.context=2"});
  add("expert2_zero_bubble", 4, 2, 1, 2, 1, {"plan.schedule=zero_bubble"});
  add("expert2_interleaved", 4, 2, 1, 2, 0, {"plan.schedule=interleaved", "plan.chunks=2", "training.global_batch=12"});
  add("expert4_recompute", 4, 4, 1, 1, 1, {"plan.recompute=full"});
  add("expert2_overlapped", 2, 2, 1, 1, 1, {"plan.overlap_expert_exchange=true"});
  add("expert2_overlapped_interleaved", 4, 2, 1, 2, 0,
      {"plan.schedule=interleaved", "plan.chunks=2", "training.global_batch=12", "plan.overlap_expert_exchange=true"});
  add("expert2_overlapped_dualpipe_v", 4, 2, 1, 2, 1,
      {"plan.schedule=dualpipe_v", "plan.overlap_expert_exchange=true"});
  add("expert2_megatron_core", 8, 2, 2, 2, 1, {"plan.sequence_parallel=true", "framework=megatron-core"});
  const auto gathered = [&](const std::string& name, int ranks, int expert, int tensor, int pipeline, int zero,
                            Assignments more = {}) {
    more.push_back("plan.expert_dispatch=all_gather");
    add("gathered_" + name, ranks, expert, tensor, pipeline, zero, more);
  };
  gathered("expert2", 2, 2, 1, 1, 0);
  gathered("expert4_zero1", 4, 4, 1, 1, 1);
  gathered("expert2_data4_zero3", 4, 2, 1, 1, 3);
  gathered("expert2_tensor2", 4, 2, 2, 1, 1);
  gathered("expert2_tensor2_sequence", 8, 2, 2, 1, 1, sequence);
  gathered("expert4_whole_context2", 8, 4, 2, 1, 1,
           {"plan.sequence_parallel=true", "plan.expert_tensor=1", "plan.context=2"});
  gathered("expert2_zero_bubble", 4, 2, 1, 2, 1, {"plan.schedule=zero_bubble"});
  gathered("expert4_recompute", 4, 4, 1, 1, 1, {"plan.recompute=full"});
  gathered("expert2_megatron_core", 8, 2, 2, 2, 1, {"plan.sequence_parallel=true", "framework=megatron-core"});
  return cases;
}
class ExpertPlans : public testing::TestWithParam<Case> {};
TEST_P(ExpertPlans, TrainAsOneRankDoes) {
  expect_trains_as_one_rank(GetParam(), 1);
}
INSTANTIATE_TEST_SUITE_P(Experts, ExpertPlans, testing::ValuesIn(expert_cases()), name_of_case);

INSTANTIATE_TEST_SUITE_P(Dropless, ExpertPlans, testing::ValuesIn(dropless_cases()), name_of_case);

// Rows for which there is no room end the run, with the rank and the key.
TEST(Experts, WithoutRoomForWhatComesTheRunEnds) {
  try {
    perform(kMoe, {"cluster.gpus=4", "plan.expert=4", "model.capacity_factor=0", "model.buffer_factor=1"}, 1);
    FAIL() << "there is room for even rows alone";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("model.buffer_factor"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("has room for"), std::string::npos) << error.what();
  }
}

// What is dropped with too little room is felt; with room for all there is none to drop, as without a capacity.
TEST(Experts, DropWhatFindsNoRoom) {
  const Assignments one = {"cluster.gpus=1", "plan.micro_batch=1"};
  Assignments tight = one;
  tight.push_back("model.capacity_factor=0.5");
  const auto ample = perform(kMoe, one, 5).result.loss, dropped = perform(kMoe, tight, 5).result.loss;
  EXPECT_NE(ample.back(), dropped.back());
  Assignments dropless = one;
  dropless.push_back("model.capacity_factor=0");
  EXPECT_NEAR(perform(kMoe, dropless, 5).result.loss.back() / ample.back(), 1, 1e-6);
}

class Repeats : public testing::TestWithParam<Case> {};
TEST_P(Repeats, AreTheSameInEveryBit) {
  const Case& c = GetParam();
  const execute::Outcome first = perform(c.text, c.plan, 6), second = perform(c.text, c.plan, 6);
  EXPECT_EQ(first.result.loss, second.result.loss);
  EXPECT_EQ(first.parameters, second.parameters);
}
std::vector<Case> repeat_cases() {
  const Assignments dropout = {"plan.sequence_parallel=true", "model.dropout=0.1"};
  return {{"ddp3", kGpt, grid(3, 1, 1, 0)},
          {"zero3", kLlama, grid(4, 1, 1, 3)},
          {"tensor4_sequence", kGpt, grid(4, 4, 1, 0, dropout)},
          {"pipeline2", kGpt, grid(2, 1, 2, 0, {"model.dropout=0.1"})},
          {"pipeline4_gpipe", kCnn, grid(4, 1, 4, 0, {"plan.schedule=gpipe"})},
          {"2x2x2_zero1", kGpt, grid(8, 2, 2, 1, dropout)},
          {"expert2", kMoe, grid(8, 2, 2, 1, {"plan.sequence_parallel=true", "plan.expert=2"})},
          {"expert4_dropless", kMoe,
           grid(4, 1, 1, 1, {"plan.expert=4", "model.capacity_factor=0", "model.buffer_factor=4"})},
          {"expert4_tight", kMoe, grid(4, 1, 1, 1, {"plan.expert=4", "model.capacity_factor=0.7"})},
          {"pipeline3_zero_bubble", kGpt, grid(3, 1, 3, 0, {"plan.schedule=zero_bubble", "model.dropout=0.1"})}};
}
INSTANTIATE_TEST_SUITE_P(Plans, Repeats, testing::ValuesIn(repeat_cases()), name_of_case);

}  // namespace
}  // namespace rehearse
