// A small scenario of reinforcement learning, performed as the command does it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "execute/reinforcement/learn.h"
#include "execute/reinforcement/rollout.h"
#include "sim/run/reinforcement/phases.h"
#include "tests/support/temporary.h"

namespace rehearse::numerics {

// Two epochs at this rate take ratios of probabilities out of 1 - clip to 1 + clip, and sequences join while others are
// decoded.
inline const char* const kLearning = R"(
rehearse: 1
model: {family: gpt, layers: 2, hidden: 24, heads: 6, head_dim: 8, ffn_hidden: 40, vocab: 61, max_seq_len: 18, attention: flash, dropout: 0}
framework: rehearse
cluster: {topology: local, gpus: 1}
plan: {micro_batch: 2, bucket: 8KiB}
training: {global_batch: 8, seq_len: 16, precision: fp32, lr: 1e-2, weight_decay: 0.2, clip: 0.5, seed: 7}
reinforcement: {prompts: 4, samples: 4, prompt_tokens: 4, response_tokens: 8, response_sigma: 0.3, epochs: 2,
                packing: false, offload: false, clip: 0.1, kl: 0.1, rule_modulus: 3, generation: {sequences: 5}}
)";
inline constexpr int kSteps = 4;

struct Learnt {
  std::vector<execute::Rollout> rollouts;
  std::vector<std::vector<double>> losses, value_losses;  // of each update, by step
  execute::LearningOutcome outcome;
};

struct Case {
  std::string file = test::temporary_path("learning.yaml");
  std::vector<std::string> assignments;
  plan::Scenario scenario;

  explicit Case(std::vector<std::string> given = {}) : assignments(std::move(given)) {
    std::ofstream(file) << kLearning;
    scenario = plan::read_scenario(file, assignments, REHEARSE_SOURCE_DIR, plan::Purpose::perform);
  }
  ~Case() { std::filesystem::remove(file); }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  run::PerformedPhases phases() const {
    run::Options options;
    options.data_root = REHEARSE_SOURCE_DIR;
    return run::performed_phases(scenario, assignments, options);
  }
};

inline Learnt learn(const Case& of, int steps = kSteps, execute::LearningOptions options = {}) {
  const run::PerformedPhases phases = of.phases();
  const auto plan = [](const run::PerformedPhase& phase) {
    return execute::PhasePlan{&phase.scenario, &phase.program};
  };
  Learnt learnt;
  options.steps = steps, options.keep_parameters = true;
  options.on_rollout = [&](int, const execute::Rollout& rollout, const std::vector<double>& losses,
                           const std::vector<double>& value_losses) {
    learnt.rollouts.push_back(rollout);
    learnt.losses.push_back(losses);
    learnt.value_losses.push_back(value_losses);
  };
  learnt.outcome = execute::learn({&of.scenario, plan(phases.prefill), plan(phases.decode), plan(phases.scoring),
                                   plan(phases.update), phases.response_lengths},
                                  options);
  return learnt;
}

// The same tokens, and numbers that are near each other: `numbers` is called with each response and the one it must be
// like, and losses are as near as is said, both models'.
template <class Numbers>
void expect_alike(const Learnt& learnt, const Learnt& one, const Numbers& numbers, double losses_near,
                  double value_losses_near) {
  const auto expect_losses_near = [](const std::vector<double>& are, const std::vector<double>& expected, double near,
                                     std::size_t step) {
    ASSERT_EQ(are.size(), expected.size());
    for (std::size_t u = 0; u < expected.size(); ++u)
      EXPECT_NEAR(are[u], expected[u], near) << "step " << step << " update " << u;
  };
  ASSERT_EQ(learnt.rollouts.size(), one.rollouts.size());
  for (std::size_t step = 0; step < one.rollouts.size(); ++step) {
    for (std::size_t i = 0; i < one.rollouts[step].sequences.size(); ++i) {
      const execute::Response &is = learnt.rollouts[step].sequences[i], &expected = one.rollouts[step].sequences[i];
      ASSERT_EQ(is.tokens, expected.tokens) << "step " << step << " sequence " << i;
      numbers(is, expected);
    }
    expect_losses_near(learnt.losses[step], one.losses[step], losses_near, step);
    expect_losses_near(learnt.value_losses[step], one.value_losses[step], value_losses_near, step);
  }
}

// By the rule of kLearning any token is right one time in three: at first rewards are as if drawn, and at last high.
inline void expect_rewards_rise(const Learnt& learnt) {
  const std::vector<double>& rewards = learnt.outcome.result.reinforcement.rewards;
  ASSERT_GE(rewards.size(), 5U);
  const auto mean = [](auto begin, auto end) {
    double sum = 0;
    for (auto i = begin; i != end; ++i) sum += *i / static_cast<double>(end - begin);
    return sum;
  };
  EXPECT_NEAR(mean(rewards.begin(), rewards.begin() + 3), 1.0 / 3, 0.05);
  EXPECT_GT(mean(rewards.end() - 5, rewards.end()), 0.9);
}

}  // namespace rehearse::numerics
