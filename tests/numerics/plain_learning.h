// What tests of reinforcement learning against a plain model share: the model, the tokens that it draws and the
// logarithms of their probabilities, and how near all of it must come.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "execute/reinforcement/rollout.h"
#include "tests/numerics/plain_gpt.h"
#include "tests/numerics/plain_runs.h"

namespace rehearse::numerics {

inline PlainGpt<double> plain_model(const plan::Scenario& scenario) {
  return {plain_shape(scenario), initial_values(scenario)};
}

// The tokens of a response, one after the other, by a forward pass over all before.
inline std::vector<std::int32_t> plain_tokens(const PlainGpt<double>& actor, const execute::Response& response,
                                              const plan::Scenario& s, std::int64_t step, std::int64_t sequence) {
  std::vector<std::int32_t> tokens(response.tokens.begin(), response.tokens.begin() + s.reinforcement.prompt_tokens);
  for (std::int64_t place = 0; place < response.length; ++place) {
    std::vector<float> logits;
    for (const double p : actor.next_probabilities(tokens)) logits.push_back(static_cast<float>(std::log(p)));
    const execute::TokenDraw draw(s.training.seed, step, sequence, place);
    tokens.push_back(draw.among(logits.data(), 0, s.model.vocab).token);
  }
  return tokens;
}

inline Sequence plain_sequence(const std::vector<std::int32_t>& tokens) {
  return {{tokens.begin(), tokens.end() - 1}, {tokens.begin() + 1, tokens.end()}};
}

inline std::vector<double> plain_logs(const PlainGpt<double>& model, const execute::Response& response,
                                      std::int64_t prompt) {
  std::vector<double> logs;
  const auto losses = model.token_losses(plain_sequence(response.tokens));
  for (auto t = static_cast<std::size_t>(prompt - 1); t < losses.size(); ++t) logs.push_back(-losses[t]);
  return logs;
}

inline void expect_near(const std::vector<double>& is, const std::vector<double>& expected) {
  ASSERT_EQ(is.size(), expected.size());
  for (std::size_t i = 0; i < is.size(); ++i)
    EXPECT_NEAR(is[i], expected[i], kPlainTolerance * std::max(1.0, std::abs(expected[i]))) << "token " << i;
}

inline void expect_near_parameters(const execute::Parameters& are,
                                   const std::vector<PlainGpt<double>::Parameter>& expected) {
  for (const auto& parameter : expected) {
    const std::vector<float>& is = are.at(parameter.name);
    double apart = 0, size = 0;
    for (std::size_t i = 0; i < parameter.value.size(); ++i) {
      apart += std::pow(is.at(i) - parameter.value[i], 2);
      size += std::pow(parameter.value[i], 2);
    }
    EXPECT_LT(std::sqrt(apart), 1e-3 * std::sqrt(size) + 1e-5) << parameter.name;
  }
}

}  // namespace rehearse::numerics
