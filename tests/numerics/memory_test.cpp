// What ranks hold is what the memory account of a simulation says (sim/account/stage_memory.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "execute/memory_use.h"
#include "execute/performer.h"
#include "kernels/cpu/host_memory.h"
#include "sim/account/stage_memory.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

const std::string kGpt =
    "rehearse: 1\n"
    "model: {family: gpt, layers: 4, hidden: 64, heads: 4, vocab: 257, max_seq_len: 32}\n"
    "training: {global_batch: 8, precision: fp32}\n";

TEST(Memory, ArenasHoldWhatASimulationOfThePlanCounts) {
  const std::vector<std::vector<std::string>> plans = {
      {"cluster.gpus=1"},
      {"cluster.gpus=1", "framework=megatron-2021"},
      {"cluster.gpus=4", "plan.zero=3"},
      {"cluster.gpus=4", "plan.zero=1", "plan.recompute=full"},
      {"cluster.gpus=2", "plan.recompute=ops"},
      {"cluster.gpus=2", "plan.recompute=ops", "model.activation=swiglu", "plan.recompute_layers=3"},
      {"cluster.gpus=8", "plan.tensor=2", "plan.pipeline=2", "plan.sequence_parallel=true"},
      {"cluster.gpus=2", "plan.pipeline=2", "plan.chunks=2", "plan.schedule=interleaved"},
      {"cluster.gpus=4", "plan.zero=1", "plan.expert=2",
       "model={family: moe, layers: 4, hidden: 64, heads: 4, vocab: "
       "257, max_seq_len: 32, experts: 4, experts_per_token: 2, expert_ffn_hidden: 96, "
       "capacity_factor: 1.5, aux_loss: 0.1}"},
      {"cluster.gpus=4", "plan.zero=1", "plan.expert=2", "plan.expert_dispatch=all_gather",
       "model={family: moe, layers: 4, hidden: 64, heads: 4, vocab: 257, max_seq_len: 32, experts: 4, "
       "experts_per_token: 2, expert_ffn_hidden: 96, buffer_factor: 2}"},
      {"cluster.gpus=4", "plan.zero=3", "plan.expert=2", "plan.recompute=ops", "framework=torch-fsdp2",
       "model={family: moe, layers: 4, hidden: 64, heads: 4, vocab: 257, max_seq_len: 32, experts: 4, "
       "experts_per_token: 2, expert_ffn_hidden: 96, shared_experts: 1, buffer_factor: 2}"},
      {"cluster.gpus=4", "plan.zero=3", "plan.expert=2", "plan.recompute=ops", "framework=torch-fsdp2",
       "model={family: moe, layers: 4, hidden: 64, heads: 4, vocab: 257, max_seq_len: 32, q_lora_rank: 24, "
       "kv_lora_rank: 16, qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 10, ffn_hidden: 128, dense_layers: 1, "
       "experts: 4, experts_per_token: 2, expert_ffn_hidden: 96, shared_experts: 1, buffer_factor: 2}"},
      {"cluster.gpus=4", "plan.zero=1", "plan.tensor=2", "training.optimizer=muon"},
      {"cluster.gpus=4", "plan.zero=3", "plan.tensor=2", "training.optimizer=adafactor"},
      {"cluster.gpus=2", "plan.pipeline=2", "plan.cuda_graphs=layer"},
      {"cluster.gpus=2", "plan.gradient_compression=[power_sgd, error_feedback]", "plan.gradient_start_step=1"},
      {"cluster.gpus=2", "plan.gradient_compression=[top_k, momentum_correction]", "plan.gradient_warmup_steps=1",
       "training.optimizer=sgd", "training.momentum=0.9", "training.clip=0"},
      {"cluster.gpus=2", "plan.context=2"},
      {"cluster.gpus=8", "plan.context=2", "plan.tensor=2", "plan.zero=3", "plan.sequence_parallel=true"},
      {"cluster.gpus=2", "plan.context=2", "plan.context_kind=all_gather"},
      {"cluster.gpus=2", "plan.context=2", "plan.context_kind=all_to_all"},
      {"cluster.gpus=4", "plan.zero=3", "plan.zero_group=2"},
      {"cluster.gpus=4", "plan.zero=2", "plan.expert=2", "plan.zero_group=2",
       "model={family: moe, layers: 4, hidden: 64, heads: 4, vocab: 257, max_seq_len: 32, experts: 4, "
       "experts_per_token: 2, expert_ffn_hidden: 96, buffer_factor: 2}"},
      {"cluster.gpus=2", "plan.zero=2", "plan.offload_optimizer=true"},
      {"cluster.gpus=2", "plan.recompute=full", "plan.offload_activations=true"},
      {"cluster.gpus=2", "plan.tensor=2", "training.lora_rank=4"},
      {"cluster.gpus=4", "plan.tensor=2", "plan.expert=2", "plan.zero=1", "training.lora_rank=4",
       "model={family: moe, layers: 4, hidden: 64, heads: 4, kv_lora_rank: 12, qk_nope_head_dim: 8, "
       "qk_rope_head_dim: 4, v_head_dim: 8, vocab: 257, max_seq_len: 32, experts: 4, experts_per_token: 2, "
       "expert_ffn_hidden: 96, capacity_factor: 1.5}"},
      {"cluster.gpus=2", "training.documents=lognormal", "training.document_length=9"},
      {"cluster.gpus=2", "plan.context=2", "training.documents=fixed", "training.document_length=12"},
      {"cluster.gpus=2", "plan.pipeline=2", "plan.schedule=dualpipe_v"},
      {"cluster.gpus=2", "plan.pipeline=2", "plan.schedule=zero_bubble_v"},
      {"cluster.gpus=2", "plan.pipeline=2", "plan.schedule=dualpipe"},
      {"cluster.gpus=4", "plan.pipeline=2", "plan.schedule=dualpipe", "plan.zero=1"},
      {"cluster.gpus=2", "training.moments=int8"},
  };
  constexpr std::int64_t kPage = 4096;
  for (const auto& assignments : plans) {
    SCOPED_TRACE(testing::PrintToString(assignments));
    plan::Scenario scenario = scenario_from(kGpt, assignments);
    scenario.purpose = plan::Purpose::perform;  // whose rows only routing knows
    const program::Program program = lower::lower(scenario);
    execute::Options options;
    options.steps = 2;
    const result::Result measured = execute::perform(scenario, program, options).result;
    std::int64_t simulated = 0;
    const std::int64_t ranks = scenario.grid().ranks();
    const auto stages = account::stage_memory(program, scenario.grid(), scenario.framework, true);
    for (const auto& stage : stages)
      simulated += (stage.peak + stage.host) * (ranks / static_cast<std::int64_t>(stages.size()));
    EXPECT_LE(std::abs(measured.arena_bytes - simulated), ranks * kPage) << measured.arena_bytes << ", " << simulated;
  }
}

// Huge pages round nothing up: of a block that ends amid one, what is not touched is not held.
TEST(Memory, OnlyWhatWasTouchedIsResident) {
  // More than the C library ever takes from memory that was used before.
  constexpr std::int64_t kPage = 4096, kTouched = std::int64_t{40} << 20, kBytes = kTouched + 300 * kPage;
  kernels::cpu::HostAllocator<std::byte> allocator;
  std::byte* block = allocator.allocate(kBytes);
  std::fill_n(block, kTouched, std::byte{1});  // whole huge pages
  EXPECT_EQ(execute::resident_bytes(block, kBytes), kTouched);
  block[kBytes - 1] = std::byte{1};
  EXPECT_EQ(execute::resident_bytes(block, kBytes), kTouched + kPage);
  EXPECT_EQ(execute::resident_bytes(block + kBytes - 10, 7), 7);
  allocator.deallocate(block, kBytes);
}

}  // namespace
}  // namespace rehearse
