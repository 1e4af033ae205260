// What of the optimizer and of activations lies in the host's memory, and what is copied there and back, to the byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "sim/program/link/send_slots.h"
#include "sim/program/memory_plan.h"
#include "sim/program/work.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

using program::BufferClass;
using program::Within;

const std::string kOffloaded =
    "rehearse: 1\nmodel: {family: gpt, layers: 4, hidden: 64, heads: 4, vocab: 128, max_seq_len: 32}\n"
    "cluster: {gpus: 2}\ntraining: {global_batch: 8, seq_len: 32}\n";

program::Role lowered_role(const std::vector<std::string>& assignments, const std::string& text = kOffloaded) {
  const plan::Scenario scenario = scenario_from(text, assignments);
  program::Program program = lower::lower(scenario);
  EXPECT_EQ(violations(program, scenario.grid()), "") << testing::PrintToString(assignments);
  return program.roles.front();
}

std::int64_t highest_of(const program::MemoryPeak& peak, BufferClass cls) {
  return peak.highest[static_cast<std::size_t>(cls)];
}

// Elements of the buckets' shards that are trained.
std::int64_t trained_elements(const program::Role& role) {
  std::int64_t elements = 0;
  for (const program::Buffer& b : role.buffers)
    if (b.name.starts_with("exp_avg.")) elements += b.elements();
  return elements;
}

struct Copied {
  std::int64_t to_host = 0, to_device = 0;
};
Copied bytes_copied(const program::Role& role) {
  Copied sum;
  for (const program::Slot& slot : role.slots)
    for (const program::Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops) {
      if (within(role, op) != Within::between) continue;
      const program::Buffer& to = role.buffers[static_cast<std::size_t>(op.writes.front().buffer)];
      (to.on_host ? sum.to_host : sum.to_device) += program::work_of(role, op).bytes_written;
    }
  return sum;
}

