// See cuda_test.h.
#include "tests/gpu/kernels/cuda_test.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifdef REHEARSE_EMULATED
#include "tests/gpu/emulator/blas.h"
#endif

namespace rehearse::kernels::cuda {

std::vector<std::byte> encoded(const Floats& x, DType type) {
  std::vector<std::byte> bytes(x.size() * static_cast<std::size_t>(size_of(type)));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const __nv_bfloat16 b = __float2bfloat16_rn(x[i]);
    const __half h = __float2half_rn(x[i]);
    const void* from = type == DType::bf16  ? static_cast<const void*>(&b)
                       : type == DType::f16 ? &h
                                            : static_cast<const void*>(&x[i]);
    std::memcpy(bytes.data() + i * static_cast<std::size_t>(size_of(type)), from,
                static_cast<std::size_t>(size_of(type)));
  }
  return bytes;
}

Floats decoded(const std::vector<std::byte>& x, DType type) {
  const auto size = static_cast<std::size_t>(size_of(type));
  Floats y(x.size() / size);
  for (std::size_t i = 0; i < y.size(); ++i) {
    __nv_bfloat16 b;
    __half h;
    std::memcpy(&b, x.data() + i * size, 2);
    std::memcpy(&h, x.data() + i * size, 2);
    if (type == DType::f32) std::memcpy(&y[i], x.data() + i * size, 4);
    if (type == DType::bf16) y[i] = __bfloat162float(b);
    if (type == DType::f16) y[i] = __half2float(h);
  }
  return y;
}

double relative_error(const Floats& x, const Values& expected) {
  if (x.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - expected[i];
    difference += d * d;
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference) / (norm > 0 ? std::sqrt(norm) : 1);
}

Values doubles(const Floats& x) {
  return {x.begin(), x.end()};
}

void CudaTest::SetUp() {
  if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << "no CUDA device: " << reason;
  use_device(0);
  stream_ = std::make_unique<Stream>();
  workspace_ = DeviceMemory(device_workspace_bytes(device_facts(0).major));
  CudaDevice::Options options;
#ifdef REHEARSE_EMULATED
  options.blas_api = &emulator::blas_api();
#endif
  device_ = std::make_unique<CudaDevice>(*stream_, options, workspace_.data(), workspace_.bytes());
}

namespace {

constexpr int kGuardByte = 0xA5;

}  // namespace

CudaTest::Tensor CudaTest::tensor(const std::vector<std::byte>& bytes, DType type, std::int64_t offset) {
  Tensor t;
  t.type_ = type;
  t.bytes_ = bytes.size();
  t.offset_ = static_cast<std::size_t>(offset * size_of(type));
  t.stream_ = stream_.get();
  t.memory_ = DeviceMemory(2 * Tensor::kGuard + t.offset_ + t.bytes_);
  set_bytes(t.memory_.data(), kGuardByte, t.memory_.bytes(), *stream_);
  cuda::copy(t.data(), bytes.data(), bytes.size(), *stream_);
  stream_->synchronize();
  return t;
}

CudaTest::Tensor CudaTest::given(const Floats& x, DType type, std::int64_t offset) {
  return tensor(encoded(x, type), type, offset);
}

CudaTest::Tensor CudaTest::poisoned(std::int64_t n, DType type, std::int64_t offset) {
  return given(Floats(at(n), std::numeric_limits<float>::quiet_NaN()), type, offset);
}

std::vector<std::byte> CudaTest::Tensor::bytes() const {
  std::vector<std::byte> all(memory_.bytes());
  cuda::copy(all.data(), memory_.data(), all.size(), *stream_);
  stream_->synchronize();
  const std::size_t first = kGuard + offset_;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == first) i += bytes_;
    if (all[i] != std::byte{kGuardByte}) {
      ADD_FAILURE() << "written outside: byte " << static_cast<std::int64_t>(i) - static_cast<std::int64_t>(first)
                    << " of " << bytes_;
      break;
    }
  }
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(first + bytes_)};
}

Floats CudaTest::Tensor::read() const {
  return decoded(bytes(), type_);
}

void CudaTest::expect_near(const Tensor& t, const Values& expected) {
  EXPECT_LE(relative_error(t.read(), expected), tolerance(t.type())) << name_of(t.type());
}

Floats CudaTest::normal(std::int64_t n, DType type, double deviation) {
  std::normal_distribution<float> d(0, static_cast<float>(deviation));
  Floats x(at(n));
  for (float& v : x) v = d(random_);
  return decoded(encoded(x, type), type);
}

std::vector<std::int32_t> CudaTest::below(std::int64_t n, std::int32_t bound) {
  std::uniform_int_distribution<std::int32_t> d(0, bound - 1);
  std::vector<std::int32_t> v(at(n));
  for (auto& x : v) x = d(random_);
  return v;
}

}  // namespace rehearse::kernels::cuda
