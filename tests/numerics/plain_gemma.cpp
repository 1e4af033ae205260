// See plain_gemma.h. Formulas: Gemma Team 2024, arXiv 2403.08295 and 2408.00118; 2025, arXiv 2503.19786; RoFormer (Su
// et al. 2021, arXiv 2104.09864) with pairs (i, i + head_dim / 2).
#include "tests/numerics/plain_gemma.h"

#include <cmath>
#include <utility>

namespace rehearse::numerics {
namespace {

struct Piece {
  std::int64_t row, first, cols;
};

// y = x w / root of the mean of squares, of one piece of a row; and the gradients of x and w from that of y.
double inverse_root(const M& x, const Piece& p) {
  double squares = 0;
  for (std::int64_t c = 0; c < p.cols; ++c) squares += x->at(p.row, p.first + c) * x->at(p.row, p.first + c);
  return 1 / std::sqrt(squares / static_cast<double>(p.cols) + 1e-5);
}
void normed(const M& x, const M& y, const M& w, double one, const Piece& p) {
  const double inverse = inverse_root(x, p);
  for (std::int64_t c = 0; c < p.cols; ++c)
    y->at(p.row, p.first + c) = x->at(p.row, p.first + c) * inverse * (one + w->at(0, c));
}
void normed_backward(const M& x, const M& y, const M& w, double one, const Piece& p) {
  const double inverse = inverse_root(x, p);
  double along = 0;
  for (std::int64_t c = 0; c < p.cols; ++c) {
    const double d = y->d(p.row, p.first + c), unit = x->at(p.row, p.first + c) * inverse;
    w->d(0, c) += d * unit;
    along += d * (one + w->at(0, c)) * unit / static_cast<double>(p.cols);
  }
  for (std::int64_t c = 0; c < p.cols; ++c)
    x->d(p.row, p.first + c) +=
        inverse * (y->d(p.row, p.first + c) * (one + w->at(0, c)) - x->at(p.row, p.first + c) * inverse * along);
}

M gated_by_gelu(PlainTape& tape, const M& x) {
  const std::int64_t half = x->cols / 2;
  M y = tape.make(x->rows, half);
  for (std::int64_t r = 0; r < y->rows; ++r)
    for (std::int64_t c = 0; c < half; ++c) y->at(r, c) = plain_gelu(x->at(r, c)) * x->at(r, half + c);
  tape.record([=] {
    for (std::int64_t r = 0; r < y->rows; ++r)
      for (std::int64_t c = 0; c < half; ++c) {
        x->d(r, c) += y->d(r, c) * x->at(r, half + c) * plain_gelu_slope(x->at(r, c));
        x->d(r, half + c) += y->d(r, c) * plain_gelu(x->at(r, c));
      }
  });
  return y;
}

}  // namespace

PlainGemma::PlainGemma(const GemmaShape& shape, const Initial& initial) : shape_(shape) {
  const std::int64_t h = shape.hidden, d = shape.head_dim;
  add("embedding.word.weight", shape.vocab, h, initial);
  if (!shape.tied) add("head.weight", shape.vocab, h, initial);
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    const std::string layer = "layer" + std::to_string(l);
    for (const char* norm : {".norm1.gamma", ".norm2.gamma"}) add(layer + norm, 1, h, initial);
    if (shape.post_norms)
      for (const char* norm : {".attention.post_norm.gamma", ".mlp.post_norm.gamma"}) add(layer + norm, 1, h, initial);
    if (shape.head_norms)
      for (const char* norm : {".attention.q_norm.gamma", ".attention.k_norm.gamma"}) add(layer + norm, 1, d, initial);
    add(layer + ".attention.qkv.weight", (shape.heads + 2 * shape.kv_heads) * d, h, initial);
    add(layer + ".attention.proj.weight", h, shape.heads * d, initial);
    add(layer + ".mlp.up.weight", 2 * shape.ffn_hidden, h, initial);
    add(layer + ".mlp.down.weight", h, shape.ffn_hidden, initial);
  }
  add("final_norm.gamma", 1, h, initial);
}

M PlainGemma::norm(PlainTape& tape, const M& x, const M& gamma) const {
  M y = tape.make(x->rows, x->cols);
  const double one = shape_.around_one ? 1 : 0;
  for (std::int64_t r = 0; r < x->rows; ++r) normed(x, y, gamma, one, {r, 0, x->cols});
  tape.record([=] {
    for (std::int64_t r = 0; r < x->rows; ++r) normed_backward(x, y, gamma, one, {r, 0, x->cols});
  });
  return y;
}

