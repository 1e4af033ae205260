// Plain loops in double precision for what kernels/device.h computes, to check the fast kernels against. Only forward
// passes: gradients are checked against central differences of these (gradient.h). Masks follow dropout_keep.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/device.h"
#include "kernels/dropout.h"

namespace rehearse::kernels::reference {

using Values = std::vector<double>;

inline std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

inline Values gemm(const Gemm& s, const Values& a, const Values& b, const Values& bias, const Values& c) {
  Values y(at(s.m * s.n));
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      double total = (bias.empty() ? 0 : bias[at(j)]) + (s.accumulate ? c[at(i * s.n + j)] : 0);
      for (std::int64_t k = 0; k < s.k; ++k) {
        total += a[at(s.transpose_a ? k * s.m + i : i * s.k + k)] * b[at(s.transpose_b ? j * s.k + k : k * s.n + j)];
      }
      y[at(i * s.n + j)] = total;
    }
  }
  return y;
}

struct Attended {
  Values out, logsumexp;
  Values scores, p, d;  // [micro_batch, heads, seq, seq]
};

inline Attended attention(const AttentionShape& s, const DropoutSite& site, const Values& qkv) {
  const std::int64_t group = s.heads / s.kv_heads;
  const auto element = [&](std::int64_t t, std::int64_t b, std::int64_t kv, std::int64_t slot, std::int64_t c) {
    const std::int64_t width = (group + 1) * s.head_dim + s.values();
    return qkv[at(((t * s.micro_batch + b) * s.kv_heads + kv) * width + slot * s.head_dim + c)];
  };
  // What the softmax reads of a score.
  const auto softened = [&](double score) {
    const double scaled = score / std::sqrt(static_cast<double>(s.score_scale > 0 ? s.score_scale : s.head_dim));
    return s.softcap > 0 ? s.softcap * std::tanh(scaled / s.softcap) : scaled;
  };
  Attended r;
  r.out.assign(at(s.seq * s.micro_batch * s.heads * s.values()), 0);
  r.logsumexp.assign(at(s.seq * s.micro_batch * s.heads), 0);
  r.scores.assign(at(s.micro_batch * s.heads * s.seq * s.seq), 0);
  r.p = r.d = r.scores;
  for (std::int64_t b = 0; b < s.micro_batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t q = 0; q < s.seq; ++q) {
        const std::int64_t row = ((b * s.heads + h) * s.seq + q) * s.seq, token = q * s.micro_batch + b;
        const std::int64_t keys = s.causal ? q + 1 : s.seq;
        const std::int64_t first = s.window > 0 ? std::max<std::int64_t>(0, q - s.window + 1) : 0;
        double max = -std::numeric_limits<double>::infinity(), total = 0;
        for (std::int64_t k = 0; k < s.seq; ++k) {
          double score = 0;
          for (std::int64_t c = 0; c < s.head_dim; ++c) {
            score += element(q, b, h / group, h % group, c) * element(k, b, h / group, group, c);
          }
          r.scores[at(row + k)] = score;
          if (k >= first && k < keys) max = std::max(max, softened(score));
        }
        for (std::int64_t k = first; k < keys; ++k) {
          total += std::exp(softened(r.scores[at(row + k)]) - max);
        }
        r.logsumexp[at(token * s.heads + h)] = max + std::log(total);
        for (std::int64_t k = first; k < keys; ++k) {
          const double p = std::exp(softened(r.scores[at(row + k)]) - max) / total;
          const bool keep =
              site.probability == 0 || dropout_keep(site, dropout_sequence(site, b), site.first_position + q,
                                                    attention_column(site.first_head + h, s.seq, k));
          r.p[at(row + k)] = p;
          r.d[at(row + k)] = keep ? p / (1 - site.probability) : 0;
          for (std::int64_t c = 0; c < s.values(); ++c) {
            r.out[at((token * s.heads + h) * s.values() + c)] +=
                r.d[at(row + k)] * element(k, b, h / group, group + 1, c);
          }
        }
      }
    }
  }
  return r;
}

struct Normed {
  Values y, stats;
};

