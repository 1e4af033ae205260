// Reinforcement learning performed, against group relative policy optimisation written plainly on a model that shares
// no code with lowering, kernels or the Performer: tokens are those that a whole forward pass over all tokens so far
// gives at each place, probabilities, losses and, through the steps that follow, gradients are the same. Only first
// weights, prompts, lengths and the numbers that tokens are drawn by are handed over.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "sim/base/diagnostics.h"
#include "tests/numerics/learning_case.h"
#include "tests/numerics/plain_learning.h"
#include "tests/numerics/plain_runs.h"

namespace rehearse::numerics {
namespace {

// Arithmetic of the papers, sequence by sequence.
class PlainGrpo {
 public:
  explicit PlainGrpo(const plan::Scenario& scenario)
      : s_(scenario), r_(scenario.reinforcement), actor_(plain_model(scenario)), reference_(plain_model(scenario)) {}

  void expect_step(std::int64_t step, const execute::Rollout& rollout, const std::vector<double>& losses) {
    std::vector<std::vector<double>> old, reference;
    for (std::size_t i = 0; i < rollout.sequences.size(); ++i) {
      const execute::Response& response = rollout.sequences[i];
      ASSERT_EQ(response.tokens, plain_tokens(actor_, response, s_, step, static_cast<std::int64_t>(i)))
          << "step " << step << " sequence " << i;
      old.push_back(plain_logs(actor_, response, r_.prompt_tokens));
      expect_near(response.chosen, old.back());
      reference.push_back(plain_logs(reference_, response, r_.prompt_tokens));
      if (r_.reference) expect_near(response.reference, reference.back());
    }
    const std::vector<double> advantages = expect_advantages(rollout);
    std::size_t next = 0;
    const auto batch = static_cast<std::size_t>(s_.training.global_batch);
    for (std::int64_t epoch = 0; epoch < r_.epochs; ++epoch)
      for (std::size_t begin = 0; begin < rollout.sequences.size(); begin += batch)
        EXPECT_NEAR(losses.at(next++), update(rollout, begin, batch, old, reference, advantages), 1e-5)
            << "step " << step << " update " << next;
    EXPECT_EQ(next, losses.size());
  }
  std::int64_t clipped() const { return clipped_; }
  const std::vector<PlainGpt<double>::Parameter>& parameters() { return actor_.parameters(); }

 private:
  std::vector<double> expect_advantages(const execute::Rollout& rollout) const {
    std::vector<double> advantages;
    const auto samples = static_cast<std::size_t>(r_.samples);
    for (std::size_t group = 0; group < rollout.sequences.size(); group += samples) {
      std::vector<double> rewards;
      for (std::size_t i = group; i < group + samples; ++i) {
        const auto& tokens = rollout.sequences[i].tokens;
        double right = 0, all = 0;
        for (auto t = static_cast<std::size_t>(r_.prompt_tokens); t < tokens.size(); ++t, ++all)
          right += (tokens[t] - tokens[t - 1] - 1) % r_.rule_modulus == 0 ? 1 : 0;
        rewards.push_back(right / all);
        EXPECT_DOUBLE_EQ(rollout.sequences[i].reward, rewards.back());
      }
      double mean = 0, variance = 0;
      for (const double reward : rewards) mean += reward / static_cast<double>(samples);
      for (const double reward : rewards)
        variance += (reward - mean) * (reward - mean) / static_cast<double>(samples - 1);
      for (const double reward : rewards) advantages.push_back((reward - mean) / (std::sqrt(variance) + 1e-6));
    }
    for (std::size_t i = 0; i < advantages.size(); ++i)
      EXPECT_NEAR(rollout.sequences[i].advantage, advantages[i], 1e-9);
    return advantages;
  }

