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

// What a deterministic backward adds up in, on an A100 gradients of queries in fp32 of 7 blocks for each of 16 heads,
// is there while that kernel runs, and decides whether the plan fits; not so where ranks have arenas and our own
// kernels.
TEST(KernelsOwnMemory, CountsWhileAKernelRuns) {
  const Folder folder;
  const std::string file = folder.write("attention.yaml",
                                        "rehearse: 1\n"
                                        "model: {family: gpt, layers: 2, hidden: 2048, heads: 16, vocab: 512, "
                                        "max_seq_len: 8192, attention: flash2}\n"
                                        "cluster: {topology: dgx-a100, gpus: 1}\n"
                                        "framework: megatron-core\n"
                                        "training: {global_batch: 1, seq_len: 8192, precision: bf16}\n");
  const auto with = [&](const std::vector<std::string>& assignments) {
    std::vector<std::string> words = {"simulate", file, "--json"};
    for (const std::string& assignment : assignments) words.insert(words.end(), {"--set", assignment});
    return run(words);
  };
  const auto stage = [](const Outcome& r) { return Json::parse(r.out)["memory"]["stages"][0]; };
  const Outcome usual = with({}), same_bits = with({"training.deterministic=true"});
  ASSERT_EQ(usual.status, 0) << usual.err;
  ASSERT_EQ(same_bits.status, 0) << same_bits.err;
  constexpr std::int64_t kSums = std::int64_t{7} * 4 * 16 * 8192 * 128;
  EXPECT_TRUE(has(stage(same_bits)["where"], "flash_backward")) << stage(same_bits);
  EXPECT_GE(stage(same_bits)["workspace"].get<std::int64_t>(), kSums);
  EXPECT_LT(stage(same_bits)["workspace"].get<std::int64_t>(), kSums + kSums / 2);
  EXPECT_LT(stage(usual)["workspace"].get<std::int64_t>(), kSums / 2);
  const std::int64_t free =
      Json::parse(usual.out)["memory"]["capacity_bytes"].get<std::int64_t>() - stage(usual)["peak"].get<std::int64_t>();
  const std::string headroom = fmt::format("cluster.headroom={}B", free);
  EXPECT_EQ(with({headroom}).status, 0);
  EXPECT_EQ(with({headroom, "training.deterministic=true"}).status, 3);
  EXPECT_EQ(stage(with({"framework=rehearse"})), stage(with({"framework=rehearse", "training.deterministic=true"})));
}

}  // namespace
}  // namespace rehearse::e2e
