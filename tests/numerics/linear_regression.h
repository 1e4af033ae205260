// Linear regression of ten features to two values (family mlp with `loss: mse`), as it is performed and as the
// arithmetic is written out in double precision: what oracles of optimizers and of what goes over the wire begin with.
// It shares with lowering, kernels and the Performer only the first values and the examples.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "execute/data.h"
#include "execute/rank/initial_values.h"
#include "sim/plan/scenario.h"

namespace rehearse::numerics {

inline constexpr std::size_t kLinearInputs = 10, kLinearOutputs = 2;
inline constexpr std::size_t kLinearParameters = kLinearOutputs * (1 + kLinearInputs);  // the biases first

inline const std::string kLinear =
    "rehearse: 1\n"
    "model: {family: mlp, widths: [10, 2], loss: mse}\n"
    "cluster: {topology: local, gpus: 4}\n"
    "plan: {micro_batch: 2}\n"
    "training: {global_batch: 8, precision: fp32, optimizer: sgd, lr: 0.1, momentum: 0, weight_decay: 0, clip: 0, "
    "seed: 7}\n";

// One parameter's step by SGD or AdamW as training says, at its rate `lr`; of AdamW the `update`-th, from 1.
inline void plain_step(const plan::Training& t, double update, double gradient, double& p, double& m, double& v) {
  if (t.optimizer == plan::OptimizerKind::sgd) {
    m = t.momentum * m + gradient;
    p -= t.lr * (t.momentum > 0 ? m : gradient);
    return;
  }
  m = t.beta1 * m + (1 - t.beta1) * gradient;
  v = t.beta2 * v + (1 - t.beta2) * gradient * gradient;
  const double first = m / (1 - std::pow(t.beta1, update)), second = v / (1 - std::pow(t.beta2, update));
  p -= t.lr * t.weight_decay * p + t.lr * first / (std::sqrt(second) + t.eps);
}

class LinearRegression {
 public:
  using Values = std::vector<double>;

  explicit LinearRegression(const plan::Scenario& s, std::size_t inputs = kLinearInputs,
                            std::size_t outputs = kLinearOutputs)
      : data_(execute::open_data(s.model, 1, s.training.seed, "")), x_(inputs), value_(outputs) {
    std::vector<float> bias(outputs), weights(outputs * inputs);
    const double scale = 1 / std::sqrt(static_cast<double>(inputs));
    const auto draw = [&](const char* name, std::vector<float>& to) {
      execute::draw_values(program::Init::Kind::uniform, scale, name, s.training.seed, 0, to.size(), to.data());
    };
    draw("linear0.bias", bias);
    draw("linear0.weight", weights);
    first_.assign(bias.begin(), bias.end());
    first_.insert(first_.end(), weights.begin(), weights.end());
  }

  const Values& first() const { return first_; }

  // Adds an example's gradients of its squared error, the mean over the outputs, at parameters p, times `weight`;
  // returns that error.
  double add_gradient(const Values& p, std::int64_t example, double weight, Values& gradient) {
    data_->load(program::InputKind::features, {example}, x_.size(), x_.data());
    data_->load(program::InputKind::values, {example}, value_.size(), value_.data());
    const double each = 2 * weight / static_cast<double>(value_.size());
    double squares = 0;
    for (std::size_t k = 0; k < value_.size(); ++k) {
      const std::size_t row = value_.size() + k * x_.size();
      double error = p[k] - static_cast<double>(value_[k]);
      for (std::size_t j = 0; j < x_.size(); ++j) error += p[row + j] * static_cast<double>(x_[j]);
      squares += error * error / static_cast<double>(value_.size());
      gradient[k] += error * each;
      for (std::size_t j = 0; j < x_.size(); ++j) gradient[row + j] += error * each * static_cast<double>(x_[j]);
    }
    return squares;
  }

 private:
  std::unique_ptr<execute::Data> data_;
  std::vector<float> x_, value_;
  Values first_;
};

}  // namespace rehearse::numerics
