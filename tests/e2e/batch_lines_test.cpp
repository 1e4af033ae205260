// The effective batch, said by every command that knows one.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace rehearse::e2e {
namespace {

// Lines that were wrapped in one piece again.
std::string joined(const std::string& text) {
  std::string out;
  for (const char c : text)
    if ((c != ' ' && c != '\n') || (!out.empty() && out.back() != ' ')) out += c == '\n' ? ' ' : c;
  return out;
}

std::string said(const std::vector<std::string>& words) {
  const Outcome r = run(words);
  EXPECT_EQ(r.status, 0) << r.err;
  return joined(r.out + r.err);
}

TEST(BatchLines, OfReinforcementLearning) {
  const std::string text = said({"simulate", "llama3-8b-grpo-16xh100"});
  EXPECT_TRUE(has(text, "batch: ")) << text;
  EXPECT_TRUE(has(text, " sequences a step = ")) << text;
  EXPECT_TRUE(has(text, " prompts x ")) << text;
}

TEST(BatchLines, OfClustersToChooseFrom) {
  const std::string text = said({"plan", "gpu/gpt2", "--clusters", "dgx-a100", "--gpus", "8", "--budget", "10"});
  EXPECT_TRUE(has(text, "batch: ")) << text;
  EXPECT_TRUE(has(text, "= micro-batch ")) << text;
}

TEST(BatchLines, OfLaunchFiles) {
  const Folder folder;
  const std::string written = said({"export", "gpt3-175b-tp8-pp16", "--to", "megatron", "-o", folder / "pretrain.sh"});
  EXPECT_TRUE(has(written, "rehearse: batch: 1,536 sequences = micro-batch 1 x 192 micro-batches x data 8;"))
      << written;
  const std::string taken = said({"import", folder / "pretrain.sh", "--cluster", "dgx-a100", "-o", folder / "my.yaml"});
  EXPECT_TRUE(has(taken, "rehearse: batch: 1,536 sequences = ")) << taken;
}

TEST(BatchLines, OfAnEstimateThatIsGivenOne) {
  const std::string text = said({"estimate", "llama3-70b", "--tokens", "15T", "--global-batch", "2048"});
  EXPECT_TRUE(has(text, "2,048 sequences; 16,777,216 tokens a step, 894,070 steps")) << text;
  const Outcome bare = run({"estimate", "175B", "--global-batch", "8"});
  EXPECT_EQ(bare.status, 2);
}

TEST(BatchLines, OfJobsInAQueue) {
  const Folder folder;
  const std::string file = folder.write("queue.yaml",
                                        "rehearse_queue: 1\nname: two\ncluster: {topology: dgx-a100, hosts: 1}\n"
                                        "jobs:\n  - {name: small, scenario: llama2-7b-8xa100, steps: 10, gpus: 8}\n");
  const Outcome r = run({"queue", file});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(joined(r.out), "small: batch: ")) << r.out;
}

TEST(BatchLines, OfMeasurementsThatAreValidated) {
  const std::string text = said({"validate", "--filter", "korthikanti-22b"});
  EXPECT_TRUE(has(text, "scenario batch of measured")) << text;
}

}  // namespace
}  // namespace rehearse::e2e
