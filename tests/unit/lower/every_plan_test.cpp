// Every combination of strategies lowers to a program without violations: nothing deadlocks, is used before it is
// written or after it is freed, or races across streams.
#include <gtest/gtest.h>

#include "tests/support/lowered.h"

namespace rehearse {
namespace {

const std::string kGpt =
    "rehearse: 1\nmodel: {family: gpt, layers: 5, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n";
const std::string kLlama =
    "rehearse: 1\nmodel: {family: llama, layers: 5, hidden: 64, heads: 8, kv_heads: 4, ffn_hidden: 96, vocab: 100, "
    "max_seq_len: 32}\n";

std::string set(const std::string& key, const std::string& value) {
  return key + "=" + value;
}

void expect_sound(const std::string& text, const std::vector<std::string>& assignments,
                  plan::Purpose purpose = plan::Purpose::simulate) {
  plan::Scenario scenario = scenario_from(text, assignments);
  scenario.purpose = purpose;
  std::string what;
  for (const auto& a : assignments) what += a + " ";
  EXPECT_EQ(violations(lower::lower(scenario), scenario.grid()), "") << what;
}

struct Sizes {
  int tensor, pipeline, data;
};

class EveryPlan : public testing::TestWithParam<Sizes> {};

TEST_P(EveryPlan, OfATransformerIsSound) {
  const Sizes s = GetParam();
  const std::vector<std::string> sizes = {set("plan.tensor", std::to_string(s.tensor)),
                                          set("plan.pipeline", std::to_string(s.pipeline)),
                                          set("cluster.gpus", std::to_string(s.tensor * s.pipeline * s.data))};
  for (const char* framework : {"rehearse", "megatron-2021"})
    for (const char* zero : {"0", "1", "2", "3"})
      for (const char* recompute : {"none", "selective", "full", "ops"})
        for (const char* sequence_parallel : {"false", "true"})
          for (const int micro_batches : {1, 2, 7}) {
            auto all = sizes;
            all.insert(all.end(), {set("framework", framework), set("plan.zero", zero),
                                   set("plan.recompute", recompute), set("plan.sequence_parallel", sequence_parallel),
                                   set("training.global_batch", std::to_string(s.data * micro_batches))});
            expect_sound(kGpt, all);
          }
}

TEST_P(EveryPlan, OfAnEncoderIsSound) {
  const Sizes s = GetParam();
  const std::string encoder =
      "rehearse: 1\nmodel: {family: bert, layers: 5, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n";
  const std::vector<std::string> sizes = {set("plan.tensor", std::to_string(s.tensor)),
                                          set("plan.pipeline", std::to_string(s.pipeline)),
                                          set("cluster.gpus", std::to_string(s.tensor * s.pipeline * s.data))};
  for (const char* framework : {"rehearse", "megatron-2021", "megatron-core"})
    for (const char* zero : {"0", "1", "2", "3"})
      for (const char* recompute : {"none", "selective", "full"})
        for (const char* predictions : {"0", "5"})
          for (const char* schedule : {"gpipe", "1f1b", "zero_bubble"})
            for (const int micro_batches : {1, 3}) {
              if (schedule == std::string("zero_bubble") && *zero >= '2') continue;
              auto all = sizes;
              all.insert(all.end(),
                         {set("framework", framework), set("plan.zero", zero), set("plan.recompute", recompute),
                          set("model.max_predictions", predictions), set("plan.schedule", schedule),
                          set("training.global_batch", std::to_string(s.data * micro_batches))});
              expect_sound(encoder, all);
            }
}

TEST_P(EveryPlan, WithShardsGatheredAsFrameworksDoIsSound) {
  const Sizes s = GetParam();
  for (const char* framework : {"torch-fsdp", "torch-fsdp2", "torch-fsdp2-compile-2024", "llm-foundry", "deepspeed",
                                "deepspeed-2021", "nanotron", "accelerate"})
    for (const char* recompute : {"none", "full", "ops"})
      for (const int micro_batches : {1, 3})
        expect_sound(recompute == std::string("ops") ? kLlama : kGpt,
                     {set("plan.reuse_distance", "1"), set("plan.tensor", std::to_string(s.tensor)),
                      set("plan.pipeline", std::to_string(s.pipeline)),
                      set("cluster.gpus", std::to_string(s.tensor * s.pipeline * s.data)), set("framework", framework),
                      set("plan.zero", "3"), set("plan.recompute", recompute),
                      set("training.global_batch", std::to_string(s.data * micro_batches))});
}

TEST_P(EveryPlan, DownTheStagesAndBackUpIsSound) {
  const Sizes s = GetParam();
  if (s.pipeline == 1) return;
  for (const std::string& model : {kGpt, kLlama})
    for (const auto& [framework, schedule] :
         {std::pair{"rehearse", "dualpipe_v"}, {"megatron-core", "dualpipe_v"}, {"rehearse", "zero_bubble_v"}})
      for (const char* tied : {"false", "true"})
        for (const char* zero : {"0", "1"})
          for (const int micro_batches : {2 * s.pipeline, 2 * s.pipeline + 5})
            expect_sound(
                model, {set("plan.tensor", std::to_string(s.tensor)), set("plan.pipeline", std::to_string(s.pipeline)),
                        set("cluster.gpus", std::to_string(s.tensor * s.pipeline * s.data)),
                        set("model.layers", std::to_string(2 * s.pipeline + 1)), set("plan.schedule", schedule),
                        set("framework", framework), set("model.tied_embeddings", tied), set("plan.zero", zero),
                        set("plan.sequence_parallel", s.tensor > 1 ? "true" : "false"),
                        set("training.global_batch", std::to_string(s.data * micro_batches))});
}

TEST_P(EveryPlan, WithTheOtherChoicesIsSound) {
  const Sizes s = GetParam();
  const std::vector<std::string> sizes = {set("plan.tensor", std::to_string(s.tensor)),
                                          set("plan.pipeline", std::to_string(s.pipeline)),
                                          set("cluster.gpus", std::to_string(s.tensor * s.pipeline * s.data)),
                                          set("training.global_batch", std::to_string(s.data * 4))};
  for (const std::string& model : {kGpt, kLlama})
    for (const char* schedule : {"sequential", "gpipe", "1f1b", "zero_bubble"})
      for (const char* tied : {"false", "true"})
        for (const char* attention : {"flash", "unfused"})
          for (const char* dropout : {"0", "0.1"})
            for (const char* overlap : {"false", "true"}) {
              auto all = sizes;
              all.insert(all.end(),
                         {set("plan.schedule", schedule), set("model.tied_embeddings", tied), set("plan.zero", "1"),
                          set("model.attention", attention), set("model.dropout", dropout), set("plan.bucket", "4KiB"),
                          set("plan.overlap_grad_reduce", overlap), set("plan.overlap_param_gather", overlap),
                          set("training.grad_dtype", "fp32"), set("training.reduce_dtype", "bf16")});
              expect_sound(model, all);
            }
}

TEST_P(EveryPlan, OfFp16IsSound) {
  const Sizes s = GetParam();
  for (const std::string& model : {kGpt, kLlama})
    for (const char* zero : {"0", "2", "3"})
      for (const char* clip : {"0", "1"})
        for (const char* dtype : {"fp32", "fp16"})
          for (const int micro_batches : {1, 3})
            expect_sound(
                model, {set("plan.tensor", std::to_string(s.tensor)), set("plan.pipeline", std::to_string(s.pipeline)),
                        set("cluster.gpus", std::to_string(s.tensor * s.pipeline * s.data)), set("plan.zero", zero),
                        set("training.global_batch", std::to_string(s.data * micro_batches)),
                        set("training.precision", "fp16"), set("training.clip", clip),
                        set("training.grad_dtype", dtype), set("training.reduce_dtype", "fp16")});
}

// As Nemotron 3 has them.
TEST_P(EveryPlan, OfExpertsInALatentIsSound) {
  const Sizes s = GetParam();
  const std::string text =
      "rehearse: 1\nmodel: {family: moe, layers: 10, layer_pattern: \"ME*EMEM*ME\", hidden: 64, heads: 8, vocab: 100, "
      "max_seq_len: 32, activation: squared_relu, experts: 8, experts_per_token: 2, expert_ffn_hidden: 24, "
      "expert_latent: 16, shared_experts: 1, mtp_depth: 2, mtp_pattern: \"*E\", mamba_heads: 8, mamba_head_dim: 8, "
      "mamba_groups: 4, mamba_state: 6, mamba_chunk: 8}\n";
  for (const char* framework : {"rehearse", "megatron-core"})
    for (const char* zero : {"0", "1", "3"})
      for (const char* recompute : {"none", "full", "ops"})
        for (const char* precision : {"bf16", "fp8"})
          expect_sound(text,
                       {set("plan.tensor", std::to_string(s.tensor)), set("plan.pipeline", std::to_string(s.pipeline)),
                        set("cluster.gpus", std::to_string(s.tensor * s.pipeline * s.data)),
                        set("plan.sequence_parallel", s.tensor > 1 ? "true" : "false"), set("framework", framework),
                        set("plan.zero", zero), set("plan.recompute", recompute), set("training.precision", precision),
                        set("training.global_batch", std::to_string(s.data * 3))});
}

TEST_P(EveryPlan, OfLayersOfOneBranchIsSound) {
  const Sizes s = GetParam();
  const std::string dense =
                        "rehearse: 1\nmodel: {family: llama, layers: 10, layer_pattern: \"M-*M-*M-MM\", hidden: 64, "
                        "heads: 8, kv_heads: 4, ffn_hidden: 96, vocab: 100, max_seq_len: 32, mamba_heads: 8, "
                        "mamba_head_dim: 8, mamba_groups: 4, mamba_state: 6, mamba_chunk: 8}\n",
                    experts =
                        "rehearse: 1\nmodel: {family: moe, layers: 10, layer_pattern: \"ME*EMEM*ME\", hidden: 64, "
                        "heads: 8, vocab: 100, max_seq_len: 32, experts: 8, experts_per_token: 2, "
                        "expert_ffn_hidden: 24, bias: true, mamba_heads: 8, mamba_head_dim: 8, "
                        "mamba_groups: 4, mamba_state: 6, mamba_chunk: 8}\n";
  for (const std::string& model : {dense, experts})
    for (const char* framework : {"rehearse", "megatron-core"})
      for (const char* zero : {"0", "1", "3"})
        for (const char* recompute : {"none", "full", "ops"})
          for (const char* schedule : {"1f1b", "zero_bubble"}) {
            if (schedule == std::string("zero_bubble") && *zero == '3') continue;
            expect_sound(
                model, {set("plan.tensor", std::to_string(s.tensor)), set("plan.pipeline", std::to_string(s.pipeline)),
                        set("cluster.gpus", std::to_string(s.tensor * s.pipeline * s.data)),
                        set("plan.sequence_parallel", s.tensor > 1 ? "true" : "false"), set("framework", framework),
                        set("plan.zero", zero), set("plan.recompute", recompute), set("plan.schedule", schedule),
                        set("training.global_batch", std::to_string(s.data * 3))});
          }
}

INSTANTIATE_TEST_SUITE_P(Sizes, EveryPlan,
                         testing::Values(Sizes{1, 1, 1}, Sizes{1, 1, 3}, Sizes{2, 1, 1}, Sizes{4, 1, 2}, Sizes{1, 2, 1},
                                         Sizes{1, 3, 2}, Sizes{2, 2, 2}, Sizes{2, 5, 1}),
                         [](const auto& test) {
                           return "t" + std::to_string(test.param.tensor) + "p" + std::to_string(test.param.pipeline) +
                                  "d" + std::to_string(test.param.data);
                         });

TEST(Encoders, UnderAutocastAreSound) {
  const std::string encoder =
      "rehearse: 1\nmodel: {family: bert, layers: 3, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32}\n";
  for (const char* precision : {"bf16", "fp16", "fp32"})
    for (const char* recompute : {"none", "selective", "full"})
      for (const char* predictions : {"0", "5"})
        for (const char* attention : {"flash", "unfused"})
          for (const char* gpus : {"1", "3"})
            expect_sound(encoder,
                         {set("framework", "torch-ddp"), set("training.precision", precision),
                          set("plan.recompute", recompute), set("model.max_predictions", predictions),
                          set("model.attention", attention), set("cluster.gpus", gpus), "training.global_batch=9"});
}

TEST(ExpertParallel, EveryPlanIsSound) {
  const std::string moe =
      "rehearse: 1\nmodel: {family: moe, layers: 5, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32, experts: 8, "
      "experts_per_token: 2, expert_ffn_hidden: 24, shared_experts: 1, dense_layers: 1, ffn_hidden: 96, aux_loss: 0.1, "
      "capacity_factor: 1.5}\n";
  for (const std::string split :
       {"tensor: 1, expert: 4", "tensor: 2, expert: 2", "tensor: 2, expert: 4, sequence_parallel: true",
        "context: 2, expert: 4", "tensor: 2, expert: 4, expert_tensor: 1, sequence_parallel: true",
        "tensor: 2, context: 2, expert: 2, sequence_parallel: true"})
    for (const char* framework : {"rehearse", "megatron-core"})
      for (const char* zero : {"0", "1", "3"})
        for (const char* recompute : {"none", "full"})
          for (const char* schedule : {"1f1b", "zero_bubble"})
            for (const char* precision : {"bf16", "fp16"}) {
              if (schedule == std::string("zero_bubble") && *zero >= '2') continue;
              expect_sound(moe,
                           {"plan={pipeline: 2, " + split + "}", "cluster.gpus=16", set("framework", framework),
                            set("plan.zero", zero), set("plan.recompute", recompute), set("plan.schedule", schedule),
                            set("training.precision", precision), "training.global_batch=32"});
            }
}

// As gpt-oss and as Llama 4 have them, with a capacity and without.
TEST(ExpertParallel, EveryPlanOfLayersThatDifferIsSound) {
  const std::string head =
      "rehearse: 1\nmodel: {family: moe, layers: 8, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32, experts: 8, "
      "expert_ffn_hidden: 24, ";
  const std::string oss = head +
                          "experts_per_token: 2, bias: true, attention_sinks: true, activation: swiglu_oai, "
                          "sliding_window: 7, full_attention_every: 2}\n",
                    llama4 =
                        head +
                        "experts_per_token: 1, ffn_hidden: 96, experts_every: 2, shared_experts: 1, router: sigmoid, "
                        "weigh_expert_inputs: true, attention_chunk: 8, nope_every: 4}\n";
  for (const std::string& model : {oss, llama4})
    for (const std::string split :
         {"tensor: 1, expert: 4", "tensor: 2, expert: 2", "tensor: 2, expert: 4, sequence_parallel: true",
          "context: 2, context_kind: all_to_all, expert: 4",
          "tensor: 2, expert: 4, expert_tensor: 1, sequence_parallel: true", "expert: 4, weigh_in_experts: true",
          "expert: 4, expert_dispatch: all_gather", "tensor: 1, recompute_expert_activation: true"})
      for (const char* framework : {"rehearse", "megatron-core"})
        for (const char* zero : {"0", "3"})
          for (const char* recompute : {"none", "full"})
            for (const char* capacity : {"0", "1.5"})
              for (const char* precision : {"bf16", "fp16"}) {
                const bool all = split.find("all_gather") != std::string::npos;
                if (all && *capacity == '1') continue;
                if (model == llama4 && split.find("weigh_in_experts") != std::string::npos) continue;
                expect_sound(model, {"plan={pipeline: 2, " + split + "}", "cluster.gpus=16",
                                     set("framework", framework), set("plan.zero", zero),
                                     set("plan.recompute", recompute), set("model.capacity_factor", capacity),
                                     set("training.precision", precision), "training.global_batch=32"});
              }
  for (const char* targets : {"[attention]", "[mlp_fc2]", "[attention, mlp]"})
    for (const char* shared : {"0", "1"})
      for (const char* recompute : {"none", "selective", "full"})
        expect_sound(llama4, {"plan={tensor: 2, expert: 4}", "cluster.gpus=8", "training.lora_rank=4",
                              set("training.lora_targets", targets), set("model.shared_experts", shared),
                              set("plan.recompute", recompute), "training.global_batch=32"});
}

// With loads that are uneven, and without rows for some experts.
TEST(ExpertParallel, EveryPlanWithoutACapacityIsSound) {
  const std::string moe =
      "rehearse: 1\nmodel: {family: moe, layers: 5, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32, experts: 8, "
      "experts_per_token: 2, expert_ffn_hidden: 24, shared_experts: 1, dense_layers: 1, ffn_hidden: 96, aux_loss: "
      "0.1}\n";
  for (const std::string split :
       {"tensor: 1, expert: 4", "tensor: 1, expert: 8", "tensor: 2, expert: 2", "tensor: 2, sequence_parallel: true",
        "tensor: 2, expert: 4, sequence_parallel: true", "context: 2, expert: 4",
        "tensor: 2, expert: 4, expert_tensor: 1, sequence_parallel: true",
        "tensor: 2, context: 2, expert: 2, sequence_parallel: true"})
    for (const char* routing : {"uniform", "zipf"})
      for (const char* framework : {"rehearse", "megatron-core"})
        for (const char* zero : {"0", "1", "3"})
          for (const char* recompute : {"none", "full"})
            for (const char* schedule : {"1f1b", "zero_bubble"}) {
              if (schedule == std::string("zero_bubble") && *zero >= '2') continue;
              const std::vector<std::string> all = {"plan={pipeline: 2, " + split + "}", "cluster.gpus=16",
                                                    set("framework", framework),         set("model.routing", routing),
                                                    "model.routing_exponent=4",          set("plan.zero", zero),
                                                    set("plan.recompute", recompute),    set("plan.schedule", schedule),
                                                    "training.global_batch=32"};
              expect_sound(moe, all);
              std::vector<std::string> room = all;
              room.emplace_back("model.buffer_factor=8");
              expect_sound(moe, room);
              if (routing == std::string("uniform")) expect_sound(moe, room, plan::Purpose::perform);
            }
}

// Backward follows the forward of its micro-batch at once: nothing between them waits for what routers sum.
TEST(ExpertParallel, InterleavedPlansAreSound) {
  for (const char* framework : {"rehearse", "megatron-core"})
    for (const char* split : {"context: 2, expert: 4", "tensor: 2, sequence_parallel: true", "expert: 2"})
      for (const char* zero : {"0", "1", "3"})
        expect_sound(
            "rehearse: 1\nmodel: {family: moe, layers: 8, hidden: 64, heads: 4, vocab: 100, max_seq_len: 32, experts: "
            "8, "
            "experts_per_token: 2, expert_ffn_hidden: 24, aux_loss: 0.1, capacity_factor: 1}\n",
            {std::string("plan={pipeline: 2, schedule: interleaved, chunks: 2, ") + split + "}", "cluster.gpus=8",
             set("framework", framework), set("plan.zero", zero), "training.global_batch=32"});
}

TEST(Interleaved, EveryPlanIsSound) {
  for (const char* framework : {"rehearse", "megatron-2021"})
    for (const int tensor : {1, 2})
      for (const int pipeline : {2, 3, 4})
        for (const int chunks : {2, 3})
          for (const int data : {1, 2})
            for (const char* zero : {"0", "1", "3"})
              for (const char* recompute : {"none", "full"})
                for (const int rounds : {1, 3})
                  expect_sound(kGpt, {set("framework", framework), set("model.layers", "13"),
                                      set("plan.tensor", std::to_string(tensor)), set("plan.schedule", "interleaved"),
                                      set("plan.pipeline", std::to_string(pipeline)), set("plan.zero", zero),
                                      set("plan.chunks", std::to_string(chunks)), set("plan.recompute", recompute),
                                      set("cluster.gpus", std::to_string(tensor * pipeline * data)),
                                      set("training.global_batch", std::to_string(data * pipeline * rounds))});
}

TEST(ZeroBubble, EveryPlanIsSound) {
  for (const char* framework : {"rehearse", "megatron-2021"})
    for (const int tensor : {1, 2})
      for (const int pipeline : {2, 3, 5})
        for (const int data : {1, 2})
          for (const char* recompute : {"none", "selective"})
            for (const char* sequence_parallel : {"false", "true"})
              for (const int micro_batches : {1, 2, 4, 13})
                expect_sound(kGpt, {set("framework", framework), set("model.layers", "13"),
                                    set("plan.tensor", std::to_string(tensor)), set("plan.schedule", "zero_bubble"),
                                    set("plan.pipeline", std::to_string(pipeline)), set("plan.recompute", recompute),
                                    set("plan.sequence_parallel", sequence_parallel), set("plan.zero", "1"),
                                    set("cluster.gpus", std::to_string(tensor * pipeline * data)),
                                    set("training.global_batch", std::to_string(data * micro_batches))});
}

TEST(ReplicasOfAWholeModel, EveryPlanIsSound) {
  for (const std::string& model : {kGpt, kLlama})
    for (const char* precision : {"fp32", "bf16", "fp16"})
      for (const int data : {1, 2, 3})
        for (const char* recompute : {"none", "selective", "full"})
          for (const char* tied : {"false", "true"})
            for (const char* dropout : {"0", "0.1"})
              for (const char* overlap : {"false", "true"})
                for (const int micro_batches : {1, 3})
                  expect_sound(model, {set("framework", "torch-ddp"), set("training.precision", precision),
                                       set("plan.recompute", recompute), set("model.tied_embeddings", tied),
                                       set("model.dropout", dropout), set("plan.overlap_grad_reduce", overlap),
                                       set("plan.bucket", "4KiB"), set("cluster.gpus", std::to_string(data)),
                                       set("training.global_batch", std::to_string(data * micro_batches))});
}

TEST(SmallModels, EveryPlanIsSound) {
  for (const char* model : {"cnn-cifar", "mlp-mnist"})
    for (const int pipeline : {1, 2, 3})
      for (const int data : {1, 2, 3})
        for (const char* zero : {"0", "1", "2", "3"})
          for (const char* recompute : {"none", "full"})
            for (const char* schedule : {"gpipe", "1f1b"})
              expect_sound(
                  "rehearse: 1\nmodel: " + std::string(model) + "\n",
                  {set("plan.pipeline", std::to_string(pipeline)), set("plan.micro_batch", "8"),
                   set("cluster.gpus", std::to_string(pipeline * data)), set("plan.zero", zero),
                   set("plan.recompute", recompute), set("plan.schedule", schedule), set("plan.bucket", "100kB"),
                   set("training.precision", "fp32"), set("training.global_batch", std::to_string(data * 24))});
}

// Residual blocks whose sums of batch normalisation are added between ranks, and images as patches.
TEST(SmallModels, EveryPlanOfVisionIsSound) {
  const std::string residual =
      "{family: cnn, image: {channels: 2, size: 16}, residual_block: basic, residual_layers: [1, 1], widths: [5], "
      "sync_batch_norm: true}";
  const std::string grouped =
      "{family: cnn, image: {channels: 2, size: 16}, residual_block: bottleneck, residual_layers: [1, 1], widths: [5], "
      "residual_groups: 4, residual_group_width: 4, squeeze_ratio: 16}";
  const std::string vit =
      "{family: vit, layers: 3, hidden: 32, heads: 4, image: {channels: 2, size: 8}, patch: 4, classes: 5}";
  for (const std::string& model : {residual, grouped, vit})
    for (const int tensor : {1, 2})
      for (const int pipeline : {1, 3})
        for (const int data : {1, 2})
          for (const char* zero : {"0", "1", "2", "3"})
            for (const char* recompute : {"none", "full"})
              for (const char* precision : {"fp32", "fp16"})
                for (const char* framework : {"rehearse", "torch-ddp", "megatron-core"})
                  if ((tensor == 1 || model == vit) && (*framework != 't' || (tensor * pipeline == 1 && *zero == '0')))
                    expect_sound(
                        "rehearse: 1\nmodel: " + model + "\n",
                        {set("plan.tensor", std::to_string(tensor)), set("plan.pipeline", std::to_string(pipeline)),
                         set("plan.micro_batch", "2"), set("cluster.gpus", std::to_string(tensor * pipeline * data)),
                         set("plan.zero", zero), set("plan.recompute", recompute), set("framework", framework),
                         set("plan.bucket", "100kB"), set("training.precision", precision),
                         set("training.global_batch", std::to_string(data * 6))});
}

}  // namespace
}  // namespace rehearse
