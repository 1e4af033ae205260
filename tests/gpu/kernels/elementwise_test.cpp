// Casts, sums, copies and activations.
#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

class CudaElementwise : public CudaTest {};

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

// Sizes around what a thread and a block take, from aligned and odd addresses.
TEST_F(CudaElementwise, CopiesRoundToNearestEven) {
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      for (const std::int64_t n : {1, 7, 8, 4096, 8195}) {
        for (const std::int64_t offset : {0, 3}) {
          const Floats x = normal(n, from, 3);
          const Tensor in = given(x, from, offset), y = poisoned(n, to);
          device().copy(n, in.in(), y.out());
          EXPECT_EQ(y.bytes(), encoded(x, to)) << name_of(from) << " to " << name_of(to) << ", " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace rehearse::kernels::cuda
