// AdamW and SGD as in optimizer.cu with moments of 8 bits (sim/base/moment_codes.h): a warp has a block of 256
// elements, eight a lane; the codes' values lie in shared memory, where a lane finds the nearest one by halving. Bytes
// that must be moved, an element: AdamW with an fp32 gradient 16 (read g, p, two codes; write p, two codes), and 16 a
// block.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/require.h"
#include "kernels/cuda/rows.h"
#include "sim/base/moment_codes.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kCodeThreads = 256, kCodes = 256, kZeroCode = 127;
static_assert(kMomentBlock == 32 * kChunk, "a warp has a block");

struct CodeValues {
  float of[kCodes];
};
CodeValues values_of(const MomentCodes& codes) {
  CodeValues v{};
  for (int k = 0; k < kCodes; ++k) v.of[k] = codes.values[static_cast<std::size_t>(k)];
  return v;
}

// Eight codes of a block, and its largest absolute value.
struct CodedMoment {
  unsigned char* codes = nullptr;
  float* largest = nullptr;

  __device__ void read(const float* values, std::int64_t at, float (&m)[kChunk]) const {
    const float by = largest[at / kMomentBlock];
    const uint2 words = *reinterpret_cast<const uint2*>(codes + at);
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      m[i] = values[(i < 4 ? words.x >> (8 * i) : words.y >> (8 * (i - 4))) & 0xFFU] * by;
  }
  // All lanes of a warp call it, with the chunks of one block.
  __device__ void write(const float* values, bool is_signed, std::int64_t at, const float (&m)[kChunk]) const {
    float most = 0;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float size = fabsf(m[i]);
      most = size > most || size != size ? size : most;
    }
    most = warp_max(most);
    unsigned words[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float share = most > 0 ? m[i] / most : 0.0F;
      int code = 0;
#pragma unroll
      for (int step = kCodes / 2; step > 0; step /= 2) {
        const int next = code + step;
        if (share > (values[next - 1] + values[next]) * 0.5F) code = next;
      }
      if (is_signed && share < 0 && code == kZeroCode) code = kZeroCode - 1;
      words[i / 4] |= static_cast<unsigned>(code) << (8 * (i % 4));
    }
    *reinterpret_cast<uint2*>(codes + at) = uint2{words[0], words[1]};
    if (at % kMomentBlock == 0) largest[at / kMomentBlock] = most;
  }
};

struct CodedAdamRule {
  float beta1, rest1, beta2, rest2, eps, weight_decay;
  const StepValues* step;
};

template <class TG>
__global__ void __launch_bounds__(kCodeThreads)
    adamw_codes_kernel(std::int64_t n, bool aligned, CodedAdamRule rule, CodeValues of_signed, CodeValues of_unsigned,
                       Source<TG> grad, const float* coefficient, Target<float> weights, CodedMoment first,
                       CodedMoment second, Target<AnyType> param) {
  __shared__ float values[2][kCodes];
  values[0][threadIdx.x] = of_signed.of[threadIdx.x];
  values[1][threadIdx.x] = of_unsigned.of[threadIdx.x];
  __syncthreads();
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kCodeThreads + threadIdx.x) * kChunk;
  const float by = coefficient ? *coefficient : 1.0F;
  if (at >= n || by != by) return;
  const float lr = rule.step->lr, step_size = lr / rule.step->correction1, keep = 1.0F - lr * rule.weight_decay;
  const float root_scale = 1.0F / sqrtf(rule.step->correction2);
  const auto work = [&]<class Access>(Access, const Chunk& c) {
    const auto g_words = Access::load(grad, c);
    const auto w_words = Access::load(weights, c);
    float g[kChunk], w[kChunk], m[kChunk], v[kChunk];
    first.read(values[0], at, m);
    second.read(values[1], at, v);
    Access::values(grad, g_words, g);
    Access::values(weights, w_words, w);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float d = g[i] * by;
      m[i] = rule.beta1 * m[i] + rule.rest1 * d;
      v[i] = rule.beta2 * v[i] + rule.rest2 * d * d;
      w[i] = w[i] * keep - step_size * m[i] / (sqrtf(v[i]) * root_scale + rule.eps);
    }
    Access::store(weights, c, w);
    if (param.there()) Access::store(param, c, w);
    __syncwarp();  // the old largest values are read
    first.write(values[0], true, at, m);
    second.write(values[1], false, at, v);
  };
  const Chunk chunk{at, 0, kChunk};
  if (aligned) {
    work(Whole{}, chunk);
  } else {
    work(Piecewise{}, chunk);
  }
}

