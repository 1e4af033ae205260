// See rollout.h.
#include "execute/reinforcement/rollout.h"

#include <algorithm>
#include <cmath>

#include "sim/base/check.h"
#include "sim/base/random.h"

namespace rehearse::execute {
namespace {

constexpr std::uint64_t kPromptPurpose = 0x70726f6d7074, kTokenPurpose = 0x746f6b656e;  // "prompt", "token"

std::uint64_t key_of(std::int64_t seed, std::uint64_t purpose, std::int64_t step) {
  return mix_key(mix_key(static_cast<std::uint64_t>(seed), purpose), static_cast<std::uint64_t>(step));
}

}  // namespace

Rollout new_rollout(const plan::Scenario& scenario, const std::vector<std::int64_t>& lengths, std::int64_t step) {
  const plan::Reinforcement& r = scenario.reinforcement;
  const std::uint64_t key = key_of(scenario.training.seed, kPromptPurpose, step);
  Rollout rollout;
  rollout.prompt_tokens = r.prompt_tokens;
  for (std::int64_t i = 0; i < r.sequences(); ++i) {
    Response& response = rollout.sequences.emplace_back();
    response.length = lengths[static_cast<std::size_t>(i)];
    for (std::int64_t t = 0; t < r.prompt_tokens; ++t) {
      const auto words = Philox::draw(key, static_cast<std::uint64_t>(i / r.samples), static_cast<std::uint64_t>(t));
      response.tokens.push_back(static_cast<std::int32_t>(words[0] % static_cast<std::uint64_t>(scenario.model.vocab)));
    }
  }
  return rollout;
}

TokenDraw::TokenDraw(std::int64_t seed, std::int64_t step, std::int64_t sequence, std::int64_t place)
    : key_(mix_key(key_of(seed, kTokenPurpose, step), static_cast<std::uint64_t>(sequence))),
      place_(static_cast<std::uint64_t>(place)) {}

Drawn TokenDraw::among(const float* logits, std::int64_t first, std::int64_t count) const {
  Drawn best;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto token = static_cast<std::uint64_t>(first + i);
    const double uniform = (Philox::draw(key_, place_, token / 4)[token % 4] + 0.5) * 0x1p-32;
    const Drawn one{static_cast<double>(logits[i]) - std::log(-std::log(uniform)), static_cast<std::int32_t>(token)};
    if (best.beaten_by(one)) best = one;
  }
  return best;
}

double rule_reward(const Response& response, std::int64_t prompt_tokens, std::int64_t modulus) {
  std::int64_t right = 0;
  const auto& tokens = response.tokens;
  for (auto i = static_cast<std::size_t>(prompt_tokens); i < tokens.size(); ++i)
    if (tokens[i] % modulus == (tokens[i - 1] + 1) % modulus) ++right;
  return static_cast<double>(right) / static_cast<double>(response.length);
}

void set_advantages(Rollout& rollout, std::int64_t samples) {
  constexpr double kLeast = 1e-6;
  const auto n = static_cast<std::size_t>(samples);
  for (std::size_t begin = 0; begin < rollout.sequences.size(); begin += n) {
    double mean = 0, squares = 0;
    for (std::size_t i = begin; i < begin + n; ++i) mean += rollout.sequences[i].reward / static_cast<double>(n);
    for (std::size_t i = begin; i < begin + n; ++i) {
      const double off = rollout.sequences[i].reward - mean;
      squares += off * off;
    }
    const double deviation = std::sqrt(squares / static_cast<double>(n - 1));
    for (std::size_t i = begin; i < begin + n; ++i)
      rollout.sequences[i].advantage = (rollout.sequences[i].reward - mean) / (deviation + kLeast);
  }
}

