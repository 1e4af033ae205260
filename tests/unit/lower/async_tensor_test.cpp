// Products that go on by parts of the rows beside what is gathered or scattered (plan.async_tensor_parallel).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/support/lowered.h"

namespace rehearse::async_tensor_test {
namespace {

using program::Op;
using program::Role;

const std::string kModel =
    "rehearse: 1\nmodel: {family: gpt, layers: 1, hidden: 64, heads: 8, vocab: 256, max_seq_len: 32}\n"
    "cluster: {topology: dgx-h100, gpus: 4}\n"
    "plan: {tensor: 4, sequence_parallel: true, micro_batch: 2}\n"
    "training: {global_batch: 2, seq_len: 32, precision: bf16}\n";
constexpr std::int64_t kTensor = 4, kTokens = 64, kHidden = 64;

// A role with the tables to follow its waits.
struct Lowered {
  explicit Lowered(const std::vector<std::string>& plan) {
    const plan::Scenario scenario = scenario_from(kModel, plan);
    program = lower::lower(scenario);
    EXPECT_EQ(violations(program, scenario.grid()), "");
    for (const program::Body& body : role().bodies)
      for (const Op& op : body.ops) {
        by_name[op.name] = &op;
        if (op.records >= 0) recorded_by[op.records] = op.name;
      }
  }
  const Role& role() const { return program.roles.front(); }
  bool has(const std::string& name) const { return by_name.contains(name); }
  // The transfers that an op waits for itself.
  std::vector<std::string> transfers_before(const std::string& name) const {
    std::vector<std::string> names;
    for (const program::EventId event : by_name.at(name)->waits)
      if (is_transfer(*by_name.at(recorded_by.at(event)))) names.push_back(recorded_by.at(event));
    return names;
  }

