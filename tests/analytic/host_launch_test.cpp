// Hosts that a step waits for: a model so small that its kernels end before the next one is launched takes as long as
// its launches do, on a Grace host by the device file's factor longer than on an x86 one.
#include <gtest/gtest.h>

#include "sim/run/prepared.h"
#include "tests/support/simulated.h"

namespace rehearse {
namespace {

constexpr char kSmall[] =
    "rehearse: 1\nframework: megatron-core\n"
    "model: {family: gpt, layers: 4, hidden: 64, heads: 4, vocab: 128, max_seq_len: 32}\n"
    "cluster: {gpus: 1}\ntraining: {global_batch: 1, seq_len: 32, precision: bf16}\n";

struct Step {
  Time launch, time;
};

Step step_on(const std::string& topology) {
  const plan::Scenario scenario = scenario_from(kSmall, {"cluster.topology=" + topology});
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  const run::Prepared prepared(scenario, options);
  const engine::Options engine = prepared.engine_options();
  return {engine.launch_cost, prepared.simulate(engine).step_time};
}

TEST(HostLaunch, GraceTakesLongerThanX86) {
  const Step x86 = step_on("dgx-h100"), grace = step_on("gb200-nvl72"), grace_ultra = step_on("gb300-nvl72");
  EXPECT_EQ(x86.launch, Time::from_us(8)) << "the profile's own";
  EXPECT_EQ(grace.launch, Time::from_us(22)) << "2.75 times as long (TransformerEngine#2053)";
  EXPECT_EQ(grace_ultra.launch, grace.launch) << "the same host";
  EXPECT_EQ(step_on("hgx-b200").launch, x86.launch);
  EXPECT_GT(x86.time, x86.launch * 50);
  EXPECT_NEAR(grace.time.seconds() / x86.time.seconds(), 2.75, 0.1) << "nothing but launches";
}

}  // namespace
}  // namespace rehearse
