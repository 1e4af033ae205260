// When ZeRO-3 shards are gathered: the later, the more of it compute waits for; what is computed and sent stays the
// same.
#include <gtest/gtest.h>

#include "sim/run/run.h"

namespace rehearse {
namespace {

result::Result simulated(const std::string& framework) {
  const std::string root = REHEARSE_SOURCE_DIR;
  run::Options options;
  options.data_root = root;
  options.record = false;
  return run::simulate_scenario(
      plan::read_scenario(root + "/scenarios/llama2-7b-8xa100.yaml",
                          {"framework=" + framework, "model.attention=flash2", "training.reduce_dtype=bf16",
                           "training.grad_dtype=bf16", "model.dropout=0", "training.global_batch=16"},
                          root),
      options);
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
}

}  // namespace
}  // namespace rehearse