M PlainGemma::head_norms(PlainTape& tape, const M& qkv, const M& query, const M& key) const {
  M y = tape.make(qkv->rows, qkv->cols);
  const double one = shape_.around_one ? 1 : 0;
  const std::int64_t d = shape_.head_dim, in_group = group() + 2;
  const auto each = [=](const auto& normed_piece, const auto& value) {
    for (std::int64_t r = 0; r < qkv->rows; ++r)
      for (std::int64_t i = 0; i < qkv->cols / d; ++i) {
        const std::int64_t place = i % in_group;
        if (place == in_group - 1)
          value(Piece{r, i * d, d});
        else
          normed_piece(place == in_group - 2 ? key : query, Piece{r, i * d, d});
      }
  };
  each([&](const M& w, const Piece& p) { normed(qkv, y, w, one, p); },
       [&](const Piece& p) {
         for (std::int64_t c = 0; c < d; ++c) y->at(p.row, p.first + c) = qkv->at(p.row, p.first + c);
       });
  tape.record([=] {
    each([&](const M& w, const Piece& p) { normed_backward(qkv, y, w, one, p); },
         [&](const Piece& p) {
           for (std::int64_t c = 0; c < d; ++c) qkv->d(p.row, p.first + c) += y->d(p.row, p.first + c);
         });
  });
  return y;
}

// Radians a position of each pair, and by how much what is rotated is multiplied, as their papers and the models' code
// have them: by wavelengths, for all pairs.
struct PlainAngles {
  std::vector<double> radians;
  double length = 1;

  PlainAngles(const GemmaShape& shape, double base, bool scaled) {
    constexpr double kPi = 3.14159265358979323846;
    const auto d = static_cast<double>(shape.head_dim);
    for (std::int64_t i = 0; i < shape.head_dim / 2; ++i)
      radians.push_back(1 / std::pow(base, 2 * static_cast<double>(i) / d));
    if (!scaled) return;
    const auto pair_of = [&](double turns) {
      return d * std::log(shape.trained / (turns * 2 * kPi)) / (2 * std::log(base));
    };
    const double fast = std::max(std::floor(pair_of(32)), 0.0), slow = std::min(std::ceil(pair_of(1)), d - 1);
    for (std::size_t i = 0; i < radians.size(); ++i) {
      double& angle = radians[i];
      const double divided = angle / shape.factor, wave = 2 * kPi / angle;
      if (shape.scaling == "linear") angle = divided;
      if (shape.scaling == "llama3" && wave > shape.trained / shape.low) {
        angle = divided;
      } else if (shape.scaling == "llama3" && wave >= shape.trained / shape.high) {
        const double smooth = (shape.trained / wave - shape.low) / (shape.high - shape.low);
        angle = (1 - smooth) * divided + smooth * angle;
      }
      if (shape.scaling == "yarn") {
        const double ramp = (static_cast<double>(i) - fast) / (slow > fast ? slow - fast : 0.001);
        const double kept = 1 - std::min(1.0, std::max(0.0, ramp));
        angle = divided * (1 - kept) + angle * kept;
      }
    }
    if (shape.scaling == "yarn") length = 0.1 * std::log(shape.factor) + 1;
  }
};

M PlainGemma::rotated(PlainTape& tape, const M& qkv, double base, bool scaled) const {
  M y = tape.make(qkv->rows, qkv->cols);
  const std::int64_t d = shape_.head_dim, in_group = group() + 2;
  y->value = qkv->value;
  const PlainAngles angles(shape_, base, scaled && !shape_.scaling.empty());
  const double length = angles.length;
  const auto angle = [=](std::int64_t row, std::int64_t i) {
    return static_cast<double>(row) * angles.radians[static_cast<std::size_t>(i)];
  };
  const auto each = [=](const auto& pair) {
    for (std::int64_t r = 0; r < qkv->rows; ++r)
      for (std::int64_t head = 0; head < qkv->cols / d; ++head) {
        if (head % in_group == in_group - 1) continue;
        for (std::int64_t i = 0; i < d / 2; ++i) pair(r, head * d + i, head * d + d / 2 + i, angle(r, i));
      }
  };
  each([&](std::int64_t r, std::int64_t a, std::int64_t b, double t) {
    y->at(r, a) = qkv->at(r, a) * length * std::cos(t) - qkv->at(r, b) * length * std::sin(t);
    y->at(r, b) = qkv->at(r, b) * length * std::cos(t) + qkv->at(r, a) * length * std::sin(t);
  });
  tape.record([=] {
    std::vector<double> d_in = y->gradient;  // values' as they are
    const auto at = [&](std::int64_t r, std::int64_t c) -> double& {
      return d_in[static_cast<std::size_t>(r * y->cols + c)];
    };
    each([&](std::int64_t r, std::int64_t a, std::int64_t b, double t) {
      at(r, a) = y->d(r, a) * length * std::cos(t) + y->d(r, b) * length * std::sin(t);
      at(r, b) = y->d(r, b) * length * std::cos(t) - y->d(r, a) * length * std::sin(t);
    });
    for (std::size_t i = 0; i < d_in.size(); ++i) qkv->gradient[i] += d_in[i];
  });
  return y;
}

