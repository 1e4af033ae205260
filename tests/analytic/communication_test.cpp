// Communication against closed forms, on the plain ring model (no latency): data-parallel time, what links matter to
// whom.
#include <gtest/gtest.h>

#include "tests/support/simulated.h"

namespace rehearse {
namespace {

const std::string kGptLayer =
    "rehearse: 1\nmodel: {family: gpt, layers: 8, hidden: 1024, heads: 16, vocab: 1024, max_seq_len: 512}\n";

Bandwidth capacity(cluster::ResourceKind kind) {
  const auto cluster = cluster::build_cluster("dgx-a100", 16, {}, 0, REHEARSE_SOURCE_DIR);
  for (const auto& r : cluster->resources())
    if (r.kind == kind) return r.capacity;
  return {};
}

double step_seconds(const std::vector<std::string>& assignments, const cost::CostModel& costs,
                    const Machine& machine = {}) {
  return simulated(scenario_from(kGptLayer, assignments), costs, Communication::plain, machine).step_time.seconds();
}

// HDR InfiniBand at half its rate.
const Machine kHalfNic{"dgx-a100", {{"nic.bandwidth", "100Gbps"}}};

TEST(DataParallel, AllReduceTakesTwiceTheTensorLessOneNthOverTheBandwidth) {
  const GivenCosts nothing([](const program::Op&) { return Time(); });
  const std::vector<std::string> plan = {"training.clip=0", "training.precision=fp32", "plan.bucket=1GiB"};
  for (const int n : {2, 3, 4, 8}) {
    auto assignments = plan;
    assignments.insert(assignments.end(),
                       {"cluster.gpus=" + std::to_string(n), "training.global_batch=" + std::to_string(n)});
    const double bytes = 4.0 * static_cast<double>(model::parameter_count(scenario_from(kGptLayer).model));
    const double expected =
        2.0 * (n - 1) / n * bytes / static_cast<double>(capacity(cluster::ResourceKind::nvlink).per_s());
    EXPECT_NEAR(step_seconds(assignments, nothing), expected, expected * 1e-6) << n << " ranks";
  }
}

// Eight layers of 1 + 2 ms, so that backward is longer than the reductions it may hide; four ranks of one node.
engine::Outcome four_ranks(std::vector<std::string> more) {
  more.insert(more.end(), {"cluster.gpus=4", "training.global_batch=4", "training.clip=0", "plan.bucket=1MiB"});
  return simulated(scenario_from(kGptLayer, more), block_costs(Time::from_us(1000), Time::from_us(2000)),
                   Communication::plain, {}, 2);
}

// Ring time of all parameters once over (gather or scatter), at so many bytes each.
double pass_seconds(double bytes_each) {
  const double bytes = bytes_each * static_cast<double>(model::parameter_count(scenario_from(kGptLayer).model));
  return 3.0 / 4 * bytes / static_cast<double>(capacity(cluster::ResourceKind::nvlink).per_s());
}

TEST(DataParallel, WithoutOverlapTheReductionsFollowBackwardHoweverSmallTheBuckets) {
  const double compute = 8 * 3e-3, reduction = 2 * pass_seconds(4);
  EXPECT_NEAR(four_ranks({"plan.overlap_grad_reduce=false"}).step_time.seconds(), compute + reduction, 1e-6);
  EXPECT_LT(four_ranks({}).step_time.seconds(), compute + reduction / 4) << "most of it is during backward";
}

TEST(DataParallel, ReducingInHalfTheBytesIsNoSlower) {
  EXPECT_LE(four_ranks({"training.reduce_dtype=bf16"}).step_time, four_ranks({}).step_time);
}

TEST(DataParallel, ParametersGatheredBesideTheNextForwardAreNotExposed) {
  const auto outcome = four_ranks({"plan.zero=1"});
  EXPECT_LT(share(outcome, result::Share::exposed_data) * outcome.step_time.seconds(), pass_seconds(2) / 2);
  const auto waiting = four_ranks({"plan.zero=1", "plan.overlap_param_gather=false"});
  EXPECT_GT(share(waiting, result::Share::exposed_data) * waiting.step_time.seconds(), pass_seconds(2) * 0.9);
}

// Eight layers with two column-parallel products each, and the head: the reduction of each one's input gradient hides
// behind the product of its weights' gradient, which is the only kernel that takes time, or stands behind it.
TEST(TensorParallel, WithoutOverlapEachInputGradientsReductionFollowsTheWeightGradient) {
  const GivenCosts weights([](const program::Op& op) {
    const auto* gemm = std::get_if<program::Gemm>(&op.shape);
    return gemm != nullptr && gemm->transpose_a ? Time::from_us(500) : Time();
  });
  const auto step = [&](const char* overlap) {
    return step_seconds(
        {"cluster.gpus=2", "plan.tensor=2", "training.global_batch=1", "training.seq_len=512",
         "training.precision=bf16", "training.clip=0", std::string("plan.overlap_tensor_backward=") + overlap},
        weights);
  };
  const double bytes = 2.0 * 512 * 1024;
  const double reduction = bytes / static_cast<double>(capacity(cluster::ResourceKind::nvlink).per_s());  // 2 (n-1)/n
  EXPECT_NEAR(step("false") - step("true"), (8 * 2 + 1) * reduction, 1e-9);
}

TEST(Links, HalvingTheNicSlowsOnlyWhatCrossesNodes) {
  const auto costs = block_costs(Time::from_us(10), Time::from_us(20));
  const std::vector<std::string> inside = {"cluster.gpus=8", "plan.tensor=8", "training.global_batch=4"};
  EXPECT_DOUBLE_EQ(step_seconds(inside, costs), step_seconds(inside, costs, kHalfNic));
  const std::vector<std::string> across = {"cluster.gpus=16", "plan.tensor=8", "training.global_batch=4"};
  EXPECT_GT(step_seconds(across, costs, kHalfNic), 1.2 * step_seconds(across, costs));
}

TEST(Links, TensorParallelMovedAcrossNodesSlowsByTheLinkRatioWhenBoundByIt) {
  const GivenCosts nothing([](const program::Op&) { return Time(); });
  // Tensor pairs: neighbours in a node, or (data fastest) eight apart, on the same rail of two nodes.
  const std::vector<std::string> plan = {"cluster.gpus=16",         "plan.tensor=2",
                                         "training.global_batch=8", "training.precision=bf16",
                                         "training.clip=0",         "plan.overlap_grad_reduce=false"};
  auto tensor_only = [&](const std::string& order) {
    auto assignments = plan;
    assignments.push_back("plan.rank_order=[" + order + "]");
    const auto outcome = simulated(scenario_from(kGptLayer, assignments), nothing, Communication::plain);
    return static_cast<double>(outcome.breakdown_ps[static_cast<std::size_t>(result::Share::exposed_tensor)]);
  };
  const double inside = tensor_only("tensor, context, expert, data, pipeline");
  const double across = tensor_only("data, tensor, context, expert, pipeline");
  const double ratio = static_cast<double>(capacity(cluster::ResourceKind::nvlink).per_s()) /
                       static_cast<double>(capacity(cluster::ResourceKind::nic).per_s());
  EXPECT_NEAR(across / inside, ratio, ratio * 1e-3);
}

}  // namespace
}  // namespace rehearse
