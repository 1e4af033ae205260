// What the plain models share (plain_bert.h, plain_t5.h): matrices in double, a tape that runs derivatives backwards,
// and parameters with AdamW's step. It shares no code with lowering, kernels or the Performer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/numerics/plain_gpt.h"

namespace rehearse::numerics {

struct PlainMatrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> value, gradient;

  PlainMatrix(std::int64_t r, std::int64_t c)
      : rows(r), cols(c), value(static_cast<std::size_t>(r * c)), gradient(value.size()) {}
  double& at(std::int64_t r, std::int64_t c) { return value[static_cast<std::size_t>(r * cols + c)]; }
  double& d(std::int64_t r, std::int64_t c) { return gradient[static_cast<std::size_t>(r * cols + c)]; }
};
using M = std::shared_ptr<PlainMatrix>;

double plain_gelu(double x);  // by tanh
double plain_gelu_slope(double x);

// Where a head's columns lie: `query` in steps of its operand, `key` and `value` in theirs.
struct HeadPlaces {
  std::int64_t query_step, key_step, key, value;
};

// Runs what it recorded backwards, last first.
class PlainTape {
 public:
  M make(std::int64_t rows, std::int64_t cols) { return std::make_shared<PlainMatrix>(rows, cols); }
  void record(std::function<void()> derivative) { derivatives_.push_back(std::move(derivative)); }
  void backward() {
    for (std::size_t i = derivatives_.size(); i-- > 0;) derivatives_[i]();
  }

  // y = x w^T + b; b is [1, out], or null.
  M linear(const M& x, const M& w, const M& b = nullptr);
  M add(const M& a, const M& b);
  M layer_norm(const M& x, const M& gamma, const M& beta);
  M scale(const M& x, double by);
  M rows(const M& table, const std::vector<std::int32_t>& which);
  M each(const M& x, double (*f)(double), double (*slope)(double));
  // softmax(scale q k^T + bias) v by head. bias [heads, buckets], or null; `bucket(i, j)` of query i and key j, -1
  // where it does not see it.
  M attention(const M& q, const M& kv, std::int64_t heads, std::int64_t width, const HeadPlaces& at, double scale,
              const M& bias, const std::function<std::int64_t(std::int64_t, std::int64_t)>& bucket);
  // Returns the sum over the rows times `weight`; its derivative begins the tape's way back.
  double cross_entropy(const M& logits, const std::vector<std::int32_t>& targets, double weight);

 private:
  std::vector<std::function<void()>> derivatives_;
};

// By name, with gradients and AdamW's averages.
class PlainParameters {
 public:
  using Initial = std::function<float(const std::string& name, std::int64_t global_index)>;
  struct Parameter {
    std::int64_t rows = 0, cols = 0;
    std::vector<double> value, gradient, exp_avg, exp_avg_sq;
  };
  std::map<std::string, Parameter>& parameters() { return parameters_; }

 protected:
  void add(const std::string& name, std::int64_t rows, std::int64_t cols, const Initial& initial);
  // One matrix of each parameter that an example uses, whatever how often.
  struct Used {
    PlainTape& tape;
    std::map<std::string, Parameter>& parameters;
    std::map<std::string, M> matrices = {};
    const M& operator()(const std::string& name);
  };
  Used used(PlainTape& tape) { return {tape, parameters_}; }
  void add_gradients(const Used& used);
  void clear_gradients();
  void update(const AdamWSettings& settings);
  // The loss over a batch's targets, each of which weighs the same; replaces the gradients. loss(example, weight) adds
  // to them.
  template <class Example, class Loss>
  double mean_over_targets(const std::vector<Example>& batch, const Loss& loss) {
    std::size_t targets = 0;
    for (const Example& e : batch) targets += e.targets.size();
    clear_gradients();
    double sum = 0;
    for (const Example& e : batch) sum += loss(e, 1 / static_cast<double>(targets));
    return sum;
  }
  // The loss of each step before its update; batch(step, index) gives an example.
  template <class Model, class Example>
  static std::vector<double> train_on(Model& model, std::int64_t steps, std::int64_t global_batch,
                                      const AdamWSettings& settings,
                                      const std::function<Example(std::int64_t step, std::int64_t index)>& data) {
    std::vector<double> losses;
    for (std::int64_t step = 0; step < steps; ++step) {
      std::vector<Example> batch;
      for (std::int64_t i = 0; i < global_batch; ++i) batch.push_back(data(step, i));
      losses.push_back(model.loss_and_gradients(batch));
      model.update(settings);
    }
    return losses;
  }

 private:
  std::map<std::string, Parameter> parameters_;
  std::int64_t updates_ = 0;
};

}  // namespace rehearse::numerics
