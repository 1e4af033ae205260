// Adafactor (training.optimizer: adafactor): what a rank keeps of it and what its updates move, against hand counts.
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

constexpr const char* kAdafactorModel =
    "rehearse: 1\nmodel: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 4, ffn_hidden: 192, vocab: 128, "
    "max_seq_len: 32}\ncluster: {gpus: 4}\ntraining: {global_batch: 4, optimizer: adafactor}\n";
// Two tables of 128 x 64; queries, keys and values 192 x 64, projection 64 x 64, gate and up 384 x 64, down 64 x 192,
// of two layers; two norms of 64 a layer and one.
constexpr std::int64_t kAdafactorMeans =
    2 * (128 + 64) + 2 * ((192 + 64) + (64 + 64) + (384 + 64) + (64 + 192)) + 5 * 64;
constexpr std::int64_t kAdafactorElements = 2 * 128 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 192) + 5 * 64;

program::Program adafactor_program(const std::vector<std::string>& more) {
  const plan::Scenario scenario = scenario_from(kAdafactorModel, more);
  program::Program program = lower::lower(scenario);
  EXPECT_EQ(violations(program, scenario.grid()), "");
  return program;
}

std::int64_t kept_of_adafactor(const program::Role& role) {
  std::int64_t bytes = 0;
  for (const program::Buffer& b : role.buffers)
    if (!b.is_view() && b.lifetime == program::Lifetime::persistent && b.cls == BufferClass::optimizer)
      bytes += b.bytes();
  return bytes;
}

TEST(AdafactorStates, AreMeansOfRowsAndColumns) {
  EXPECT_EQ(kept_of_adafactor(adafactor_program({}).roles.front()), 4 * kAdafactorElements + 4 * kAdafactorMeans)
      << "an fp32 copy, and means";
  EXPECT_EQ(kept_of_adafactor(adafactor_program({"training.precision=fp32"}).roles.front()), 4 * kAdafactorMeans);
  const auto two = adafactor_program({"plan.pipeline=2"});
  std::int64_t all = 0;
  for (const program::Role& role : two.roles) all += kept_of_adafactor(role);
  EXPECT_EQ(all, 4 * kAdafactorElements + 4 * kAdafactorMeans) << "of two stages together";
}

// One op a tensor: the gradient is read three times, parameter, copy and means read and written once.
TEST(AdafactorStates, AreMovedOnceAndTheGradientThreeTimes) {
  const auto program = adafactor_program({"training.clip=0"});
  const program::Role& role = program.roles.front();
  std::int64_t read = 0, written = 0, tensors = 0;
  for (const program::Slot& slot : role.slots)
    for (const program::Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops)
      if (std::holds_alternative<program::Adafactor>(op.shape)) {
        const program::Work work = program::work_of(role, op);
        read += work.bytes_read, written += work.bytes_written, ++tensors;
        EXPECT_EQ(program::kind_name(op.shape), "adafactor");
        EXPECT_TRUE(program::shape_text(role, op).ends_with(" master")) << program::shape_text(role, op);
      }
  EXPECT_EQ(tensors, 2 + 2 * 6 + 1);
  EXPECT_EQ(read, (3 * 4 + 2 + 4) * kAdafactorElements + 4 * kAdafactorMeans)
      << "fp32 gradients, bf16 parameters, fp32 copies";
  EXPECT_EQ(written, (2 + 4) * kAdafactorElements + 4 * kAdafactorMeans);
}

TEST(AdafactorStates, OfManyPlansAreSound) {
  for (const char* plan : {"plan.pipeline=2", "plan.context=2"})
    for (const char* framework : {"rehearse", "megatron-core"})
      adafactor_program({std::string("framework=") + framework, plan});
  adafactor_program({"framework=torch-ddp"});
  adafactor_program({"training.precision=fp16"});
  adafactor_program({"training.lora_rank=4"});
  adafactor_program({"framework=megatron-core", "training.precision=fp8"});
}

}  // namespace
}  // namespace rehearse
