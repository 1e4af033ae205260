// See plain_hybrid.h.
#include "tests/numerics/plain_hybrid.h"

#include <cmath>

namespace rehearse::numerics {
namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double silu(double x) {
  return x * sigmoid(x);
}
double silu_slope(double x) {
  return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
}
double square_of_relu(double x) {
  return x > 0 ? x * x : 0;
}
double slope_of_square(double x) {
  return x > 0 ? 2 * x : 0;
}

// RMSNorm of each `cols` columns of a row, with weights for all of them.
M rms_norm(PlainTape& tape, const M& x, const M& gamma, std::int64_t cols) {
  M y = tape.make(x->rows, x->cols), scales = tape.make(x->rows, x->cols / cols);
  for (std::int64_t r = 0; r < x->rows; ++r)
    for (std::int64_t part = 0; part < x->cols / cols; ++part) {
      double squares = 0;
      for (std::int64_t c = part * cols; c < (part + 1) * cols; ++c) squares += x->at(r, c) * x->at(r, c);
      scales->at(r, part) = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
      for (std::int64_t c = part * cols; c < (part + 1) * cols; ++c)
        y->at(r, c) = x->at(r, c) * scales->at(r, part) * gamma->value[static_cast<std::size_t>(c)];
    }
  tape.record([=] {
    for (std::int64_t r = 0; r < x->rows; ++r)
      for (std::int64_t part = 0; part < x->cols / cols; ++part) {
        const double scale = scales->at(r, part);
        double along = 0;
        for (std::int64_t c = part * cols; c < (part + 1) * cols; ++c) {
          along += y->d(r, c) * gamma->value[static_cast<std::size_t>(c)] * x->at(r, c);
          gamma->gradient[static_cast<std::size_t>(c)] += y->d(r, c) * x->at(r, c) * scale;
        }
        for (std::int64_t c = part * cols; c < (part + 1) * cols; ++c)
          x->d(r, c) += scale * (y->d(r, c) * gamma->value[static_cast<std::size_t>(c)] -
                                 x->at(r, c) * along * scale * scale / static_cast<double>(cols));
      }
  });
  return y;
}

}  // namespace

PlainHybrid::PlainHybrid(const HybridShape& shape, const Initial& initial) : s_(shape) {
  const std::int64_t h = s_.hidden;
  add("embedding.word.weight", s_.vocab, h, initial);
  if (!s_.tied) add("head.weight", s_.vocab, h, initial);
  add("final_norm.gamma", 1, h, initial);
  for (std::size_t l = 0; l < s_.pattern.size(); ++l) {
    const std::string name = "layer" + std::to_string(l);
    add(name + ".norm.gamma", 1, h, initial);
    if (s_.pattern[l] == 'M') {
      add(name + ".mixer.in.weight", s_.groups * width(), h, initial);
      add(name + ".mixer.conv.weight", s_.groups * channels(), s_.conv, initial);
      add(name + ".mixer.conv.bias", s_.groups, channels(), initial);
      for (const char* of_head : {".mixer.dt_bias", ".mixer.a_log", ".mixer.d"})
        add(name + of_head, 1, s_.mamba_heads, initial);
      add(name + ".mixer.norm.gamma", s_.groups, inner(), initial);
      add(name + ".mixer.out.weight", h, s_.groups * inner(), initial);
    } else if (s_.pattern[l] == '*') {
      add(name + ".attention.qkv.weight", (s_.heads + 2 * s_.kv_heads) * s_.head_dim, h, initial);
      add(name + ".attention.proj.weight", h, s_.heads * s_.head_dim, initial);
    } else {
      add(name + ".mlp.up.weight", s_.ffn_hidden, h, initial);
      add(name + ".mlp.down.weight", h, s_.ffn_hidden, initial);
    }
  }
}

