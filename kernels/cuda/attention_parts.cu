// What lies between the matrix products of unfused attention: softmax, dropout and their gradients over rows of [seq,
// seq] matrices. A warp has a row; rows of up to 2,048 columns stay in registers between the passes over them. What a
// causal mask hides is written as zero and not read. Bytes: each operand once, above the diagonal writes alone.
#include <cmath>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/dropout_draw.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/require.h"
#include "kernels/cuda/rows.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kThreads = 256, kRowsOfBlock = kThreads / 32;

struct Rows {
  std::int64_t rows, seq;
  bool causal, whole;

  // Of the row, how many columns are seen.
  __device__ std::int64_t seen(std::int64_t row) const { return causal ? row % seq + 1 : seq; }
};

__device__ inline std::int64_t my_row() {
  return static_cast<std::int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / 32;
}

// Columns [col, col + 8) of a row, `outside` for those not in [0, limit).
template <class T>
__device__ void load_columns(const Source<T>& s, const Rows& r, std::int64_t row, std::int64_t col, std::int64_t limit,
                             float outside, float (&v)[kChunk]) {
  if (r.whole && col < limit) {
    s.convert(s.raw(row * r.seq + col), v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      if (col + i >= limit) v[i] = outside;
    return;
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] = col + i < limit ? s.get(row * r.seq + col + i) : outside;
}
template <class T>
__device__ void store_columns(const Target<T>& t, const Rows& r, std::int64_t row, std::int64_t col,
                              const float (&v)[kChunk]) {
  if (r.whole) return t.put_chunk(row * r.seq + col, v);
#pragma unroll
  for (int i = 0; i < kChunk; ++i)
    if (col + i < r.seq) t.put(row * r.seq + col + i, v[i]);
}

// kHeld: chunks of a row that a lane keeps; 0: none, scores are read three times.
template <class T, int kHeld>
__global__ void __launch_bounds__(kThreads) softmax_kernel(Rows r, float scale, Source<T> scores, Target<T> p) {
  const std::int64_t row = my_row();
  if (row >= r.rows) return;
  const std::int64_t n = r.seen(row), first = threadIdx.x % 32 * kChunk;
  constexpr std::int64_t kStep = 32 * kChunk;
  const float nothing = -__builtin_huge_valf();
  const auto over = [&](auto&& body) {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) body(i, first + i * kStep);
    } else {
      for (std::int64_t col = first; col < r.seq; col += kStep) body(0, col);
    }
  };
  float held[kHeld > 0 ? kHeld : 1][kChunk], largest = nothing;
  over([&](int i, std::int64_t col) {
    load_columns(scores, r, row, col, n, nothing, held[i]);
#pragma unroll
    for (int c = 0; c < kChunk; ++c) largest = held[i][c] > largest || held[i][c] != held[i][c] ? held[i][c] : largest;
  });
  largest = warp_max(largest) * scale;
  float total = 0;
  over([&](int i, std::int64_t col) {
    if (kHeld == 0) load_columns(scores, r, row, col, n, nothing, held[i]);
#pragma unroll
    for (int c = 0; c < kChunk; ++c) {
      held[i][c] = __expf(held[i][c] * scale - largest);
      total += held[i][c];
    }
  });
  const float inverse = 1 / warp_sum(total);
  over([&](int i, std::int64_t col) {
    if (col >= r.seq) return;
    if (kHeld == 0) {
      load_columns(scores, r, row, col, n, nothing, held[i]);
#pragma unroll
      for (int c = 0; c < kChunk; ++c) held[i][c] = __expf(held[i][c] * scale - largest);
    }
#pragma unroll
    for (int c = 0; c < kChunk; ++c) held[i][c] *= inverse;
    store_columns(p, r, row, col, held[i]);
  });
}

