// See plain_t5.h.
#include "tests/numerics/plain_t5.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace rehearse::numerics {

std::int64_t t5_bucket(std::int64_t behind, std::int64_t buckets, std::int64_t farthest, bool both) {
  if (!both && behind >= 0) return 0;
  const std::int64_t own = both ? buckets / 2 : buckets, exact = own / 2, away = behind < 0 ? -behind : behind;
  std::int64_t bucket = away;
  if (away >= exact) {
    // The steps of the ratio away / exact up to farthest / exact, in own - exact equal ones of its logarithm.
    bucket = exact;
    while (bucket + 1 < own &&
           std::pow(static_cast<double>(away) / static_cast<double>(exact), static_cast<double>(own - exact)) >=
               std::pow(static_cast<double>(farthest) / static_cast<double>(exact),
                        static_cast<double>(bucket + 1 - exact)) *
                   (1 - 1e-9))
      ++bucket;
  }
  return both && behind > 0 ? own + bucket : bucket;
}

namespace {

struct Rows {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> value, gradient;

  Rows(std::int64_t r, std::int64_t c)
      : rows(r), cols(c), value(static_cast<std::size_t>(r * c)), gradient(value.size()) {}
  double& at(std::int64_t r, std::int64_t c) { return value[static_cast<std::size_t>(r * cols + c)]; }
  double& d(std::int64_t r, std::int64_t c) { return gradient[static_cast<std::size_t>(r * cols + c)]; }
};
using R = std::shared_ptr<Rows>;

// Where a head's columns lie: `query` of its operand, and `key` and `value` of theirs, `step` columns from head to
// head.
struct Places {
  std::int64_t query_step, key_step, key, value;
};

constexpr double kRoot = 0.7978845608028654, kCubic = 0.044715;  // sqrt(2 / pi)

double gelu_of(double x) {
  return 0.5 * x * (1 + std::tanh(kRoot * (x + kCubic * x * x * x)));
}
double slope_of_gelu(double x) {
  const double t = std::tanh(kRoot * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRoot * (1 + 3 * kCubic * x * x);
}

// Runs what it recorded backwards, last first.
class T5Tape {
 public:
  R make(std::int64_t rows, std::int64_t cols) { return std::make_shared<Rows>(rows, cols); }
  void record(std::function<void()> derivative) { derivatives_.push_back(std::move(derivative)); }
  void backward() {
    for (std::size_t i = derivatives_.size(); i-- > 0;) derivatives_[i]();
  }

  // y = x w^T.
  R linear(const R& x, const R& w) {
    R y = make(x->rows, w->rows);
    for (std::int64_t r = 0; r < y->rows; ++r)
      for (std::int64_t o = 0; o < y->cols; ++o)
        for (std::int64_t i = 0; i < x->cols; ++i) y->at(r, o) += x->at(r, i) * w->at(o, i);
    record([=] {
      for (std::int64_t r = 0; r < y->rows; ++r)
        for (std::int64_t o = 0; o < y->cols; ++o)
          for (std::int64_t i = 0; i < x->cols; ++i) {
            x->d(r, i) += y->d(r, o) * w->at(o, i);
            w->d(o, i) += y->d(r, o) * x->at(r, i);
          }
    });
    return y;
  }
  R add(const R& a, const R& b) {
    R y = make(a->rows, a->cols);
    for (std::size_t i = 0; i < y->value.size(); ++i) y->value[i] = a->value[i] + b->value[i];
    record([=] {
      for (std::size_t i = 0; i < y->value.size(); ++i)
        a->gradient[i] += y->gradient[i], b->gradient[i] += y->gradient[i];
    });
    return y;
  }
  R scale(const R& x, double by) {
    R y = make(x->rows, x->cols);
    for (std::size_t i = 0; i < y->value.size(); ++i) y->value[i] = by * x->value[i];
    record([=] {
      for (std::size_t i = 0; i < y->value.size(); ++i) x->gradient[i] += by * y->gradient[i];
    });
    return y;
  }
  R rows(const R& table, const std::vector<std::int32_t>& which) {
    R y = make(static_cast<std::int64_t>(which.size()), table->cols);
    for (std::int64_t r = 0; r < y->rows; ++r)
      for (std::int64_t c = 0; c < y->cols; ++c) y->at(r, c) = table->at(which[static_cast<std::size_t>(r)], c);
    record([=] {
      for (std::int64_t r = 0; r < y->rows; ++r)
        for (std::int64_t c = 0; c < y->cols; ++c) table->d(which[static_cast<std::size_t>(r)], c) += y->d(r, c);
    });
    return y;
  }
  // x / root of the mean of squares, times gamma.
  R norm(const R& x, const R& gamma) {
    R y = make(x->rows, x->cols);
    const auto n = static_cast<double>(x->cols);
    std::vector<double> inverse;
    for (std::int64_t r = 0; r < x->rows; ++r) {
      double squares = 0;
      for (std::int64_t c = 0; c < x->cols; ++c) squares += x->at(r, c) * x->at(r, c) / n;
      inverse.push_back(1 / std::sqrt(squares + 1e-5));
      for (std::int64_t c = 0; c < x->cols; ++c) y->at(r, c) = x->at(r, c) * inverse.back() * gamma->at(0, c);
    }
    record([=] {
      for (std::int64_t r = 0; r < x->rows; ++r) {
        const double i = inverse[static_cast<std::size_t>(r)];
        double along = 0;
        for (std::int64_t c = 0; c < x->cols; ++c) {
          gamma->d(0, c) += y->d(r, c) * x->at(r, c) * i;
          along += y->d(r, c) * gamma->at(0, c) * x->at(r, c) * i / n;
        }
        for (std::int64_t c = 0; c < x->cols; ++c)
          x->d(r, c) += i * (y->d(r, c) * gamma->at(0, c) - x->at(r, c) * i * along);
      }
    });
    return y;
  }
  R relu(const R& x) {
    R y = make(x->rows, x->cols);
    for (std::size_t i = 0; i < y->value.size(); ++i) y->value[i] = std::max(0.0, x->value[i]);
    record([=] {
      for (std::size_t i = 0; i < y->value.size(); ++i) x->gradient[i] += x->value[i] > 0 ? y->gradient[i] : 0;
    });
    return y;
  }
  // gelu of the first half of the columns, times the second.
  R gated(const R& x) {
    const std::int64_t half = x->cols / 2;
    R y = make(x->rows, half);
    for (std::int64_t r = 0; r < y->rows; ++r)
      for (std::int64_t c = 0; c < half; ++c) y->at(r, c) = gelu_of(x->at(r, c)) * x->at(r, half + c);
    record([=] {
      for (std::int64_t r = 0; r < y->rows; ++r)
        for (std::int64_t c = 0; c < half; ++c) {
          x->d(r, c) += y->d(r, c) * x->at(r, half + c) * slope_of_gelu(x->at(r, c));
          x->d(r, half + c) += y->d(r, c) * gelu_of(x->at(r, c));
        }
    });
    return y;
  }

  // softmax(q k^T + bias) v by head, not scaled. bias [heads, buckets], or null; `bucket(i, j)` of query i and key j,
  // -1 where it does not see it.
  R attention(const R& q, const R& kv, std::int64_t heads, std::int64_t width, const Places& at, const R& bias,
              const std::function<std::int64_t(std::int64_t, std::int64_t)>& bucket) {
    R y = make(q->rows, heads * width);
    std::vector<R> all;
    for (std::int64_t h = 0; h < heads; ++h) {
      R p = make(q->rows, kv->rows);
      const std::int64_t of_q = h * at.query_step, of_k = h * at.key_step + at.key, of_v = h * at.key_step + at.value;
      for (std::int64_t i = 0; i < q->rows; ++i) {
        double total = 0;
        for (std::int64_t j = 0; j < kv->rows; ++j) {
          if (bucket(i, j) < 0) continue;
          double score = bias ? bias->at(h, bucket(i, j)) : 0;
          for (std::int64_t c = 0; c < width; ++c) score += q->at(i, of_q + c) * kv->at(j, of_k + c);
          total += p->at(i, j) = std::exp(score);
        }
        for (std::int64_t j = 0; j < kv->rows; ++j) {
          p->at(i, j) /= total;
          for (std::int64_t c = 0; c < width; ++c) y->at(i, h * width + c) += p->at(i, j) * kv->at(j, of_v + c);
        }
      }
      all.push_back(p);
    }
    record([=] {
      for (std::int64_t h = 0; h < heads; ++h) {
        const R& p = all[static_cast<std::size_t>(h)];
        const std::int64_t of_q = h * at.query_step, of_k = h * at.key_step + at.key, of_v = h * at.key_step + at.value;
        for (std::int64_t i = 0; i < q->rows; ++i) {
          std::vector<double> dp(static_cast<std::size_t>(kv->rows));
          double along = 0;
          for (std::int64_t j = 0; j < kv->rows; ++j) {
            double& d = dp[static_cast<std::size_t>(j)];
            for (std::int64_t c = 0; c < width; ++c) {
              d += y->d(i, h * width + c) * kv->at(j, of_v + c);
              kv->d(j, of_v + c) += y->d(i, h * width + c) * p->at(i, j);
            }
            along += d * p->at(i, j);
          }
          for (std::int64_t j = 0; j < kv->rows; ++j) {
            const double ds = p->at(i, j) * (dp[static_cast<std::size_t>(j)] - along);
            if (bias && bucket(i, j) >= 0) bias->d(h, bucket(i, j)) += ds;
            for (std::int64_t c = 0; c < width; ++c) {
              q->d(i, of_q + c) += ds * kv->at(j, of_k + c);
              kv->d(j, of_k + c) += ds * q->at(i, of_q + c);
            }
          }
        }
      }
    });
    return y;
  }

  // Returns the sum over the rows times `weight`; its derivative begins the tape's way back.
  double cross_entropy(const R& logits, const std::vector<std::int32_t>& targets, double weight) {
    double loss = 0;
    R p = make(logits->rows, logits->cols);
    for (std::int64_t r = 0; r < logits->rows; ++r) {
      double total = 0;
      for (std::int64_t c = 0; c < logits->cols; ++c) total += p->at(r, c) = std::exp(logits->at(r, c));
      for (std::int64_t c = 0; c < logits->cols; ++c) p->at(r, c) /= total;
      loss -= weight * std::log(p->at(r, targets[static_cast<std::size_t>(r)]));
    }
    record([=] {
      for (std::int64_t r = 0; r < logits->rows; ++r)
        for (std::int64_t c = 0; c < logits->cols; ++c)
          logits->d(r, c) += weight * (p->at(r, c) - (c == targets[static_cast<std::size_t>(r)] ? 1 : 0));
    });
    return loss;
  }

 private:
  std::vector<std::function<void()>> derivatives_;
};

}  // namespace

void PlainT5::add(const std::string& name, std::int64_t rows, std::int64_t cols, const Initial& initial) {
  Parameter p{rows, cols, {}, {}, {}, {}};
  for (std::int64_t i = 0; i < rows * cols; ++i) p.value.push_back(double{initial(name, i)});
  p.gradient = p.exp_avg = p.exp_avg_sq = std::vector<double>(p.value.size());
  parameters_[name] = std::move(p);
}

PlainT5::PlainT5(const T5Shape& shape, const Initial& initial) : shape_(shape) {
  const std::int64_t h = shape.hidden, a = shape.heads * shape.head_dim;
  add("embedding.word.weight", shape.vocab, h, initial);
  if (!shape.tied) add("head.weight", shape.vocab, h, initial);
  for (std::int64_t l = 0; l < shape.encoder_layers + shape.decoder_layers; ++l) {
    const std::string layer = "layer" + std::to_string(l);
    for (const char* norm : {".norm1.gamma", ".norm2.gamma"}) add(layer + norm, 1, h, initial);
    add(layer + ".attention.qkv.weight", 3 * a, h, initial);
    add(layer + ".attention.proj.weight", h, a, initial);
    add(layer + ".mlp.up.weight", (shape.gated ? 2 : 1) * shape.ffn_hidden, h, initial);
    add(layer + ".mlp.down.weight", h, shape.ffn_hidden, initial);
    if (l < shape.encoder_layers) continue;
    add(layer + ".norm_cross.gamma", 1, h, initial);
    add(layer + ".cross.q.weight", a, h, initial);
    add(layer + ".cross.kv.weight", 2 * a, h, initial);
    add(layer + ".cross.proj.weight", h, a, initial);
  }
  for (const char* side : {"encoder", "decoder"})
    add(std::string(side) + ".relative_bias.weight", shape.heads, shape.buckets, initial);
  add("encoder.final_norm.gamma", 1, h, initial);
  add("final_norm.gamma", 1, h, initial);
}

double PlainT5::example(const T5Example& e, double weight) {
  T5Tape tape;
  std::map<std::string, R> used;
  const auto p = [&](const std::string& name) {
    R& m = used[name];
    if (m == nullptr) {
      const Parameter& from = parameters_.at(name);
      m = tape.make(from.rows, from.cols);
      m->value = from.value;
    }
    return m;
  };
  const std::int64_t heads = shape_.heads, width = shape_.head_dim;
  const Places packed{3 * width, 3 * width, width, 2 * width}, apart{width, 2 * width, 0, width};
  const auto self = [&](const std::string& layer, const R& x, bool decoder) {
    const R qkv = tape.linear(tape.norm(x, p(layer + ".norm1.gamma")), p(layer + ".attention.qkv.weight"));
    const R y = tape.attention(qkv, qkv, heads, width, packed,
                               p(decoder ? "decoder.relative_bias.weight" : "encoder.relative_bias.weight"),
                               [this, decoder](std::int64_t i, std::int64_t j) -> std::int64_t {
                                 if (decoder && j > i) return -1;
                                 return t5_bucket(j - i, shape_.buckets, shape_.distance, !decoder);
                               });
    return tape.add(x, tape.linear(y, p(layer + ".attention.proj.weight")));
  };
  const auto feed_forward = [&](const std::string& layer, const R& x) {
    const R up = tape.linear(tape.norm(x, p(layer + ".norm2.gamma")), p(layer + ".mlp.up.weight"));
    return tape.add(x, tape.linear(shape_.gated ? tape.gated(up) : tape.relu(up), p(layer + ".mlp.down.weight")));
  };
  R x = tape.rows(p("embedding.word.weight"), e.tokens);
  std::int64_t l = 0;
  for (; l < shape_.encoder_layers; ++l) {
    const std::string layer = "layer" + std::to_string(l);
    x = feed_forward(layer, self(layer, x, false));
  }
  const R memory = tape.norm(x, p("encoder.final_norm.gamma"));
  x = tape.rows(p("embedding.word.weight"), e.decoder_tokens);
  for (; l < shape_.encoder_layers + shape_.decoder_layers; ++l) {
    const std::string layer = "layer" + std::to_string(l);
    x = self(layer, x, true);
    const R q = tape.linear(tape.norm(x, p(layer + ".norm_cross.gamma")), p(layer + ".cross.q.weight"));
    const R kv = tape.linear(memory, p(layer + ".cross.kv.weight"));
    const R y = tape.attention(q, kv, heads, width, apart, nullptr,
                               [](std::int64_t, std::int64_t) -> std::int64_t { return 0; });
    x = feed_forward(layer, tape.add(x, tape.linear(y, p(layer + ".cross.proj.weight"))));
  }
  x = tape.norm(x, p("final_norm.gamma"));
  if (shape_.tied) x = tape.scale(x, std::pow(static_cast<double>(shape_.hidden), -0.5));
  const R logits = tape.linear(x, p(shape_.tied ? "embedding.word.weight" : "head.weight"));
  const double loss = tape.cross_entropy(logits, e.targets, weight);
  tape.backward();
  for (const auto& [name, m] : used) {
    std::vector<double>& sum = parameters_.at(name).gradient;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += m->gradient[i];
  }
  return loss;
}

double PlainT5::loss_and_gradients(const std::vector<T5Example>& batch) {
  std::size_t targets = 0;
  for (const T5Example& e : batch) targets += e.targets.size();
  for (auto& [name, p] : parameters_) p.gradient.assign(p.gradient.size(), 0);
  double loss = 0;
  for (const T5Example& e : batch) loss += example(e, 1 / static_cast<double>(targets));
  return loss;
}

void PlainT5::update(const AdamWSettings& s) {
  double squares = 0;
  for (const auto& [name, p] : parameters_)
    for (const double g : p.gradient) squares += g * g;
  const double norm = std::sqrt(squares), coefficient = s.clip > 0 ? std::min(1.0, s.clip / (norm + 1e-6)) : 1;
  const auto step = static_cast<double>(++updates_);
  for (auto& [name, p] : parameters_)
    for (std::size_t i = 0; i < p.value.size(); ++i) {
      const double g = p.gradient[i] * coefficient;
      p.exp_avg[i] = s.beta1 * p.exp_avg[i] + (1 - s.beta1) * g;
      p.exp_avg_sq[i] = s.beta2 * p.exp_avg_sq[i] + (1 - s.beta2) * g * g;
      const double mean = p.exp_avg[i] / (1 - std::pow(s.beta1, step));
      const double deviation = std::sqrt(p.exp_avg_sq[i] / (1 - std::pow(s.beta2, step)));
      p.value[i] -= s.lr * (mean / (deviation + s.eps) + s.weight_decay * p.value[i]);
    }
}

std::vector<double> PlainT5::train(std::int64_t steps, std::int64_t global_batch, const AdamWSettings& settings,
                                   const Data& data) {
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<T5Example> batch;
    for (std::int64_t i = 0; i < global_batch; ++i) batch.push_back(data(step, i));
    losses.push_back(loss_and_gradients(batch));
    update(settings);
  }
  return losses;
}

}  // namespace rehearse::numerics
