// Fused attention by cuDNN, of the tensors that kernels::Device has: what the library takes and how fast, beside our
// own kernels (flash.h), which perform. Without dropout and with a causal mask, since masks of dropout must be the
// CPU's.
//
// The library recognises attention in a graph of matrix products and pointwise operations (its "graph API"; for which
// graphs there are engines NVIDIA's cudnn-frontend shows, node/scaled_dot_product_flash_attention.h). Softmax is
// divided by its row's sum before the second product, and what backward needs is one number a row, log(sum(exp)), as
// ours is. Heads of packed qkv, [seq, micro_batch, kv_heads, group + 2, head_dim], have no single stride where keys are
// shared; so a key head with its sequence is a batch of the library's, and the `group` query heads are its heads over
// one of keys.
//
// Backward: the library adds queries' gradients up in fp32 in memory of ours, tile after tile as they are done.
// NVIDIA's frontend counts that as not deterministic, though the engines do not say so: one more reason to compare
// only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/device.h"

namespace rehearse::kernels::cuda {

struct SdpaApi;  // cuDNN's functions (sdpa_graph.h)

class Sdpa {
 public:
  // For the current device. Null where there is no library, or it was built without cuDNN's headers: `reason`. `api`:
  // the library's functions, which outlive it; null: this machine's, REHEARSE_CUDNN or libcudnn.so.9.
  // `device_properties`: of a device that is not there, as the library writes them
  // (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION): then plans are made and nothing can run.
  static std::unique_ptr<Sdpa> load(std::string* reason, const SdpaApi* api = nullptr,
                                    const std::string& device_properties = "");
  virtual ~Sdpa() = default;

  virtual std::string version() const = 0;  // "9.19.0"
  enum class Pass : unsigned char { forward, backward };
  // Finds a plan and the memory it needs; what it is: "engine 6, 50331904 bytes". `s` is causal, `type` bf16 or f16.
  // The memory may move: what was captured before must not run any more. Throws DeviceError if the library has no plan.
  virtual std::string prepare(Pass pass, const AttentionShape& s, DType type) = 0;
  // Queued; what was prepared. One call at a time: they share their memory.
  virtual void forward(const AttentionShape& s, In qkv, Out out, float* logsumexp, cudaStream_t stream) = 0;
  virtual void backward(const AttentionShape& s, In d_out, In qkv, In out, const float* logsumexp, Out d_qkv,
                        cudaStream_t stream) = 0;
};

}  // namespace rehearse::kernels::cuda