  // The mean over sequences of the mean over tokens; slopes are of minus the logarithm, which the model's are.
  double update(const execute::Rollout& rollout, std::size_t begin, std::size_t count,
                const std::vector<std::vector<double>>& old, const std::vector<std::vector<double>>& reference,
                const std::vector<double>& advantages) {
    double loss = 0, all = 0;
    std::vector<Sequence> batch;
    for (std::size_t i = begin; i < begin + count; ++i) {
      batch.push_back(plain_sequence(rollout.sequences[i].tokens));
      all += static_cast<double>(batch.back().tokens.size());
    }
    for (std::size_t k = 0; k < count; ++k) {
      const execute::Response& response = rollout.sequences[begin + k];
      const std::vector<double> now = plain_logs(actor_, response, r_.prompt_tokens);
      batch[k].factors.assign(static_cast<std::size_t>(r_.prompt_tokens - 1), 0);
      for (std::size_t t = 0; t < now.size(); ++t) {
        const double weight = 1 / static_cast<double>(count * now.size()), a = advantages[begin + k];
        const double ratio = std::exp(now[t] - old[begin + k][t]);
        double slope = 0, value = 0;
        if ((a >= 0 && ratio > 1 + r_.clip) || (a < 0 && ratio < 1 - r_.clip)) {
          value = -a * (a >= 0 ? 1 + r_.clip : 1 - r_.clip);
          ++clipped_;
        } else {
          value = slope = -a * ratio;
        }
        if (r_.reference) {
          const double times = std::exp(reference[begin + k][t] - now[t]);
          value += r_.kl * (times - std::log(times) - 1);
          slope += r_.kl * (1 - times);
        }
        loss += weight * value;
        batch[k].factors.push_back(-slope * weight * all);
      }
    }
    actor_.loss_and_gradients(batch);
    const plan::Training& t = s_.training;
    actor_.update({t.lr, t.beta1, t.beta2, t.eps, t.weight_decay, t.clip});
    return loss;
  }

