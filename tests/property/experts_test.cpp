// What expert parallelism sends and computes: closed forms of the all-to-alls' sizes, of rows and their products, and
// of the ranks that hold the same.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "sim/account/program_facts.h"
#include "tests/support/lowered.h"

namespace rehearse::experts_property {
namespace {

constexpr std::int64_t kLayers = 3, kSeq = 32, kBatch = 2, kHidden = 32, kExperts = 8, kTop = 2, kWidth = 24;
const std::string kModel =
    "rehearse: 1\nmodel: {family: moe, layers: 3, hidden: 32, heads: 4, vocab: 250, max_seq_len: 32, experts: 8, "
    "experts_per_token: 2, expert_ffn_hidden: 24, capacity_factor: 1.25}\nplan: {micro_batch: 2}\n"
    "training: {global_batch: 8}\n";

struct Split {
  plan::Scenario scenario;
  program::Program program;
};
Split split(const std::vector<std::string>& assignments) {
  std::vector<std::string> all = {"cluster.topology=dgx-a100"};
  all.insert(all.end(), assignments.begin(), assignments.end());
  const auto scenario = scenario_from(kModel, all);
  return {scenario, lower::lower(scenario)};
}

// Those of rank `rank`'s group of that name; none if there is no such group.
std::vector<int> members(const Split& s, const std::string& name, int rank) {
  for (const program::Group& group : s.program.groups)
    if (group.name == name) return s.scenario.grid().members(rank, group.axes);
  return {};
}

// Elements of a body's collectives over groups of that name.
std::int64_t sent(const program::Program& program, const std::string& body, const std::string& group) {
  std::int64_t sum = 0;
  for (const program::Body& b : program.roles.front().bodies)
    for (const program::Op& op : b.ops)
      if (const auto* c = std::get_if<program::Collective>(&op.shape);
          c != nullptr && b.name == body && program.groups[static_cast<std::size_t>(c->group)].name == group)
        sum += c->elements;
  return sum;
}

// ceil(64 tokens x 2 of 8 experts x 1.25) = 20 rows an expert; each way there and back, and both again in backward.
TEST(ExpertParallel, TradesEveryExpertsRowsTwiceEachWay) {
  for (const int ranks : {2, 4}) {
    const std::string n = std::to_string(ranks);
    const Split data = split({"cluster.gpus=4", "plan.expert=" + n});
    const std::int64_t rows = kExperts * 20 * kHidden;
    EXPECT_EQ(sent(data.program, "forward", "expert"), kLayers * 2 * rows);
    EXPECT_EQ(sent(data.program, "backward.last", "expert"), kLayers * 2 * rows);
    const Split tensor = split({"cluster.gpus=8", "plan.expert=" + n, "plan.tensor=2", "plan.sequence_parallel=true"});
    const std::int64_t half = kExperts * 10 * kHidden;  // of half as many tokens
    EXPECT_EQ(sent(tensor.program, "forward", "expert"), kLayers * 2 * half);
    EXPECT_EQ(sent(tensor.program, "backward.last", "expert"), kLayers * 2 * half);
  }
  EXPECT_EQ(split({"cluster.gpus=4"}).program.groups.size(), 1U) << "nothing is traded with experts on one rank";
}

// Recomputed by ops nothing is traded again; recomputed whole, the way there and back is (torchtitan saves
// all_to_all_single). The router's, the up- and the down-projection are computed again.
TEST(ExpertParallel, RecomputedByOpsTradesNothingAgain) {
  const auto of = [](const std::string& recompute, const std::string& more = "model.capacity_factor=1.25") {
    return split({"cluster.gpus=4", "plan.expert=2", "plan.recompute=" + recompute, more});
  };
  const auto products = [](const Split& s) {
    std::int64_t n = 0;
    for (const program::Body& b : s.program.roles.front().bodies)
      for (const program::Op& op : b.ops)
        n += b.name == "backward.last" && op.name.find(".experts.") != std::string::npos &&
             op.name.find(".forward") != std::string::npos && op.name.find(".activation") == std::string::npos;
    return n;
  };
  for (const std::string capacity : {"model.capacity_factor=1.25", "model.capacity_factor=0"}) {
    const std::int64_t none = sent(of("none", capacity).program, "backward.last", "expert");
    EXPECT_EQ(sent(of("ops", capacity).program, "backward.last", "expert"), none);
    EXPECT_GT(sent(of("full", capacity).program, "backward.last", "expert"), none);
  }
  EXPECT_EQ(sent(of("full").program, "backward.last", "expert"),
            2 * sent(of("none").program, "backward.last", "expert"));
  EXPECT_EQ(products(of("ops")), kLayers * 3);
  EXPECT_EQ(products(of("none")), 0);
  EXPECT_EQ(products(of("ops", "plan.weigh_in_experts=true")), kLayers * 2) << "backward reads no rows that came back";
  const auto waits = [](const Split& s) {
    std::int64_t n = 0;
    for (const program::Body& b : s.program.roles.front().bodies)
      for (const program::Op& op : b.ops)
        n += b.name == "backward.last" && std::holds_alternative<program::HostSync>(op.shape);
    return n;
  };
  EXPECT_EQ(waits(of("full", "model.capacity_factor=0")) - waits(of("ops", "model.capacity_factor=0")), kLayers);
}

// Of all ranks' 64 tokens each: weights, choices and rows forward, and sums of rows back; in backward gradients of
// rows, and sums of the gradients of weights and rows. Over the expert group first, then over a tensor group that
// splits the sequence and the experts.
TEST(ExpertParallel, GathersAllRowsAndScattersTheSums) {
  for (const int ranks : {2, 4}) {
    const std::vector<std::string> gathers = {"plan.expert=" + std::to_string(ranks), "plan.expert_dispatch=all_gather",
                                              "model.capacity_factor=0", "cluster.gpus=8", "training.global_batch=16"};
    const auto with = [&](const std::vector<std::string>& more) {
      std::vector<std::string> all = gathers;
      all.insert(all.end(), more.begin(), more.end());
      return split(all);
    };
    const std::int64_t all = kLayers * ranks * kBatch * kSeq;
    const Split data = with({});
    EXPECT_EQ(sent(data.program, "forward", "expert"), all * 2 * (kTop + kHidden));
    EXPECT_EQ(sent(data.program, "backward.last", "expert"), all * (2 * kHidden + kTop));
    const Split tensor = with({"plan.tensor=2", "plan.sequence_parallel=true"});
    EXPECT_EQ(sent(tensor.program, "forward", "expert"), all / 2 * 2 * (kTop + kHidden));
    EXPECT_EQ(sent(tensor.program, "backward.last", "expert"), all / 2 * (2 * kHidden + kTop));
    const Split traded =
        split({gathers[0], gathers[2], gathers[3], gathers[4], "plan.tensor=2", "plan.sequence_parallel=true"});
    // Attention's gathers are the same; all-to-all gathers the counts, and the k rows of a token.
    const std::int64_t attention = sent(traded.program, "forward", "tensor") -
                                   kLayers * (2 * ranks * kExperts + 2 * kBatch * kSeq * kTop * kHidden);
    EXPECT_EQ(sent(tensor.program, "forward", "tensor") - attention, all * 2 * (kTop + kHidden));
    const Split whole = with({"plan.tensor=2", "plan.sequence_parallel=true", "plan.expert_tensor=1"});
    EXPECT_EQ(sent(whole.program, "forward", "expert"), all / 2 * 2 * (kTop + kHidden));
  }
}

TEST(ExpertParallel, ComputesTheRowsOfTheCapacity) {
  const auto flops = [](const std::vector<std::string>& assignments) {
    const Split s = split(assignments);
    return account::hardware_flops(s.program, s.scenario.grid());
  };
  const double one = flops({"cluster.gpus=1", "model.capacity_factor=1"});
  for (const char* capacity : {"1", "1.25", "2"}) {
    const std::string factor = std::string("model.capacity_factor=") + capacity;
    // A multiply-add is 2, three products a row, each once forward and twice backward; 8 sequences.
    constexpr double kEven = 1.0 * kBatch * kSeq * kTop / kExperts, kPasses = 8.0 / kBatch * kLayers * kExperts;
    const double rows = kPasses * std::ceil(kEven * std::stod(capacity)), least = kPasses * kEven;
    const double more = (rows - least) * 3 * 3 * 2 * kHidden * kWidth;
    EXPECT_NEAR((flops({"cluster.gpus=1", factor}) - one) / one, more / one, 1e-12) << capacity;
    for (const char* expert : {"plan.expert=1", "plan.expert=2", "plan.expert=4"})
      EXPECT_NEAR(flops({"cluster.gpus=4", factor, expert}), flops({"cluster.gpus=1", factor}), 1e-9 * one) << expert;
  }
  EXPECT_NEAR(flops({"cluster.gpus=1", "model.capacity_factor=0"}), one, 1e-9 * one) << "even loads have no padding";
}

// Each weight is held, and reduced, by as many ranks as hold the same.
TEST(ExpertParallel, ExpertsAreReducedOverTheRanksThatHoldTheSame) {
  const Split s = split({"cluster.gpus=8", "plan.expert=4", "plan.zero=1", "training.global_batch=16"});
  const std::int64_t experts = kLayers * kExperts / 4 * 3 * kHidden * kWidth;
  const std::int64_t all = model::parameter_count(s.scenario.model, 256);
  EXPECT_EQ(sent(s.program, "backward.last", "expert_data"), experts);
  const std::int64_t rest = sent(s.program, "backward.last", "data");
  EXPECT_GE(rest, model::parameter_count(s.scenario.model) - 4 * experts);
  EXPECT_LE(rest, all - 4 * experts + 64) << "but for padding";
  EXPECT_EQ(members(s, "expert", 5), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(members(s, "expert_data", 5), (std::vector<int>{1, 5}));
}

// As Megatron-Core arranges them: the ranks of a sequence first, then replicas.
TEST(ExpertParallel, TheRanksOfASequenceComeFirst) {
  const Split s = split({"cluster.gpus=8", "plan.expert=4", "plan.context=2"});
  EXPECT_EQ(members(s, "expert", 0), (std::vector<int>{0, 1, 2, 3}));
}

// The first op of rank 0 whose name ends so, of a body.
program::Op named(const Split& s, const std::string& body, const std::string& end) {
  for (const program::Body& b : s.program.roles.front().bodies)
    for (const program::Op& op : b.ops)
      if (b.name == body && op.name.ends_with(end)) return op;
  ADD_FAILURE() << body << " has no " << end;
  return {};
}

// One kernel for all experts' products, in which the activation and the casts of what it and its gradient give are:
// nothing is launched for these, and only the copies, and backward the activation's inputs, move.
TEST(ExpertParallel, FusedExpertsHaveActivationAndCastsInTheirProducts) {
  const auto of = [](const std::string& fused) {
    return split({"cluster.topology=hgx-b200", "cluster.gpus=2", "plan.expert=2", "framework=nemo",
                  "model.expert_ffn_hidden=32", "training.precision=fp8", "training.fp8_recipe=mxfp8",
                  "plan.fused_experts=" + fused});
  };
  const Split fused = of("true"), apart = of("false");
  const std::string forward = "forward", backward = "backward.last";
  for (const bool back : {false, true}) {
    const std::string body = back ? backward : forward;
    const std::string activation = back ? "activation.backward" : "experts.activation.forward";
    const program::Op inside = named(fused, body, activation);
    EXPECT_TRUE(inside.fused);
    EXPECT_EQ(inside.launches, 0);
    EXPECT_EQ(inside.passes.written, 0);
    EXPECT_FALSE(named(apart, body, activation).fused);
    // Rows of 2 x 20 a expert of one rank, 4 experts: both halves, in 16 bits.
    EXPECT_EQ(inside.passes.read, back ? 4 * 2 * 20 * 2 * 32 * 2 : 0);
    const std::string cast = back ? "up.out.fp8_cast_transpose" : "experts.activation.fp8_cast_transpose";
    const program::Op copies = named(fused, body, cast);
    EXPECT_TRUE(copies.fused);
    EXPECT_EQ(copies.passes.read, 0);
    const std::int64_t elements = 4 * 2 * 20 * 32 * (back ? 2 : 1);
    EXPECT_EQ(copies.passes.written, 2 * (elements + elements / 32));  // by rows and by columns, a scale for each 32
    EXPECT_FALSE(named(apart, body, cast).fused);
    const std::string other = back ? "down.out.fp8_cast_transpose" : "sorted.1.fp8_cast_transpose";
    EXPECT_FALSE(named(fused, body, other).fused) << "what comes from elsewhere is cast by a kernel";
    for (const char* product : {"up", "down"}) {
      const std::string name = std::string("experts.") + product + (back ? ".backward_weight" : ".forward");
      const program::Op one = named(fused, body, name), each = named(apart, body, name);
      EXPECT_FALSE(std::get<program::GroupedGemm>(one.shape).each);
      EXPECT_TRUE(std::get<program::GroupedGemm>(each.shape).each);
      EXPECT_EQ(each.launches, one.launches * 4) << "own experts";
    }
  }
}

// Tokens that are forwarded are put in the order of experts once, rows of an all-to-all twice.
TEST(ExpertParallel, ForwardedRowsAreOrderedOnce) {
  const auto of = [](const std::string& dispatch, const std::string& framework) {
    return split({"cluster.topology=dgx-h100", "cluster.gpus=16", "plan.expert=4", "plan.expert_dispatch=" + dispatch,
                  "training.global_batch=32", "framework=" + framework});
  };
  for (const std::string body : {"forward", "backward.last"}) {
    EXPECT_TRUE(named(of("forwarding", "megatron-core"), body, ".sort").fused);
    EXPECT_FALSE(named(of("all_to_all", "megatron-core"), body, ".sort").fused);
    EXPECT_FALSE(named(of("forwarding", "rehearse"), body, ".sort").fused);
    EXPECT_FALSE(
        named(of("forwarding", "megatron-core"), body, body == "forward" ? "permute" : "permute.backward").fused);
  }
}

}  // namespace
}  // namespace rehearse::experts_property
