// RMSNorm of each head's query and key in packed qkv (Henry et al. 2020, arXiv 2010.04245; as Qwen3 and Gemma 3 have
// it, one weight for all queries and one for all keys), and RMSNorm whose weight is what is added to 1. Formulas:
// norm.cpp.
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"

namespace rehearse::kernels::cpu {
namespace {

std::vector<float> added_to_one(std::int64_t cols, const float* gamma) {
  std::vector<float> sum(gamma, gamma + cols);
  for (float& x : sum) x += 1;
  return sum;
}

// What queries and keys are multiplied by.
struct HeadWeights {
  std::vector<float> query, key;

  HeadWeights(const HeadNormShape& s, const float* gamma_q, const float* gamma_k)
      : query(gamma_q, gamma_q + s.head_dim), key(gamma_k, gamma_k + s.head_dim) {
    if (s.zero_centered) query = added_to_one(s.head_dim, gamma_q), key = added_to_one(s.head_dim, gamma_k);
  }
  const float* of(const HeadNormShape& s, std::int64_t place) const {
    return place < s.group ? query.data() : key.data();
  }
};

// body(head of [rows, kv_heads, group + 1], its place in the group, where it begins in packed qkv).
template <class Body>
void over_normed_heads(const HeadNormShape& s, std::int64_t begin, std::int64_t end, const Body& body) {
  for (std::int64_t i = begin * (s.group + 1); i < end * (s.group + 1); ++i) {
    const std::int64_t place = i % (s.group + 1);
    body(i, place, (i / (s.group + 1) * (s.group + 2) + place) * s.head_dim);
  }
}

}  // namespace

void CpuKernels::head_norm_forward(const HeadNormShape& s, const float* gamma_q, const float* gamma_k, float* qkv,
                                   float* raw, float* stats) {
  const HeadWeights weights(s, gamma_q, gamma_k);
  pool_.ranges(s.rows * s.kv_heads, 8, [&](std::int64_t begin, std::int64_t end, int) {
    over_normed_heads(s, begin, end, [&](std::int64_t head, std::int64_t place, std::int64_t at) {
      float* x = qkv + at;
      float* kept = raw + head * s.head_dim;
      const float* weight = weights.of(s, place);
      double squares = 0;
      for (std::int64_t c = 0; c < s.head_dim; ++c) squares += static_cast<double>(x[c]) * x[c];
      const auto inverse = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(s.head_dim) + s.eps));
      stats[head] = inverse;
      for (std::int64_t c = 0; c < s.head_dim; ++c) {
        kept[c] = x[c];
        x[c] *= inverse * weight[c];
      }
    });
  });
}

void CpuKernels::head_norm_backward_input(const HeadNormShape& s, const float* raw, const float* stats,
                                          const float* gamma_q, const float* gamma_k, float* d_qkv) {
  const HeadWeights weights(s, gamma_q, gamma_k);
  pool_.ranges(s.rows * s.kv_heads, 8, [&](std::int64_t begin, std::int64_t end, int) {
    over_normed_heads(s, begin, end, [&](std::int64_t head, std::int64_t place, std::int64_t at) {
      float* d = d_qkv + at;
      const float* x = raw + head * s.head_dim;
      const float* weight = weights.of(s, place);
      const float inverse = stats[head];
      double along = 0;
      for (std::int64_t c = 0; c < s.head_dim; ++c) along += static_cast<double>(d[c]) * weight[c] * x[c];
      const auto slope = static_cast<float>(along * inverse * inverse / static_cast<double>(s.head_dim));
      for (std::int64_t c = 0; c < s.head_dim; ++c) d[c] = (d[c] * weight[c] - x[c] * slope) * inverse;
    });
  });
}

// Split over columns, of which each adds its rows in their order.
void CpuKernels::head_norm_backward_weight(const HeadNormShape& s, const float* d_qkv, const float* raw,
                                           const float* stats, float* d_gamma_q, float* d_gamma_k) {
  pool_.ranges(s.head_dim, 16, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<double> query(static_cast<std::size_t>(end - begin)), key(query.size());
    over_normed_heads(s, 0, s.rows * s.kv_heads, [&](std::int64_t head, std::int64_t place, std::int64_t at) {
      std::vector<double>& sums = place < s.group ? query : key;
      for (std::int64_t c = begin; c < end; ++c)
        sums[static_cast<std::size_t>(c - begin)] +=
            static_cast<double>(d_qkv[at + c]) * raw[head * s.head_dim + c] * stats[head];
    });
    for (std::int64_t c = begin; c < end; ++c) {
      d_gamma_q[c] += static_cast<float>(query[static_cast<std::size_t>(c - begin)]);
      d_gamma_k[c] += static_cast<float>(key[static_cast<std::size_t>(c - begin)]);
    }
  });
}

void CpuDevice::zero_centered_norm_forward(std::int64_t rows, std::int64_t cols, double eps, In x, In gamma, Out y,
                                           float* stats) {
  Widened w(*this);
  const std::vector<float> weight = added_to_one(cols, w.read(gamma, cols));
  kernels_.norm_forward(true, rows, cols, eps, w.read(x, rows * cols), weight.data(), nullptr, w.write(y, rows * cols),
                        stats);
}
void CpuDevice::zero_centered_norm_backward_input(std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats,
                                                  In gamma, In residual, Out dx) {
  Widened w(*this);
  const std::vector<float> weight = added_to_one(cols, w.read(gamma, cols));
  kernels_.norm_backward_input(true, rows, cols, w.read(dy, rows * cols), w.read(x, rows * cols), stats, weight.data(),
                               w.read(residual, rows * cols), w.write(dx, rows * cols));
}
void CpuDevice::head_norm_forward(const HeadNormShape& s, In gamma_q, In gamma_k, Out qkv, Out raw, float* stats) {
  Widened w(*this);
  kernels_.head_norm_forward(s, w.read(gamma_q, s.head_dim), w.read(gamma_k, s.head_dim), w.update(qkv, s.packed()),
                             w.write(raw, s.heads() * s.head_dim), stats);
}
void CpuDevice::head_norm_backward_input(const HeadNormShape& s, In raw, const float* stats, In gamma_q, In gamma_k,
                                         Out d_qkv) {
  Widened w(*this);
  kernels_.head_norm_backward_input(s, w.read(raw, s.heads() * s.head_dim), stats, w.read(gamma_q, s.head_dim),
                                    w.read(gamma_k, s.head_dim), w.update(d_qkv, s.packed()));
}
void CpuDevice::head_norm_backward_weight(const HeadNormShape& s, In d_qkv, In raw, const float* stats, Out d_gamma_q,
                                          Out d_gamma_k) {
  Widened w(*this);
  kernels_.head_norm_backward_weight(s, w.read(d_qkv, s.packed()), w.read(raw, s.heads() * s.head_dim), stats,
                                     w.update(d_gamma_q, s.head_dim), w.update(d_gamma_k, s.head_dim));
}

}  // namespace rehearse::kernels::cpu
