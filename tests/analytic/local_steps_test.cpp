// Local steps on the plain ring model (no latency), against closed forms: a step of compute C and gradients' all-reduce
// A takes C + A, in rounds of H local steps C + A / H; what stays within a worker is reduced in every step.
#include <gtest/gtest.h>

#include "tests/support/simulated.h"

namespace rehearse::local_steps_test {
namespace {

const std::string kMlp =
    "rehearse: 1\nmodel: {family: mlp, widths: [1024, 1024, 1024], loss: mse}\ncluster: {topology: dgx-a100, gpus: "
    "16}\n"
    "framework: rehearse\nplan: {overlap_grad_reduce: false, bucket: 1GiB}\n"
    "training: {global_batch: 16, precision: fp32, clip: 0}\n";
const Time kCompute = Time::from_ps(3'000'000'000);

// Forward of the first layer takes kCompute, the outer kernels `outer`, nothing else any time.
engine::Outcome run(std::vector<std::string> plan, int steps = 2, Time outer = {}, Time launch = {}) {
  const GivenCosts costs([&](const program::Op& op) {
    if (std::holds_alternative<program::OuterStep>(op.shape)) return outer;
    return ends_with(op.name, "linear0.forward") ? kCompute : Time();
  });
  return simulated(scenario_from(kMlp, std::move(plan)), costs, Communication::plain, {}, steps, launch);
}

std::string steps_of(int steps) {
  return "plan.local_steps=" + std::to_string(steps);
}

TEST(LocalSteps, TakeOneReductionARound) {
  const engine::Outcome together = run({});
  const Time reduction = together.step_time - kCompute;
  ASSERT_GT(reduction, Time());
  for (const char* outer : {"average", "nesterov"})
    for (const int h : {1, 2, 8, 100}) {
      const engine::Outcome apart = run({steps_of(h), std::string("plan.outer_optimizer=") + outer}, h + 1);
      EXPECT_EQ(apart.round, Time::from_ps(kCompute.ps() * h) + reduction) << outer << h;
      EXPECT_EQ(apart.step_time.ps(), apart.round.ps() / h);
      EXPECT_EQ(apart.links.bytes, together.links.bytes / h) << "bytes a step";
      std::int64_t shares = 0;
      for (const std::int64_t share : apart.breakdown_ps) shares += share;
      EXPECT_EQ(shares, apart.step_time.ps());
      EXPECT_EQ(apart.step_ends[static_cast<std::size_t>(h)] - apart.step_ends[static_cast<std::size_t>(h) - 1],
                kCompute + reduction)
          << "the last step of a round is the outer one";
    }
}

// More rounds than one are the same as one: nothing is left over from a round.
TEST(LocalSteps, RoundsAreAlike) {
  EXPECT_EQ(run({steps_of(3)}, 4).step_time, run({steps_of(3)}, 10).step_time);
}

// Within nodes of eight over NVSwitch in each step, and over the network once a round.
TEST(LocalSteps, WithinAWorkerEveryStepReduces) {
  const Time within = run({"cluster.gpus=8", "training.global_batch=8"}).step_time - kCompute;
  const Time across = run({steps_of(1), "plan.local_group=node"}).step_time - kCompute - within;
  ASSERT_GT(within, Time());
  ASSERT_GT(across, within) << "the network is slower";
  EXPECT_EQ(run({steps_of(5), "plan.local_group=node"}, 6).round, Time::from_ps(5 * (kCompute + within).ps()) + across);
}

// What is passed over is not launched: where hosts hold the device back a step is as long as it has launches, and the
// outer body's are there once a round. Without reductions, which a host would be ahead of.
TEST(LocalSteps, LaunchNothingForWhatIsPassedOver) {
  const GivenCosts free([](const program::Op&) { return Time(); });
  const Time launch = Time::from_ps(1'000'000);
  const auto steps = [&](const std::vector<std::string>& plan, int count) {
    return simulated(scenario_from(kMlp, plan), free, Communication::free, {}, count, launch);
  };
  const engine::Outcome apart = steps({steps_of(4)}, 5);
  const program::Program program = lower::lower(scenario_from(kMlp, {steps_of(4)}));
  const program::Role& role = program.roles.front();
  std::int64_t inner = 0, outer = 0;
  for (const program::Slot& slot : role.slots) {
    const program::Body& body = role.bodies[static_cast<std::size_t>(slot.body)];
    for (const program::Op& op : body.ops) (body.every == 1 ? inner : outer) += op.launches;
  }
  ASSERT_EQ(outer, 2) << "an all-reduce and the mean";
  EXPECT_EQ(apart.round, Time::from_ps((4 * inner + outer) * launch.ps()));
}

}  // namespace
}  // namespace rehearse::local_steps_test
