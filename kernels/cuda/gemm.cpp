// Matrix products of the Device by cuBLASLt: gemm, and the products of unfused attention, which are batched over
// (sequence, key head) in the packed layouts, once for each query head of a group.
#include "kernels/cuda/gemm.h"

#include <fmt/format.h>

#include "kernels/cuda/cuda_device.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cuda {
namespace {

void check_types(DType a, DType b, DType c) {
  const bool halves = a == DType::bf16 || a == DType::f16;
  if (a == b && (c == a || (halves && c == DType::f32))) return;
  throw DeviceError(
      fmt::format("no matrix product of {} and {} into {} on a GPU: A and B are of one type, C of theirs or "
                  "f32",
                  name_of(a), name_of(b), name_of(c)));
}

// Matrices of packed attention, batched over (sequence, key head); the j-th query head of a group where there is one.
struct Packed {
  std::int64_t seq, head_dim, group, batch;
  std::int64_t qkv_stride, out_stride;

  explicit Packed(const AttentionShape& s)
      : seq(s.seq),
        head_dim(s.head_dim),
        group(s.heads / s.kv_heads),
        batch(s.micro_batch * s.kv_heads),
        qkv_stride(batch * (group + 2) * s.head_dim),
        out_stride(batch * group * s.head_dim) {}

  // Matrix and where it begins; of [seq, head_dim], but for scores, [seq, seq].
  struct Matrix {
    void* data;
    MatrixLayout layout;
  };
  static Matrix at(In x, std::int64_t offset, std::int64_t stride, std::int64_t batch_stride) {
    const MatrixType type = matrix_type(x.type);
    auto* bytes = static_cast<char*>(const_cast<void*>(x.data));
    return {bytes + offset * size_of(type), {type, stride, batch_stride}};
  }
  Matrix query(In qkv, std::int64_t j) const { return slot(qkv, j); }
  Matrix key(In qkv) const { return slot(qkv, group); }
  Matrix value(In qkv) const { return slot(qkv, group + 1); }
  Matrix out(In x, std::int64_t j) const { return at(x, j * head_dim, out_stride, group * head_dim); }
  Matrix scores(In x, std::int64_t j) const { return at(x, j * seq * seq, seq, group * seq * seq); }

 private:
  Matrix slot(In qkv, std::int64_t index) const {
    return at(qkv, index * head_dim, qkv_stride, (group + 2) * head_dim);
  }
};

enum class Transpose : unsigned char { none, a, b };

struct Batched {
  Blas& blas;
  cudaStream_t stream;
  std::int64_t batch;
  bool tf32;

  // C[m, n] (+)= op(A) op(B), k deep.
  void operator()(std::int64_t m, std::int64_t n, std::int64_t k, Transpose transpose, const Packed::Matrix& a,
                  const Packed::Matrix& b, const Packed::Matrix& c, bool accumulate) const {
    MatmulProblem p;
    p.m = m;
    p.n = n;
    p.k = k;
    p.batch = batch;
    p.transpose_a = transpose == Transpose::a;
    p.transpose_b = transpose == Transpose::b;
    p.accumulate = accumulate;
    p.tf32 = tf32 && a.layout.type == MatrixType::f32;
    p.a = a.layout;
    p.b = b.layout;
    p.c = c.layout;
    MatmulOperands x;
    x.a = a.data;
    x.b = b.data;
    x.c = c.data;
    blas.run(p, x, stream);
  }
};

}  // namespace

MatmulProblem gemm_problem(const Gemm& s, DType a, DType b, bool bias, DType c, bool tf32, Fused fused) {
  check_types(a, b, c);
  MatmulProblem p = dense_problem(s.m, s.n, s.k, s.transpose_a, s.transpose_b, matrix_type(a), matrix_type(c));
  p.accumulate = s.accumulate;
  p.bias = bias;
  p.tf32 = tf32 && a == DType::f32;
  p.fused = fused;
  if (fused == Fused::gelu || fused == Fused::gelu_backward) p.aux = p.c;
  return p;
}

Blas& CudaDevice::blas() {
  if (blas_) return blas_->blas;
  blas_ =
      std::make_shared<BlasState>(options_.blas_api ? *options_.blas_api : blas_api(), workspace_, workspace_bytes_);
  if (options_.measure_products) {
    StreamTimer& timer = blas_->timer.emplace(stream_);
    blas_->blas.measure_with([&timer](const std::function<void()>& queue) { return timer.time(queue); });
  }
  return blas_->blas;
}

void CudaDevice::settle_products() {
  options_.measure_products = false;
  if (!blas_) return;
  blas_->blas.settle();
  blas_->timer.reset();
}

const Blas* CudaDevice::blas_in_use() const {
  return blas_ ? &blas_->blas : nullptr;
}

std::size_t device_workspace_bytes(int compute_capability_major) {
  return blas_workspace_bytes(compute_capability_major) + kBiasBytes;
}

// The bias as products take it: of C's type.
In CudaDevice::bias_of_type(std::int64_t n, In bias, DType type) {
  if (!bias || bias.type == type) return bias;
  blas();
  REHEARSE_CHECK(static_cast<std::size_t>(n * size_of(type)) <= kBiasBytes, "a bias of {} columns", n);
  copy(n, bias, {blas_->bias, type});
  return {blas_->bias, type};
}

