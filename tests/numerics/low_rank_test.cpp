// PowerSGD and Deep Gradient Compression, performed, against the arithmetic written out for one process: linear
// regression of 12 features to 8 values by SGD, whose oracle has every rank's examples. PowerSGD is written down as in
// the paper (arXiv 1905.13727, algorithms 1 and 2: Q is not made orthogonal), Deep Gradient Compression as in algorithm
// 1 of its paper (arXiv 1712.01887) with momentum factor masking. They share with lowering, kernels and the Performer
// the first values, Q's among them, and the examples.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "execute/rank/initial_values.h"
#include "tests/numerics/linear_regression.h"
#include "tests/numerics/plan_runs.h"

namespace rehearse::low_rank_test {
namespace {

using Values = std::vector<double>;

constexpr std::size_t kIn = 12, kOut = 8, kAll = kOut * (1 + kIn);  // the biases first
constexpr int kSteps = 20;
constexpr double kNear = 1e-5;  // of losses and parameters, absolute; they are of order 1

std::string text_of(int ranks) {
  return "rehearse: 1\nmodel: {family: mlp, widths: [12, 8], loss: mse}\ncluster: {topology: local, gpus: " +
         std::to_string(ranks) +
         "}\nplan: {micro_batch: 2}\n"
         "training: {global_batch: 8, precision: fp32, optimizer: sgd, lr: 0.3, momentum: 0, weight_decay: 0, clip: 0, "
         "seed: 7}\n";
}

// What every step does to the gradients of all ranks, which become one sum.
template <class Reduce>
void expect_trains_as(const plan::Scenario& s, std::size_t ranks, double learnt, Reduce reduce) {
  numerics::LinearRegression regression(s, kIn, kOut);
  Values parameters = regression.first();
  const std::int64_t batch = s.training.global_batch, each = batch / static_cast<std::int64_t>(ranks);
  const execute::Outcome outcome = performed(s, kSteps);
  ASSERT_EQ(outcome.result.loss.size(), static_cast<std::size_t>(kSteps));
  double first = 0, last = 0;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Values> gradients(ranks, Values(kAll));
    last = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (std::int64_t i = 0; i < each; ++i)
        last += regression.add_gradient(parameters, step * batch + static_cast<std::int64_t>(rank) * each + i,
                                        1 / static_cast<double>(batch), gradients[rank]) /
                static_cast<double>(batch);
    if (step == 0) first = last;
    ASSERT_NEAR(outcome.result.loss[static_cast<std::size_t>(step)], last, kNear) << "step " << step;
    const Values sum = reduce(step, gradients);
    for (std::size_t i = 0; i < kAll; ++i) parameters[i] -= s.training.lr * sum[i];
  }
  EXPECT_LT(last, learnt * first) << "too little is learnt for the curve to say much";
  for (std::size_t i = 0; i < kAll; ++i) {
    const auto& values = outcome.parameters.at(i < kOut ? "linear0.bias" : "linear0.weight");
    EXPECT_NEAR(static_cast<double>(values[i < kOut ? i : i - kOut]), parameters[i], kNear) << i;
  }
}

Values sum_of(const std::vector<Values>& gradients) {
  Values sum(kAll);
  for (const Values& g : gradients)
    for (std::size_t i = 0; i < kAll; ++i) sum[i] += g[i];
  return sum;
}

class PowerSgd {
 public:
  PowerSgd(const plan::Scenario& s, std::size_t ranks, std::size_t rank, bool feedback, int start)
      : rank_(rank), feedback_(feedback), start_(start), q_(kIn * rank), error_(ranks, Values(kAll)) {
    std::vector<float> drawn(q_.size());
    execute::draw_values(program::Init::Kind::normal, 1, "right.bucket0", s.training.seed, 0,
                         static_cast<std::int64_t>(drawn.size()), drawn.data());
    q_.assign(drawn.begin(), drawn.end());
  }

