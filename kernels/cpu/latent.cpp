// Queries, keys and values of latent attention from its products, and the gradients' way back (kernels/device.h).
#include <algorithm>

#include "kernels/cpu/cpu_kernels.h"

namespace rehearse::kernels::cpu {
namespace {

// y = x [dim] * factor, rotated by a position's row of the table; direction -1: back. y may be x.
void rotate(const float* table, std::int64_t dim, float direction, float factor, const float* x, float* y) {
  const std::int64_t half = dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[half + i], cosine = factor * table[i], sine = direction * factor * table[half + i];
    y[i] = a * cosine - b * sine;
    y[half + i] = b * cosine + a * sine;
  }
}

// y = x [n] * factor.
void lengthen(std::int64_t n, float factor, const float* x, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = factor * x[i];
}

// The table has angles' cosines and sines times the magnitude.
struct Factors {
  float query, rotated_query, rotated_key;
  explicit Factors(const Rotation& rotation) {
    const double m = rotation.magnitude();
    query = static_cast<float>(m * m), rotated_query = static_cast<float>(m), rotated_key = static_cast<float>(1 / m);
  }
};

}  // namespace

void CpuKernels::latent_heads(const LatentShape& s, std::int64_t first_position, const float* q, const float* kv,
                              const float* k_rope, float* qkv) {
  const float* table = rope_table(first_position + s.seq, s.rope, s.rotation);
  const Factors by(s.rotation);
  pool_.ranges(s.rows(), 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* angles = table + (first_position + row / s.micro_batch) * s.rope;
      const float* first_key = nullptr;  // of the row's first head: its rotated columns are those of all
      for (std::int64_t i = row * s.heads; i < (row + 1) * s.heads; ++i) {
        const float* from_q = q + i * s.query();
        const float* from_kv = kv + i * (s.nope + s.value);
        float* query = qkv + i * s.packed();
        float* key = query + s.query();
        lengthen(s.nope, by.query, from_q, query);
        rotate(angles, s.rope, 1, by.rotated_query, from_q + s.nope, query + s.nope);
        std::copy_n(from_kv, s.nope, key);
        if (first_key == nullptr)
          rotate(angles, s.rope, 1, by.rotated_key, k_rope + row * s.rope, key + s.nope);
        else
          std::copy_n(first_key, s.rope, key + s.nope);
        if (first_key == nullptr) first_key = key + s.nope;
        std::copy_n(from_kv + s.nope, s.value, key + s.query());
      }
    }
  });
}

void CpuKernels::latent_heads_backward(const LatentShape& s, std::int64_t first_position, const float* d_qkv,
                                       float* d_q, float* d_kv, float* d_k_rope) {
  const float* table = rope_table(first_position + s.seq, s.rope, s.rotation);
  const Factors by(s.rotation);
  pool_.ranges(s.rows(), 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* angles = table + (first_position + row / s.micro_batch) * s.rope;
      float* shared = d_k_rope + row * s.rope;
      std::fill_n(shared, s.rope, 0.0f);
      for (std::int64_t i = row * s.heads; i < (row + 1) * s.heads; ++i) {
        const float* query = d_qkv + i * s.packed();
        const float* key = query + s.query();
        float* to_q = d_q + i * s.query();
        float* to_kv = d_kv + i * (s.nope + s.value);
        lengthen(s.nope, by.query, query, to_q);
        rotate(angles, s.rope, -1, by.rotated_query, query + s.nope, to_q + s.nope);
        std::copy_n(key, s.nope, to_kv);
        for (std::int64_t c = 0; c < s.rope; ++c) shared[c] += key[s.nope + c];
        std::copy_n(key + s.query(), s.value, to_kv + s.nope);
      }
      rotate(angles, s.rope, -1, by.rotated_key, shared, shared);
    }
  });
}

}  // namespace rehearse::kernels::cpu
