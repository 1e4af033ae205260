// Every shipped scenario with ranks that are alike simulated once and with every rank simulated: the same bytes of
// result.json, but for `engine`. Those that take minutes with every rank are there by
//
//   REHEARSE_FOLD_ALL=1 build/tests/test_golden --gtest_filter='*Folding*'
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "sim/run/reinforcement/reinforcement.h"
#include "sim/run/run.h"
#include "tests/support/without_engine.h"

namespace rehearse {
namespace {

const std::string kRoot = REHEARSE_SOURCE_DIR;

// With every rank: 3 s to minutes on a usual machine.
const std::set<std::string> kLong = {"deepseek-v3-2048xh800",
                                     "deepseek-v3-fp8-2048xh800",
                                     "gpt3-175b-1024xa100",
                                     "gpt3-175b-16384xa100-failures",
                                     "gpt3-175b-failures",
                                     "gpt3-175b-gpipe",
                                     "gpt3-175b-gpipe-recompute",
                                     "gpt3-175b-tp8-pp16",
                                     "gpt3-175b-zero3-tp2",
                                     "llama3-405b-54-days",
                                     "llama3-405b-context-16384xh100",
                                     "palm-540b-3072xtpuv4",
                                     "llama3-70b-ppo-128xh100",
                                     "qwen3-32b-grpo-64xh100",
                                     "published/korthikanti-530b-full",
                                     "published/korthikanti-530b-selective",
                                     "published/korthikanti-1t-full",
                                     "published/korthikanti-1t-selective",
                                     "published/megatron-sc21-145b",
                                     "published/megatron-sc21-1t",
                                     "published/megatron-sc21-530b",
                                     "published/megatron-sc21-76b"};

std::vector<std::string> shipped() {
  const bool all = std::getenv("REHEARSE_FOLD_ALL") != nullptr;
  std::vector<std::string> names;
  for (const char* folder : {"", "peers/", "published/"})
    for (const auto& entry : std::filesystem::directory_iterator(kRoot + "/scenarios/" + folder)) {
      const std::string name = folder + entry.path().stem().string();
      if (entry.path().extension() == ".yaml" && entry.path().stem().extension() != ".device" &&
          (all || !kLong.contains(name)))
        names.push_back(name);
    }
  std::sort(names.begin(), names.end());
  return names;
}

void expect_the_same_bytes(const std::string& name) {
  const std::string file = kRoot + "/scenarios/" + name + ".yaml";
  const bool local = plan::read_scenario(file, {}, kRoot).cluster.topology == "local";
  std::vector<std::string> assignments;
  if (local) assignments.push_back("costs.calibration=" + kRoot + "/tests/fuzz/corpus/calibration/small.json");
  const plan::Scenario scenario = plan::read_scenario(file, assignments, kRoot);
  run::Options options;
  options.data_root = kRoot;
  options.record = false;
  const auto simulated = [&](bool fold) {
    options.fold = fold;
    return scenario.reinforcement.given ? run::simulate_reinforcement(scenario, assignments, options)
                                        : run::simulate_scenario(scenario, options);
  };
  const result::Result folded = simulated(true), every_rank = simulated(false);
  EXPECT_LE(folded.ranks_simulated, every_rank.ranks_simulated);
  EXPECT_EQ(without_engine(folded), without_engine(every_rank));
}

class Folding : public testing::TestWithParam<std::string> {};
TEST_P(Folding, EveryRankGivesTheSameBytes) {
  expect_the_same_bytes(GetParam());
}
std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Shipped, Folding, testing::ValuesIn(shipped()), name_of);

TEST(FoldingList, HasShippedScenariosOnly) {
  for (const std::string& name : kLong)
    EXPECT_TRUE(std::filesystem::exists(kRoot + "/scenarios/" + name + ".yaml")) << name;
}

}  // namespace
}  // namespace rehearse
