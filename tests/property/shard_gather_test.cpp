// When ZeRO-3 shards are gathered: the later, the more of it compute waits for; what is computed and sent stays the
// same.
#include <gtest/gtest.h>

#include "sim/run/run.h"

namespace rehearse {
namespace {

result::Result simulated(const std::string& framework, const std::vector<std::string>& more = {}) {
  const std::string root = REHEARSE_SOURCE_DIR;
  run::Options options;
  options.data_root = root;
  options.record = false;
  std::vector<std::string> all = {"framework=" + framework,   "model.attention=flash2", "training.reduce_dtype=bf16",
                                  "training.grad_dtype=bf16", "model.dropout=0",        "training.global_batch=16"};
  all.insert(all.end(), more.begin(), more.end());
  return run::simulate_scenario(plan::read_scenario(root + "/scenarios/llama2-7b-8xa100.yaml", all, root), options);
}

TEST(ShardGather, TheLaterTheMoreIsExposed) {
  const auto exposed = [](const result::Result& r) {
    return r.breakdown_ps[static_cast<std::size_t>(result::Share::exposed_data)];
  };
  const result::Result ahead = simulated("torch-fsdp"), behind = simulated("llm-foundry");
  EXPECT_EQ(ahead.model_flops, behind.model_flops);
  EXPECT_EQ(ahead.links.bytes, behind.links.bytes);
  EXPECT_GT(exposed(behind), 2 * exposed(ahead));
  EXPECT_GT(exposed(simulated("deepspeed")), 2 * exposed(ahead));
  EXPECT_GT(exposed(simulated("accelerate")), 2 * exposed(ahead));
  EXPECT_GT(exposed(simulated("deepspeed-2021")), exposed(simulated("deepspeed")));
}

// Weights of a recomputed layer come a third time once backward uses them too far away.
TEST(ShardGather, ReleasedWeightsAreGatheredAgain) {
  const auto gathers = [](const std::string& distance) {
    std::int64_t count = 0;
    for (const auto& c : simulated("deepspeed", {"plan.recompute=full", "plan.reuse_distance=" + distance}).collectives)
      if (c.kind == "all_gather") count += c.count;
    return count;
  };
  EXPECT_EQ(gathers("0"), gathers("1000000000"));
  EXPECT_GT(gathers("1"), gathers("0"));
}

}  // namespace
}  // namespace rehearse
