// See plain_tape.h.
#include "tests/numerics/plain_tape.h"

#include <algorithm>
#include <cmath>

namespace rehearse::numerics {
namespace {

constexpr double kRoot = 0.7978845608028654, kCubic = 0.044715;  // sqrt(2 / pi)

}  // namespace

double plain_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(kRoot * (x + kCubic * x * x * x)));
}
double plain_gelu_slope(double x) {
  const double t = std::tanh(kRoot * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRoot * (1 + 3 * kCubic * x * x);
}

M PlainTape::linear(const M& x, const M& w, const M& b) {
  M y = make(x->rows, w->rows);
  for (std::int64_t r = 0; r < y->rows; ++r)
    for (std::int64_t o = 0; o < y->cols; ++o) {
      double sum = b ? b->at(0, o) : 0;
      for (std::int64_t i = 0; i < x->cols; ++i) sum += x->at(r, i) * w->at(o, i);
      y->at(r, o) = sum;
    }
  record([=] {
    for (std::int64_t r = 0; r < y->rows; ++r)
      for (std::int64_t o = 0; o < y->cols; ++o) {
        if (b) b->d(0, o) += y->d(r, o);
        for (std::int64_t i = 0; i < x->cols; ++i) {
          x->d(r, i) += y->d(r, o) * w->at(o, i);
          w->d(o, i) += y->d(r, o) * x->at(r, i);
        }
      }
  });
  return y;
}

M PlainTape::add(const M& a, const M& b) {
  M y = make(a->rows, a->cols);
  for (std::size_t i = 0; i < y->value.size(); ++i) y->value[i] = a->value[i] + b->value[i];
  record([=] {
    for (std::size_t i = 0; i < y->value.size(); ++i)
      a->gradient[i] += y->gradient[i], b->gradient[i] += y->gradient[i];
  });
  return y;
}

M PlainTape::layer_norm(const M& x, const M& gamma, const M& beta) {
  M y = make(x->rows, x->cols), hat = make(x->rows, x->cols);
  std::vector<double> inverse;
  const auto n = static_cast<double>(x->cols);
  for (std::int64_t r = 0; r < x->rows; ++r) {
    double mean = 0, variance = 0;
    for (std::int64_t c = 0; c < x->cols; ++c) mean += x->at(r, c) / n;
    for (std::int64_t c = 0; c < x->cols; ++c) variance += std::pow(x->at(r, c) - mean, 2) / n;
    inverse.push_back(1 / std::sqrt(variance + 1e-5));
    for (std::int64_t c = 0; c < x->cols; ++c) {
      hat->at(r, c) = (x->at(r, c) - mean) * inverse.back();
      y->at(r, c) = hat->at(r, c) * gamma->at(0, c) + beta->at(0, c);
    }
  }
  record([=] {
    for (std::int64_t r = 0; r < x->rows; ++r) {
      double sum = 0, along = 0;
      for (std::int64_t c = 0; c < x->cols; ++c) {
        const double dy = y->d(r, c), d_hat = dy * gamma->at(0, c);
        gamma->d(0, c) += dy * hat->at(r, c), beta->d(0, c) += dy;
        sum += d_hat, along += d_hat * hat->at(r, c);
      }
      for (std::int64_t c = 0; c < x->cols; ++c)
        x->d(r, c) +=
            inverse[static_cast<std::size_t>(r)] * (y->d(r, c) * gamma->at(0, c) - sum / n - hat->at(r, c) * along / n);
    }
  });
  return y;
}

M PlainTape::scale(const M& x, double by) {
  M y = make(x->rows, x->cols);
  for (std::size_t i = 0; i < y->value.size(); ++i) y->value[i] = by * x->value[i];
  record([=] {
    for (std::size_t i = 0; i < y->value.size(); ++i) x->gradient[i] += by * y->gradient[i];
  });
  return y;
}

M PlainTape::rows(const M& table, const std::vector<std::int32_t>& which) {
  M y = make(static_cast<std::int64_t>(which.size()), table->cols);
  for (std::int64_t r = 0; r < y->rows; ++r)
    for (std::int64_t c = 0; c < y->cols; ++c) y->at(r, c) = table->at(which[static_cast<std::size_t>(r)], c);
  record([=] {
    for (std::int64_t r = 0; r < y->rows; ++r)
      for (std::int64_t c = 0; c < y->cols; ++c) table->d(which[static_cast<std::size_t>(r)], c) += y->d(r, c);
  });
  return y;
}

M PlainTape::each(const M& x, double (*f)(double), double (*slope)(double)) {
  M y = make(x->rows, x->cols);
  for (std::size_t i = 0; i < y->value.size(); ++i) y->value[i] = f(x->value[i]);
  record([=] {
    for (std::size_t i = 0; i < y->value.size(); ++i) x->gradient[i] += y->gradient[i] * slope(x->value[i]);
  });
  return y;
}

M PlainTape::attention(const M& q, const M& kv, std::int64_t heads, std::int64_t width, const HeadPlaces& at,
                       double scale, const M& bias,
                       const std::function<std::int64_t(std::int64_t, std::int64_t)>& bucket) {
  M y = make(q->rows, heads * width);
  std::vector<M> all;
  for (std::int64_t h = 0; h < heads; ++h) {
    M p = make(q->rows, kv->rows);
    const std::int64_t of_q = h * at.query_step, of_k = h * at.key_step + at.key, of_v = h * at.key_step + at.value;
    for (std::int64_t i = 0; i < q->rows; ++i) {
      double total = 0;
      for (std::int64_t j = 0; j < kv->rows; ++j) {
        if (bucket(i, j) < 0) continue;
        double score = 0;
        for (std::int64_t c = 0; c < width; ++c) score += q->at(i, of_q + c) * kv->at(j, of_k + c);
        total += p->at(i, j) = std::exp(score * scale + (bias ? bias->at(h, bucket(i, j)) : 0));
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
      const M& p = all[static_cast<std::size_t>(h)];
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
            q->d(i, of_q + c) += ds * scale * kv->at(j, of_k + c);
            kv->d(j, of_k + c) += ds * scale * q->at(i, of_q + c);
          }
        }
      }
    }
  });
  return y;
}

double PlainTape::cross_entropy(const M& logits, const std::vector<std::int32_t>& targets, double weight) {
  double loss = 0;
  M p = make(logits->rows, logits->cols);
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

void PlainParameters::add(const std::string& name, std::int64_t rows, std::int64_t cols, const Initial& initial) {
  Parameter p{rows, cols, {}, {}, {}, {}};
  for (std::int64_t i = 0; i < rows * cols; ++i) p.value.push_back(double{initial(name, i)});
  p.gradient = p.exp_avg = p.exp_avg_sq = std::vector<double>(p.value.size());
  parameters_[name] = std::move(p);
}

const M& PlainParameters::Used::operator()(const std::string& name) {
  M& m = matrices[name];
  if (m == nullptr) {
    const Parameter& from = parameters.at(name);
    m = tape.make(from.rows, from.cols);
    m->value = from.value;
  }
  return m;
}

void PlainParameters::add_gradients(const Used& used) {
  for (const auto& [name, m] : used.matrices) {
    std::vector<double>& sum = parameters_.at(name).gradient;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += m->gradient[i];
  }
}

void PlainParameters::clear_gradients() {
  for (auto& [name, p] : parameters_) p.gradient.assign(p.gradient.size(), 0);
}

void PlainParameters::update(const AdamWSettings& s) {
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

}  // namespace rehearse::numerics