  const plan::Scenario& s_;
  const plan::Reinforcement& r_;
  PlainGpt<double> actor_, reference_;
  std::int64_t clipped_ = 0;
};

const char* const kExperts =
    "model={family: moe, layers: 2, hidden: 24, heads: 6, head_dim: 8, vocab: 61, max_seq_len: 18, attention: flash, "
    "norm: layernorm, position: learned, tied_embeddings: true, experts: 6, experts_per_token: 2, expert_ffn_hidden: "
    "20, aux_loss: 0, dropout: 0}";
// Gradients of experts that few tokens choose are small, and Adam makes steps of their rounding; not of what is below
// this.
const char* const kEps = "training.eps=1e-5";

class AgainstPlainGrpo : public testing::TestWithParam<PlainCase> {};

TEST_P(AgainstPlainGrpo, TokensProbabilitiesAndLossesAreThePlainOnes) {
  const Case of(GetParam().assignments);
  const Learnt learnt = learn(of);
  ASSERT_EQ(learnt.rollouts.size(), static_cast<std::size_t>(kSteps));
  PlainGrpo plain(of.scenario);
  for (int step = 0; step < kSteps && !testing::Test::HasFatalFailure(); ++step)
    plain.expect_step(step, learnt.rollouts[static_cast<std::size_t>(step)],
                      learnt.losses[static_cast<std::size_t>(step)]);
  EXPECT_GT(plain.clipped(), 10) << "too few ratios are clipped for that to be tested";
  expect_near_parameters(learnt.outcome.parameters, plain.parameters());
}

INSTANTIATE_TEST_SUITE_P(
    Models, AgainstPlainGrpo,
    testing::Values(PlainCase{"Gpt", {}}, PlainCase{"WithoutReference", {"reinforcement.reference=false"}},
                    PlainCase{"RopeAndGroupedQueries",
                              {"model.position=rope", "model.kv_heads=2", "model.tied_embeddings=false"}},
                    PlainCase{"SlidingWindow", {"model.sliding_window=5"}},
                    // A bias of keys has no gradient but that of rounding, which Adam makes steps of.
                    PlainCase{"SlopesByDistance", {"model.position=alibi", "model.bias=false"}},
                    PlainCase{"Experts", {kExperts, kEps}},
                    PlainCase{"HeadNorms",
                              {"model={family: llama, layers: 2, hidden: 24, heads: 6, kv_heads: 3, head_dim: 8, "
                               "ffn_hidden: 40, vocab: 61, max_seq_len: 18, qk_norm: true, activation: gelu, dropout: "
                               "0}"}}),
    plain_case_name);

void expect_same(const Learnt& learnt, const Learnt& one) {
  const auto numbers = [](const execute::Response& is, const execute::Response& expected) {
    for (std::size_t t = 0; t < is.chosen.size(); ++t) {
      EXPECT_NEAR(is.chosen[t], expected.chosen[t], 1e-5);
      EXPECT_NEAR(is.reference[t], expected.reference[t], 1e-5);
    }
  };
  expect_alike(learnt, one, numbers, 1e-5, 1e-5);
}

// Whatever the grid, the tokens are those of one rank and the losses, too.
class LearningGrids : public testing::TestWithParam<PlainCase> {};

TEST_P(LearningGrids, AreOneRank) {
  static const Learnt one = learn(Case());
  expect_same(learn(Case(GetParam().assignments)), one);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, LearningGrids,
    testing::Values(PlainCase{"Data2", split(2, {})}, PlainCase{"Data2Zero1", split(2, {"plan.zero=1"})},
                    PlainCase{"Data2Zero3", split(2, {"plan.zero=3"})},
                    PlainCase{"Tensor2", split(2, {"plan.tensor=2"})},
                    PlainCase{"Tensor2GeneratesBy2", split(2, {"plan.tensor=2", "plan.sequence_parallel=true",
                                                               "reinforcement.generation.tensor=2"})},
                    PlainCase{"Data2GeneratesBy2", split(2, {"reinforcement.generation.tensor=2"})},
                    PlainCase{"Pipeline2Data2", split(4, {"plan.pipeline=2", "plan.micro_batch=1"})},
                    PlainCase{"Context2Ring", split(2, {"plan.context=2", "plan.context_kind=ring"})},
                    PlainCase{"Context2AllGatherData2Zero1",
                              split(4, {"plan.context=2", "plan.context_kind=all_gather", "plan.zero=1"})},
                    PlainCase{"Context2AllToAllPipeline2", split(4, {"plan.context=2", "plan.context_kind=all_to_all",
                                                                     "plan.pipeline=2", "plan.micro_batch=1"})},
                    PlainCase{"ScoringByThrees", {"reinforcement.scoring_micro_batch=3"}},
                    PlainCase{"Apart", split(1, {"reinforcement.generation.gpus=2"})},
                    PlainCase{"TorchDdp", split(2, {"framework=torch-ddp"})},
                    PlainCase{"TorchFsdp", split(2, {"framework=torch-fsdp", "plan.zero=3"})},
                    PlainCase{"TorchFsdp2", split(2, {"framework=torch-fsdp2", "plan.zero=3"})},
                    PlainCase{"Nanotron", split(2, {"framework=nanotron"})},
                    PlainCase{"Accelerate", split(2, {"framework=accelerate"})},
                    PlainCase{"AllAtOnce", {"reinforcement.generation.sequences=16"}},
                    PlainCase{"OneByOne", {"reinforcement.generation.sequences=1"}}),
    plain_case_name);

// Every rank has all experts, or its part of each.
TEST(Learning, WithExpertsIsOneRankOnEveryGrid) {
  const Learnt one = learn(Case({kExperts, kEps}));
  for (const std::vector<std::string>& plan : std::vector<std::vector<std::string>>{
           {},
           {"plan.zero=3"},
           {"plan.tensor=2", "reinforcement.generation.tensor=2"},
           {"plan.pipeline=2"},
           {"plan.expert=2", "model.buffer_factor=2"},
           {"plan.expert=2", "model.buffer_factor=2", "plan.zero=1", "reinforcement.generation.tensor=2"}}) {
    std::vector<std::string> all = split(2, plan);
    all.insert(all.begin(), {kExperts, kEps});
    expect_same(learn(Case(all)), one);
  }
}

TEST(Learning, WithExpertsRefusesWhatDependsOnOtherRows) {
  for (const char* key : {"model.capacity_factor", "model.aux_loss"}) try {
      execute::check_learnable(Case({kExperts, std::string(key) + "=1"}).scenario, 1);
      ADD_FAILURE() << key << " is taken";
    } catch (const InputError& error) {
      EXPECT_EQ(error.diagnostics().front().path, key);
    }
}

// Two micro-batches have all sequences, and the schedule takes four.
TEST(Learning, IsScoredInAsManyMicroBatchesAsTheScheduleNeeds) {
  const Learnt one = learn(Case({"model.layers=4"}));
  expect_same(learn(Case(split(2, {"model.layers=4", "plan.pipeline=2", "plan.schedule=dualpipe_v",
                                   "plan.micro_batch=2", "reinforcement.scoring_micro_batch=8"}))),
              one);
}

// As with_chosen_layers of the command chooses them, where the file still says by_time.
TEST(Learning, PerformsTheLayersThatWereChosen) {
  Case of(split(2, {"model.layers=4", "plan.pipeline=2", "plan.layers_per_stage=by_time"}));
  of.scenario.plan.layers_by_time = false;
  of.scenario.plan.layers_per_stage = {3, 1};
  const run::PerformedPhases phases = of.phases();
  EXPECT_EQ(phases.scoring.scenario.plan.layers_per_stage, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(phases.update.scenario.plan.layers_per_stage, (std::vector<std::int64_t>{3, 1}));
  expect_same(learn(of), learn(Case({"model.layers=4"})));
}

// Slopes are of the model's heads, not of a rank's.
TEST(Learning, SlopesByDistanceAreTheSameOnTwoTensorRanks) {
  const Learnt one = learn(Case({"model.position=alibi"}), 2),
               two = learn(
                   Case(split(2, {"model.position=alibi", "plan.tensor=2", "reinforcement.generation.tensor=2"})), 2);
  for (std::size_t step = 0; step < 2; ++step)
    for (std::size_t i = 0; i < one.rollouts[step].sequences.size(); ++i)
      EXPECT_EQ(two.rollouts[step].sequences[i].tokens, one.rollouts[step].sequences[i].tokens) << step << ' ' << i;
}

// In 16 bits what one framework's kernels keep beside the loss has other types. The first step's tokens are by the same
// weights and kernels.
TEST(Learning, FrameworksHaveTheSameLossesIn16Bits) {
  const Learnt own = learn(Case(split(2, {"training.precision=bf16"})), 1),
               fsdp = learn(Case(split(2, {"training.precision=bf16", "framework=torch-fsdp", "plan.zero=3"})), 1);
  for (std::size_t i = 0; i < own.rollouts[0].sequences.size(); ++i)
    ASSERT_EQ(fsdp.rollouts[0].sequences[i].tokens, own.rollouts[0].sequences[i].tokens) << i;
  ASSERT_EQ(fsdp.losses[0].size(), own.losses[0].size());
  double largest = 0;
  for (std::size_t u = 0; u < own.losses[0].size(); ++u) {
    EXPECT_NEAR(fsdp.losses[0][u], own.losses[0][u], 5e-3) << u;
    largest = std::max(largest, std::abs(fsdp.losses[0][u]));
  }
  EXPECT_GT(largest, 2e-2) << "no loss that could be told from none";
}

TEST(Learning, EachStepHasItsOwnShares) {
  const Learnt learnt = learn(Case(split(2, {})));
  ASSERT_EQ(learnt.outcome.shares.size(), 2U);
  for (const auto& steps : learnt.outcome.shares) {
    ASSERT_EQ(steps.size(), learnt.outcome.steps.size());
    for (std::size_t step = 0; step < steps.size(); ++step) {
      std::int64_t sum = 0;
      for (const std::int64_t share : steps[step]) sum += share;
      EXPECT_EQ(sum, Time::from_seconds(learnt.outcome.steps[step].seconds()).ps());
      const std::int64_t compute = steps[step][static_cast<std::size_t>(result::Share::compute)];
      EXPECT_GT(compute, sum / 100) << "step " << step;
    }
  }
}

TEST(Learning, TwoRunsAreTheSameBits) {
  const Case of(split(2, {}));
  const Learnt first = learn(of), second = learn(of);
  for (std::size_t step = 0; step < first.rollouts.size(); ++step) {
    EXPECT_EQ(first.losses[step], second.losses[step]);
    for (std::size_t i = 0; i < first.rollouts[step].sequences.size(); ++i) {
      EXPECT_EQ(first.rollouts[step].sequences[i].tokens, second.rollouts[step].sequences[i].tokens);
      EXPECT_EQ(first.rollouts[step].sequences[i].chosen, second.rollouts[step].sequences[i].chosen);
    }
  }
  EXPECT_EQ(first.outcome.parameters, second.outcome.parameters);
}

TEST(Learning, RewardsRise) {
  const Case of({"model.vocab=12", "reinforcement.prompts=8", "reinforcement.samples=16", "training.global_batch=32",
                 "reinforcement.generation.sequences=64", "plan.micro_batch=16", "reinforcement.epochs=1",
                 "reinforcement.kl=0", "reinforcement.clip=0.2", "training.weight_decay=0", "training.clip=1",
                 "training.lr=5e-3"});
  expect_rewards_rise(learn(of, 60));
}

TEST(Learning, ARankThatThrowsEndsTheRunWithItsNameAndPlace) {
  const Case of(split(2, {"plan.tensor=2"}));
  execute::LearningOptions options;
  options.before_op = [](int rank, std::int64_t step, const program::Op& op) {
    if (rank == 1 && step == 1 && op.name == "layer1.mlp.up.forward") throw std::runtime_error("out of ideas");
  };
  try {
    learn(of, kSteps, options);
    FAIL() << "the run goes on";
  } catch (const execute::RankFailure& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find("out of ideas"), std::string::npos) << text;
  }
}

TEST(Learning, ARankThatThrowsWhileGeneratingEndsTheOtherReplicas) {
  const Case of(split(2, {}));
  execute::LearningOptions options;
  options.before_generating_op = [](int replica, int rank, std::int64_t step, const program::Op& op) {
    if (replica == 1 && rank == 0 && step == 3 && op.name == "layer1.mlp.up.forward")
      throw std::runtime_error("out of words");
  };
  try {
    learn(of, kSteps, options);
    FAIL() << "the run goes on";
  } catch (const execute::RankFailure& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("replica 1 of 2 that generate: rank 0"), std::string::npos) << text;
    EXPECT_NE(text.find("out of words"), std::string::npos) << text;
  }
}

TEST(Learning, ARankThatStopsAnsweringIsNamedAfterTheTimeout) {
  const Case of(split(2, {"plan.tensor=2"}));
  execute::LearningOptions options;
  options.timeout = std::chrono::milliseconds(500);
  options.before_op = [](int rank, std::int64_t step, const program::Op& op) {
    if (rank == 1 && step == 2 && op.name == "layer0.mlp.up.forward")
      std::this_thread::sleep_for(std::chrono::milliseconds(2000));
  };
  try {
    learn(of, kSteps, options);
    FAIL() << "the run goes on";
  } catch (const execute::RankFailure& error) {
    EXPECT_NE(std::string(error.what()).find("waited 0.5 s for rank 1"), std::string::npos) << error.what();
  }
}

TEST(Learning, TheCallersExceptionEndsTheRunAndIsThrownOn) {
  const Case of;
  execute::LearningOptions options;
  int looked = 0;
  options.poll = [&looked] {
    if (++looked == 3) throw std::domain_error("enough");
  };
  EXPECT_THROW(learn(of, 1000, options), std::domain_error);
}

// The rank of an update stands until the caller has been asked.
TEST(Learning, TheCallersExceptionEndsAnUpdateUnderWay) {
  const Case of;
  execute::LearningOptions options;
  std::atomic<bool> updating = false, told = false;
  bool in_time = false;
  options.before_op = [&](int, std::int64_t, const program::Op&) {
    if (updating.exchange(true)) return;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!told && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    in_time = told;
  };
  options.poll = [&] {
    if (!updating) return;
    told = true;
    throw std::domain_error("enough");
  };
  EXPECT_THROW(learn(of, kSteps, options), std::domain_error);
  EXPECT_TRUE(in_time);
}

TEST(Learning, WhatDoesNotFitIsRefusedBeforeItIsTaken) {
  const Case of({"training.seq_len=20000000", "model.max_seq_len=20000000", "reinforcement.prompt_tokens=19999990"});
  try {
    learn(of, 1);
    FAIL() << "it fits";
  } catch (const execute::DoesNotFit& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("the phases' ranks need "), std::string::npos) << text;
    EXPECT_NE(text.find(" and caches of keys and values "), std::string::npos) << text;
  }
}

