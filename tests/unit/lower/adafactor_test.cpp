// Adafactor (training.optimizer: adafactor): what a rank keeps of it and what its updates move, against hand counts.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
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

// Whatever cuts the matrices, every rank has the means of whole ones; copies are split as weights are. Of vectors here
// nothing is split.
TEST(AdafactorStates, OfPartsAreMeansOfWholeMatrices) {
  for (const int zero : {1, 3})
    EXPECT_EQ(kept_of_adafactor(adafactor_program({"plan.zero=" + std::to_string(zero)}).roles.front()),
              kAdafactorElements + 4 * kAdafactorMeans)
        << zero;
  EXPECT_EQ(kept_of_adafactor(adafactor_program({"plan.tensor=4"}).roles.front()),
            4 * (kAdafactorElements - 5 * 64) / 4 + 4 * 5 * 64 + 4 * kAdafactorMeans);
}

// Bytes of all-reduces among ranks that have parts of a tensor: rows and columns of each matrix, a number a tensor.
TEST(AdafactorStates, OfPartsAreSummedUpOnce) {
  constexpr std::int64_t kTensors = 2 + 2 * 6 + 1;
  for (const char* plan : {"plan.zero=1", "plan.zero=3", "plan.tensor=2", "plan.tensor=4"}) {
    const auto program = adafactor_program({plan});
    const program::Role& role = program.roles.front();
    std::int64_t elements = 0;
    int calls = 0;
    std::map<std::string_view, std::int64_t> gradients;  // of each part, the elements that it reads
    for (const program::Slot& slot : role.slots)
      for (const program::Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops) {
        if (const auto* c = std::get_if<program::Collective>(&op.shape); c != nullptr && op.name.starts_with("adafac"))
          elements += c->elements, ++calls;
        if (const auto* a = std::get_if<program::AdafactorParts>(&op.shape))
          gradients[program::kind_name(op.shape)] += a->elements;
      }
    EXPECT_EQ(calls, 2) << plan;
    EXPECT_EQ(elements, kAdafactorMeans - 5 * 64 + kTensors) << plan;
    EXPECT_EQ(gradients.size(), 3U) << plan;
    EXPECT_EQ(gradients["adafactor_squares"], gradients["adafactor_apply"]) << plan;
  }
}

// Of experts the matrices of this rank's: 4 of 8, gate and up-projection 384 x 64, down-projection 64 x 192 each.
TEST(AdafactorStates, OfExpertsAreEachMatrixs) {
  const std::vector<std::string> moe = {"model.family=moe", "model.ffn_hidden=64",       "model.expert_ffn_hidden=192",
                                        "model.experts=8",  "model.experts_per_token=2", "training.precision=fp32"};
  const auto kept = [&](const std::vector<std::string>& plan) {
    std::vector<std::string> all = moe;
    all.insert(all.end(), plan.begin(), plan.end());
    return kept_of_adafactor(adafactor_program(all).roles.front());
  };
  const std::int64_t one = 2 * ((384 + 64) + (64 + 192));
  const std::int64_t whole = kept({}), half = kept({"plan.expert=2"});
  EXPECT_EQ(whole - half, 4 * 4 * one);
  EXPECT_EQ(kept({"plan.expert=2", "plan.zero=1"}), half);
  EXPECT_EQ(kept({"plan.expert=2", "plan.tensor=2"}), half);
}

TEST(AdafactorStates, OfManyPlansAreSound) {
  for (const char* plan : {"plan.pipeline=2", "plan.context=2"})
    for (const char* framework : {"rehearse", "megatron-core"})
      adafactor_program({std::string("framework=") + framework, plan});
  adafactor_program({"framework=torch-ddp"});
  adafactor_program({"training.precision=fp16"});
  for (const char* framework : {"rehearse", "megatron-core", "torch-fsdp2", "deepspeed"})
    for (const char* zero : {"plan.zero=1", "plan.zero=2", "plan.zero=3"})
      if (std::string_view(framework) != "megatron-core" || std::string_view(zero) == "plan.zero=1")
        adafactor_program({std::string("framework=") + framework, zero, "plan.tensor=1"});
  adafactor_program({"plan.tensor=2", "plan.zero=3", "plan.pipeline=2", "plan.sequence_parallel=true"});
  adafactor_program({"training.lora_rank=4"});
  adafactor_program({"framework=megatron-core", "training.precision=fp8"});
}

}  // namespace
}  // namespace rehearse