// Queries of a group come first, then its key and its value. No position.
M PlainHybrid::attention(PlainTape& tape, Used& of, const std::string& name, const M& x) const {
  const M qkv = tape.linear(x, of(name + ".attention.qkv.weight"));
  const std::int64_t d = s_.head_dim, group = s_.heads / s_.kv_heads;
  M all = tape.make(x->rows, s_.heads * d);
  for (std::int64_t head = 0; head < s_.heads; ++head) {
    const std::int64_t first = head / group * (group + 2) * d, q = first + head % group * d, k = first + group * d,
                       v = k + d;
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    M p = tape.make(x->rows, x->rows);
    for (std::int64_t i = 0; i < x->rows; ++i) {
      double total = 0;
      for (std::int64_t j = 0; j <= i; ++j) {
        double score = 0;
        for (std::int64_t c = 0; c < d; ++c) score += qkv->at(i, q + c) * qkv->at(j, k + c);
        total += p->at(i, j) = std::exp(score * scale);
      }
      for (std::int64_t j = 0; j <= i; ++j) {
        p->at(i, j) /= total;
        for (std::int64_t c = 0; c < d; ++c) all->at(i, head * d + c) += p->at(i, j) * qkv->at(j, v + c);
      }
    }
    tape.record([=] {
      for (std::int64_t i = 0; i < x->rows; ++i) {
        std::vector<double> dp(static_cast<std::size_t>(i + 1));
        double along = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          double& own = dp[static_cast<std::size_t>(j)];
          for (std::int64_t c = 0; c < d; ++c) {
            own += all->d(i, head * d + c) * qkv->at(j, v + c);
            qkv->d(j, v + c) += all->d(i, head * d + c) * p->at(i, j);
          }
          along += own * p->at(i, j);
        }
        for (std::int64_t j = 0; j <= i; ++j) {
          const double ds = p->at(i, j) * (dp[static_cast<std::size_t>(j)] - along) * scale;
          for (std::int64_t c = 0; c < d; ++c) {
            qkv->d(i, q + c) += ds * qkv->at(j, k + c);
            qkv->d(j, k + c) += ds * qkv->at(i, q + c);
          }
        }
      }
    });
  }
  return tape.linear(all, of(name + ".attention.proj.weight"));
}

// A state is [head_dim, state]; those of all tokens are kept for the way back. Columns of `in` of a group: z, x, B, C,
// steps; of `xbc`: x, B, C.
M PlainHybrid::recurrence(PlainTape& tape, Used& of, const std::string& name, const M& in, const M& xbc) const {
  const M bias = of(name + ".dt_bias"), a_log = of(name + ".a_log"), skip = of(name + ".d");
  const std::int64_t tokens = in->rows, p_all = s_.mamba_head_dim, n_all = s_.state;
  M y = tape.make(tokens, s_.mamba_heads * p_all);
  for (std::int64_t head = 0; head < s_.mamba_heads; ++head) {
    const std::int64_t group = head / group_heads(), own = head % group_heads();
    const std::int64_t z = group * width() + own * p_all, dt = group * width() + inner() + channels() + own;
    const std::int64_t x = group * channels() + own * p_all, b = group * channels() + inner(), c = b + n_all;
    const auto h = static_cast<std::size_t>(head);
    M states = tape.make(tokens + 1, p_all * n_all);  // row t: before token t
    M raw = tape.make(tokens, p_all), steps = tape.make(tokens, 1);
    const double rate = -std::exp(a_log->value[h]);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const double step = steps->at(t, 0) = std::log1p(std::exp(in->at(t, dt) + bias->value[h]));
      for (std::int64_t p = 0; p < p_all; ++p) {
        raw->at(t, p) = skip->value[h] * xbc->at(t, x + p);
        for (std::int64_t n = 0; n < n_all; ++n) {
          double& state = states->at(t + 1, p * n_all + n);
          state = std::exp(rate * step) * states->at(t, p * n_all + n) + step * xbc->at(t, x + p) * xbc->at(t, b + n);
          raw->at(t, p) += state * xbc->at(t, c + n);
        }
        y->at(t, head * p_all + p) = raw->at(t, p) * silu(in->at(t, z + p));
      }
    }
    tape.record([=] {
      for (std::int64_t t = tokens - 1; t >= 0; --t) {
        const double step = steps->at(t, 0), decay = std::exp(rate * step);
        double d_step = 0, d_decay = 0;
        for (std::int64_t p = 0; p < p_all; ++p) {
          const double dy = y->d(t, head * p_all + p), d_raw = dy * silu(in->at(t, z + p));
          in->d(t, z + p) += dy * raw->at(t, p) * silu_slope(in->at(t, z + p));
          skip->gradient[h] += d_raw * xbc->at(t, x + p);
          xbc->d(t, x + p) += d_raw * skip->value[h];
          for (std::int64_t n = 0; n < n_all; ++n) {
            double& d_state = states->d(t + 1, p * n_all + n);
            d_state += d_raw * xbc->at(t, c + n);
            xbc->d(t, c + n) += d_raw * states->at(t + 1, p * n_all + n);
            states->d(t, p * n_all + n) += d_state * decay;
            d_decay += d_state * states->at(t, p * n_all + n);
            d_step += d_state * xbc->at(t, x + p) * xbc->at(t, b + n);
            xbc->d(t, x + p) += d_state * step * xbc->at(t, b + n);
            xbc->d(t, b + n) += d_state * step * xbc->at(t, x + p);
          }
        }
        d_step += d_decay * decay * rate;
        a_log->gradient[h] += d_decay * decay * step * rate;
        const double d_dt = d_step * sigmoid(in->at(t, dt) + bias->value[h]);
        in->d(t, dt) += d_dt;
        bias->gradient[h] += d_dt;
      }
    });
  }
  return y;
}