// Colocated, a device that generates has what it trains.
TEST(Learning, WeightsMoveOnceToEachDeviceThatLacksThem) {
  const auto moved = [](std::vector<std::string> assignments) {
    return learn(Case(std::move(assignments)), 1).outcome.result.reinforcement.moved_bytes;
  };
  const Learnt one = learn(Case(), 1);
  std::int64_t weights = 0;
  for (const auto& [name, values] : one.outcome.parameters) weights += 4 * static_cast<std::int64_t>(values.size());
  EXPECT_EQ(one.outcome.result.reinforcement.moved_bytes, 0);
  EXPECT_EQ(moved(split(2, {})), 0);
  EXPECT_EQ(moved(split(1, {"reinforcement.generation.gpus=2"})), 2 * weights);
  EXPECT_EQ(moved(split(2, {"plan.zero=3"})), 2 * weights - weights);
}

// A record says what tokens of a text chose; those of prompts and responses would be given others' experts.
TEST(Learning, WhatOthersTokensChoseIsRefused) {
  Case of;
  of.scenario.model.routing = model::Routing::recorded;
  try {
    execute::check_learnable(of.scenario, 1);
    ADD_FAILURE() << "accepted";
  } catch (const InputError& error) {
    ASSERT_EQ(error.diagnostics().size(), 1U);
    EXPECT_EQ(error.diagnostics().front().path, "model.routing");
    EXPECT_EQ(error.diagnostics().front().hint, "uniform");
  }
}

}  // namespace
}  // namespace rehearse::numerics