  Values operator()(int step, std::vector<Values> gradients) {
    if (step < start_ || gradients.size() == 1) return sum_of(gradients);
    if (feedback_)
      for (std::size_t w = 0; w < gradients.size(); ++w)
        for (std::size_t i = kOut; i < kAll; ++i) gradients[w][i] += error_[w][i];
    Values sum = sum_of(gradients), p(kOut * rank_), q(kIn * rank_);
    for (std::size_t i = 0; i < kOut; ++i)
      for (std::size_t j = 0; j < kIn; ++j)
        for (std::size_t k = 0; k < rank_; ++k) p[i * rank_ + k] += sum[kOut + i * kIn + j] * q_[j * rank_ + k];
    orthonormalise(p);
    for (std::size_t i = 0; i < kOut; ++i)
      for (std::size_t j = 0; j < kIn; ++j)
        for (std::size_t k = 0; k < rank_; ++k) q[j * rank_ + k] += sum[kOut + i * kIn + j] * p[i * rank_ + k];
    q_ = q;
    for (std::size_t i = 0; i < kOut; ++i)
      for (std::size_t j = 0; j < kIn; ++j) {
        double& m = sum[kOut + i * kIn + j];
        m = 0;
        for (std::size_t k = 0; k < rank_; ++k) m += p[i * rank_ + k] * q[j * rank_ + k];
      }
    for (std::size_t w = 0; w < gradients.size(); ++w)
      for (std::size_t i = kOut; i < kAll; ++i)
        error_[w][i] = gradients[w][i] - sum[i] / static_cast<double>(gradients.size());
    return sum;
  }

 private:
  void orthonormalise(Values& p) const {
    for (std::size_t k = 0; k < rank_; ++k) {
      for (std::size_t before = 0; before < k; ++before) {
        double dot = 0;
        for (std::size_t i = 0; i < kOut; ++i) dot += p[i * rank_ + k] * p[i * rank_ + before];
        for (std::size_t i = 0; i < kOut; ++i) p[i * rank_ + k] -= dot * p[i * rank_ + before];
      }
      double squares = 0;
      for (std::size_t i = 0; i < kOut; ++i) squares += p[i * rank_ + k] * p[i * rank_ + k];
      for (std::size_t i = 0; i < kOut; ++i) p[i * rank_ + k] /= std::sqrt(squares);
    }
  }

  std::size_t rank_;
  bool feedback_;
  int start_;
  Values q_;
  std::vector<Values> error_;
};

plan::Scenario scenario_of(int ranks, Assignments keys) {
  plan::Scenario s = scenario_from(text_of(ranks), keys);
  s.purpose = plan::Purpose::perform;
  return s;
}

TEST(PowerSgd, TrainsAsTheArithmeticWrittenOut) {
  for (const int ranks : {1, 2, 4})
    for (const auto& [rank, feedback, start] : {std::tuple{1, true, 0}, {2, true, 0}, {1, false, 0}, {2, true, 3}}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, rank " << rank << (feedback ? ", feedback" : "")
                                      << ", from step " << start);
      const plan::Scenario s = scenario_of(
          ranks, {std::string("plan.gradient_compression=[power_sgd") + (feedback ? ", error_feedback]" : "]"),
                  "plan.gradient_rank=" + std::to_string(rank), "plan.gradient_start_step=" + std::to_string(start)});
      expect_trains_as(s, static_cast<std::size_t>(ranks), feedback ? 0.7 : 0.75,
                       PowerSgd(s, static_cast<std::size_t>(ranks), static_cast<std::size_t>(rank), feedback, start));
    }
}

// As many columns as the matrix has rows: its approximation is the matrix.
TEST(PowerSgd, OfFullRankIsTheAllReduce) {
  const plan::Scenario s =
      scenario_of(4, {"plan.gradient_compression=[power_sgd]", "plan.gradient_rank=8", "plan.gradient_min_rate=0"});
  expect_trains_as(s, 4, 0.7, [](int, const std::vector<Values>& gradients) { return sum_of(gradients); });
}

class DeepGradientCompression {
 public:
  DeepGradientCompression(const plan::Scenario& s, std::size_t ranks, std::vector<std::size_t> kept, int warmup)
      : mu_(s.training.momentum),
        clip_(s.training.clip),
        kept_(std::move(kept)),
        warmup_(warmup),
        u_(ranks, Values(kAll)),
        v_(ranks, Values(kAll)) {}

