// Local steps (plan.local_steps), performed, against the arithmetic written out for one process: linear regression
// whose oracle has all workers' parameters, steps each by its own examples in double precision and makes them one again
// as local SGD, FedAvg and DiLoCo do; it shares with lowering, kernels and the Performer only the first values and the
// examples. And against what must be the same: data parallelism where a round is one step of SGD, fewer and larger
// workers, and workers that are themselves split.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/numerics/linear_regression.h"
#include "tests/numerics/plan_runs.h"

namespace rehearse::local_steps_test {
namespace {

using Values = std::vector<double>;
using numerics::kLinear;

constexpr int kSteps = 20;
constexpr double kNear = 1e-5;  // of losses and parameters, absolute; they are of order 1
constexpr std::size_t kParameters = numerics::kLinearParameters;

const Assignments kAdamW = {"training.optimizer=adamw", "training.lr=0.02", "training.betas=[0.9, 0.99]",
                            "training.weight_decay=0.1"};

// A worker's parameters and what its optimizer keeps.
struct Worker {
  Values p, m = Values(kParameters), v = Values(kParameters);

  void step(const plan::Training& t, int step, const Values& gradient) {
    for (std::size_t i = 0; i < kParameters; ++i) numerics::plain_step(t, step + 1, gradient[i], p[i], m[i], v[i]);
  }
};

struct Plain {
  Values losses, parameters;

  Plain(const plan::Scenario& s, std::size_t workers) : scenario_(s), workers_(workers), regression_(s) {
    const Values& first = regression_.first();
    std::vector<Worker> all(workers, Worker{first});
    Values outer = first, momentum(kParameters);
    for (int step = 0; step < kSteps; ++step) {
      losses.push_back(0);
      for (std::size_t w = 0; w < workers; ++w) all[w].step(s.training, step, gradient_of(all[w].p, step, w));
      if ((step + 1) % s.plan.local_steps == 0) become_one(all, outer, momentum);
    }
    parameters = all.front().p;
  }

 private:
  // The mean over the worker's own examples; adds to the loss, which is of all.
  Values gradient_of(const Values& p, int step, std::size_t worker) {
    const std::int64_t batch = scenario_.training.global_batch, each = batch / static_cast<std::int64_t>(workers_);
    Values gradient(kParameters);
    for (std::int64_t i = 0; i < each; ++i) {
      const std::int64_t example = step * batch + static_cast<std::int64_t>(worker) * each + i;
      losses.back() +=
          regression_.add_gradient(p, example, 1 / static_cast<double>(each), gradient) / static_cast<double>(batch);
    }
    return gradient;
  }

  void become_one(std::vector<Worker>& all, Values& outer, Values& momentum) const {
    const plan::Plan& plan = scenario_.plan;
    for (std::size_t i = 0; i < kParameters; ++i) {
      double mean = 0;
      for (const Worker& w : all) mean += w.p[i] / static_cast<double>(all.size());
      if (plan.outer_optimizer == plan::OuterOptimizer::nesterov) {
        const double gradient = outer[i] - mean;
        momentum[i] = plan.outer_momentum * momentum[i] + gradient;
        outer[i] -= plan.outer_lr * (gradient + plan.outer_momentum * momentum[i]);
      } else {
        outer[i] = mean;
      }
      for (Worker& w : all) w.p[i] = outer[i];
    }
  }

