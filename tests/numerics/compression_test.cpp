// Compressed gradients (plan.gradient_compression), performed, against the arithmetic written out for one process:
// linear regression by SGD, whose oracle has every rank's examples, makes each rank's gradients smaller in double
// precision as sim/base/gradient_code.h says it, and shares with lowering, kernels and the Performer only the first
// values and the examples. Chains that draw at random are held to repeat, and to learn.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/numerics/linear_regression.h"
#include "tests/numerics/plan_runs.h"

namespace rehearse::compression_test {
namespace {

using Values = std::vector<double>;
using numerics::kLinear;
using numerics::kLinearParameters;

constexpr int kSteps = 30;
constexpr double kNear = 1e-6;  // of losses and parameters, absolute; they are of order 1

struct Chain {
  std::string name;
  int bits = 32;
  double share = 1;
  bool feedback = false;
  std::vector<std::string> plan;
};
std::ostream& operator<<(std::ostream& out, const Chain& c) {
  return out << c.name;
}

// What `values` become, 24 of which share a scale, on their way.
Values rounded(const Chain& chain, const Values& values) {
  Values out = values;
  if (chain.bits == 32) return out;
  for (std::size_t begin = 0; begin < values.size(); begin += 24) {
    const std::size_t end = std::min(values.size(), begin + 24);
    double low = values[begin], high = values[begin], mean = 0;
    for (std::size_t i = begin; i < end; ++i) {
      low = std::min(low, values[i]), high = std::max(high, values[i]);
      mean += std::abs(values[i]) / static_cast<double>(end - begin);
    }
    const double step = (high - low) / ((1 << chain.bits) - 1);
    for (std::size_t i = begin; i < end; ++i)
      out[i] = chain.bits == 1 ? std::copysign(mean, values[i]) : low + std::round((values[i] - low) / step) * step;
  }
  return out;
}

Values sent(const Chain& chain, const Values& gradient) {
  if (chain.share == 1) return rounded(chain, gradient);
  std::vector<std::size_t> places(gradient.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::stable_sort(places.begin(), places.end(),
                   [&](std::size_t a, std::size_t b) { return std::abs(gradient[a]) > std::abs(gradient[b]); });
  places.resize(static_cast<std::size_t>(std::llround(chain.share * static_cast<double>(gradient.size()))));
  std::sort(places.begin(), places.end());
  Values chosen, out(gradient.size());
  for (const std::size_t i : places) chosen.push_back(gradient[i]);
  chosen = rounded(chain, chosen);
  for (std::size_t j = 0; j < places.size(); ++j) out[places[j]] = chosen[j];
  return out;
}

// A bucket has the bias, then the weights, in the order of backward.
struct Plain {
  Values losses, parameters;

  Plain(const plan::Scenario& s, const Chain& chain, std::size_t ranks) {
    numerics::LinearRegression regression(s);
    parameters = regression.first();
    const std::int64_t batch = s.training.global_batch, each = batch / static_cast<std::int64_t>(ranks);
    std::vector<Values> residual(ranks, Values(kLinearParameters));
    for (int step = 0; step < kSteps; ++step) {
      Values sum(kLinearParameters);
      losses.push_back(0);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        Values gradient(kLinearParameters);
        for (std::int64_t i = 0; i < each; ++i) {
          const std::int64_t example = step * batch + static_cast<std::int64_t>(rank) * each + i;
          losses.back() += regression.add_gradient(parameters, example, 1 / static_cast<double>(batch), gradient) /
                           static_cast<double>(batch);
        }
        for (std::size_t i = 0; i < kLinearParameters; ++i) gradient[i] += residual[rank][i];
        const Values went = sent(chain, gradient);
        for (std::size_t i = 0; i < kLinearParameters; ++i) {
          sum[i] += went[i];
          if (chain.feedback) residual[rank][i] = gradient[i] - went[i];
        }
      }
      for (std::size_t i = 0; i < kLinearParameters; ++i) parameters[i] -= s.training.lr * sum[i];
    }
  }
};

class Compressed : public testing::TestWithParam<Chain> {};

TEST_P(Compressed, TrainsAsTheArithmeticWrittenOut) {
  const Chain& chain = GetParam();
  const plan::Scenario scenario = scenario_from(kLinear, chain.plan);
  const Plain plain(scenario, chain, 4);
  const execute::Outcome outcome = performed(scenario, kSteps);
  ASSERT_EQ(outcome.result.loss.size(), plain.losses.size());
  EXPECT_LT(plain.losses.back(), 0.7 * plain.losses.front()) << "too little is learnt for the curve to say much";
  for (std::size_t s = 0; s < plain.losses.size(); ++s)
    ASSERT_NEAR(outcome.result.loss[s], plain.losses[s], kNear) << "step " << s;
  for (std::size_t i = 0; i < kLinearParameters; ++i) {
    const bool bias = i < numerics::kLinearOutputs;
    const auto& values = outcome.parameters.at(bias ? "linear0.bias" : "linear0.weight");
    EXPECT_NEAR(static_cast<double>(values[bias ? i : i - numerics::kLinearOutputs]), plain.parameters[i], kNear) << i;
  }
}

std::vector<std::string> chain_keys(const std::string& chain) {
  return {"plan.gradient_compression=[" + chain + "]", "plan.gradient_chunk=24", "plan.gradient_share=0.25"};
}

INSTANTIATE_TEST_SUITE_P(Chains, Compressed,
                         testing::Values(Chain{"Int8", 8, 1, false, chain_keys("int8")},
                                         Chain{"Int4Feedback", 4, 1, true, chain_keys("int4, error_feedback")},
                                         Chain{"SignFeedback", 1, 1, true, chain_keys("sign, error_feedback")},
                                         Chain{"TopK", 32, 0.25, false, chain_keys("top_k")},
                                         Chain{"TopKFeedback", 32, 0.25, true, chain_keys("top_k, error_feedback")},
                                         Chain{"TopKInt8Feedback", 8, 0.25, true,
                                               chain_keys("top_k, int8, error_feedback")}),
                         [](const auto& tested) { return tested.param.name; });

// A GPT over two stages of two replicas, buckets of 8 KiB: the same bits again, and it learns.
TEST(CompressedPlans, RepeatBitByBitAndLearn) {
  for (const char* chain :
       {"random_k, error_feedback", "random_k", "int4, stochastic", "top_k, int8, error_feedback"}) {
    const Assignments plan =
        grid(4, 1, 2, 0,
             {"model.tied_embeddings=false", "plan.gradient_compression=[" + std::string(chain) + "]",
              "plan.gradient_share=0.3", "plan.micro_batch=3", "model.layers=2"});
    const execute::Outcome one = perform(kGpt, plan, 12), other = perform(kGpt, plan, 12);
    EXPECT_EQ(one.result.loss, other.result.loss) << chain;
    EXPECT_EQ(one.parameters, other.parameters) << chain;
    EXPECT_LT(mean_of_last_5(one.result.loss), one.result.loss.front()) << chain;
  }
}

// All gradients, none rounded: what is gathered and added up is what an all-reduce gives.
TEST(CompressedPlans, AllOfThemInFp32AreTheAllReducesSums) {
  for (const char* kept : {"top_k", "random_k"}) {
    const Assignments both = {"model.layers=2", "cluster.gpus=2", "plan.micro_batch=6"};
    Assignments all = both;
    all.insert(all.end(), {"plan.gradient_compression=[" + std::string(kept) + "]", "plan.gradient_share=1"});
    const std::vector<double> plain = perform(kGpt, both, 8).result.loss, sent = perform(kGpt, all, 8).result.loss;
    for (std::size_t s = 0; s < plain.size(); ++s) EXPECT_NEAR(sent[s] / plain[s], 1, 1e-6) << kept << ", step " << s;
  }
}

}  // namespace
}  // namespace rehearse::compression_test
