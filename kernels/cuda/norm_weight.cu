// Gradients that are sums of columns: of a normalisation's weights, and of a bias. Bytes that must be moved: dy, and x
// for a normalisation (the sums of slabs, written and read again, are 2 to 6% more).
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/norm_stats.h"

namespace rehearse::kernels::cuda {
namespace {

// What a row adds to the sums of its columns: dy x^ and, if wanted, dy.
template <class T, int kSums>
struct WeightTerms {
  bool rms;
  Source<T> dy, x;
  const float* stats;

  template <class Access>
  __device__ void add(std::int64_t row, const Chunk& c, float (&total)[kSums][kChunk]) const {
    const auto d_words = Access::load(dy, c);
    const auto x_words = Access::load(x, c);
    const RowStats at = read_stats(rms, stats, row);
    float d[kChunk], v[kChunk];
    Access::values(dy, d_words, d);
    Access::values(x, x_words, v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      total[0][i] += d[i] * ((v[i] - at.mean) * at.inverse);
      if constexpr (kSums == 2) total[1][i] += d[i];
    }
  }
};

template <class T>
struct BiasTerms {
  Source<T> dy;

  template <class Access>
  __device__ void add(std::int64_t, const Chunk& c, float (&total)[1][kChunk]) const {
    float d[kChunk];
    Access::values(dy, Access::load(dy, c), d);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) total[0][i] += d[i];
  }
};

}  // namespace

void CudaDevice::norm_backward_weight(bool rms, std::int64_t rows, std::int64_t cols, In dy, In x, const float* stats,
                                      Out d_gamma, Out d_beta) {
  const ColumnSums sums{stream_, rows, cols, whole_rows(cols, {dy, x}), workspace<float>(0), workspace_bytes_};
  by_type({dy, x}, [&]<class T>() {
    if (d_beta) {
      sums.run<2>(WeightTerms<T, 2>{rms, dy, x, stats}, {d_gamma, d_beta});
    } else {
      sums.run<1>(WeightTerms<T, 1>{rms, dy, x, stats}, {d_gamma});
    }
  });
}

void CudaDevice::bias_grad(std::int64_t rows, std::int64_t cols, In dy, Out d_bias) {
  const ColumnSums sums{stream_, rows, cols, whole_rows(cols, {dy}), workspace<float>(0), workspace_bytes_};
  by_type({dy}, [&]<class T>() { sums.run<1>(BiasTerms<T>{dy}, {d_bias}); });
}

}  // namespace rehearse::kernels::cuda
