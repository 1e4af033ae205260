// Muon (training.optimizer: muon): what a rank keeps of it, and what its updates compute and move, against hand counts.
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "sim/program/describe.h"
#include "sim/program/work.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

constexpr const char* kMuonModel =
    "rehearse: 1\nmodel: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 4, ffn_hidden: 192, vocab: 128, "
    "max_seq_len: 32}\ncluster: {gpus: 4}\ntraining: {global_batch: 4, optimizer: muon}\n";
// In each of two layers queries, keys, values and projection, 64 x 64, gate, up and down, 192 x 64; and two tables of
// 128 x 64 and five norms of 64, which are AdamW's.
constexpr std::int64_t kOfMuon = 2 * (4 * 64 * 64 + 3 * 64 * 192), kOfAdam = 2 * 128 * 64 + 5 * 64;

program::Program muon_program(const std::vector<std::string>& more) {
  const plan::Scenario scenario = scenario_from(kMuonModel, more);
  program::Program program = lower::lower(scenario);
  EXPECT_EQ(violations(program, scenario.grid()), "");
  return program;
}

std::int64_t kept_of_muon(const program::Role& role) {
  std::int64_t bytes = 0;
  for (const program::Buffer& b : role.buffers)
    if (!b.is_view() && b.lifetime == program::Lifetime::persistent && b.cls == program::BufferClass::optimizer)
      bytes += b.bytes();
  return bytes;
}

TEST(MuonStates, AreOneMomentumOfMatricesAndTwoMomentsOfTheRest) {
  EXPECT_EQ(kept_of_muon(muon_program({}).roles.front()), (4 + 4) * kOfMuon + (4 + 8) * kOfAdam) << "and fp32 copies";
  EXPECT_EQ(kept_of_muon(muon_program({"training.precision=fp32"}).roles.front()), 4 * kOfMuon + 8 * kOfAdam);
  std::int64_t all = 0;
  for (const program::Role& role : muon_program({"plan.pipeline=2"}).roles) all += kept_of_muon(role);
  EXPECT_EQ(all, 8 * kOfMuon + 12 * kOfAdam) << "of two stages together";
}

// Five iterations of 2 r^2 c + 2 r^3 + 2 r^2 c FLOPs each on r x c: 6 r^3 where it is square, 14 r^3 with c = 3 r. The
// fp32 gradient is read, bf16 parameter, fp32 copy and momentum read and written, and in each iteration X three times
// and A three times read, X and A twice written, in bf16.
TEST(MuonStates, AreUpdatedByProductsOfMatrices) {
  const auto program = muon_program({"training.clip=0"});
  const program::Role& role = program.roles.front();
  double flops = 0;
  std::int64_t ops = 0, matrices = 0, read = 0, written = 0;
  for (const program::Slot& slot : role.slots)
    for (const program::Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops)
      if (const auto* m = std::get_if<program::Muon>(&op.shape)) {
        const program::Work work = program::work_of(role, op);
        flops += work.flops, read += work.bytes_read, written += work.bytes_written, ++ops;
        matrices += m->matrices;
        EXPECT_EQ(program::kind_name(op.shape), "muon");
        EXPECT_TRUE(program::shape_text(role, op).ends_with(" master")) << program::shape_text(role, op);
      }
  EXPECT_EQ(ops, 2 * 6) << "gate and up are one tensor";
  EXPECT_EQ(matrices, 2 * 7);
  EXPECT_DOUBLE_EQ(flops, 2 * 5 * (4 * 6 + 3 * 14) * 64.0 * 64 * 64);
  const std::int64_t squares = 2 * 7 * 64 * 64;
  EXPECT_EQ(read, (4 + 2 + 4 + 4) * kOfMuon + 5 * 2 * (3 * kOfMuon + 3 * squares));
  EXPECT_EQ(written, (2 + 4 + 4) * kOfMuon + 5 * 2 * (2 * kOfMuon + 2 * squares));
}