void CudaDevice::gemm(const Gemm& s, In a, In b, In bias, Out c) {
  if (s.m == 0 || s.n == 0) return;
  Blas& products = blas();
  bias = bias_of_type(s.n, bias, c.type);
  MatmulOperands x;
  x.a = a.data;
  x.b = b.data;
  x.bias = bias.data;
  x.c = c.data;
  products.run(gemm_problem(s, a.type, b.type, static_cast<bool>(bias), c.type, options_.tf32), x, stream_.get());
}

void CudaDevice::gemm_gelu(const Gemm& s, In a, In b, In bias, Out x, Out y) {
  if (s.m == 0 || s.n == 0) return;
  const MatmulProblem p = gemm_problem(s, a.type, b.type, static_cast<bool>(bias), y.type, options_.tf32, Fused::gelu);
  MatmulOperands o;
  o.a = a.data, o.b = b.data, o.c = y.data, o.aux = x.data;
  if (x.type != y.type || !blas().supports(aligned_problem(p, o))) return Device::gemm_gelu(s, a, b, bias, x, y);
  o.bias = bias_of_type(s.n, bias, y.type).data;
  blas().run(p, o, stream_.get());
}

void CudaDevice::gemm_gelu_backward(const Gemm& s, In a, In b, In x, Out c) {
  if (s.m == 0 || s.n == 0) return;
  const MatmulProblem p = gemm_problem(s, a.type, b.type, false, c.type, options_.tf32, Fused::gelu_backward);
  MatmulOperands o;
  o.a = a.data, o.b = b.data, o.c = c.data, o.aux = const_cast<void*>(x.data);
  if (x.type != c.type || !blas().supports(aligned_problem(p, o))) return Device::gemm_gelu_backward(s, a, b, x, c);
  blas().run(p, o, stream_.get());
}

// The product stores its sums; adding them up is a kernel of one short row.
void CudaDevice::gemm_bias_grad(const Gemm& s, In a, In b, Out c, Out d_bias) {
  if (s.m == 0 || s.n == 0) return;
  const MatmulProblem p = gemm_problem(s, a.type, b.type, false, c.type, options_.tf32, Fused::bias_gradient);
  Blas& products = blas();
  MatmulOperands o;
  o.a = a.data, o.b = b.data, o.c = c.data, o.bias_gradient = blas_->bias;
  const bool fits = static_cast<std::size_t>(s.m * size_of(c.type)) <= kBiasBytes;
  if (!fits || !products.supports(aligned_problem(p, o))) return Device::gemm_bias_grad(s, a, b, c, d_bias);
  products.run(p, o, stream_.get());
  accumulate(s.m, {blas_->bias, c.type}, d_bias);
}

void CudaDevice::attention_scores(const AttentionShape& s, In qkv, Out scores) {
  const Packed p(s);
  const Batched multiply{blas(), stream_.get(), p.batch, options_.tf32};
  for (std::int64_t j = 0; j < p.group; ++j)
    multiply(s.seq, s.seq, s.head_dim, Transpose::b, p.query(qkv, j), p.key(qkv), p.scores(scores, j), false);
}

void CudaDevice::attention_context(const AttentionShape& s, In d, In qkv, Out out) {
  const Packed p(s);
  const Batched multiply{blas(), stream_.get(), p.batch, options_.tf32};
  for (std::int64_t j = 0; j < p.group; ++j)
    multiply(s.seq, s.head_dim, s.seq, Transpose::none, p.scores(d, j), p.value(qkv), p.out(out, j), false);
}

void CudaDevice::attention_context_backward_probs(const AttentionShape& s, In d_out, In qkv, Out d_d) {
  const Packed p(s);
  const Batched multiply{blas(), stream_.get(), p.batch, options_.tf32};
  for (std::int64_t j = 0; j < p.group; ++j)
    multiply(s.seq, s.seq, s.head_dim, Transpose::b, p.out(d_out, j), p.value(qkv), p.scores(d_d, j), false);
}

// The gradient of a key or value sums over the query heads it serves, in their order; in 16 bits it is rounded after
// each of them.
void CudaDevice::attention_context_backward_value(const AttentionShape& s, In d_out, In d, Out d_qkv) {
  const Packed p(s);
  const Batched multiply{blas(), stream_.get(), p.batch, options_.tf32};
  for (std::int64_t j = 0; j < p.group; ++j)
    multiply(s.seq, s.head_dim, s.seq, Transpose::a, p.scores(d, j), p.out(d_out, j), p.value(d_qkv), j > 0);
}

void CudaDevice::attention_scores_backward_query(const AttentionShape& s, In d_s, In qkv, Out d_qkv) {
  const Packed p(s);
  const Batched multiply{blas(), stream_.get(), p.batch, options_.tf32};
  for (std::int64_t j = 0; j < p.group; ++j)
    multiply(s.seq, s.head_dim, s.seq, Transpose::none, p.scores(d_s, j), p.key(qkv), p.query(d_qkv, j), false);
}

void CudaDevice::attention_scores_backward_key(const AttentionShape& s, In d_s, In qkv, Out d_qkv) {
  const Packed p(s);
  const Batched multiply{blas(), stream_.get(), p.batch, options_.tf32};
  for (std::int64_t j = 0; j < p.group; ++j)
    multiply(s.seq, s.head_dim, s.seq, Transpose::a, p.scores(d_s, j), p.query(qkv, j), p.key(d_qkv), j > 0);
}

}  // namespace rehearse::kernels::cuda