// Token i sees itself and those before it, of which `window` (0: all).
M PlainGemma::attention(PlainTape& tape, const M& qkv, std::int64_t window) const {
  const std::int64_t d = shape_.head_dim, n = qkv->rows;
  const double scale = 1 / std::sqrt(shape_.score_scale), cap = shape_.score_cap;
  M y = tape.make(n, shape_.heads * d);
  std::vector<M> all, slopes;
  const auto first = [=](std::int64_t i) { return window > 0 && i >= window ? i - window + 1 : 0; };
  for (std::int64_t h = 0; h < shape_.heads; ++h) {
    M p = tape.make(n, n), slope = tape.make(n, n);
    for (std::int64_t i = 0; i < n; ++i) {
      double total = 0;
      for (std::int64_t j = first(i); j <= i; ++j) {
        double score = 0;
        for (std::int64_t c = 0; c < d; ++c) score += qkv->at(i, query_at(h) + c) * qkv->at(j, key_at(h) + c);
        score *= scale;
        const double t = cap > 0 ? std::tanh(score / cap) : 0;
        slope->at(i, j) = scale * (1 - t * t);
        total += p->at(i, j) = std::exp(cap > 0 ? cap * t : score);
      }
      for (std::int64_t j = first(i); j <= i; ++j) {
        p->at(i, j) /= total;
        for (std::int64_t c = 0; c < d; ++c) y->at(i, h * d + c) += p->at(i, j) * qkv->at(j, key_at(h) + d + c);
      }
    }
    all.push_back(p);
    slopes.push_back(slope);
  }
  tape.record([=, this] {
    for (std::int64_t h = 0; h < shape_.heads; ++h) {
      const M &p = all[static_cast<std::size_t>(h)], &slope = slopes[static_cast<std::size_t>(h)];
      for (std::int64_t i = 0; i < n; ++i) {
        std::vector<double> dp(static_cast<std::size_t>(n));
        double along = 0;
        for (std::int64_t j = first(i); j <= i; ++j) {
          for (std::int64_t c = 0; c < d; ++c) {
            dp[static_cast<std::size_t>(j)] += y->d(i, h * d + c) * qkv->at(j, key_at(h) + d + c);
            qkv->d(j, key_at(h) + d + c) += y->d(i, h * d + c) * p->at(i, j);
          }
          along += dp[static_cast<std::size_t>(j)] * p->at(i, j);
        }
        for (std::int64_t j = first(i); j <= i; ++j) {
          const double ds = p->at(i, j) * (dp[static_cast<std::size_t>(j)] - along) * slope->at(i, j);
          for (std::int64_t c = 0; c < d; ++c) {
            qkv->d(i, query_at(h) + c) += ds * qkv->at(j, key_at(h) + c);
            qkv->d(j, key_at(h) + c) += ds * qkv->at(i, query_at(h) + c);
          }
        }
      }
    }
  });
  return y;
}

M PlainGemma::capped(PlainTape& tape, const M& x, double cap) const {
  if (cap == 0) return x;
  return tape.scale(tape.each(
                        tape.scale(x, 1 / cap), [](double v) { return std::tanh(v); },
                        [](double v) { return 1 - std::tanh(v) * std::tanh(v); }),
                    cap);
}

double PlainGemma::example(const Sequence& sequence, double weight) {
  PlainTape tape;
  Used p = used(tape);
  const auto behind = [&](const std::string& name, const M& x) {
    return shape_.post_norms ? norm(tape, x, p(name)) : x;
  };
  M x = tape.rows(p("embedding.word.weight"), sequence.tokens);
  if (shape_.scaled_embeddings) x = tape.scale(x, std::sqrt(static_cast<double>(shape_.hidden)));
  for (std::int64_t l = 0; l < shape_.layers; ++l) {
    const std::string layer = "layer" + std::to_string(l), branch = layer + ".attention";
    M qkv = tape.linear(norm(tape, x, p(layer + ".norm1.gamma")), p(branch + ".qkv.weight"));
    if (shape_.head_norms) qkv = head_norms(tape, qkv, p(branch + ".q_norm.gamma"), p(branch + ".k_norm.gamma"));
    qkv = rotated(tape, qkv, local(l) ? shape_.local_base : shape_.base, !local(l) || !shape_.local_scales_alone);
    const M y = tape.linear(attention(tape, qkv, local(l) ? shape_.window : 0), p(branch + ".proj.weight"));
    x = tape.add(x, behind(branch + ".post_norm.gamma", y));
    const M up = tape.linear(norm(tape, x, p(layer + ".norm2.gamma")), p(layer + ".mlp.up.weight"));
    const M down = tape.linear(gated_by_gelu(tape, up), p(layer + ".mlp.down.weight"));
    x = tape.add(x, behind(layer + ".mlp.post_norm.gamma", down));
  }
  x = norm(tape, x, p("final_norm.gamma"));
  const M logits = tape.linear(x, p(shape_.tied ? "embedding.word.weight" : "head.weight"));
  const double loss = tape.cross_entropy(capped(tape, logits, shape_.logit_cap), sequence.targets, weight);
  tape.backward();
  add_gradients(p);
  return loss;
}

double PlainGemma::loss_and_gradients(const std::vector<Sequence>& batch) {
  return mean_over_targets(batch, [this](const Sequence& e, double weight) { return example(e, weight); });
}

std::vector<double> PlainGemma::train(std::int64_t steps, std::int64_t global_batch, const AdamWSettings& settings,
                                      const Data& data) {
  return train_on<PlainGemma, Sequence>(*this, steps, global_batch, settings, data);
}

}  // namespace rehearse::numerics