std::vector<std::string> offload_plan(int zero, const std::string& precision, std::int64_t micro_batch,
                                      const std::vector<std::string>& more = {}) {
  std::vector<std::string> all = {"plan.zero=" + std::to_string(zero), "training.precision=" + precision,
                                  "plan.micro_batch=" + std::to_string(micro_batch)};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Where the device keeps its gradients nothing else changes there.
TEST(OffloadOptimizer, TheDevicesPeakShrinksByTheStates) {
  for (const int zero : {0, 1})
    for (const std::string precision : {"fp32", "bf16"})
      for (const std::int64_t micro_batch : {1, 4}) {
        const auto plain = lowered_role(offload_plan(zero, precision, micro_batch));
        const auto away = lowered_role(offload_plan(zero, precision, micro_batch, {"plan.offload_optimizer=true"}));
        const program::MemoryPeak before = program::memory_peak(plain), after = program::memory_peak(away);
        const std::int64_t states = (precision == "fp32" ? 8 : 12) * trained_elements(plain);
        EXPECT_EQ(highest_of(before, BufferClass::optimizer), states);
        EXPECT_EQ(highest_of(after, BufferClass::optimizer), 0);
        EXPECT_EQ(before.peak_bytes - after.peak_bytes, states) << zero << " " << precision << " " << micro_batch;
        EXPECT_EQ(program::memory_peak(plain, 1, true).peak_bytes, 0);
      }
}

// fp32 copy and averages, gradients in fp32, and in 16 bits the updated values; f32 [1]: the sum of squares where
// gradients are on the host alone, and after it the clip coefficient. With several micro-batches a bucket's gradients
// arrive beside those that are added up.
TEST(OffloadOptimizer, TheHostKeepsStatesGradientsAndValues) {
  for (const int zero : {0, 1, 2, 3})
    for (const std::string precision : {"fp32", "bf16"}) {
      const auto role = lowered_role(offload_plan(zero, precision, 4, {"plan.offload_optimizer=true"}));
      const program::MemoryPeak host = program::memory_peak(role, 1, true);
      const std::int64_t n = trained_elements(role), a_parameter = 12 + 4 + (precision == "bf16" ? 2 : 0);
      EXPECT_EQ(host.peak_bytes, n * a_parameter + 4) << zero << " " << precision;
      EXPECT_EQ(highest_of(host, BufferClass::optimizer), 12 * n);
      const auto several = program::memory_peak(
          lowered_role(offload_plan(zero, precision, 1, {"plan.offload_optimizer=true"})), 1, true);
      EXPECT_GE(several.peak_bytes, host.peak_bytes);
      EXPECT_EQ(highest_of(several, BufferClass::gradient), 4 * n);
    }
}

// With ZeRO 2 and 3 the device keeps no gradients beyond a backward.
TEST(OffloadOptimizer, WithZero2TheDeviceKeepsNoGradients) {
  for (const int zero : {2, 3})
    for (const std::string gpus : {"1", "2"}) {
      const auto role = lowered_role(
          offload_plan(zero, "bf16", 2, {"plan.offload_optimizer=true", "cluster.gpus=" + gpus, "plan.bucket=16KiB"}));
      for (const program::Buffer& b : role.buffers)
        if (b.cls == BufferClass::gradient && b.lifetime == program::Lifetime::persistent) {
          EXPECT_TRUE(b.on_host) << b.name;
        }
      EXPECT_EQ(highest_of(program::memory_peak(role), BufferClass::gradient), 0);
    }
}

// Gradients in fp32 out and values in the training precision back, 4 + 2 or 4 + 4 bytes a parameter and rank that
// updates it, beside the f32 [1] of the clip coefficient and of the sum of squares. With ZeRO 2 and 3 each
// micro-batch's gradients go out.
TEST(OffloadOptimizer, CopiesEachParameterOnce) {
  for (const int zero : {0, 1, 2, 3})
    for (const std::string precision : {"fp32", "bf16"})
      for (const std::int64_t micro_batch : {1, 4}) {
        const auto role = lowered_role(offload_plan(zero, precision, micro_batch, {"plan.offload_optimizer=true"}));
        const std::int64_t n = trained_elements(role), times = zero >= 2 ? 4 / micro_batch : 1;
        const Copied bytes = bytes_copied(role);
        EXPECT_EQ(bytes.to_host, times * n * 4 + 4) << zero << " " << precision;
        EXPECT_EQ(bytes.to_device, n * (precision == "bf16" ? 2 : 4) + (zero >= 2 ? 4 : 0)) << zero << " " << precision;
      }
}

TEST(OffloadOptimizer, GradientsIn16BitsGoAsTheyAre) {
  const auto role = lowered_role(offload_plan(
      2, "bf16", 4, {"plan.offload_optimizer=true", "training.reduce_dtype=bf16", "training.grad_dtype=bf16"}));
  EXPECT_EQ(bytes_copied(role).to_host, 2 * trained_elements(role) + 4);
}

// Frameworks step in the process that launches kernels; our own ideal does not wait.
TEST(OffloadOptimizer, InFrameworksTheHostIsBusyWithItsStep) {
  const auto waits = [](const std::string& framework) {
    const auto role =
        lowered_role(offload_plan(3, "bf16", 4, {"plan.offload_optimizer=true", "framework=" + framework}));
    const auto& ops = role.bodies.back().ops;
    return std::any_of(ops.begin(), ops.end(),
                       [](const program::Op& op) { return op.name == "wait_for_host_optimizer" && !op.waits.empty(); });
  };
  EXPECT_TRUE(waits("deepspeed"));
  EXPECT_TRUE(waits("torch-fsdp2"));
  EXPECT_FALSE(waits("rehearse"));
}

// A rank's shard comes once for each gather: the embedding's, the layers' and the head's in forward, in backward the
// embedding's no more but for the tied table that the head reads.
TEST(OffloadParameters, ShardsComeWheneverTheyAreGathered) {
  for (const std::string precision : {"fp32", "bf16"}) {
    const auto role = lowered_role(offload_plan(
        3, precision, 4, {"plan.offload_optimizer=true", "plan.offload_parameters=true", "cluster.gpus=2"}));
    const std::int64_t size = precision == "bf16" ? 2 : 4, n = trained_elements(role);
    std::int64_t gathered = 0, to_device = 0;
    for (const program::Slot& slot : role.slots)
      for (const program::Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops) {
        if (op.name.starts_with("gather.")) gathered += std::get<program::Collective>(op.shape).elements;
        if (op.name.starts_with("shard.to_device")) to_device += program::work_of(role, op).bytes_written;
        EXPECT_FALSE(op.name.starts_with("values.to_device"));
      }
    EXPECT_GT(gathered, 2 * n);
    EXPECT_EQ(to_device, gathered / 2 * size) << "half of what two ranks gather";
    const program::MemoryPeak device = program::memory_peak(role), host = program::memory_peak(role, 1, true);
    EXPECT_EQ(highest_of(device, BufferClass::parameter) + highest_of(device, BufferClass::optimizer) +
                  highest_of(device, BufferClass::gradient),
              0);
    EXPECT_EQ(highest_of(host, BufferClass::parameter), n * size);
    EXPECT_EQ(highest_of(host, BufferClass::optimizer), n * (precision == "bf16" ? 12 : 8))
        << "in fp32 the shard is it";
  }
}

// Each layer's input but what a stage received, of every micro-batch that is under way.
TEST(OffloadActivations, InputsOfRecomputedLayersLeaveTheDevice) {
  const std::vector<std::string> full = {"plan.recompute=full", "plan.micro_batch=2"};
  std::vector<std::string> away = full;
  away.push_back("plan.offload_activations=true");
  const auto plain = lowered_role(full), role = lowered_role(away);
  const std::int64_t input = 2 * 32 * 64 * 2;  // tokens of a micro-batch, hidden, bf16
  EXPECT_EQ(program::memory_peak(role, 1, true).peak_bytes, 4 * input);
  const Copied bytes = bytes_copied(role);
  EXPECT_EQ(bytes.to_host, 2 * 4 * input) << "two micro-batches a step";
  EXPECT_EQ(bytes.to_device, bytes.to_host);
  // Of the four layers' inputs two are back when a layer's backward runs: its own and the next one's.
  EXPECT_EQ(program::memory_peak(plain).peak_bytes - program::memory_peak(role).peak_bytes, 2 * input);
}

// A layer's input comes back while the one above is computed, not as early as the link allows: memory is planned so.
TEST(OffloadActivations, InputsComeBackALayerAhead) {
  const auto role = lowered_role({"plan.recompute=full", "plan.micro_batch=2", "plan.offload_activations=true"});
  const auto on_compute = [&](program::EventId event) {
    for (const program::Body& body : role.bodies)
      for (const program::Op& op : body.ops)
        if (op.records == event)
          return role.streams[static_cast<std::size_t>(op.stream)].kind == program::StreamKind::compute;
    return false;
  };
  int copies = 0;
  for (const program::Body& body : role.bodies)
    for (const program::Op& op : body.ops) {
      if (!op.name.ends_with(".to_device")) continue;
      ++copies;
      EXPECT_TRUE(std::any_of(op.waits.begin(), op.waits.end(), on_compute)) << body.name << " " << op.name;
    }
  EXPECT_EQ(copies, 2 * 4) << "four layers, in backward and in the last micro-batch's";
}

TEST(OffloadActivations, OfSeveralMicroBatchesUnderWayTheHostHoldsAll) {
  const auto role = lowered_role({"plan.recompute=full", "plan.offload_activations=true", "plan.pipeline=2",
                                  "plan.schedule=gpipe", "plan.micro_batch=1"});
  // Of 8 micro-batches the inputs of the first stage's two layers.
  EXPECT_EQ(program::memory_peak(role, 1, true).peak_bytes, 8 * 2 * 32 * 64 * 2);
}

// Of two layers all that they keep: their own activations, the embedding's output that the first one reads, and not the
// second one's output, which is the third's.
TEST(OffloadLayers, WhatLayersKeepLeavesTheDevice) {
  const std::vector<std::string> keeps = {"plan.micro_batch=2", "model.dropout=0.1"};
  std::vector<std::string> away = keeps;
  away.push_back("plan.offload_layers=2");
  const auto plain = lowered_role(keeps), role = lowered_role(away);
  std::int64_t kept = 0, of_first = 0;
  for (const program::Buffer& b : plain.buffers) {
    if (b.lifetime != program::Lifetime::micro_batch || b.is_view()) continue;
    const bool first = b.name.starts_with("layer0."), second = b.name.starts_with("layer1.");
    if (first || second) kept += b.bytes();
    if (first) of_first += b.bytes();
  }
  const std::int64_t output =
      2 * 32 * 64 * 2;  // of the embedding and of each layer: tokens of a micro-batch, hidden, bf16
  EXPECT_GT(of_first, 8 * output);
  EXPECT_EQ(program::memory_peak(role, 1, true).peak_bytes, kept);
  const Copied bytes = bytes_copied(role);
  EXPECT_EQ(bytes.to_host, 2 * kept) << "two micro-batches a step";
  EXPECT_EQ(bytes.to_device, bytes.to_host);
  // The device is fullest at the end of forward, or where both are back.
  const std::int64_t less = program::memory_peak(plain).peak_bytes - program::memory_peak(role).peak_bytes;
  EXPECT_GT(less, of_first / 2);
  EXPECT_LE(less, kept);
}

// Places of the two memories do not overlap, and each holds what its peak says.
TEST(Offload, TheHostHasAnArenaOfItsOwn) {
  const plan::Scenario scenario = scenario_from(
      kOffloaded,
      offload_plan(2, "bf16", 1,
                   {"plan.offload_optimizer=true", "plan.recompute=full", "plan.offload_activations=true"}));
  const program::Program program = lower::lower(scenario);
  const program::Role& role = program.roles.front();
  const program::ArenaPlaces places =
      program::place_buffers(role, program::resolve_waits(role), program::kArenaAlignment);
  EXPECT_GE(places.arena_bytes, program::memory_peak(role).peak_bytes);
  EXPECT_GE(places.host_bytes, program::memory_peak(role, 1, true).peak_bytes);
  EXPECT_GE(places.host_begin, places.arena_bytes);
  for (std::size_t b = 0; b < role.buffers.size(); ++b) {
    const program::Place& place = places.places[b];
    if (role.buffers[b].on_host) {
      EXPECT_GE(place.offset, places.host_begin) << role.buffers[b].name;
      EXPECT_LE(place.end(), places.host_begin + places.host_bytes) << role.buffers[b].name;
    } else {
      EXPECT_LE(place.end(), places.arena_bytes) << role.buffers[b].name;
    }
  }
}

TEST(Offload, EveryPlanPassesTheStaticCheck) {
  const std::vector<std::vector<std::string>> plans = {
      {"plan.pipeline=2", "plan.schedule=interleaved", "plan.chunks=2"},
      {"plan.pipeline=2", "plan.schedule=gpipe"},
      {"plan.tensor=2", "plan.sequence_parallel=true"},
      {"plan.context=2"},
      {"framework=deepspeed"},
      {"framework=torch-fsdp"},
      {"framework=megatron-core"},
      {"framework=nanotron"},
      {"training.precision=fp8"},
      {"training.precision=fp16"},
      {"training.lora_rank=4"}};
  for (const auto& base : plans)
    for (const int zero : {0, 1, 2, 3}) {
      std::vector<std::string> all = base;
      all.insert(all.end(), {"cluster.gpus=4", "plan.zero=" + std::to_string(zero), "plan.recompute=full",
                             "plan.offload_optimizer=true", "plan.offload_activations=true"});
      lowered_role(all);
    }
}

TEST(Offload, ExpertsHaveShardsOfTheirOwnThere) {
  const std::string moe =
      "rehearse: 1\nmodel: {family: moe, layers: 3, hidden: 64, heads: 4, vocab: 128, max_seq_len: 32, experts: 8, "
      "experts_per_token: 2, expert_ffn_hidden: 24, capacity_factor: 1}\ncluster: {gpus: 8}\n"
      "training: {global_batch: 16, seq_len: 32}\n";
  for (const std::string split : {"plan.expert=4", "plan.expert=8", "plan.tensor=2"})
    for (const std::string framework : {"rehearse", "megatron-core"})
      for (const int zero : {0, 1, 2, 3}) {
        const std::vector<std::string> plain = {split, "plan.zero=" + std::to_string(zero), "framework=" + framework};
        std::vector<std::string> all = plain;
        all.emplace_back("plan.offload_optimizer=true");
        const auto role = lowered_role(all, moe);
        EXPECT_EQ(highest_of(program::memory_peak(role), BufferClass::optimizer), 0);
        EXPECT_EQ(highest_of(program::memory_peak(role, 1, true), BufferClass::optimizer),
                  highest_of(program::memory_peak(lowered_role(plain, moe)), BufferClass::optimizer));
      }
}

}  // namespace
}  // namespace rehearse
