// Compressed gradients on the plain ring model (no latency), kernels free: what an all-gather of them gains over an
// all-reduce of fp32, and what a step can gain at most.
#include <gtest/gtest.h>

#include "tests/support/simulated.h"

namespace rehearse::compression_test {
namespace {

const std::string kMlp =
    "rehearse: 1\nmodel: {family: mlp, widths: [1024, 1024, 1024], loss: mse}\ncluster: {topology: dgx-a100, gpus: 2}\n"
    "framework: rehearse\nplan: {overlap_grad_reduce: false, bucket: 1GiB, gradient_chunk: 0}\n"
    "training: {global_batch: 16, precision: fp32, clip: 0}\n";

// Forward of the first layer takes `compute`.
double step_seconds(int ranks, const std::string& chain, Time compute = {}) {
  const GivenCosts costs(
      [&](const program::Op& op) { return ends_with(op.name, "linear0.forward") ? compute : Time(); });
  const plan::Scenario scenario =
      scenario_from(kMlp, {"cluster.gpus=" + std::to_string(ranks), "plan.gradient_compression=[" + chain + "]",
                           "plan.micro_batch=" + std::to_string(16 / ranks)});
  return simulated(scenario, costs, Communication::plain).step_time.seconds();
}

// A ring all-reduce moves 2 (N - 1) / N of 4 n bytes past each rank, an all-gather of N ranks' n codes (N - 1) n: a
// gain of 8 / N, a loss from 8 ranks on. The bucket's 8 bytes of scale are nothing beside 2 million codes.
TEST(GradientCompression, EightBitsByAllGatherGainEightOverTheRanks) {
  for (const int ranks : {2, 4, 8, 16})
    EXPECT_NEAR(step_seconds(ranks, "none") / step_seconds(ranks, "int8"), 8.0 / ranks, 1e-4) << ranks;
}

// Values and places of 1%: (N - 1) 0.08 n against 2 (N - 1) / N 4 n, a gain of 100 / N.
TEST(GradientCompression, TheLargestHundredthGainsAHundredOverTheRanks) {
  for (const int ranks : {2, 4, 16})
    EXPECT_NEAR(step_seconds(ranks, "none") / step_seconds(ranks, "top_k"), 100.0 / ranks, 0.01) << ranks;
  EXPECT_NEAR(step_seconds(16, "none") / step_seconds(16, "random_k"), 100, 0.01) << "an all-reduce, on any ranks";
}

// Two factors of each of two matrices of 1,024 x 1,024, and 2,048 biases, by the same algorithm as all 2,099,200.
TEST(GradientCompression, PowerSgdGainsWhatItsFactorsAreSmaller) {
  for (const int ranks : {2, 4, 16})
    EXPECT_NEAR(step_seconds(ranks, "none") / step_seconds(ranks, "power_sgd"), 2'099'200.0 / (2 * 2048 + 2048), 0.5)
        << ranks;
}

// 30% communication and 4 x fewer bytes: 1 / (0.7 + 0.3 / 4) = 1.290, whatever the bits say.
TEST(GradientCompression, AStepGainsNoMoreThanItsCommunication) {
  const double communication = step_seconds(2, "none");
  const Time compute = Time::from_ps(static_cast<std::int64_t>(communication * 1e12 * 7 / 3));
  const double gain = step_seconds(2, "none", compute) / step_seconds(2, "int8", compute);
  EXPECT_NEAR(gain, 1 / (0.7 + 0.3 / 4), 1e-4);
  EXPECT_LE(gain, 1.2904);
}

}  // namespace
}  // namespace rehearse::compression_test
