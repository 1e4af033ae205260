// What tests of plans against one rank share: the models, a case, and how near losses and parameters must come.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/numerics/performed.h"
#include "tests/support/lowered.h"

namespace rehearse {

using Assignments = std::vector<std::string>;

inline constexpr double kLossTolerance = 1e-4, kParameterTolerance = 1e-3;

inline const std::string kTraining =
    "training: {global_batch: 12, precision: fp32, lr: 1e-3, warmup_steps: 4, lr_schedule: cosine, seed: 3}\n";
inline const std::string kGpt =
    "rehearse: 1\n"
    "model: {family: gpt, layers: 4, hidden: 32, heads: 4, vocab: 250, max_seq_len: 16}\n" +
    kTraining;
inline const std::string kLlama =
    "rehearse: 1\n"
    "model: {family: llama, layers: 4, hidden: 32, heads: 8, kv_heads: 4, ffn_hidden: 64, vocab: 250, max_seq_len: "
    "16}\n" +
    kTraining;

inline execute::Outcome perform(const std::string& text, const Assignments& assignments, int steps = 20) {
  plan::Scenario scenario = scenario_from(text, assignments);
  scenario.purpose = plan::Purpose::perform;
  return performed(scenario, steps);
}

// The same, once for all tests of a process that compare with it.
inline const execute::Outcome& performed_once(const std::string& text, const Assignments& assignments) {
  static std::map<std::pair<std::string, Assignments>, execute::Outcome> known;
  const auto [found, is_new] = known.try_emplace({text, assignments});
  if (is_new) found->second = perform(text, assignments);
  return found->second;
}

// Distance of two sets of parameters over the norm of the first; only rows of the unpadded vocabulary count.
inline double distance(const execute::Parameters& expected, const execute::Parameters& actual) {
  double difference = 0, norm = 0;
  for (const auto& [name, values] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end()) {
      ADD_FAILURE() << name << " is missing";
      continue;
    }
    const std::size_t n = std::min(values.size(), found->second.size());
    for (std::size_t i = 0; i < n; ++i) {
      difference += std::pow(double{values[i]} - double{found->second[i]}, 2);
      norm += std::pow(double{values[i]}, 2);
    }
  }
  return std::sqrt(difference / norm);
}

inline double mean_of_last_5(const std::vector<double>& losses) {
  return std::accumulate(losses.end() - 5, losses.end(), 0.0) / 5;
}

struct Case {
  std::string name, text;
  Assignments plan;        // of the plan only
  Assignments model = {};  // holds for the single rank too
};
inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

inline void expect_trains_as_one_rank(const Case& c, int single_micro_batch = 12) {
  Assignments both = c.model;
  Assignments single = both;
  single.insert(single.end(), {"cluster.gpus=1", "plan.micro_batch=" + std::to_string(single_micro_batch)});
  both.insert(both.end(), c.plan.begin(), c.plan.end());
  const execute::Outcome& one = performed_once(c.text, single);
  const execute::Outcome& many = performed_once(c.text, both);
  ASSERT_EQ(many.result.loss.size(), one.result.loss.size());
  for (std::size_t step = 0; step < one.result.loss.size(); ++step)
    ASSERT_NEAR(many.result.loss[step] / one.result.loss[step], 1, kLossTolerance) << "step " << step;
  EXPECT_LT(mean_of_last_5(one.result.loss), one.result.loss.front()) << "one rank does not learn";
  EXPECT_LT(distance(one.parameters, many.parameters), kParameterTolerance);
}

// Plain steps of size r along the gradient g0 of the first batch change the second batch's loss by -r g0 g1 to first
// order, g1 being its own gradient: both read off the parameters after one and two steps.
inline void expect_gradients_of_the_loss(const std::string& text, const std::string& rate, double tolerance,
                                         const Assignments& more = {}) {
  const auto run = [&](const std::string& lr, int steps) {
    Assignments all = {"cluster.gpus=1",          "plan.micro_batch=12",           "training.optimizer=sgd",
                       "training.momentum=0",     "training.weight_decay=0",       "training.clip=0",
                       "training.warmup_steps=0", "training.lr_schedule=constant", "training.lr=" + lr};
    all.insert(all.end(), more.begin(), more.end());
    return perform(text, all, steps);
  };
  const double size = std::stod(rate);
  const execute::Outcome still = run("1e-12", 2), one = run(rate, 1), two = run(rate, 2);
  double product = 0;
  for (const auto& [name, w0] : still.parameters) {
    const auto &w1 = one.parameters.at(name), &w2 = two.parameters.at(name);
    for (std::size_t i = 0; i < w0.size(); ++i)
      product += (double{w0[i]} - double{w1[i]}) * (double{w1[i]} - double{w2[i]}) / (size * size);
  }
  const double change = two.result.loss[1] - still.result.loss[1];
  ASSERT_GT(std::abs(change), 5e-5) << "too near to rounding";
  EXPECT_NEAR(change / (-size * product), 1, tolerance);
}

inline std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

// "gpus tensor pipeline zero micro_batch" and more.
inline Assignments grid(int gpus, int tensor, int pipeline, int zero, const Assignments& more = {}) {
  Assignments all = {"cluster.gpus=" + std::to_string(gpus), "plan.tensor=" + std::to_string(tensor),
                     "plan.pipeline=" + std::to_string(pipeline), "plan.zero=" + std::to_string(zero),
                     "plan.bucket=8KiB"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace rehearse
