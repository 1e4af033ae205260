// What the tests of the CUDA kernels share. They are compiled twice: for a GPU (label gpu; skipped, with the reason,
// where there is none) and with the emulator (label unit), which runs the same kernels as C++. Inputs are fresh random
// numbers, rounded to the operand's type, outputs are poisoned, memory past their ends must stay as it was, and
// references are plain loops in double precision (tests/unit/kernels/reference.h).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/cuda_device.h"
#include "tests/unit/kernels/reference.h"

namespace rehearse::kernels::cuda {

using Floats = std::vector<float>;
using reference::at;
using reference::Values;

inline constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
// Operands of one type, and of two: what mixed training has.
struct Mix {
  DType x, y;
};
inline constexpr Mix kMixes[] = {{DType::f32, DType::f32},
                                 {DType::bf16, DType::bf16},
                                 {DType::f16, DType::f16},
                                 {DType::bf16, DType::f32},
                                 {DType::f32, DType::f16}};

struct Shape {
  std::int64_t rows, cols;
};
// Elements of queries, keys and values together.
inline std::int64_t qkv_size(const AttentionShape& s) {
  return s.seq * s.micro_batch * (s.heads + 2 * s.kv_heads) * s.head_dim;
}

// Relative norm of what a kernel may be off, by the type of what it writes.
inline double tolerance(DType type) {
  return type == DType::f32 ? 1e-5 : type == DType::bf16 ? 1e-2 : 2e-3;
}

std::vector<std::byte> encoded(const Floats& x, DType type);
Floats decoded(const std::vector<std::byte>& x, DType type);

// |x - expected| / |expected|; not a number, and so beyond any tolerance, if anything is.
double relative_error(const Floats& x, const Values& expected);
Values doubles(const Floats& x);

class CudaTest : public testing::Test {
 protected:
  void SetUp() override;

  // Memory of the device with guards around it: an operand, or numbers of any kind.
  class Tensor {
   public:
    In in() const { return {data(), type_}; }
    Out out() const { return {data(), type_}; }
    void* data() const { return memory_.as<std::byte>() + kGuard + offset_; }
    template <class T>
    T* as() const {
      return static_cast<T*>(data());
    }
    DType type() const { return type_; }
    Floats read() const;  // waits, checks the guards
    std::vector<std::byte> bytes() const;

   private:
    friend class CudaTest;
    static constexpr std::size_t kGuard = 256;
    DeviceMemory memory_;
    DType type_ = DType::f32;
    std::size_t bytes_ = 0, offset_ = 0;
    Stream* stream_ = nullptr;
  };
  // `offset` elements past a multiple of 256 bytes.
  Tensor tensor(const std::vector<std::byte>& bytes, DType type, std::int64_t offset = 0);
  Tensor given(const Floats& x, DType type, std::int64_t offset = 0);
  Tensor poisoned(std::int64_t n, DType type, std::int64_t offset = 0);
  template <class T>
  Tensor raw(const std::vector<T>& x) {
    std::vector<std::byte> bytes(x.size() * sizeof(T));
    if (!x.empty()) std::memcpy(bytes.data(), x.data(), bytes.size());
    return tensor(bytes, DType::u8);
  }
  // Within the tolerance of its type of `expected`, relative to its norm.
  static void expect_near(const Tensor& t, const Values& expected);
  // Normal numbers as `type` holds them.
  Floats normal(std::int64_t n, DType type, double deviation = 1);
  std::vector<std::int32_t> below(std::int64_t n, std::int32_t bound);

  CudaDevice& device() { return *device_; }
  Stream& stream() { return *stream_; }

 private:
  std::unique_ptr<Stream> stream_;
  DeviceMemory workspace_;
  std::unique_ptr<CudaDevice> device_;
  std::mt19937 random_{std::random_device{}()};
};

}  // namespace rehearse::kernels::cuda
