// Dropout over the rows of activations, alone and fused with a bias and a residual. Bytes they must move: each operand
// once, and a byte of mask an element.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/dropout_draw.h"
#include "kernels/cuda/require.h"
#include "kernels/cuda/rows.h"

namespace rehearse::kernels::cuda {
namespace {

// Bytes 0 or 1 from bits [from, from + 4).
__device__ inline unsigned mask_bytes(unsigned bits, int from) {
  unsigned word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) word |= (bits >> (from + i) & 1U) << 8 * i;
  return word;
}

template <class Access>
__device__ void put_mask(std::uint8_t* mask, const Chunk& c, unsigned bits) {
  if constexpr (std::is_same_v<Access, Whole>) {
    *reinterpret_cast<uint2*>(mask + c.at) = {mask_bytes(bits, 0), mask_bytes(bits, 4)};
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      if (i >= c.first && i < c.last) mask[c.at + i] = static_cast<std::uint8_t>(bits >> i & 1U);
  }
}

// y = residual + dropout(x + bias); bias, residual and mask may be missing.
template <class T>
__global__ void __launch_bounds__(kRowThreads, std::is_same_v<T, AnyType> ? 3 : 4)
    bias_dropout_add_kernel(std::int64_t rows, std::int64_t cols, bool whole, DropoutDraw drop, Source<T> x,
                            Source<AnyType> bias, Source<T> residual, Target<T> y, std::uint8_t* mask) {
  const bool drops = drop.threshold != 0;
  const std::uint64_t key = drops ? drop.key() : 0;
  over_rows(rows, cols, whole, [&]<class Access>(Access, std::int64_t row, const Chunk& c) {
    const Chunk at = in_row(c, row, cols);
    const auto x_words = Access::load(x, at);
    typename Access::template Loaded<T> residual_words;
    if (residual.there()) residual_words = Access::load(residual, at);
    float v[kChunk], other[kChunk];
    unsigned bits = 0xFF;
    if (drops) {
      bits = drop.kept(key, drop.global_sequence(row % drop.micro_batch), drop.first_position + row / drop.micro_batch,
                       c.at / kChunk);
    }
    Access::values(x, x_words, v);
    if (bias.there()) {
      Access::values(bias, Access::load(bias, c), other);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) v[i] += other[i];
    }
    if (drops) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) v[i] = (bits >> i & 1U) ? v[i] * drop.kept_scale : 0.0F;
    }
    if (residual.there()) {
      Access::values(residual, residual_words, other);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) v[i] += other[i];
    }
    Access::store(y, at, v);
    if (mask) put_mask<Access>(mask, at, bits);
  });
}

void run(const Stream& stream, std::int64_t rows, std::int64_t cols, const DropoutSite& site, In x, In bias,
         In residual, Out y, std::uint8_t* mask) {
  REHEARSE_REQUIRE(site.probability >= 0 && site.probability < 1, "dropout of " + std::to_string(site.probability));
  REHEARSE_REQUIRE(site.probability == 0 || site.step, "dropout without the values of its step");
  const auto [grid, block] = row_grid(rows, cols);
  const bool whole = whole_rows(cols, {x, bias, residual, y}) && reinterpret_cast<std::uintptr_t>(mask) % 8 == 0;
  by_type({x, residual, y}, [&]<class T>() {
    launch(bias_dropout_add_kernel<T>, grid, block, 0, stream, rows, cols, whole, DropoutDraw(site), Source<T>(x),
           Source<AnyType>(bias), Source<T>(residual), Target<T>(y), mask);
  });
}

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_backward_kernel(std::int64_t n, bool aligned, float kept_scale, Source<T> dy, const std::uint8_t* mask,
                            Target<T> dx) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kChunk;
  if (at >= n) return;
  const auto work = [&]<class Access>(Access, const Chunk& c) {
    const auto words = Access::load(dy, c);
    float v[kChunk];
    bool keep[kChunk];
    if constexpr (std::is_same_v<Access, Whole>) {
      const uint2 bytes = *reinterpret_cast<const uint2*>(mask + c.at);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) keep[i] = ((i < 4 ? bytes.x : bytes.y) >> i % 4 * 8 & 0xFFU) != 0;
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) keep[i] = i >= c.first && i < c.last && mask[c.at + i] != 0;
    }
    Access::values(dy, words, v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = keep[i] ? v[i] * kept_scale : 0.0F;
    Access::store(dx, c, v);
  };
  if (aligned && at + kChunk <= n) {
    work(Whole{}, Chunk{at, 0, kChunk});
  } else {
    work(Piecewise{}, clip(at, 0, n));
  }
}

}  // namespace

void CudaDevice::bias_dropout_add(std::int64_t rows, std::int64_t cols, const DropoutSite& dropout, In x, In bias,
                                  In residual, Out y, std::uint8_t* mask) {
  run(stream_, rows, cols, dropout, x, bias, residual, y, mask);
}

void CudaDevice::dropout(std::int64_t rows, std::int64_t cols, const DropoutSite& site, In x, Out y,
                         std::uint8_t* mask) {
  run(stream_, rows, cols, site, x, nullptr, nullptr, y, mask);
}

void CudaDevice::dropout_backward(std::int64_t n, double probability, In dy, const std::uint8_t* mask, Out dx) {
  const bool aligned = whole_rows(kChunk, {dy, dx}) && reinterpret_cast<std::uintptr_t>(mask) % 8 == 0;
  by_type({dy, dx}, [&]<class T>() {
    launch(dropout_backward_kernel<T>, grid_of(ceil_div(n, kThreads * kChunk)), kThreads, 0, stream_, n, aligned,
           static_cast<float>(1 / (1 - probability)), Source<T>(dy), mask, Target<T>(dx));
  });
}

}  // namespace rehearse::kernels::cuda
