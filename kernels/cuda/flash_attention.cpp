// The Device's flash attention: which kernels do a call. See flash.h.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <limits>
#include <string>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/library_attention.h"
#include "kernels/dropout.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cuda {
namespace {

int narrow(std::int64_t n) {
  REHEARSE_CHECK(n > 0 && n <= std::numeric_limits<int>::max() / 2, "attention over {} of something", n);
  return static_cast<int>(n);
}

bool aligned(In x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

// Bytes of shared memory: what a block of the current device may have, or what a multiprocessor has.
std::size_t shared_memory(cudaDeviceAttr which) {
  int device = 0, bytes = 0;
  REHEARSE_CUDA(cudaGetDevice(&device));
  REHEARSE_CUDA(cudaDeviceGetAttribute(&bytes, which, device));
  return static_cast<std::size_t>(bytes);
}

// Whether the matrix units take the call: one 16-bit type, pieces of 16 bytes, tiles that fit (compute capability 8.6
// and 8.9 have 99 KiB: no backward pass of head_dim above 128).
bool on_matrix_units(const FlashCall& f, std::initializer_list<In> operands, bool backward) {
  const DType type = operands.begin()->type;
  if ((type != DType::bf16 && type != DType::f16) || f.head_dim % 8 != 0) return false;
  for (const In& o : operands)
    if (o.type != type || !aligned(o)) return false;
  return flash_shared_bytes(f.head_dim, backward) <= shared_memory(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

void check_width(const FlashCall& f) {
  if (f.head_dim > kFlashMaxHeadDim)
    throw DeviceError("flash attention on a GPU takes a head_dim of at most " + std::to_string(kFlashMaxHeadDim) +
                      ", not " + std::to_string(f.head_dim));
}

}  // namespace

void check_dropout(const DropoutSite& site) {
  REHEARSE_CHECK(site.probability >= 0 && site.probability < 1, "dropout of {}", site.probability);
  REHEARSE_CHECK(site.probability == 0 || site.step, "dropout without the values of its step");
}

Dropping::Dropping(const DropoutSite& from) {
  check_dropout(from);
  if (from.probability == 0) return;
  threshold = dropout_threshold(from.probability);
  kept_scale = static_cast<float>(1 / (1 - from.probability));
  seed = from.seed;
  site = from.site;
  step = from.step;
  first_sequence = from.first_sequence;
  first_position = from.first_position;
  first_head = from.first_head;
}

FlashCall::FlashCall(const AttentionShape& s, const DropoutSite& site)
    : seq(narrow(s.seq)),
      micro_batch(narrow(s.micro_batch)),
      heads(narrow(s.heads)),
      kv_heads(narrow(s.kv_heads)),
      group(heads / kv_heads),
      head_dim(narrow(s.head_dim)),
      causal(s.causal),
      scale(static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim)))),
      scale_log2(static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(s.head_dim)))),
      drop(site) {
  REHEARSE_CHECK(heads % kv_heads == 0, "{} query heads over {} key heads", heads, kv_heads);
  REHEARSE_CHECK(s.window == 0, "a window of {} keys, which no kernel of GPUs leaves the others out for", s.window);
}

LibraryAttention& CudaDevice::attention_by_library() {
  if (!library_attention_) {
    std::string reason;
    auto library = Sdpa::load(&reason, options_.sdpa_api);
    library_attention_ = std::make_shared<LibraryAttention>(std::move(library), std::move(reason), stream_);
  }
  return *library_attention_;
}

void CudaDevice::flash_forward(const AttentionShape& s, const DropoutSite& dropout, In qkv, Out out, float* logsumexp) {
  const auto own = [&] { own_flash_forward(s, dropout, qkv, out, logsumexp); };
  if (options_.library_attention && attention_by_library().forward(s, dropout, qkv, out, logsumexp, own)) return;
  own();
}

void CudaDevice::flash_backward(const AttentionShape& s, const DropoutSite& dropout, In d_out, In qkv, In out,
                                const float* logsumexp, Out d_qkv) {
  const auto own = [&] { own_flash_backward(s, dropout, d_out, qkv, out, logsumexp, d_qkv); };
  if (options_.library_attention && attention_by_library().backward(s, dropout, d_out, qkv, out, logsumexp, d_qkv, own))
    return;
  own();
}

void CudaDevice::own_flash_forward(const AttentionShape& s, const DropoutSite& dropout, In qkv, Out out,
                                   float* logsumexp) {
  const FlashCall f(s, dropout);
  check_width(f);
  if (!on_matrix_units(f, {qkv, out}, false)) return flash_forward_plain(f, qkv, out, logsumexp, stream_.get());
  FlashTensors x;
  x.qkv = qkv.data;
  x.out = out.data;
  x.logsumexp_out = logsumexp;
  if (qkv.type == DType::bf16) {
    flash_forward_tiles<__nv_bfloat16>(f, x, stream_.get());
  } else {
    flash_forward_tiles<__half>(f, x, stream_.get());
  }
}

void CudaDevice::own_flash_backward(const AttentionShape& s, const DropoutSite& dropout, In d_out, In qkv, In out,
                                    const float* logsumexp, Out d_qkv) {
  const FlashCall f(s, dropout);
  check_width(f);
  if (!on_matrix_units(f, {qkv, d_out, out, d_qkv}, true))
    return flash_backward_plain(f, d_out, qkv, out, logsumexp, d_qkv, stream_.get());
  FlashTensors x;
  x.qkv = qkv.data;
  x.d_out = d_out.data;
  x.forward_out = out.data;
  x.d_qkv = d_qkv.data;
  x.logsumexp = logsumexp;
  x.shared_of_multiprocessor = shared_memory(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  if (qkv.type == DType::bf16) {
    flash_backward_tiles<__nv_bfloat16>(f, x, stream_.get());
  } else {
    flash_backward_tiles<__half>(f, x, stream_.get());
  }
}

}  // namespace rehearse::kernels::cuda
