// cluster.headroom as a user meets it: what it makes of whether a plan fits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

using Json = nlohmann::json;

// A plan that fills memory to the byte fits; with one byte of headroom more than is free it does not, and says so.
TEST(Headroom, DecidesAtTheByteWhetherAPlanFits) {
  const Outcome all = run({"simulate", "llama2-7b-8xa100", "--json"});
  ASSERT_EQ(all.status, 0) << all.err;
  const Json memory = Json::parse(all.out)["memory"];
  EXPECT_EQ(memory["headroom_bytes"], 0);
  const std::int64_t free =
      memory["capacity_bytes"].get<std::int64_t>() - memory["stages"][0]["peak"].get<std::int64_t>();
  const auto with = [&](std::int64_t bytes) {
    return run({"simulate", "llama2-7b-8xa100", "--set", fmt::format("cluster.headroom={}B", bytes), "--json"});
  };
  const Outcome fits = with(free), not_quite = with(free + 1);
  EXPECT_EQ(fits.status, 0) << fits.err;
  EXPECT_EQ(Json::parse(fits.out)["memory"]["headroom_bytes"], free);
  EXPECT_EQ(Json::parse(fits.out)["step_time_s"], Json::parse(all.out)["step_time_s"]);
  EXPECT_EQ(not_quite.status, 3);
  EXPECT_TRUE(has(not_quite.err, "of cluster.headroom)")) << not_quite.err;
  EXPECT_TRUE(has(not_quite.err, "1 B too much")) << not_quite.err;
  const Outcome share = run({"simulate", "llama2-7b-8xa100", "--set", "cluster.headroom=5%", "--json"});
  EXPECT_EQ(Json::parse(share.out)["memory"]["headroom_bytes"], 4294967296);  // 5% of 80 GiB: 4 GiB
  const Outcome wrong = run({"simulate", "llama2-7b-8xa100", "--set", "cluster.headroom=100%"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(has(wrong.err, "or a percentage below 100%, found '100%'")) << wrong.err;
}

}  // namespace
}  // namespace rehearse::e2e