template <class TG>
__global__ void __launch_bounds__(kCodeThreads)
    sgd_codes_kernel(std::int64_t n, bool aligned, float factor, float weight_decay, const StepValues* step,
                     CodeValues of_signed, Source<TG> grad, const float* coefficient, Target<float> weights,
                     CodedMoment momentum, Target<AnyType> param) {
  __shared__ float values[kCodes];
  values[threadIdx.x] = of_signed.of[threadIdx.x];
  __syncthreads();
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kCodeThreads + threadIdx.x) * kChunk;
  const float by = coefficient ? *coefficient : 1.0F, lr = step->lr;
  if (at >= n || by != by) return;
  const auto work = [&]<class Access>(Access, const Chunk& c) {
    const auto g_words = Access::load(grad, c);
    const auto w_words = Access::load(weights, c);
    float g[kChunk], w[kChunk], m[kChunk];
    momentum.read(values, at, m);
    Access::values(grad, g_words, g);
    Access::values(weights, w_words, w);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      m[i] = factor * m[i] + (g[i] * by + weight_decay * w[i]);
      w[i] -= lr * m[i];
    }
    Access::store(weights, c, w);
    if (param.there()) Access::store(param, c, w);
    __syncwarp();  // the old largest values are read
    momentum.write(values, true, at, m);
  };
  const Chunk chunk{at, 0, kChunk};
  if (aligned) {
    work(Whole{}, chunk);
  } else {
    work(Piecewise{}, chunk);
  }
}

CodedMoment coded(Out moment, float* largest) {
  REHEARSE_REQUIRE(moment.type == DType::u8 && largest, "codes of a moment without their blocks' largest values");
  REHEARSE_REQUIRE(reinterpret_cast<std::uintptr_t>(moment.data) % 8 == 0,
                   "codes that eight bytes at once cannot reach");
  return {static_cast<unsigned char*>(moment.data), largest};
}

}  // namespace

void CudaDevice::adamw_codes(std::int64_t n, const AdamW& o, In grad, const float* coefficient, Out weights, Out copy,
                             Out exp_avg, Out exp_avg_sq) {
  REHEARSE_REQUIRE(n % kMomentBlock == 0, "8-bit moments of a part of a block");
  const CodedAdamRule rule{static_cast<float>(o.beta1),
                           static_cast<float>(1 - o.beta1),
                           static_cast<float>(o.beta2),
                           static_cast<float>(1 - o.beta2),
                           static_cast<float>(o.eps),
                           static_cast<float>(o.weight_decay),
                           o.step};
  const CodedMoment first = coded(exp_avg, o.exp_avg_largest), second = coded(exp_avg_sq, o.exp_avg_sq_largest);
  const bool aligned = whole_rows(kChunk, {grad, weights, copy});
  by_type({grad}, [&]<class TG>() {
    launch(adamw_codes_kernel<TG>, grid_of(ceil_div(n, kCodeThreads * kChunk)), kCodeThreads, 0, stream_, n, aligned,
           rule, values_of(signed_moment_codes()), values_of(unsigned_moment_codes()), Source<TG>(grad), coefficient,
           Target<float>(weights), first, second, Target<AnyType>(copy));
  });
}

void CudaDevice::sgd_codes(std::int64_t n, const Sgd& o, In grad, const float* coefficient, Out weights, Out copy,
                           Out momentum) {
  REHEARSE_REQUIRE(n % kMomentBlock == 0, "an 8-bit momentum of a part of a block");
  const CodedMoment moment = coded(momentum, o.momentum_largest);
  const bool aligned = whole_rows(kChunk, {grad, weights, copy});
  by_type({grad}, [&]<class TG>() {
    launch(sgd_codes_kernel<TG>, grid_of(ceil_div(n, kCodeThreads * kChunk)), kCodeThreads, 0, stream_, n, aligned,
           static_cast<float>(o.momentum), static_cast<float>(o.weight_decay), o.step, values_of(signed_moment_codes()),
           Source<TG>(grad), coefficient, Target<float>(weights), moment, Target<AnyType>(copy));
  });
}

}  // namespace rehearse::kernels::cuda
