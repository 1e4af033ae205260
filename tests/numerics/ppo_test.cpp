// Proximal policy optimisation performed, against the same written plainly on models that share no code with lowering,
// kernels or the Performer: values of the critic, what a reward model says, advantages, losses of both models and,
// through the steps that follow, gradients are the same. Only first weights, prompts, lengths and the numbers that
// tokens are drawn by are handed over.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/diagnostics.h"
#include "tests/numerics/learning_case.h"
#include "tests/numerics/plain_learning.h"
#include "tests/numerics/plain_runs.h"

namespace rehearse::numerics {
namespace {

using Values = std::vector<double>;

// Values move by more than value_clip in two epochs.
std::vector<std::string> ppo(std::vector<std::string> more = {}) {
  std::vector<std::string> all = {"reinforcement.algorithm=ppo", "reinforcement.gamma=0.97",
                                  "reinforcement.gae_lambda=0.9", "reinforcement.value_clip=0.03"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
std::vector<std::string> ppo_on(std::int64_t gpus, std::vector<std::string> more) {
  return ppo(split(gpus, std::move(more)));
}

// By token of a response: what the head's first row makes of all before it.
Values plain_values(const PlainGpt<double>& critic, const execute::Response& response, std::int64_t prompt) {
  const Values all = critic.first_logits({response.tokens.begin(), response.tokens.end() - 1});
  return {all.begin() + prompt - 1, all.end()};
}

class PlainPpo {
 public:
  explicit PlainPpo(const plan::Scenario& scenario)
      : s_(scenario),
        r_(scenario.reinforcement),
        actor_(plain_model(scenario)),
        reference_(actor_),
        rewards_(actor_),
        critic_(actor_) {}

  void expect_step(std::int64_t step, const execute::Rollout& rollout, const Values& losses,
                   const Values& value_losses) {
    sequences_.clear();
    for (std::size_t i = 0; i < rollout.sequences.size(); ++i) {
      const execute::Response& is = rollout.sequences[i];
      ASSERT_EQ(is.tokens, plain_tokens(actor_, is, s_, step, static_cast<std::int64_t>(i)))
          << "step " << step << " sequence " << i;
      One& one = sequences_.emplace_back(One{&is, plain_logs(actor_, is, r_.prompt_tokens),
                                             plain_logs(reference_, is, r_.prompt_tokens),
                                             plain_values(critic_, is, r_.prompt_tokens)});
      expect_near(is.values, one.values);
      one.reward = r_.reward == "same" ? rewards_.first_logits(is.tokens).back() : is.reward;
      EXPECT_NEAR(is.reward, one.reward, 1e-6);
      estimate(one);
      expect_near(is.returns, one.returns);
    }
    normalise();
    for (const One& one : sequences_)
      for (std::size_t t = 0; t < one.advantages.size(); ++t)
        EXPECT_NEAR(one.response->advantages[t], one.advantages[t], 1e-3) << "token " << t;
    const auto batch = static_cast<std::size_t>(s_.training.global_batch), all = sequences_.size();
    ASSERT_EQ(losses.size(), static_cast<std::size_t>(r_.epochs) * all / batch);
    ASSERT_EQ(value_losses.size(), losses.size());
    for (std::size_t u = 0; u < losses.size(); ++u) {
      const std::size_t begin = u * batch % all;
      EXPECT_NEAR(losses[u], update_actor(begin, batch), 2e-5) << "step " << step << " update " << u;
      EXPECT_NEAR(value_losses[u], update_critic(begin, batch), 1e-5) << "step " << step << " update " << u;
    }
  }
  int clipped() const { return clipped_; }
  int clipped_values() const { return clipped_values_; }
  const std::vector<PlainGpt<double>::Parameter>& actor() { return actor_.parameters(); }
  const std::vector<PlainGpt<double>::Parameter>& critic() { return critic_.parameters(); }

 private:
  struct One {
    const execute::Response* response;
    Values old, reference, values, advantages = {}, returns = {};
    double reward = 0;
  };

  // The sum over all that follows of the error of the value one token further on, each weighed by (gamma lambda)^k.
  void estimate(One& one) const {
    const std::size_t length = one.old.size();
    const auto error = [&](std::size_t t) {
      const bool last = t + 1 == length;
      const double penalty = r_.reference ? r_.kl * (one.old[t] - one.reference[t]) : 0;
      return (last ? one.reward : 0) - penalty + (last ? 0 : r_.gamma * one.values[t + 1]) - one.values[t];
    };
    for (std::size_t t = 0; t < length; ++t) {
      double sum = 0;
      for (std::size_t k = 0; t + k < length; ++k)
        sum += std::pow(r_.gamma * r_.gae_lambda, static_cast<double>(k)) * error(t + k);
      one.advantages.push_back(sum);
      one.returns.push_back(sum + one.values[t]);
    }
  }

  void normalise() {
    Values all;
    for (const One& one : sequences_) all.insert(all.end(), one.advantages.begin(), one.advantages.end());
    const auto n = static_cast<double>(all.size());
    double mean = 0, variance = 0;
    for (const double a : all) mean += a / n;
    for (const double a : all) variance += (a - mean) * (a - mean) / (n - 1);
    for (One& one : sequences_)
      for (double& a : one.advantages) a = (a - mean) / std::sqrt(variance + 1e-8);
  }

  void step(PlainGpt<double>& model, const std::vector<Sequence>& batch) const {
    model.loss_and_gradients(batch);
    const plan::Training& t = s_.training;
    model.update({t.lr, t.beta1, t.beta2, t.eps, t.weight_decay, t.clip});
  }

  // Slopes are of minus the logarithm, which the model's losses are, whose mean its gradients are of.
  double update_actor(std::size_t begin, std::size_t count) {
    double loss = 0, all = 0;
    std::vector<Sequence> batch;
    for (std::size_t k = 0; k < count; ++k) {
      batch.push_back(plain_sequence(sequences_[begin + k].response->tokens));
      all += static_cast<double>(batch.back().tokens.size());
    }
    for (std::size_t k = 0; k < count; ++k) {
      const One& one = sequences_[begin + k];
      const Values now = plain_logs(actor_, *one.response, r_.prompt_tokens);
      batch[k].factors.assign(static_cast<std::size_t>(r_.prompt_tokens - 1), 0);
      for (std::size_t t = 0; t < now.size(); ++t) {
        const double weight = 1 / static_cast<double>(count * now.size()), a = one.advantages[t];
        const double ratio = std::exp(now[t] - one.old[t]), most = 1 + r_.clip, least = 1 - r_.clip;
        const bool flat = (a >= 0 && ratio > most) || (a < 0 && ratio < least);
        clipped_ += flat ? 1 : 0;
        loss -= weight * a * (flat ? (a >= 0 ? most : least) : ratio);
        batch[k].factors.push_back(flat ? 0 : a * ratio * weight * all);
      }
    }
    step(actor_, batch);
    return loss;
  }

  double update_critic(std::size_t begin, std::size_t count) {
    double loss = 0;
    std::vector<Sequence> batch;
    for (std::size_t k = 0; k < count; ++k) {
      const One& one = sequences_[begin + k];
      Sequence& sequence = batch.emplace_back(plain_sequence(one.response->tokens));
      sequence.slopes.assign(static_cast<std::size_t>(r_.prompt_tokens - 1), 0);
      const Values now = plain_values(critic_, *one.response, r_.prompt_tokens);
      for (std::size_t t = 0; t < now.size(); ++t) {
        const double weight = 1 / static_cast<double>(count * now.size()), moved = now[t] - one.values[t];
        double near = now[t];
        if (moved > r_.value_clip) near = one.values[t] + r_.value_clip;
        if (moved < -r_.value_clip) near = one.values[t] - r_.value_clip;
        const double off = now[t] - one.returns[t], off_near = near - one.returns[t];
        const bool flat = std::abs(off_near) > std::abs(off);
        clipped_values_ += flat ? 1 : 0;
        loss += weight * std::pow(flat ? off_near : off, 2) / 2;
        sequence.slopes.push_back(flat ? 0 : weight * off);
      }
    }
    step(critic_, batch);
    return loss;
  }

  const plan::Scenario& s_;
  const plan::Reinforcement& r_;
  PlainGpt<double> actor_, reference_, rewards_, critic_;
  std::vector<One> sequences_;
  int clipped_ = 0, clipped_values_ = 0;
};

// Where a head of its own has one row that is read, gradients are small, and Adam makes steps of their rounding; not of
// what is below this.
const char* const kEps = "training.eps=1e-5";

class AgainstPlainPpo : public testing::TestWithParam<PlainCase> {};

TEST_P(AgainstPlainPpo, ValuesAdvantagesAndLossesAreThePlainOnes) {
  const Case of(ppo(GetParam().assignments));
  const Learnt learnt = learn(of);
  PlainPpo plain(of.scenario);
  for (std::size_t step = 0; step < kSteps && !testing::Test::HasFatalFailure(); ++step)
    plain.expect_step(static_cast<std::int64_t>(step), learnt.rollouts.at(step), learnt.losses.at(step),
                      learnt.value_losses.at(step));
  EXPECT_GT(plain.clipped(), 10) << "too few ratios are clipped for that to be tested";
  EXPECT_GT(plain.clipped_values(), 10) << "too few values are clipped for that to be tested";
  expect_near_parameters(learnt.outcome.parameters, plain.actor());
  expect_near_parameters(learnt.outcome.critic, plain.critic());
}

INSTANTIATE_TEST_SUITE_P(
    Models, AgainstPlainPpo,
    testing::Values(PlainCase{"Gpt", {}}, PlainCase{"WithoutReference", {"reinforcement.reference=false"}},
                    PlainCase{"HeadOfItsOwn",
                              {"model.tied_embeddings=false", "model.position=rope", "model.kv_heads=2", kEps}},
                    PlainCase{"RewardModel", {"reinforcement.reward=same"}}),
    plain_case_name);

void expect_same(const Learnt& learnt, const Learnt& one) {
  const auto numbers = [](const execute::Response& is, const execute::Response& expected) {
    EXPECT_NEAR(is.reward, expected.reward, 1e-5);
    for (std::size_t t = 0; t < is.values.size(); ++t) EXPECT_NEAR(is.values[t], expected.values[t], 1e-5);
  };
  expect_alike(learnt, one, numbers, 1e-4, 1e-5);
  EXPECT_EQ(one.value_losses.at(0).size(), one.losses.at(0).size());
}

// Whatever the grid. A vocabulary that is split has the value on the first of its ranks.
class PpoGrids : public testing::TestWithParam<PlainCase> {};

TEST_P(PpoGrids, AreOneRank) {
  static const Learnt one = learn(Case(ppo({"reinforcement.reward=same"})));
  std::vector<std::string> plan = GetParam().assignments;
  plan.emplace_back("reinforcement.reward=same");
  expect_same(learn(Case(plan)), one);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, PpoGrids,
    testing::Values(
        PlainCase{"Data2", ppo_on(2, {})}, PlainCase{"Data2Zero3", ppo_on(2, {"plan.zero=3"})},
        PlainCase{"Tensor2", ppo_on(2, {"plan.tensor=2"})},
        PlainCase{"Tensor2Zero1Data2", ppo_on(4, {"plan.tensor=2", "plan.zero=1", "plan.sequence_parallel=true"})},
        PlainCase{"Pipeline2Data2", ppo_on(4, {"plan.pipeline=2", "plan.micro_batch=1"})},
        PlainCase{"Context2Tensor2", ppo_on(4, {"plan.context=2", "plan.context_kind=ring", "plan.tensor=2"})},
        PlainCase{"ScoringByThrees", ppo({"reinforcement.scoring_micro_batch=3"})},
        PlainCase{"Apart", ppo({"reinforcement.generation.gpus=2"})},
        PlainCase{"TorchFsdp", ppo_on(2, {"framework=torch-fsdp", "plan.zero=3"})}),
    plain_case_name);

TEST(Ppo, TwoRunsAreTheSameBits) {
  const Case of(ppo_on(2, {}));
  const Learnt first = learn(of), second = learn(of);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.value_losses, second.value_losses);
  EXPECT_EQ(first.outcome.parameters, second.outcome.parameters);
  EXPECT_EQ(first.outcome.critic, second.outcome.critic);
}

// In fp16 the gradients of values are times the loss's scale, as all are: a step is that of fp32.
TEST(Ppo, GradientsOfValuesAreScaledIn16Bits) {
  const auto critic_in = [](const std::string& precision) {
    return learn(Case(ppo({"training.precision=" + precision, "training.clip=0", "training.optimizer=sgd",
                           "training.weight_decay=0", "training.loss_scale=1024"})),
                 1)
        .outcome.critic;
  };
  const execute::Parameters wide = critic_in("fp32"), narrow = critic_in("fp16");
  const Case of(ppo());
  PlainGpt<double> first = plain_model(of.scenario);
  double moved = 0, apart = 0;
  for (const auto& parameter : first.parameters())
    for (std::size_t i = 0; i < parameter.value.size(); ++i) {
      moved += std::pow(wide.at(parameter.name).at(i) - parameter.value[i], 2);
      apart += std::pow(wide.at(parameter.name).at(i) - narrow.at(parameter.name).at(i), 2);
    }
  EXPECT_GT(std::sqrt(moved), 1e-3) << "nothing is learnt";
  EXPECT_LT(std::sqrt(apart), 0.02 * std::sqrt(moved));
}

TEST(Ppo, RewardsRise) {
  const Case of({"reinforcement.algorithm=ppo", "model.vocab=12", "reinforcement.prompts=128",
                 "reinforcement.samples=1", "training.global_batch=32", "reinforcement.generation.sequences=64",
                 "plan.micro_batch=16", "reinforcement.epochs=2", "reinforcement.kl=0.01", "reinforcement.clip=0.2",
                 "training.weight_decay=0", "training.clip=1", "training.lr=5e-3"});
  expect_rewards_rise(learn(of, 60));
}

TEST(Ppo, OtherModelsAreRefused) {
  for (const char* key : {"reinforcement.critic", "reinforcement.reward"}) try {
      execute::check_learnable(Case(ppo({std::string(key) + "=llama3-8b"})).scenario, 1);
      ADD_FAILURE() << key << " is taken";
    } catch (const InputError& error) {
      EXPECT_EQ(error.diagnostics().front().path, key);
    }
}

}  // namespace
}  // namespace rehearse::numerics