// Of the sums of program::Muon's ops.
struct MuonSums {
  double flops = 0;
  std::int64_t momentum = 0, updated = 0;
};
MuonSums muon_sums(const program::Role& role) {
  MuonSums sums;
  for (const program::Slot& slot : role.slots)
    for (const program::Op& op : role.bodies[static_cast<std::size_t>(slot.body)].ops)
      if (const auto* m = std::get_if<program::Muon>(&op.shape)) {
        sums.flops += program::work_of(role, op).flops;
        if (m->part == program::MuonPart::momentum) sums.momentum += m->elements;
        if (m->multiplies()) sums.updated += m->matrices * m->rows * m->cols / m->parts;
      }
  return sums;
}
std::int64_t muon_sent(const program::Program& program, const std::string& group, program::CollectiveKind kind) {
  std::int64_t sum = 0;
  for (const program::Body& body : program.roles.front().bodies)
    for (const program::Op& op : body.ops)
      if (const auto* c = std::get_if<program::Collective>(&op.shape);
          c != nullptr && c->kind == kind && op.phase == program::Phase::optimizer &&
          program.groups[static_cast<std::size_t>(c->group)].name == group)
        sum += c->elements * program::size_of(op.dtype);
  return sum;
}

// Two ranks have the matrices of a layer each: half of the states and of the products, and of AdamW's.
TEST(MuonStates, OfShardsAreWholeMatrices) {
  constexpr double kAll = 2 * 5 * (4 * 6 + 3 * 14) * 64.0 * 64 * 64;
  const auto two = muon_program({"cluster.gpus=2", "plan.zero=1"});
  EXPECT_EQ(kept_of_muon(two.roles.front()), 8 * kOfMuon / 2 + 12 * kOfAdam / 2);
  EXPECT_DOUBLE_EQ(muon_sums(two.roles.front()).flops, kAll / 2);
  // Three layers on two ranks: gate and up are six matrices, of the other shapes one of four is zeros.
  const auto odd = muon_program({"cluster.gpus=2", "plan.zero=1", "model.layers=3"});
  constexpr std::int64_t kPadded = 4 * (4 * 64 * 64 + 64 * 192) + 6 * 64 * 192, kAdam = 2 * 128 * 64 + 7 * 64;
  EXPECT_EQ(kept_of_muon(odd.roles.front()), 8 * kPadded / 2 + 12 * kAdam / 2);
}

// Of two layers in shards of two ranks each makes one orthogonal, whose 16-bit sums and updates are exchanged; of three
// layers each has room for two, one of which is zeros; of two layers on four ranks every rank has room for one.
TEST(MuonStates, OfShardsOfLayersAreExchanged) {
  constexpr double kAll = 2 * 5 * (4 * 6 + 3 * 14) * 64.0 * 64 * 64;
  const auto exchanged = [](const program::Program& program) {
    return muon_sent(program, "data", program::CollectiveKind::all_to_all);
  };
  const auto two = muon_program({"cluster.gpus=2", "plan.zero=3"});
  EXPECT_EQ(kept_of_muon(two.roles.front()), 8 * kOfMuon / 2 + 12 * kOfAdam / 2);
  EXPECT_DOUBLE_EQ(muon_sums(two.roles.front()).flops, kAll / 2);
  EXPECT_EQ(muon_sums(two.roles.front()).momentum, kOfMuon / 2);
  EXPECT_EQ(exchanged(two), 2 * 2 * kOfMuon / 2) << "there and back";
  const auto odd = muon_program({"cluster.gpus=2", "plan.zero=3", "model.layers=3"});
  EXPECT_DOUBLE_EQ(muon_sums(odd.roles.front()).flops, kAll) << "of two layers";
  EXPECT_EQ(exchanged(odd), 2 * 2 * 4 * kOfMuon / 2 / 2);
  const auto four = muon_program({"plan.zero=3"});
  EXPECT_DOUBLE_EQ(muon_sums(four.roles.front()).flops, kAll / 2);
  EXPECT_EQ(exchanged(four), 2 * 2 * 4 * kOfMuon / 2 / 4);
  // A tensor group gathers what an owner has, and gives a rank its part of the updates.
  const auto split = muon_program({"plan.zero=3", "plan.tensor=2"});
  EXPECT_DOUBLE_EQ(muon_sums(split.roles.front()).flops, kAll / 2);
  EXPECT_EQ(muon_sent(split, "tensor", program::CollectiveKind::all_gather), 2 * kOfMuon / 2);
  EXPECT_EQ(exchanged(split), 2 * 2 * kOfMuon / 2 / 2);
}

