// The optimizer's averages in bf16 (training.moments): what a rank keeps of them, and what its updates move, against
// hand counts.
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "sim/program/describe.h"
#include "sim/program/work.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

using program::BufferClass;
using program::DType;
using program::Op;
using program::Role;

constexpr const char* kTwoLayers =
    "rehearse: 1\nmodel: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 4, ffn_hidden: 192, vocab: 128, "
    "max_seq_len: 32}\ncluster: {gpus: 4}\ntraining: {global_batch: 4}\n";
// Two tables of 128 x 64; queries, keys, values and projection of 64 x 64, gate, up and down of 64 x 192, of two
// layers; two norms a layer and one.
constexpr std::int64_t kTwoLayersParameters = 2 * 128 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 192) + 5 * 64;

program::Program lowered_with(std::vector<std::string> more, const std::string& moments) {
  more.push_back("training.moments=" + moments);
  const plan::Scenario scenario = scenario_from(kTwoLayers, more);
  program::Program program = lower::lower(scenario);
  EXPECT_EQ(violations(program, scenario.grid()), "") << moments;
  return program;
}

std::int64_t kept_by_optimizer(const Role& role) {
  std::int64_t bytes = 0;
  for (const program::Buffer& b : role.buffers)
    if (!b.is_view() && b.lifetime == program::Lifetime::persistent && b.cls == BufferClass::optimizer)
      bytes += b.bytes();
  return bytes;
}

// Of a step's updates: bytes read and written.
std::pair<std::int64_t, std::int64_t> moved_by_updates(const Role& role) {
  std::int64_t read = 0, written = 0;
  for (const program::Slot& slot : role.slots)
    for (const Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops)
      if (std::holds_alternative<program::Optimizer>(op.shape)) {
        const program::Work work = program::work_of(role, op);
        read += work.bytes_read, written += work.bytes_written;
      }
  return {read, written};
}

TEST(Moments, OfBf16TakeFourBytesAParameterOffTheOptimizer) {
  const auto wide = lowered_with({}, "fp32"), half = lowered_with({}, "bf16");
  EXPECT_EQ(kept_by_optimizer(wide.roles.front()), 12 * kTwoLayersParameters) << "fp32 copy and two moments";
  EXPECT_EQ(kept_by_optimizer(half.roles.front()), 8 * kTwoLayersParameters);
  for (const program::Buffer& b : half.roles.front().buffers) {
    if (b.cls != BufferClass::optimizer) continue;
    EXPECT_EQ(b.dtype, b.name.starts_with("exp_avg") ? DType::bf16 : DType::f32) << b.name;
  }
  // Without an fp32 copy: 8 and 4.
  EXPECT_EQ(kept_by_optimizer(lowered_with({"training.precision=fp32"}, "fp32").roles.front()),
            8 * kTwoLayersParameters);
  EXPECT_EQ(kept_by_optimizer(lowered_with({"training.precision=fp32"}, "bf16").roles.front()),
            4 * kTwoLayersParameters);
}

// Four ranks; buckets are padded to a multiple of them, which these sizes are.
TEST(Moments, OfShardsAreShards) {
  for (const char* zero : {"plan.zero=1", "plan.zero=2", "plan.zero=3"}) {
    EXPECT_EQ(kept_by_optimizer(lowered_with({zero}, "fp32").roles.front()), 12 * kTwoLayersParameters / 4) << zero;
    EXPECT_EQ(kept_by_optimizer(lowered_with({zero}, "bf16").roles.front()), 8 * kTwoLayersParameters / 4) << zero;
  }
}

TEST(Moments, OfSgdAreItsMomentum) {
  const std::vector<std::string> sgd = {"training.optimizer=sgd", "training.momentum=0.9"};
  EXPECT_EQ(kept_by_optimizer(lowered_with(sgd, "fp32").roles.front()), 8 * kTwoLayersParameters);
  EXPECT_EQ(kept_by_optimizer(lowered_with(sgd, "bf16").roles.front()), 6 * kTwoLayersParameters);
  for (const char* moments : {"fp32", "bf16"})
    EXPECT_EQ(kept_by_optimizer(lowered_with({"training.optimizer=sgd"}, moments).roles.front()),
              4 * kTwoLayersParameters)
        << moments;
}

TEST(Moments, OfBf16AreReadAndWrittenInTwoBytesEach) {
  const auto [read, written] = moved_by_updates(lowered_with({}, "fp32").roles.front());
  const auto [half_read, half_written] = moved_by_updates(lowered_with({}, "bf16").roles.front());
  EXPECT_EQ(read - half_read, 4 * kTwoLayersParameters);
  EXPECT_EQ(written - half_written, 4 * kTwoLayersParameters);
}

// A calibration of updates with fp32 moments is none of updates with bf16 ones.
TEST(Moments, OfBf16AreInTheShapesOfUpdates) {
  for (const std::string optimizer : {"adamw", "sgd"})
    for (const std::string momentum : {"0", "0.9"})
      for (const std::string moments : {"fp32", "bf16"}) {
        const auto program =
            lowered_with({"training.optimizer=" + optimizer, "training.momentum=" + momentum}, moments);
        const Role& role = program.roles.front();
        const bool said = moments == "bf16" && (optimizer == "adamw" || momentum != "0");
        for (const program::Body& body : role.bodies)
          for (const Op& op : body.ops)
            if (std::holds_alternative<program::Optimizer>(op.shape)) {
              EXPECT_EQ(program::shape_text(role, op).ends_with(" master bf16_moments"), said)
                  << program::shape_text(role, op);
            }
      }
}

TEST(Moments, OfEveryPlanAreSound) {
  for (const char* plan : {"plan.tensor=2", "plan.pipeline=2", "plan.zero=0", "plan.zero=2"})
    for (const char* framework : {"rehearse", "megatron-core"})
      lowered_with({std::string("framework=") + framework, plan}, "bf16");
  lowered_with({"framework=torch-ddp"}, "bf16");
  lowered_with({"framework=torch-fsdp2", "plan.zero=3"}, "bf16");
  lowered_with({"framework=megatron-core", "training.precision=fp8", "training.fp8_params=true", "plan.zero=1"},
               "bf16");
}

}  // namespace
}  // namespace rehearse
