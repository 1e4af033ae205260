// Token embeddings, learned positions and rotary positions (Su et al. 2021, arXiv 2104.09864; half-split pairs as
// Llama).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"

namespace rehearse::kernels::cpu {

void CpuKernels::embedding_forward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                                   const std::int32_t* ids, const float* table, float* y) {
  pool_.ranges(tokens, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t row = ids[t] - first_row;
      if (row >= 0 && row < rows) {
        std::memcpy(y + t * cols, table + row * cols, static_cast<std::size_t>(cols) * sizeof(float));
      } else {
        std::fill_n(y + t * cols, cols, 0.0f);
      }
    }
  });
}

// Split over columns: a row of the table may be that of many tokens.
void CpuKernels::embedding_backward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                                    const float* dy, const std::int32_t* ids, float* d_table) {
  pool_.ranges(cols, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t row = ids[t] - first_row;
      if (row < 0 || row >= rows) continue;
      const float* __restrict d = dy + t * cols;
      float* __restrict out = d_table + row * cols;
      for (std::int64_t c = begin; c < end; ++c) out[c] += d[c];
    }
  });
}

void CpuKernels::add_position(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch,
                              std::int64_t first_position, const float* x, const float* table, float* y) {
  pool_.ranges(rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* __restrict in = x + row * cols;
      const float* __restrict position = table + (first_position + row / micro_batch) * cols;
      float* __restrict out = y + row * cols;
      for (std::int64_t c = 0; c < cols; ++c) out[c] = in[c] + position[c];
    }
  });
}

void CpuKernels::position_grad(std::int64_t rows, std::int64_t cols, std::int64_t micro_batch,
                               std::int64_t first_position, const float* dy, float* d_table) {
  pool_.ranges(rows / micro_batch, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin * micro_batch; row < end * micro_batch; ++row) {
      const float* __restrict d = dy + row * cols;
      float* __restrict out = d_table + (first_position + row / micro_batch) * cols;
      for (std::int64_t c = 0; c < cols; ++c) out[c] += d[c];
    }
  });
}

const float* CpuKernels::rope_table(std::int64_t positions, std::int64_t head_dim, const Rotation& rotation) {
  RopeTable& table = rope_tables_[{head_dim, rotation}];
  if (table.positions >= positions) return table.values.data();
  const std::int64_t half = head_dim / 2;
  const double magnitude = rotation.magnitude();
  table.values.resize(static_cast<std::size_t>(positions * head_dim));
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency = rotation.frequency(i, head_dim);
    for (std::int64_t t = 0; t < positions; ++t) {
      const double angle = static_cast<double>(t) * frequency;
      table.values[static_cast<std::size_t>(t * head_dim + i)] = static_cast<float>(magnitude * std::cos(angle));
      table.values[static_cast<std::size_t>(t * head_dim + half + i)] = static_cast<float>(magnitude * std::sin(angle));
    }
  }
  table.positions = positions;
  return table.values.data();
}

void CpuKernels::rope(const AttentionShape& s, std::int64_t first_position, bool backward, float* qkv) {
  const std::int64_t group = s.heads / s.kv_heads + 2, half = s.rotated() / 2;
  const float* table = rope_table(first_position + s.seq, s.rotated(), s.rotation);
  const float direction = backward ? -1.0f : 1.0f;
  pool_.ranges(s.seq * s.micro_batch, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* __restrict cosine = table + (first_position + row / s.micro_batch) * s.rotated();
      const float* __restrict sine = cosine + half;
      for (std::int64_t head = 0; head < s.kv_heads * group; ++head) {
        if (head % group == group - 1) continue;  // values do not rotate
        float* __restrict first = qkv + (row * s.kv_heads * group + head) * s.head_dim;
        float* __restrict second = first + half;
        for (std::int64_t i = 0; i < half; ++i) {
          const float a = first[i], b = second[i], sin = direction * sine[i];
          first[i] = a * cosine[i] - b * sin;
          second[i] = b * cosine[i] + a * sin;
        }
      }
    }
  });
}

}  // namespace rehearse::kernels::cpu