M PlainHybrid::mixer(PlainTape& tape, Used& of, const std::string& name, const M& x) const {
  const M in = tape.linear(x, of(name + ".in.weight"));
  const M w = of(name + ".conv.weight"), b = of(name + ".conv.bias");
  const std::int64_t count = s_.groups * channels();
  M filtered = tape.make(x->rows, count);
  const auto from = [=, this](std::int64_t channel) {
    return channel / channels() * width() + inner() + channel % channels();
  };
  for (std::int64_t t = 0; t < x->rows; ++t)
    for (std::int64_t channel = 0; channel < count; ++channel) {
      filtered->at(t, channel) = b->value[static_cast<std::size_t>(channel)];
      for (std::int64_t back = 0; back < s_.conv && back <= t; ++back)
        filtered->at(t, channel) += w->at(channel, s_.conv - 1 - back) * in->at(t - back, from(channel));
    }
  tape.record([=, this] {
    for (std::int64_t t = 0; t < x->rows; ++t)
      for (std::int64_t channel = 0; channel < count; ++channel) {
        b->gradient[static_cast<std::size_t>(channel)] += filtered->d(t, channel);
        for (std::int64_t back = 0; back < s_.conv && back <= t; ++back) {
          w->d(channel, s_.conv - 1 - back) += filtered->d(t, channel) * in->at(t - back, from(channel));
          in->d(t - back, from(channel)) += filtered->d(t, channel) * w->at(channel, s_.conv - 1 - back);
        }
      }
  });
  const M y = recurrence(tape, of, name, in, tape.each(filtered, silu, silu_slope));
  return tape.linear(rms_norm(tape, y, of(name + ".norm.gamma"), inner()), of(name + ".out.weight"));
}

double PlainHybrid::example(const Sequence& sequence, double weight) {
  PlainTape tape;
  Used of = used(tape);
  M x = tape.rows(of("embedding.word.weight"), sequence.tokens);
  for (std::size_t l = 0; l < s_.pattern.size(); ++l) {
    const std::string name = "layer" + std::to_string(l);
    const M normed = rms_norm(tape, x, of(name + ".norm.gamma"), s_.hidden);
    M branch;
    if (s_.pattern[l] == 'M') {
      branch = mixer(tape, of, name + ".mixer", normed);
    } else if (s_.pattern[l] == '*') {
      branch = attention(tape, of, name, normed);
    } else {
      const M up = tape.linear(normed, of(name + ".mlp.up.weight"));
      branch = tape.linear(tape.each(up, square_of_relu, slope_of_square), of(name + ".mlp.down.weight"));
    }
    x = tape.add(x, branch);
  }
  const M logits = tape.linear(rms_norm(tape, x, of("final_norm.gamma"), s_.hidden),
                               of(s_.tied ? "embedding.word.weight" : "head.weight"));
  const double loss = tape.cross_entropy(logits, sequence.targets, weight);
  tape.backward();
  add_gradients(of);
  return loss;
}

double PlainHybrid::loss_and_gradients(const std::vector<Sequence>& batch) {
  return mean_over_targets(batch, [&](const Sequence& s, double weight) { return example(s, weight); });
}

std::vector<double> PlainHybrid::train(std::int64_t steps, std::int64_t global_batch, const AdamWSettings& settings,
                                       const std::function<Sequence(std::int64_t step, std::int64_t index)>& data) {
  return train_on<PlainHybrid, Sequence>(*this, steps, global_batch, settings, data);
}

}  // namespace rehearse::numerics