// A tensor group gathers the 16-bit sums of gradients and momenta, and each rank makes all matrices orthogonal.
TEST(MuonStates, OfSplitMatricesAreGathered) {
  constexpr double kAll = 2 * 5 * (4 * 6 + 3 * 14) * 64.0 * 64 * 64;
  const auto split = muon_program({"plan.tensor=4"});
  const MuonSums sums = muon_sums(split.roles.front());
  EXPECT_EQ(sums.momentum, kOfMuon / 4);
  EXPECT_EQ(sums.updated, kOfMuon / 4);
  EXPECT_DOUBLE_EQ(sums.flops, kAll);
  EXPECT_EQ(muon_sent(split, "tensor", program::CollectiveKind::all_gather), 2 * kOfMuon);
  // With ZeRO 1 besides, two of the four ranks share the layers.
  const auto both = muon_program({"plan.tensor=2", "plan.zero=1"});
  EXPECT_DOUBLE_EQ(muon_sums(both.roles.front()).flops, kAll / 2);
  EXPECT_EQ(muon_sent(both, "tensor", program::CollectiveKind::all_gather), 2 * kOfMuon / 2);
}

// Of two layers, rank 4: A's of 4 x 64 three times and of 4 x 192; B's of queries, keys and values, of the projection
// and of the way back 64 x 4 each, of gate and up-projection 192 x 4 each. Nothing else is trained.
TEST(MuonStates, OfAdaptersAreOfTheirMatrices) {
  constexpr std::int64_t kOfAdapters = 2 * 4 * (3 * 64 + 192 + 5 * 64 + 2 * 192);
  const auto whole = muon_program({"training.lora_rank=4"});
  EXPECT_EQ(kept_of_muon(whole.roles.front()), 8 * kOfAdapters);
  const double all = muon_sums(whole.roles.front()).flops;
  EXPECT_DOUBLE_EQ(all, 2 * 5 * ((3 + 5) * (4 * 16 * 64 + 2 * 64) + (1 + 2) * (4 * 16 * 192 + 2 * 64)));
  const auto half = muon_program({"training.lora_rank=4", "plan.zero=1", "cluster.gpus=2"});
  EXPECT_EQ(kept_of_muon(half.roles.front()), 8 * kOfAdapters / 2);
  EXPECT_DOUBLE_EQ(muon_sums(half.roles.front()).flops, all / 2);
  // Of column-parallel products B is split, of row-parallel ones A; the others are whole on every rank.
  const auto split = muon_program({"training.lora_rank=4", "plan.tensor=4"});
  EXPECT_EQ(muon_sent(split, "tensor", program::CollectiveKind::all_gather), 2 * 2 * 4 * (3 * 64 + 2 * 192 + 64 + 192));
  for (const char* framework : {"rehearse", "megatron-core"})
    muon_program({"training.lora_rank=4", "plan.zero=1", "plan.tensor=2", "plan.pipeline=2",
                  "plan.sequence_parallel=true", std::string("framework=") + framework});
}

TEST(MuonStates, OfManyPlansAreSound) {
  for (const char* plan : {"plan.pipeline=2", "plan.context=2"})
    for (const char* framework : {"rehearse", "megatron-core"})
      muon_program({std::string("framework=") + framework, plan});
  for (const char* framework : {"rehearse", "megatron-core"}) {
    muon_program({std::string("framework=") + framework, "plan.zero=2", "cluster.gpus=2"});
    muon_program({std::string("framework=") + framework, "plan.zero=1", "plan.tensor=2", "plan.pipeline=2"});
  }
  for (const char* framework : {"torch-fsdp", "torch-fsdp2", "deepspeed"}) {
    muon_program({std::string("framework=") + framework, "plan.zero=3"});
    muon_program({std::string("framework=") + framework, "plan.zero=3", "plan.zero_group=2", "training.lora_rank=4"});
  }
  muon_program({"framework=torch-ddp"});
  muon_program({"training.precision=fp16"});
  muon_program({"framework=megatron-core", "training.precision=fp8"});
}

}  // namespace
}  // namespace rehearse
