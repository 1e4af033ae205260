// Where what a Mamba-2 mixer's kernels read and write lies (sim/base/state_space.h), and sums of their products.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/base/state_space.h"

namespace rehearse::kernels::cpu {

struct StateSpaceView {
  const StateSpace& s;
  std::int64_t h, p, n, w, x;  // heads of a group, channels of a head, state; columns of a group of in, of xbc

  explicit StateSpaceView(const StateSpace& shape)
      : s(shape),
        h(shape.group_heads()),
        p(shape.head_dim),
        n(shape.state),
        w(shape.group_in()),
        x(shape.group_conv()) {}

  std::int64_t row(std::int64_t token, std::int64_t sequence) const { return token * s.micro_batch + sequence; }
  // Of in: what the convolution reads, z, and dt.
  std::int64_t in_conv(std::int64_t row, std::int64_t group) const { return (row * s.groups + group) * w + h * p; }
  std::int64_t in_gate(std::int64_t row, std::int64_t head) const {
    return (row * s.groups + head / h) * w + head % h * p;
  }
  std::int64_t in_step(std::int64_t row, std::int64_t head) const {
    return (row * s.groups + head / h) * w + h * p + x + head % h;
  }
  // Of xbc.
  std::int64_t channels(std::int64_t row, std::int64_t head) const {
    return (row * s.groups + head / h) * x + head % h * p;
  }
  std::int64_t keys(std::int64_t row, std::int64_t group) const { return (row * s.groups + group) * x + h * p; }  // B
  std::int64_t queries(std::int64_t row, std::int64_t group) const { return keys(row, group) + n; }               // C
  // Of y and raw.
  std::int64_t out(std::int64_t row, std::int64_t head) const { return (row * s.heads + head) * p; }
  std::int64_t of_token(std::int64_t row, std::int64_t head) const { return row * s.heads + head; }
  std::int64_t of_state(std::int64_t sequence, std::int64_t chunk, std::int64_t head) const {
    return ((sequence * s.chunks() + chunk) * s.heads + head) * p * n;
  }
  std::int64_t of_scores(std::int64_t sequence, std::int64_t chunk, std::int64_t group) const {
    return ((sequence * s.chunks() + chunk) * s.groups + group) * s.chunk * s.chunk;
  }
  std::int64_t of_pass(std::int64_t sequence, std::int64_t chunk, std::int64_t head) const {
    return (sequence * s.chunks() + chunk) * s.heads + head;
  }
};

// Tokens of a chunk of one sequence: [first, first + count).
struct ChunkOf {
  std::int64_t sequence, chunk, first, count;
  ChunkOf(const StateSpace& s, std::int64_t index)
      : sequence(index / s.chunks()),
        chunk(index % s.chunks()),
        first(chunk * s.chunk),
        count(std::min(s.chunk, s.seq - first)) {}
};

// In eight sums side by side, whose order is fixed.
inline float dot(const float* a, const float* b, std::int64_t n) {
  float sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) sums[k] += a[i + k] * b[i + k];
  float sum = 0;
  for (const float part : sums) sum += part;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// y += factor x.
inline void add_scaled(float factor, const float* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

}  // namespace rehearse::kernels::cpu
