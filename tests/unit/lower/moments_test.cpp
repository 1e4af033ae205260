// The optimizer's averages in bf16 and in 8 bits (training.moments): what a rank keeps of them, and what its updates
// move, against hand counts.
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

// Tables, and tensors below 4,096 elements, keep fp32: here the embedding and the norms. The head is no table. Others
// have 2 (1 + 4 / 256) bytes.
constexpr std::int64_t kWideParameters = 128 * 64 + 5 * 64, kCodedParameters = kTwoLayersParameters - kWideParameters;
constexpr std::int64_t kCodedBytes = 2 * (kCodedParameters + kCodedParameters / 256 * 4);

TEST(Moments, OfInt8TakeOneByteAndAShareOfTheirBlock) {
  static_assert(kCodedParameters % 256 == 0);
  EXPECT_EQ(kept_by_optimizer(lowered_with({}, "int8").roles.front()),
            4 * kTwoLayersParameters + 8 * kWideParameters + kCodedBytes);
  EXPECT_EQ(kept_by_optimizer(lowered_with({"training.precision=fp32"}, "int8").roles.front()),
            8 * kWideParameters + kCodedBytes);
  const std::vector<std::string> sgd = {"training.optimizer=sgd", "training.momentum=0.9"};
  EXPECT_EQ(kept_by_optimizer(lowered_with(sgd, "int8").roles.front()),
            4 * kTwoLayersParameters + 4 * kWideParameters + kCodedBytes / 2);
  const auto [read, written] = moved_by_updates(lowered_with({}, "fp32").roles.front());
  const auto [coded_read, coded_written] = moved_by_updates(lowered_with({}, "int8").roles.front());
  // Parameters with moments of either kind have buckets of their own: here one more, whose update reads the
  // coefficient.
  EXPECT_EQ(read - coded_read, 8 * kCodedParameters - kCodedBytes - 4);
  EXPECT_EQ(written - coded_written, 8 * kCodedParameters - kCodedBytes);
}

// bitsandbytes has one kernel, also where the framework's own AdamW is a pass an operation.
TEST(Moments, OfInt8AreUpdatedByOneKernel) {
  const auto eager = lowered_with({"framework=torch-ddp"}, "int8"), fused = lowered_with({}, "int8");
  std::int64_t coded = 0;
  for (const program::Body& body : eager.roles.front().bodies)
    for (const Op& op : body.ops)
      if (const auto* o = std::get_if<program::Optimizer>(&op.shape)) {
        EXPECT_FALSE(o->separate);
        coded += o->eight_bits;
      }
  EXPECT_GT(coded, 0);
}

// A block has elements of one tensor and lies on one rank, also where no tensor is whole blocks, as with 72 x 216.
TEST(Moments, OfInt8HaveBlocksOfOneTensorOnOneRank) {
  for (const char* zero : {"plan.zero=0", "plan.zero=1", "plan.zero=2", "plan.zero=3"})
    for (const char* bucket : {"plan.bucket=1KiB", "plan.bucket=1GiB"}) {
      const auto program = lowered_with({zero, bucket, "model.hidden=72", "model.ffn_hidden=100"}, "int8");
      const Role& role = program.roles.front();
      std::int64_t tensors = 0, odd = 0;
      for (const program::Buffer& b : role.buffers) {
        if (b.name.starts_with("exp_avg.bucket")) {
          const std::string bucket_name = b.name.substr(7);
          const auto find = [&](const std::string& name) -> const program::Buffer* {
            for (const program::Buffer& other : role.buffers)
              if (other.name == name + bucket_name) return &other;
            return nullptr;
          };
          if (b.dtype != DType::u8) continue;
          EXPECT_EQ(b.elements() % 256, 0) << b.name;
          ASSERT_NE(find("exp_avg.largest"), nullptr);
          EXPECT_EQ(find("exp_avg.largest")->elements(), b.elements() / 256);
        }
        if (!b.is_view() || !b.name.starts_with("grad.layer") || b.elements() < 4096) continue;
        EXPECT_EQ(b.offset % 256, 0) << b.name;
        ++tensors, odd += b.elements() % 256 != 0;
      }
      EXPECT_EQ(tensors, 8) << "queries, keys and values; projection; gate and up; down, of two layers";
      EXPECT_EQ(odd, 8);
    }
}

TEST(Moments, OfEveryPlanAreSound) {
  for (const char* plan : {"plan.tensor=2", "plan.pipeline=2", "plan.zero=0", "plan.zero=2", "plan.zero=3"})
    for (const char* framework : {"rehearse", "megatron-core"})
      if (std::string(framework) == "rehearse" || std::string(plan) != "plan.zero=3")
        lowered_with({std::string("framework=") + framework, plan}, "int8");
  lowered_with({"framework=torch-ddp"}, "int8");
  lowered_with({"framework=torch-fsdp2", "plan.zero=3"}, "int8");
  lowered_with({"framework=megatron-core", "training.precision=fp8", "training.fp8_params=true", "plan.zero=1"},
               "int8");
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