  program::Program program;
  std::map<std::string, const Op*> by_name;
  std::map<program::EventId, std::string> recorded_by;
};

// Bytes that a rank sends in a step over the tensor group, rings' in the place of collectives.
double sent(const Role& role) {
  return sum_over_step(role, [](const Role& r, const Op& op) {
    if (r.streams[static_cast<std::size_t>(op.stream)].kind != program::StreamKind::tensor) return 0.0;
    double elements = 0;
    if (const auto* p = std::get_if<program::PointToPoint>(&op.shape))
      for (const program::Leg& leg : p->legs) elements += leg.send ? static_cast<double>(leg.elements) : 0;
    if (const auto* c = std::get_if<program::Collective>(&op.shape)) {
      const double times = c->kind == program::CollectiveKind::all_reduce ? 2 : 1;
      elements = times * static_cast<double>(c->elements) * (kTensor - 1) / kTensor;
    }
    return elements * size_of(op.dtype);
  });
}

double multiplied(const Role& role) {
  return sum_over_step(role, [](const Role&, const Op& op) {
    const auto* g = std::get_if<program::Gemm>(&op.shape);
    return g != nullptr ? static_cast<double>(g->m) * static_cast<double>(g->n) * static_cast<double>(g->k) : 0.0;
  });
}

TEST(AsyncTensorParallel, SendsAndMultipliesAsMuchInParts) {
  for (const char* recompute : {"plan.recompute=none", "plan.recompute=full"})
    for (const char* overlap : {"plan.overlap_tensor_backward=true", "plan.overlap_tensor_backward=false"}) {
      const Lowered whole({recompute, overlap}), parts({recompute, overlap, "plan.async_tensor_parallel=true"});
      EXPECT_EQ(sent(whole.role()), sent(parts.role())) << recompute << " " << overlap;
      EXPECT_EQ(multiplied(whole.role()), multiplied(parts.role())) << recompute << " " << overlap;
    }
}

TEST(AsyncTensorParallel, AProductOfEachRanksRowsBeginsWhenTheyAreThere) {
  const Lowered l({"plan.async_tensor_parallel=true"});
  const std::string product = "layer0.attention.qkv.forward.turn", gather = "layer0.norm1.pass_on.";
  EXPECT_FALSE(l.has("layer0.attention.qkv.forward"));
  EXPECT_TRUE(l.transfers_before(product + "0").empty()) << "its own rows";
  for (int turn = 1; turn < kTensor; ++turn) {
    const std::string name = product + std::to_string(turn);
    EXPECT_EQ(std::get<program::Gemm>(l.by_name.at(name)->shape).m, kTokens / kTensor);
    EXPECT_EQ(l.transfers_before(name), std::vector<std::string>{gather + std::to_string(turn)});
  }
}

TEST(AsyncTensorParallel, APartIsSentWhenItIsMadeAndAllAreAddedUpAtOnce) {
  const Lowered l({"plan.async_tensor_parallel=true"});
  const auto order = [&](const std::string& prefix) {
    std::vector<std::string> names;
    for (const program::Body& body : l.role().bodies)
      for (const Op& op : body.ops)
        if (op.name.starts_with(prefix)) names.push_back(op.name.substr(prefix.size()));
    return names;
  };
  const std::string down = "layer0.mlp.down.";
  EXPECT_EQ(order(down + "forward.turn"), (std::vector<std::string>{"1", "2", "3", "0"})) << "our own rows last";
  for (int turn = 1; turn < kTensor; ++turn) {
    const Op& send = *l.by_name.at(down + "to_turn" + std::to_string(turn));
    ASSERT_FALSE(send.waits.empty());
    EXPECT_EQ(l.recorded_by.at(send.waits.back()), down + "forward.turn" + std::to_string(turn));
    const auto& legs = std::get<program::PointToPoint>(send.shape).legs;
    EXPECT_EQ(legs[0].offset, turn);
    EXPECT_EQ(legs[1].offset, -turn);
  }
  // One kernel, which reads the parts of all four and writes the sum.
  std::int64_t kernels = 0, read = 0;
  for (const program::Body& body : l.role().bodies)
    for (const Op& op : body.ops)
      if (op.name.starts_with(down + "sum")) {
        kernels += op.fused ? 0 : 1;
        const std::int64_t bytes = kTokens / kTensor * kHidden * 2;
        read += op.fused ? op.passes.read : 2 * bytes;
      }
  EXPECT_EQ(kernels, 1);
  EXPECT_EQ(read, kTensor * kTokens / kTensor * kHidden * 2);
}

// Transformer Engine scatters the gradient of a column-parallel layer's input whole, beside the weight's gradient.
TEST(AsyncTensorParallel, BackwardScattersWholeOrInParts) {
  const Lowered bulk({"plan.async_tensor_parallel=true", "plan.overlap_tensor_backward=true"}),
      parts({"plan.async_tensor_parallel=true", "plan.overlap_tensor_backward=false"});
  EXPECT_TRUE(bulk.has("layer0.mlp.up.backward_input"));
  EXPECT_TRUE(bulk.has("d_layer0.mlp.up.reduce_scatter"));
  EXPECT_TRUE(parts.has("layer0.mlp.up.backward_input.turn0"));
  EXPECT_TRUE(parts.has("d_layer0.mlp.up.to_turn1"));
  for (const Lowered* l : {&bulk, &parts}) {
    EXPECT_TRUE(l->has("layer0.mlp.down.backward_input.turn3")) << "gathered in parts either way";
    EXPECT_TRUE(l->has("layer0.mlp.down.backward_weight")) << "a weight's gradient is one product";
  }
}

TEST(AsyncTensorParallel, OfEveryPlanIsSound) {
  for (const char* framework : {"rehearse", "megatron-core", "torch-fsdp2", "torch-fsdp2-compile", "nemo"})
    for (const char* recompute : {"none", "selective", "full"})
      for (const char* precision : {"bf16", "fp8"})
        for (const char* model : {"model.dropout=0", "model.dropout=0.1"})
          Lowered({"plan.async_tensor_parallel=true", "cluster.gpus=16", "plan.pipeline=2", "training.global_batch=8",
                   "model.layers=2", model, std::string("framework=") + framework,
                   std::string("plan.recompute=") + recompute, std::string("training.precision=") + precision});
  for (const char* schedule : {"zero_bubble", "dualpipe_v"})
    Lowered({"plan.async_tensor_parallel=true", "cluster.gpus=8", "plan.pipeline=2", "training.global_batch=8",
             "model.layers=4", std::string("plan.schedule=") + schedule});
}

}  // namespace
}  // namespace rehearse::async_tensor_test
