// States on the host as a user meets them: the shipped scenario, a host that is too small, performed ranks.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

constexpr const char* kTenBillion = "gpt-10b-offload-1xv100";

TEST(Offload, TheShippedScenarioFitsWithItAlone) {
  const Outcome with = run({"simulate", kTenBillion, "--json"});
  ASSERT_EQ(with.status, 0) << with.err;
  const Json memory = Json::parse(with.out)["memory"];
  EXPECT_EQ(memory["fits"], true);
  EXPECT_EQ(memory["stages"][0]["optimizer"], 8) << "the loss scale";
  // fp32 copy and averages, gradients and values in fp16 of 10.28 billion parameters: 16 bytes each, and a few scalars.
  const double parameters = 10.28e9;
  EXPECT_NEAR(memory["host"]["node_bytes"].get<double>() / (16 * parameters), 1, 0.01);
  EXPECT_EQ(memory["host"]["node_bytes"], memory["stages"][0]["host"]);
  EXPECT_EQ(memory["host"]["capacity_bytes"], 1'500'000'000'000);
  EXPECT_EQ(memory["host"]["fits"], true);
  const Outcome shown = run({"simulate", kTenBillion});
  EXPECT_TRUE(has(shown.out, "host: 164.5 GB a node of 1.5 TB, fits")) << shown.out;
  const Outcome without = run({"simulate", kTenBillion, "--json", "--set", "plan.offload_optimizer=false"});
  EXPECT_EQ(without.status, 3) << without.err;
  EXPECT_FALSE(Json::parse(without.out)["memory"].contains("host"));
}

TEST(Offload, AHostThatIsTooSmallIsNamed) {
  const Outcome r = run({"simulate", kTenBillion, "--set", "cluster.overrides.host_memory.size=100GB"});
  EXPECT_EQ(r.status, 3);
  EXPECT_TRUE(has(r.err,
                  "the ranks of a node keep 164.5 GB in the memory of its host, which has 100 GB, 64.47 GB too "
                  "much"))
      << r.err;
  EXPECT_TRUE(has(r.out, "host: 164.5 GB a node of 100 GB, DOES NOT FIT")) << r.out;
}

TEST(Offload, IsPerformedOnCpusAndRefusedOnGpus) {
  const Folder folder;
  const std::vector<std::string> keys = {"--set", "plan.offload_optimizer=true", "--set", "plan.zero=2"};
  std::vector<std::string> all = {"execute", "gpt-tiny-ddp", "--steps", "3", "-o", folder / "out"};
  all.insert(all.end(), keys.begin(), keys.end());
  const Outcome r = run(all);
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "+0.00% of what was planned")) << r.out;
  std::vector<std::string> plain = {"execute", "gpt-tiny-ddp",   "--steps", "3",
                                    "-o",      folder / "plain", "--set",   "plan.zero=2"};
  ASSERT_EQ(run(plain).status, 0);
  EXPECT_EQ(Json::parse(read(folder / "out/result.json"))["loss"],
            Json::parse(read(folder / "plain/result.json"))["loss"]);
  all.insert(all.end(), {"--device", "cuda"});
  const Outcome refused = run(all);
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(has(refused.err, "ranks on GPUs keep nothing in the host's memory yet")) << refused.err;
}

}  // namespace
}  // namespace rehearse::e2e
