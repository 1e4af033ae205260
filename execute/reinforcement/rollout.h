// What a step of reinforcement learning makes and learns from: prompts, responses, what each token's probability was,
// rewards and advantages. Everything drawn depends on training.seed, the step, the sequence's number and the token's
// place alone (Philox), so that every grid draws the same.
#pragma once

#include <cstdint>
#include <vector>

#include "execute/data.h"
#include "sim/plan/scenario.h"

namespace rehearse::execute {

struct Response {
  std::vector<std::int32_t> tokens;       // of the prompt, then of the response
  std::int64_t length = 0;                // of the response once it is whole
  std::vector<double> chosen, reference;  // logarithms of each response token's probability: of the actor, of the
                                          // model that it began as (empty: there is none)
  double reward = 0, advantage = 0;
  // With a critic, by token of the response: what it expects before the token (Response::values), how much better the
  // token is than that, and what the critic is to learn.
  std::vector<double> values, advantages, returns;
};

struct Rollout {
  std::int64_t prompt_tokens = 0;
  std::vector<Response> sequences;  // the samples of a prompt behind one another
};

// Of step `step` from 0: prompts without responses, whose lengths are given.
Rollout new_rollout(const plan::Scenario& scenario, const std::vector<std::int64_t>& lengths, std::int64_t step);

// A token by its logits, drawn by its probability: the one whose logit plus a Gumbel number of its own is largest
// (Gumbel 1954; Maddison et al. 2014, arXiv 1411.0030), which ranks that have part of the vocabulary each can say of
// their part.
struct Drawn {
  double score = 0;
  std::int32_t token = -1;  // none yet
  bool beaten_by(const Drawn& other) const {
    return other.token >= 0 && (token < 0 || other.score > score || (other.score == score && other.token < token));
  }
};
class TokenDraw {
 public:
  // Of the token `place` (from 0) of the response of sequence `sequence`.
  TokenDraw(std::int64_t seed, std::int64_t step, std::int64_t sequence, std::int64_t place);
  // Of the tokens [first, first + count).
  Drawn among(const float* logits, std::int64_t first, std::int64_t count) const;

 private:
  std::uint64_t key_;
  std::uint64_t place_;
};

// reinforcement.rule_modulus.
double rule_reward(const Response& response, std::int64_t prompt_tokens, std::int64_t modulus);
// Of each group of `samples`: the reward less the group's mean, over its standard deviation (of a sample, plus 1e-6,
// as verl has it); Shao et al. 2024, arXiv 2402.03300, section 4.1.2.
void set_advantages(Rollout& rollout, std::int64_t samples);

// With a critic: generalised advantage estimation (Schulman et al. 2015, arXiv 1506.02438, equation 16, to a response's
// end, behind which nothing is expected) with reinforcement.gamma and gae_lambda. A token's reward is minus `kl` x the
// logarithm of the actor's probability over the reference's, and the response's reward more at its last token (Ziegler
// et al. 2019, arXiv 1909.08593, section 2; Ouyang et al. 2022, arXiv 2203.02155, section 3.5). `returns` are advantage
// plus value; then advantages are brought to mean 0 and variance 1 over all tokens of the rollout, as is usual (Huang
// et al. 2024, arXiv 2403.17031): the variance is a sample's, plus 1e-8.
void set_token_advantages(Rollout& rollout, const plan::Reinforcement& r);

// The distance of the reference from the actor at a token (Schulman 2020, "Approximating KL divergence"; arXiv
// 2402.03300, equation 4) and its slope, by the logarithms of both probabilities.
struct Distance {
  double value = 0, slope = 0;  // by the actor's
};
Distance distance(double actor, double reference);
// The mean over a rollout's tokens; 0 without a reference.
double mean_distance(const Rollout& rollout);

// The loss of a token and its slope by the logarithm of its probability, `now` (arXiv 2402.03300, equation 3, of one
// token): minus the smaller of ratio x advantage and clipped ratio x advantage, plus kl x distance.
struct TokenLoss {
  double value = 0, slope = 0;
};
TokenLoss token_loss(const plan::Reinforcement& r, const Response& response, std::size_t token, double now);

// The critic's loss of a token and its slope by its value, `now`: half of the larger of the squares of what `now`, and
// `now` within value_clip of what it was before the updates, are off the return (Huang et al. 2024, arXiv 2403.17031).
TokenLoss value_loss(const plan::Reinforcement& r, const Response& response, std::size_t token, double now);

// Rows of training.seq_len tokens, one of each sequence, and as targets the responses' tokens alone: of number n the
// n-th of a rollout, or its beginning again (epochs); numbers count `rows` a step, of which those behind the rollout's
// sequences are empty.
class RolloutData final : public Data {
 public:
  RolloutData(std::int64_t seq_len, std::int64_t rows) : seq_len_(seq_len), rows_(rows) {}
  // While nobody loads.
  void set(const Rollout* rollout) { rollout_ = rollout; }
  // Of row `row` of step `step`; nullptr: empty.
  const Response* sequence(std::int64_t step, std::int64_t row) const;
  const Rollout& rollout() const { return *rollout_; }

  void load(program::InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements,
            void* out) override;
  std::int64_t examples() const override { return 0; }
  std::string description() const override { return "responses of its own"; }

 private:
  std::int64_t seq_len_, rows_;
  const Rollout* rollout_ = nullptr;
};

}  // namespace rehearse::execute
