// DeepSpeed of 2021 (ShardGather::alone): each gathered weight is filled with zeros, cut into a list by a host that
// waited for the device, gathered, copied out and waited for; what a reduction summed is copied back, and waited for
// too.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/lowered.h"

namespace rehearse {
namespace {

constexpr const char* kEightRanks =
    "rehearse: 1\n"
    "model: {family: llama, layers: 2, hidden: 512, heads: 8, ffn_hidden: 1024, vocab: 1024, max_seq_len: 256}\n"
    "plan: {zero: 3, micro_batch: 1}\n"
    "cluster: {topology: dgx-a100, gpus: 8}\n"
    "training: {precision: fp16, global_batch: 8, seq_len: 256}\n";

program::Program lowered_alone(const std::string& framework) {
  return lower::lower(scenario_from(kEightRanks, {"framework=" + framework}));
}

bool begins_with(const program::Op& op, const std::string& what) {
  return op.name.rfind(what, 0) == 0;
}

// The ops of one bucket, by its suffix, of these kinds.
std::vector<const program::Op*> sequence(const program::Body& body, const std::vector<std::string>& kinds,
                                         const std::string& suffix) {
  std::vector<const program::Op*> found;
  for (const program::Op& op : body.ops)
    for (const std::string& kind : kinds)
      if (op.name == kind + suffix) found.push_back(&op);
  return found;
}

std::vector<std::string> names(const std::vector<const program::Op*>& ops) {
  std::vector<std::string> all;
  for (const program::Op* op : ops) all.push_back(op->name);
  return all;
}

std::string suffix_of(const program::Body& body, const std::string& kind) {
  for (const program::Op& op : body.ops)
    if (begins_with(op, kind + ".bucket")) return op.name.substr(kind.size());
  return "";
}

TEST(GatherAlone, EachWeightIsListedGatheredAndWaitedForOnItsOwn) {
  const program::Program p = lowered_alone("deepspeed-2021");
  const program::Body& forward = p.roles.front().bodies[1];
  const std::string bucket = suffix_of(forward, "zero_gathered");
  ASSERT_NE(bucket, "");
  const auto ops = sequence(
      forward, {"zero_gathered", "wait_for_zeros", "own_slice", "gather", "copy_out", "wait_for_gather"}, bucket);
  EXPECT_EQ(names(ops),
            (std::vector<std::string>{"zero_gathered" + bucket, "wait_for_zeros" + bucket, "own_slice" + bucket,
                                      "gather" + bucket, "copy_out" + bucket, "wait_for_gather" + bucket}));
  // Eight ranks: half a launch each for the list, one each for what is copied out.
  EXPECT_EQ(ops[2]->launches, 4);
  EXPECT_EQ(ops[4]->launches, 8);
  const auto count = [&](const std::string& what) {
    return std::count_if(forward.ops.begin(), forward.ops.end(),
                         [&](const program::Op& op) { return begins_with(op, what); });
  };
  EXPECT_GT(count("gather.bucket"), 2 * 4);  // two layers of several weights
  EXPECT_EQ(count("wait_for_gather.bucket"), count("gather.bucket"));
}

TEST(GatherAlone, SumsAreCopiedBackAndWaitedFor) {
  const program::Program p = lowered_alone("deepspeed-2021");
  const program::Body* backward = nullptr;
  for (const program::Body& body : p.roles.front().bodies)
    if (body.name == "backward.last") backward = &body;
  ASSERT_NE(backward, nullptr);
  const std::string bucket = suffix_of(*backward, "all_reduce");
  const auto ops = sequence(*backward, {"flatten", "divide", "all_reduce", "copy_back", "wait_for_reduction"}, bucket);
  EXPECT_EQ(names(ops), (std::vector<std::string>{"flatten" + bucket, "divide" + bucket, "all_reduce" + bucket,
                                                  "copy_back" + bucket, "wait_for_reduction" + bucket}));
}

// CUDA's queue holds 1,000 launches behind the gather; the host launches the others when the gather has ended.
TEST(GatherAlone, CopiesBeyondTheQueueAreLaunchedBehindTheGather) {
  const plan::Scenario scenario =
      scenario_from(kEightRanks, {"framework=deepspeed-2021", "cluster.gpus=2048", "training.global_batch=2048"});
  const program::Program p = lower::lower(scenario);
  EXPECT_EQ(violations(p, scenario.grid()), "");
  const program::Body& forward = p.roles.front().bodies[1];
  const std::string bucket = suffix_of(forward, "wait_for_queue");
  ASSERT_NE(bucket, "");
  const auto ops = sequence(forward, {"gather", "copy_out", "wait_for_queue", "copy_rest", "wait_for_gather"}, bucket);
  EXPECT_EQ(names(ops), (std::vector<std::string>{"gather" + bucket, "copy_out" + bucket, "wait_for_queue" + bucket,
                                                  "copy_rest" + bucket, "wait_for_gather" + bucket}));
  EXPECT_EQ(ops[1]->launches, 1000);
  EXPECT_EQ(ops[3]->launches, 1048);
  const auto elements = [](const program::Op* op) { return std::get<program::Elementwise>(op->shape).elements; };
  EXPECT_EQ(elements(ops[1]) + elements(ops[3]), std::get<program::Collective>(ops[0]->shape).elements);
}

TEST(GatherAlone, LaterDeepSpeedWaitsForNothing) {
  const program::Program p = lowered_alone("deepspeed");
  for (const program::Body& body : p.roles.front().bodies)
    for (const program::Op& op : body.ops) {
      EXPECT_FALSE(begins_with(op, "wait_for_gather") || begins_with(op, "wait_for_reduction")) << op.name;
      EXPECT_FALSE(begins_with(op, "own_slice") || begins_with(op, "copy_back")) << op.name;
    }
}

}  // namespace
}  // namespace rehearse
