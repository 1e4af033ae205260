// Parameter servers' kernels are measured as a simulation asks for them: by shape, type and threads.
#include "calibrate/server_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "sim/account/server_kernels.h"
#include "tests/support/lowered.h"

namespace rehearse::calibrate {
namespace {

// Widths 64 and 32 over two servers: 64 x 32 + 0 and 32 elements.
std::set<std::string> measured(const std::vector<std::string>& plan) {
  const plan::Scenario s = scenario_from(
      "rehearse: 1\nmodel: {family: mlp, widths: [64, 32], loss: mse}\ncluster: {topology: local, gpus: 2}\n"
      "plan: {micro_batch: 2}\ntraining: {global_batch: 4, precision: fp32, optimizer: adamw, clip: 0}\n",
      plan);
  KernelTimes times;
  const Budget budget(2, [] {});
  measure_servers({make_target(s)}, 0.2, budget, times);
  std::set<std::string> keys;
  for (const cost::CalibratedKernel& k : times.all(cost::Origin::program)) {
    EXPECT_GT(k.mean, 0) << k.shape;
    keys.insert(k.kind + " " + k.shape);
  }
  return keys;
}

TEST(ServerTimes, AreOfWhatServersDo) {
  EXPECT_TRUE(measured({}).empty()) << "no plan has servers";
  const std::set<std::string> free = measured({"plan.servers=2", "plan.consistency=asynchronous"}),
                              together = measured({"plan.servers=2"});
  EXPECT_EQ(free.size(), 2U) << "the step of either server";
  EXPECT_EQ(together.size(), 4U) << "and the sum of gradients";
  EXPECT_TRUE(std::includes(together.begin(), together.end(), free.begin(), free.end()));
  const std::set<std::string> many = measured({"plan.servers=3"});
  EXPECT_EQ(many, together) << "a server without elements does nothing";
}

}  // namespace
}  // namespace rehearse::calibrate