  const plan::Scenario& scenario_;
  std::size_t workers_;
  numerics::LinearRegression regression_;
};

struct Rounds {
  std::string name;
  Assignments plan;
  std::size_t workers = 4;
};
std::ostream& operator<<(std::ostream& out, const Rounds& r) {
  return out << r.name;
}

class LocalSteps : public testing::TestWithParam<Rounds> {};

TEST_P(LocalSteps, TrainAsTheArithmeticWrittenOut) {
  const plan::Scenario scenario = scenario_from(kLinear, GetParam().plan);
  const Plain plain(scenario, GetParam().workers);
  const execute::Outcome outcome = performed(scenario, kSteps);
  ASSERT_EQ(outcome.result.loss.size(), plain.losses.size());
  EXPECT_LT(plain.losses.back(), 0.8 * plain.losses.front()) << "too little is learnt for the curve to say much";
  for (std::size_t s = 0; s < plain.losses.size(); ++s)
    ASSERT_NEAR(outcome.result.loss[s], plain.losses[s], kNear) << "step " << s;
  for (std::size_t i = 0; i < kParameters; ++i) {
    const float value =
        i < 2 ? outcome.parameters.at("linear0.bias")[i] : outcome.parameters.at("linear0.weight")[i - 2];
    EXPECT_NEAR(static_cast<double>(value), plain.parameters[i], kNear) << i;
  }
}

Assignments rounds_of(int steps, const Assignments& more = {}) {
  Assignments all = {"plan.local_steps=" + std::to_string(steps)};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Assignments joined(Assignments one, const Assignments& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

const Assignments kNesterov = {"plan.outer_optimizer=nesterov", "plan.outer_lr=0.7", "plan.outer_momentum=0.6"};

INSTANTIATE_TEST_SUITE_P(
    Outer, LocalSteps,
    testing::Values(
        Rounds{"LocalSgd", rounds_of(4)},
        Rounds{"FedAvgWithMomentum", rounds_of(5, {"training.momentum=0.5", "training.lr=0.05"})},
        Rounds{"AveragedAdamW", rounds_of(4, kAdamW)}, Rounds{"DiLoCo", joined(rounds_of(5, kNesterov), kAdamW)},
        Rounds{"DiLoCoOfSgd", rounds_of(2, joined(kNesterov, {"training.lr=0.05"}))},
        Rounds{"DiLoCoWithoutMomentum",
               joined(rounds_of(4, {"plan.outer_optimizer=nesterov", "plan.outer_momentum=0"}), kAdamW)},
        Rounds{"DiLoCoOfWorkersOfTwo", joined(rounds_of(4, joined(kNesterov, {"plan.local_group=2"})), kAdamW), 2},
        Rounds{"AveragesOfWorkersOfFourPadded",
               joined(rounds_of(4, {"cluster.gpus=8", "plan.micro_batch=1", "plan.bucket=4B", "plan.local_group=4"}),
                      kAdamW),
               2},
        Rounds{"DiLoCoInParts",
               joined(rounds_of(4, joined(kNesterov, {"plan.micro_batch=1", "plan.bucket=4B"})), kAdamW)}),
    [](const auto& tested) { return tested.param.name; });

double farthest(const execute::Outcome& a, const execute::Outcome& b) {
  double most = 0;
  for (std::size_t s = 0; s < a.result.loss.size(); ++s)
    most = std::max(most, std::abs(a.result.loss[s] / b.result.loss[s] - 1));
  return std::max(most, distance(a.parameters, b.parameters));
}

const Assignments kSgd = {"training.optimizer=sgd", "training.momentum=0", "training.clip=0", "training.lr=0.05",
                          "model.layers=2"};

// The mean of parameters that have each moved by their own gradient is the parameters moved by the mean gradient.
TEST(LocalStepPlans, OneStepOfSgdAveragedIsDataParallelism) {
  const Assignments plan = joined(grid(4, 1, 1, 0, {"plan.micro_batch=3"}), kSgd);
  const execute::Outcome together = perform(kGpt, plan), apart = perform(kGpt, joined(plan, rounds_of(1)));
  EXPECT_LT(farthest(together, apart), 1e-5);
  EXPECT_GT(farthest(together, perform(kGpt, joined(plan, rounds_of(4)))), 1e-4) << "rounds of 4 are something else";
}

TEST(LocalStepPlans, AnOuterRateOfOneWithoutMomentumAverages) {
  const Assignments plan = joined(grid(2, 1, 1, 0, {"plan.micro_batch=6"}), {"model.layers=2"});
  for (const int steps : {1, 4}) {
    const execute::Outcome mean = perform(kGpt, joined(plan, rounds_of(steps)));
    const execute::Outcome moved = perform(
        kGpt,
        joined(plan, rounds_of(steps, {"plan.outer_optimizer=nesterov", "plan.outer_lr=1", "plan.outer_momentum=0"})));
    EXPECT_LT(farthest(mean, moved), 1e-5) << steps;
  }
}

// Two workers, each one rank, or of two ranks, or split over a tensor group and two stages, or over a context group.
TEST(LocalStepPlans, HowAWorkerIsSplitChangesNothing) {
  const Assignments outer = joined(rounds_of(4, kNesterov), {"model.layers=2"});
  const execute::Outcome whole = perform(kGpt, joined(grid(2, 1, 1, 0, {"plan.micro_batch=6"}), outer));
  EXPECT_LT(mean_of_last_5(whole.result.loss), whole.result.loss.front()) << "nothing is learnt";
  for (const Assignments& split :
       {grid(4, 1, 1, 0, {"plan.micro_batch=3", "plan.local_group=2"}), grid(8, 2, 2, 0, {"plan.micro_batch=2"}),
        grid(8, 2, 2, 0, {"plan.micro_batch=1", "plan.schedule=1f1b", "plan.sequence_parallel=true"}),
        grid(4, 1, 1, 0, {"plan.micro_batch=6", "plan.context=2"})}) {
    const execute::Outcome many = perform(kGpt, joined(split, outer));
    for (std::size_t step = 0; step < whole.result.loss.size(); ++step)
      ASSERT_NEAR(many.result.loss[step] / whole.result.loss[step], 1, kLossTolerance) << split.front() << " " << step;
    EXPECT_LT(distance(whole.parameters, many.parameters), kParameterTolerance);
  }
}

// In 16 bits it is the fp32 copies that become one.
TEST(LocalStepPlans, SixteenBitsKeepToFp32) {
  const Assignments plan = joined(grid(2, 1, 1, 0, {"plan.micro_batch=6"}), {"model.layers=2"});
  for (const Assignments& outer : {rounds_of(4), rounds_of(4, kNesterov)}) {
    const execute::Outcome wide = perform(kGpt, joined(plan, outer));
    const execute::Outcome half = perform(kGpt, joined(joined(plan, outer), {"training.precision=bf16"}));
    for (std::size_t step = 0; step < wide.result.loss.size(); ++step)
      EXPECT_NEAR(half.result.loss[step] / wide.result.loss[step], 1, 2e-3) << step;
  }
}

TEST(LocalStepPlans, AMeasuredRunSaysWhatARoundIsMadeOf) {
  const execute::Outcome run = perform(kGpt, joined(grid(2, 1, 1, 0, {"plan.micro_batch=6"}), rounds_of(4)), 12);
  const result::LocalSteps& l = run.result.local_steps;
  ASSERT_TRUE(l.known);
  EXPECT_EQ(l.steps, 4);
  EXPECT_EQ(l.workers, 2);
  EXPECT_EQ(l.outer, "average");
  EXPECT_EQ(run.result.step_time_ps, l.round_ps / 4);
  EXPECT_GT(l.inner_ps, 0);
}

}  // namespace
}  // namespace rehearse::local_steps_test