void set_token_advantages(Rollout& rollout, const plan::Reinforcement& r) {
  constexpr double kLeast = 1e-8;
  double tokens = 0, sum = 0, squares = 0;
  for (Response& response : rollout.sequences) {
    const auto length = static_cast<std::size_t>(response.length);
    response.advantages.assign(length, 0), response.returns.assign(length, 0);
    double behind = 0, advantage = 0;  // the value of the token behind, and its advantage
    for (std::size_t t = length; t-- > 0;) {
      double reward = t + 1 == length ? response.reward : 0;
      if (!response.reference.empty()) reward -= r.kl * (response.chosen[t] - response.reference[t]);
      const double surprise = reward + r.gamma * behind - response.values[t];
      advantage = surprise + r.gamma * r.gae_lambda * advantage;
      response.advantages[t] = advantage, response.returns[t] = advantage + response.values[t];
      behind = response.values[t];
      ++tokens, sum += advantage;
    }
  }
  const double mean = sum / tokens;
  for (const Response& response : rollout.sequences)
    for (const double advantage : response.advantages) squares += (advantage - mean) * (advantage - mean);
  const double deviation = std::sqrt(squares / std::max(1.0, tokens - 1) + kLeast);
  for (Response& response : rollout.sequences)
    for (double& advantage : response.advantages) advantage = (advantage - mean) / deviation;
}

Distance distance(double actor, double reference) {
  const double apart = reference - actor;
  return {std::exp(apart) - apart - 1, 1 - std::exp(apart)};
}

double mean_distance(const Rollout& rollout) {
  double sum = 0, tokens = 0;
  for (const Response& response : rollout.sequences)
    for (std::size_t t = 0; t < response.reference.size(); ++t)
      sum += distance(response.chosen[t], response.reference[t]).value, ++tokens;
  return tokens > 0 ? sum / tokens : 0;
}

TokenLoss token_loss(const plan::Reinforcement& r, const Response& response, std::size_t token, double now) {
  const double ratio = std::exp(now - response.chosen[token]),
               advantage = r.has_critic() ? response.advantages[token] : response.advantage;
  const double clipped = std::clamp(ratio, 1 - r.clip, 1 + r.clip);
  TokenLoss loss;
  loss.value = -std::min(ratio * advantage, clipped * advantage);
  if (ratio * advantage <= clipped * advantage) loss.slope = -ratio * advantage;
  if (!response.reference.empty() && !r.has_critic()) {
    const Distance apart = distance(now, response.reference[token]);
    loss.value += r.kl * apart.value, loss.slope += r.kl * apart.slope;
  }
  return loss;
}

TokenLoss value_loss(const plan::Reinforcement& r, const Response& response, std::size_t token, double now) {
  const double before = response.values[token], off = now - response.returns[token];
  const double clipped = std::clamp(now, before - r.value_clip, before + r.value_clip) - response.returns[token];
  if (off * off >= clipped * clipped) return {off * off / 2, off};
  return {clipped * clipped / 2, 0};
}

const Response* RolloutData::sequence(std::int64_t step, std::int64_t row) const {
  const auto sequences = static_cast<std::int64_t>(rollout_->sequences.size());
  const std::int64_t steps = (sequences + rows_ - 1) / rows_, at = step % steps * rows_ + row;
  return at < sequences ? &rollout_->sequences[static_cast<std::size_t>(at)] : nullptr;
}

void RolloutData::load(program::InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements,
                       void* out) {
  const bool targets = kind == program::InputKind::targets;
  REHEARSE_CHECK(targets || kind == program::InputKind::tokens, "responses have tokens and targets only");
  const auto n = static_cast<std::int64_t>(numbers.size());
  REHEARSE_CHECK(elements == n * seq_len_, "{} tokens for {} sequences of {}", elements, n, seq_len_);
  auto* const ids = static_cast<std::int32_t*>(out);
  std::fill(ids, ids + elements, targets ? program::CrossEntropy::kNoTarget : 0);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t number = numbers[static_cast<std::size_t>(i)];
    const Response* const response = sequence(number / rows_, number % rows_);
    if (response == nullptr) continue;
    const auto tokens = static_cast<std::int64_t>(response->tokens.size());
    for (std::int64_t t = targets ? rollout_->prompt_tokens - 1 : 0; t < tokens - (targets ? 1 : 0); ++t)
      ids[t * n + i] = response->tokens[static_cast<std::size_t>(t + (targets ? 1 : 0))];
  }
}

}  // namespace rehearse::execute