  Values operator()(int step, const std::vector<Values>& gradients) {
    Values sum(kAll);
    const auto stage = warmup_ > 0 ? static_cast<std::size_t>(step / warmup_) : kept_.size();
    const std::size_t k = kept_[std::min(stage, kept_.size() - 1)];
    for (std::size_t w = 0; w < gradients.size(); ++w) {
      const Values& g = gradients[w];
      const double norm = std::sqrt(std::inner_product(g.begin(), g.end(), g.begin(), 0.0));
      const double most = clip_ / std::sqrt(static_cast<double>(gradients.size()));
      const double factor = clip_ > 0 ? std::min(1.0, most / (norm + 1e-6)) : 1;
      if (factor < 1) ++clipped_;
      for (std::size_t i = 0; i < kAll; ++i) {
        u_[w][i] = mu_ * u_[w][i] + factor * g[i];
        v_[w][i] += u_[w][i];
      }
      std::vector<std::size_t> places(kAll);
      std::iota(places.begin(), places.end(), std::size_t{0});
      std::stable_sort(places.begin(), places.end(),
                       [&](std::size_t a, std::size_t b) { return std::abs(v_[w][a]) > std::abs(v_[w][b]); });
      for (std::size_t j = 0; j < k; ++j) {
        sum[places[j]] += v_[w][places[j]];
        v_[w][places[j]] = u_[w][places[j]] = 0;
      }
    }
    return sum;
  }
  int clipped() const { return clipped_; }

 private:
  double mu_, clip_;
  std::vector<std::size_t> kept_;
  int warmup_;
  std::vector<Values> u_, v_;
  int clipped_ = 0;
};

// Of 104 gradients a fourth, a sixteenth, and then 2%.
TEST(DeepGradientCompression, TrainsAsTheArithmeticWrittenOut) {
  for (const int ranks : {2, 4})
    for (const auto& [warmup, clip] : {std::pair{0, 0.0}, {4, 0.0}, {4, 0.2}}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, warm-up " << warmup << ", clip " << clip);
      const plan::Scenario s = scenario_of(
          ranks, {"plan.gradient_compression=[top_k, momentum_correction]", "plan.gradient_share=0.02",
                  "training.momentum=0.8", "training.lr=0.1", "plan.overlap_grad_reduce=false",
                  "plan.gradient_warmup_steps=" + std::to_string(warmup), "training.clip=" + std::to_string(clip)});
      DeepGradientCompression plain(s, static_cast<std::size_t>(ranks),
                                    warmup > 0 ? std::vector<std::size_t>{26, 7, 2} : std::vector<std::size_t>{2},
                                    warmup);
      expect_trains_as(s, static_cast<std::size_t>(ranks), 0.95, std::ref(plain));
      EXPECT_EQ(plain.clipped() > 0, clip > 0);
    }
}

// One rank sends nothing: momentum and clipping are the optimizer's.
TEST(DeepGradientCompression, OfOneRankIsSgd) {
  const Assignments keys = {"training.momentum=0.8", "training.clip=0.6", "plan.overlap_grad_reduce=false"};
  Assignments corrected = keys;
  corrected.push_back("plan.gradient_compression=[top_k, momentum_correction]");
  EXPECT_EQ(performed(scenario_of(1, corrected), 8).result.loss, performed(scenario_of(1, keys), 8).result.loss);
}

// A GPT over two stages of two replicas, of many buckets and of matrices that come in several dimensions.
TEST(LowRankPlans, RepeatBitByBitAndLearn) {
  const Assignments plan = grid(4, 1, 2, 0,
                                {"model.tied_embeddings=false", "plan.micro_batch=3", "model.layers=2",
                                 "plan.gradient_compression=[power_sgd, error_feedback]", "plan.gradient_rank=2"});
  const execute::Outcome one = perform(kGpt, plan, 12), other = perform(kGpt, plan, 12);
  EXPECT_EQ(one.result.loss, other.result.loss);
  EXPECT_EQ(one.parameters, other.parameters);
  EXPECT_LT(mean_of_last_5(one.result.loss), one.result.loss.front());
}

}  // namespace
}  // namespace rehearse::low_rank_test
