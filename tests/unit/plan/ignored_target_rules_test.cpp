// What training.ignored_token cannot be with: each problem at its place, with the rule.
#include <gtest/gtest.h>

#include "tests/unit/plan/scenario_text.h"

namespace rehearse::plan {
namespace {

std::string problem(const std::string& model, const std::string& training, const std::string& rest = "") {
  const std::vector<std::string> found =
      problems("rehearse: 1\nmodel: {layers: 4, hidden: 96, heads: 12, ffn_hidden: 64, vocab: 100, max_seq_len: 64, " +
               model + "}\ntraining: {" + training + "}\n" + rest);
  return found.size() == 1 ? found.front() : testing::PrintToString(found);
}

TEST(IgnoredTargetRules, SayWhatHasNoCount) {
  const auto expect = [](const std::string& problem, const std::string& part) {
    EXPECT_NE(problem.find("training.ignored_token: "), std::string::npos) << problem;
    EXPECT_NE(problem.find(part), std::string::npos) << problem;
  };
  expect(problem("family: llama", "ignored_token: 100"), "100 is no token of the vocabulary, which has 100");
  expect(problem("family: gpt", "ignored_token: 0, precision: fp16"), "divided by the loss scale");
  expect(problem("family: llama, mtp_depth: 1", "ignored_token: 0"), "multi-token prediction have other targets");
  expect(problem("family: moe, experts: 4, experts_per_token: 2, expert_ffn_hidden: 32, aux_loss: 0.01",
                 "ignored_token: 0"),
         "the auxiliary loss of routers counts every token");
  expect(problem("family: bert", "ignored_token: 0"), "gpt, llama and moe alone");
  expect(problem("family: gpt", "ignored_token: 0", "cluster: {gpus: 2}\nplan: {gradient_compression: [int8]}\n"),
         "what compression leaves for later steps");
  expect(problem("family: gpt", "ignored_token: 0", "cluster: {gpus: 2}\nplan: {local_steps: 4}\n"),
         "of all ranks together");
  expect(problem("family: gpt", "ignored_token: 0, clip: 0", "cluster: {gpus: 2}\nplan: {servers: 1}\n"),
         "of all ranks together");
  expect(problem("family: llama", "ignored_token: 0, global_batch: 4",
                 "reinforcement: {prompts: 4, prompt_tokens: 16, response_tokens: 16}\n"),
         "the rollout's to say");
}

}  // namespace
}  // namespace rehearse::plan