inline Normed norm(bool rms, std::int64_t rows, std::int64_t cols, double eps, const Values& x, const Values& gamma,
                   const Values& beta) {
  Normed r{Values(at(rows * cols)), {}};
  const auto n = static_cast<double>(cols);
  for (std::int64_t row = 0; row < rows; ++row) {
    double mean = 0, squares = 0;
    for (std::int64_t c = 0; c < cols && !rms; ++c) mean += x[at(row * cols + c)] / n;
    for (std::int64_t c = 0; c < cols; ++c) squares += std::pow(x[at(row * cols + c)] - mean, 2) / n;
    const double inverse = 1 / std::sqrt(squares + eps);
    if (!rms) r.stats.push_back(mean);
    r.stats.push_back(inverse);
    for (std::int64_t c = 0; c < cols; ++c) {
      r.y[at(row * cols + c)] =
          (x[at(row * cols + c)] - mean) * inverse * gamma[at(c)] + (beta.empty() ? 0 : beta[at(c)]);
    }
  }
  return r;
}

inline Values activation(Unary fn, const Values& x) {
  Values y;
  for (const double v : x) {
    const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    const double positive = std::max(v, 0.0);
    y.push_back(fn == Unary::gelu ? 0.5 * v * (1 + std::tanh(u)) : fn == Unary::relu ? positive : positive * positive);
  }
  return y;
}

inline Values hyperbolic_tangent(const Values& x) {
  Values y;
  for (const double v : x) y.push_back(std::tanh(v));
  return y;
}

inline Values swiglu(std::int64_t rows, std::int64_t cols, const Values& gate_up) {
  Values y;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const double gate = gate_up[at(row * 2 * cols + c)], up = gate_up[at((row * 2 + 1) * cols + c)];
      y.push_back(gate / (1 + std::exp(-gate)) * up);
    }
  }
  return y;
}

inline Values rope(const AttentionShape& s, const Values& qkv) {
  Values y = qkv;
  const std::int64_t slots = s.heads / s.kv_heads + 2, turn = s.rotary_dim > 0 ? s.rotary_dim : s.head_dim,
                     half = turn / 2;
  for (std::int64_t head = 0; head < s.seq * s.micro_batch * s.kv_heads * slots; ++head) {
    if (head % slots == slots - 1) continue;
    const std::int64_t t = head / (slots * s.kv_heads * s.micro_batch);
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(t) *
                           std::pow(s.rotation.base, -2.0 * static_cast<double>(i) / static_cast<double>(turn)) /
                           (s.rotation.scaling == RotationScaling::linear ? s.rotation.factor : 1.0);
      const double a = qkv[at(head * s.head_dim + i)], b = qkv[at(head * s.head_dim + half + i)];
      y[at(head * s.head_dim + i)] = a * std::cos(angle) - b * std::sin(angle);
      y[at(head * s.head_dim + half + i)] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  return y;
}

// Summed over the rows, not scaled.
inline double cross_entropy(std::int64_t rows, std::int64_t cols, std::int64_t valid_cols, const Values& logits,
                            const std::vector<std::int32_t>& targets) {
  double loss = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    double total = 0;
    for (std::int64_t c = 0; c < valid_cols; ++c) total += std::exp(logits[at(row * cols + c)]);
    loss += std::log(total) - logits[at(row * cols + targets[at(row)])];
  }
  return loss;
}

inline Values conv(const ConvShape& s, const Values& x, const Values& w, const Values& bias) {
  const std::int64_t height = (s.height + 2 * s.pad - s.kernel) / s.stride + 1;
  const std::int64_t width = (s.width + 2 * s.pad - s.kernel) / s.stride + 1;
  Values y;
  for (std::int64_t i = 0; i < s.batch * s.c_out * height * width; ++i) {
    const std::int64_t b = i / (s.c_out * height * width), o = i / (height * width) % s.c_out;
    const std::int64_t top = i / width % height * s.stride - s.pad, left = i % width * s.stride - s.pad;
    const std::int64_t group_in = s.c_in / s.groups, patch = group_in * s.kernel * s.kernel;
    const std::int64_t first = o / (s.c_out / s.groups) * group_in;  // map of the group
    double total = bias[at(o)];
    for (std::int64_t k = 0; k < patch; ++k) {
      const std::int64_t c = first + k / (s.kernel * s.kernel), row = top + k / s.kernel % s.kernel,
                         col = left + k % s.kernel;
      if (row < 0 || row >= s.height || col < 0 || col >= s.width) continue;
      total += x[at(((b * s.c_in + c) * s.height + row) * s.width + col)] * w[at(o * patch + k)];
    }
    y.push_back(total);
  }
  return y;
}

}  // namespace rehearse::kernels::reference
