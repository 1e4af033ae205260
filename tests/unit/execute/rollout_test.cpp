// What reinforcement learning draws and rewards (execute/reinforcement/rollout.h), against closed forms.
#include "execute/reinforcement/rollout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace rehearse::execute {
namespace {

// Of 20,000 draws a token of probability p comes n p times, give or take a few standard deviations.
TEST(TokenDraw, DrawsByTheProbabilitiesOfLogits) {
  const std::vector<double> p = {0.5, 0.25, 0.125, 0.0625, 0.0625};
  std::vector<float> logits;
  for (const double each : p) logits.push_back(static_cast<float>(std::log(each) + 3));
  std::vector<double> counts(p.size(), 0);
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i)
    ++counts[static_cast<std::size_t>(TokenDraw(7, i % 10, i / 100, i).among(logits.data(), 0, 5).token)];
  for (std::size_t t = 0; t < p.size(); ++t)
    EXPECT_NEAR(counts[t], kDraws * p[t], 4 * std::sqrt(kDraws * p[t] * (1 - p[t]))) << t;
}

// Of 100 tokens alike, two draws are the same one time in a hundred.
TEST(TokenDraw, SeedStepSequenceAndPlaceEachDrawAnew) {
  const std::vector<float> alike(100, 0.0F);
  const auto token = [&alike](std::int64_t seed, std::int64_t step, std::int64_t sequence, std::int64_t place) {
    return TokenDraw(seed, step, sequence, place).among(alike.data(), 0, 100).token;
  };
  int seed = 0, step = 0, sequence = 0, place = 0;
  for (int i = 0; i < 200; ++i) {
    const std::int32_t is = token(7, i, 3, 5);
    EXPECT_EQ(is, token(7, i, 3, 5));
    seed += is == token(8, i, 3, 5) ? 1 : 0, step += is == token(7, i + 1000, 3, 5) ? 1 : 0;
    sequence += is == token(7, i, 4, 5) ? 1 : 0, place += is == token(7, i, 3, 6) ? 1 : 0;
  }
  for (const int same : {seed, step, sequence, place}) EXPECT_LT(same, 10);
}

TEST(TokenDraw, PartsOfAVocabularyDrawWhatTheWholeDoes) {
  std::vector<float> logits;
  for (int t = 0; t < 30; ++t) logits.push_back(std::sin(static_cast<float>(t)));
  for (int i = 0; i < 100; ++i) {
    const TokenDraw draw(7, 1, i, 3);
    Drawn best;
    for (const int first : {20, 0, 10}) {
      const Drawn part = draw.among(logits.data() + first, first, 10);
      if (best.beaten_by(part)) best = part;
    }
    EXPECT_EQ(best.token, draw.among(logits.data(), 0, 30).token);
  }
  EXPECT_EQ(TokenDraw(7, 1, 1, 3).among(logits.data(), 0, 0).token, -1);
}

TEST(Rewards, AreTheShareOfTokensThatFollow) {
  Response response;
  response.tokens = {9, 1, 2, 7, 4, 5}, response.length = 4;  // behind a prompt of two: 2, 7, 4, 5
  EXPECT_DOUBLE_EQ(rule_reward(response, 2, 100), 2.0 / 4);   // 2 and 5
  EXPECT_DOUBLE_EQ(rule_reward(response, 2, 4), 4.0 / 4);     // 7 is 3 and 4 is 0, too
  EXPECT_DOUBLE_EQ(rule_reward(response, 2, 2), 4.0 / 4);
  response.tokens[5] = 6;
  EXPECT_DOUBLE_EQ(rule_reward(response, 2, 2), 3.0 / 4);
}

TEST(Advantages, AreOfAGroupAmongItself) {
  Rollout rollout;
  for (const double reward : {0.0, 1.0, 2.0, 5.0, 5.0, 5.0}) rollout.sequences.emplace_back().reward = reward;
  set_advantages(rollout, 3);
  const double expected[] = {-1, 0, 1, 0, 0, 0};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(rollout.sequences[i].advantage, expected[i], 2e-6) << i;
}

// The slope is that of differences, on either side of where a ratio is clipped.
TEST(TokenLoss, HasTheSlopeOfDifferences) {
  plan::Reinforcement r;
  r.clip = 0.2, r.kl = 0.3;
  Response response;
  response.chosen = {-1.5}, response.reference = {-1.1};
  for (const double advantage : {-1.3, 0.7})
    for (const double now : {-2.1, -1.75, -1.6, -1.4, -1.35, -1.0}) {
      response.advantage = advantage;
      const double above = token_loss(r, response, 0, now + 1e-6).value,
                   below = token_loss(r, response, 0, now - 1e-6).value;
      EXPECT_NEAR(token_loss(r, response, 0, now).slope, (above - below) / 2e-6, 1e-7) << advantage << " " << now;
    }
  response.advantage = 0.7;
  EXPECT_NEAR(token_loss(r, response, 0, -1.0).value, -0.7 * 1.2 + 0.3 * (std::exp(-0.1) + 0.1 - 1),
              1e-12);  // clipped at 1.2
}

TEST(RolloutData, RowsHavePromptsAndResponsesAndTargetsOfResponsesAlone) {
  Rollout rollout;
  rollout.prompt_tokens = 2;
  for (int i = 0; i < 3; ++i) {
    Response& response = rollout.sequences.emplace_back();
    response.tokens = {10 * i, 10 * i + 1, 10 * i + 2, 10 * i + 3}, response.length = 2;
  }
  RolloutData data(5, 2);
  data.set(&rollout);
  std::vector<std::int32_t> ids(10);
  data.load(program::InputKind::tokens, {2, 3}, 10, ids.data());  // the second step: the third sequence, and nothing
  EXPECT_EQ(ids, (std::vector<std::int32_t>{20, 0, 21, 0, 22, 0, 23, 0, 0, 0}));
  data.load(program::InputKind::targets, {4, 5}, 10, ids.data());  // the third step: again the first two
  EXPECT_EQ(ids, (std::vector<std::int32_t>{-1, -1, 2, 12, 3, 13, -1, -1, -1, -1}));
}

}  // namespace
}  // namespace rehearse::execute