template <class T, int kHeld>
__global__ void __launch_bounds__(kThreads)
    softmax_backward_kernel(Rows r, float scale, Source<T> d_p, Source<T> p, Target<T> d_s) {
  const std::int64_t row = my_row();
  if (row >= r.rows) return;
  const std::int64_t n = r.seen(row), first = threadIdx.x % 32 * kChunk;
  constexpr std::int64_t kStep = 32 * kChunk;
  const auto over = [&](auto&& body) {
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) body(i, first + i * kStep);
    } else {
      for (std::int64_t col = first; col < r.seq; col += kStep) body(0, col);
    }
  };
  float d[kHeld > 0 ? kHeld : 1][kChunk], q[kHeld > 0 ? kHeld : 1][kChunk], mean = 0;
  const auto load = [&](int i, std::int64_t col) {
    load_columns(d_p, r, row, col, n, 0.0F, d[i]);
    load_columns(p, r, row, col, n, 0.0F, q[i]);
  };
  over([&](int i, std::int64_t col) {
    load(i, col);
#pragma unroll
    for (int c = 0; c < kChunk; ++c) mean += d[i][c] * q[i][c];
  });
  mean = warp_sum(mean);
  over([&](int i, std::int64_t col) {
    if (col >= r.seq) return;
    if (kHeld == 0) load(i, col);
#pragma unroll
    for (int c = 0; c < kChunk; ++c) d[i][c] = q[i][c] * (d[i][c] - mean) * scale;
    store_columns(d_s, r, row, col, d[i]);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) attention_dropout_kernel(Rows r, std::int64_t heads, DropoutDraw drop,
                                                                     Source<T> p, Target<T> d, std::uint8_t* mask) {
  const std::int64_t row = my_row();
  if (row >= r.rows) return;
  const std::int64_t n = r.seen(row), position = drop.first_position + row % r.seq, batch = row / r.seq / heads;
  const std::int64_t first_column = (drop.first_head + row / r.seq % heads) * r.seq;
  const bool drops = drop.threshold != 0;
  const std::uint64_t key = drops ? drop.key() : 0;
  const std::int64_t sequence = drops ? drop.global_sequence(batch) : 0;
  for (std::int64_t col = threadIdx.x % 32 * kChunk; col < r.seq; col += 32 * kChunk) {
    unsigned bits = 0xFF;
    if (drops && col < n) {
      const std::int64_t group = (first_column + col) / kDropoutGroup;
      const auto skip = static_cast<unsigned>((first_column + col) % kDropoutGroup);
      bits = drop.kept(key, sequence, position, group);
      if (skip != 0) bits = (bits | drop.kept(key, sequence, position, group + 1) << kDropoutGroup) >> skip;
    }
    float v[kChunk];
    load_columns(p, r, row, col, n, 0.0F, v);
#pragma unroll
    for (int c = 0; c < kChunk; ++c) {
      if (col + c >= n) bits &= ~(1U << c);
      v[c] = (bits >> c & 1U) ? v[c] * drop.kept_scale : 0.0F;
    }
    store_columns(d, r, row, col, v);
    std::uint8_t* const bytes = mask + row * r.seq + col;
    if (r.whole) {
      uint2 words{0, 0};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        words.x |= (bits >> c & 1U) << 8 * c;
        words.y |= (bits >> (c + 4) & 1U) << 8 * c;
      }
      *reinterpret_cast<uint2*>(bytes) = words;
    } else {
#pragma unroll
      for (int c = 0; c < kChunk; ++c)
        if (col + c < r.seq) bytes[c] = static_cast<std::uint8_t>(bits >> c & 1U);
    }
  }
}

Rows rows_of(const AttentionShape& s, std::initializer_list<In> operands) {
  return {s.micro_batch * s.heads * s.seq, s.seq, s.causal, whole_rows(s.seq, operands)};
}
dim3 grid_for(const Rows& r) {
  return grid_of(ceil_div(r.rows, kRowsOfBlock));
}
float softmax_scale(const AttentionShape& s) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim)));
}

// f.operator()<kHeld>() for the fewest of `kHeld...` that hold a row, or for 0.
template <int kFirst, int... kRest, class F>
void by_length(std::int64_t seq, F&& f) {
  if (seq <= kFirst * 32 * kChunk) return f.template operator()<kFirst>();
  if constexpr (sizeof...(kRest) > 0) {
    by_length<kRest...>(seq, f);
  } else {
    f.template operator()<0>();
  }
}

}  // namespace

void CudaDevice::attention_softmax(const AttentionShape& s, In scores, Out p) {
  REHEARSE_REQUIRE(s.window == 0, "a window, which no kernel of GPUs masks yet");
  const Rows r = rows_of(s, {scores, p});
  by_type({scores, p}, [&]<class T>() {
    by_length<2, 8>(s.seq, [&]<int kHeld>() {
      launch(softmax_kernel<T, kHeld>, grid_for(r), kThreads, 0, stream_, r, softmax_scale(s), Source<T>(scores),
             Target<T>(p));
    });
  });
}

void CudaDevice::attention_softmax_backward(const AttentionShape& s, In d_p, In p, Out d_s) {
  const Rows r = rows_of(s, {d_p, p, d_s});
  by_type({d_p, p, d_s}, [&]<class T>() {
    by_length<4>(s.seq, [&]<int kHeld>() {
      launch(softmax_backward_kernel<T, kHeld>, grid_for(r), kThreads, 0, stream_, r, softmax_scale(s), Source<T>(d_p),
             Source<T>(p), Target<T>(d_s));
    });
  });
}

void CudaDevice::attention_dropout(const AttentionShape& s, const DropoutSite& dropout, In p, Out d,
                                   std::uint8_t* mask) {
  check_dropout(dropout);
  Rows r = rows_of(s, {p, d});
  r.whole = r.whole && reinterpret_cast<std::uintptr_t>(mask) % 8 == 0;
  by_type({p, d}, [&]<class T>() {
    launch(attention_dropout_kernel<T>, grid_for(r), kThreads, 0, stream_, r, s.heads, DropoutDraw(dropout),
           Source<T>(p), Target<T>(d), mask);
  });
}

void CudaDevice::attention_dropout_backward(const AttentionShape& s, double probability, In d_d,
                                            const std::uint8_t* mask, Out d_p) {
  dropout_backward(s.micro_batch * s.heads * s.seq * s.seq, probability, d_d, mask, d_p);
}

}  // namespace rehearse::kernels::cuda
