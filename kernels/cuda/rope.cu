// Rotary positions of packed queries and keys, in place (Su et al. 2021, arXiv 2104.09864; half-split pairs as Llama).
// A block takes one position: its angles are found once, in turns and in double precision (fp32 would lose the angle of
// late positions), and serve every sequence and head. Bytes it must move: queries and keys, twice.
#include <cmath>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/require.h"
#include "kernels/cuda/rows.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kRopeThreads = 256, kMaxHalf = 256;

struct Turns {
  double a_position[kMaxHalf];  // of a pair: turns of the circle from one position to the next
  float magnitude;              // of what is rotated
};

template <class Access, class T>
__device__ void rotate(std::int64_t group, std::int64_t heads, std::int64_t columns, int half, std::int64_t first_head,
                       const float* cosine, const float* sine, const Target<T>& qkv) {
  const int chunks = (half + kChunk - 1) / kChunk, across = static_cast<int>(threadIdx.x);
  const int down = static_cast<int>(threadIdx.y), step = static_cast<int>(blockDim.y);
  for (std::int64_t head = down; head < heads; head += step) {
    if (head % group == group - 1) continue;  // values do not rotate
    const std::int64_t base = (first_head + head) * columns;
    for (int k = across; k < chunks; k += static_cast<int>(blockDim.x)) {
      const Chunk first = clip(base + k * kChunk, base, base + half);
      const Chunk second{first.at + half, first.first, first.last};
      const auto first_words = Access::load(qkv, first);
      const auto second_words = Access::load(qkv, second);
      float a[kChunk], b[kChunk];
      Access::values(qkv, first_words, a);
      Access::values(qkv, second_words, b);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const int pair = k * kChunk + i;
        if (pair >= half) break;
        const float x = a[i], y = b[i];
        a[i] = x * cosine[pair] - y * sine[pair];
        b[i] = y * cosine[pair] + x * sine[pair];
      }
      Access::store(qkv, first, a);
      Access::store(qkv, second, b);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kRopeThreads)
    rope_kernel(std::int64_t heads, std::int64_t group, std::int64_t columns, int half, std::int64_t first_position,
                bool whole, float direction, const __grid_constant__ Turns turns, Target<T> qkv) {
  __shared__ float cosine[kMaxHalf], sine[kMaxHalf];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (int pair = static_cast<int>(thread); pair < half; pair += kRopeThreads) {
    const double total = static_cast<double>(first_position + blockIdx.x) * turns.a_position[pair];
    float s = 0, c = 0;
    sincospif(2.0F * static_cast<float>(total - floor(total)), &s, &c);
    cosine[pair] = turns.magnitude * c;
    sine[pair] = turns.magnitude * direction * s;
  }
  __syncthreads();
  // `heads` of all sequences at the position, values included, of `columns` each, of which the first 2 half turn.
  const std::int64_t first_head = static_cast<std::int64_t>(blockIdx.x) * heads;
  if (whole) {
    rotate<Whole>(group, heads, columns, half, first_head, cosine, sine, qkv);
  } else {
    rotate<Piecewise>(group, heads, columns, half, first_head, cosine, sine, qkv);
  }
}

}  // namespace

void CudaDevice::rope(const AttentionShape& s, std::int64_t first_position, bool backward, Out qkv) {
  const std::int64_t half = s.rotated() / 2, group = s.heads / s.kv_heads + 2;
  REHEARSE_REQUIRE(half <= kMaxHalf, "rotary positions of " + std::to_string(s.rotated()) + " columns of a head");
  Turns turns{};
  for (std::int64_t i = 0; i < half; ++i)
    turns.a_position[i] = s.rotation.frequency(i, s.rotated()) / (2 * 3.14159265358979323846);
  turns.magnitude = static_cast<float>(s.rotation.magnitude());
  unsigned across = 1;
  while (across < 32 && across * kChunk < half) across *= 2;
  by_type({qkv}, [&]<class T>() {
    launch(rope_kernel<T>, grid_of(s.seq), dim3(across, kRopeThreads / across), 0, stream_,
           s.micro_batch * s.kv_heads * group, group, s.head_dim, static_cast<int>(half), first_position,
           whole_rows(half, {qkv}) && whole_rows(s.head_dim, {qkv}), backward ? -1.0F : 1.0F, turns, Target<T>(qkv));
  });
}

}  // namespace rehearse::kernels::cuda
