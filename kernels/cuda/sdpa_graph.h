// cuDNN's functions that we call, found at run time as those of cuBLASLt are (blas_api.h), and the graphs and plans of
// attention made of them. See sdpa.h for what they compute; only sdpa.cpp and sdpa_graph.cpp see this.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace rehearse::kernels::cuda {

struct SdpaApi {
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetLastErrorString) last_error = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) desc_create = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) desc_destroy = nullptr;
  decltype(&cudnnBackendSetAttribute) set = nullptr;
  decltype(&cudnnBackendGetAttribute) get = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;
};
// Loaded once and kept; null if there is none: `reason`. Any thread.
const SdpaApi* find_sdpa_api(std::string* reason);
std::string last_error(const SdpaApi& api);  // what the library says of this thread's last failed call
void check_cudnn(const SdpaApi& api, cudnnStatus_t status, const char* what);  // throws DeviceError

// One of the library's descriptors, of the type it was made with. Failed calls throw DeviceError.
class SdpaDescriptor {
 public:
  SdpaDescriptor(const SdpaApi& api, cudnnBackendDescriptorType_t type);
  ~SdpaDescriptor();
  SdpaDescriptor(SdpaDescriptor&& o) noexcept;
  SdpaDescriptor& operator=(SdpaDescriptor&&) = delete;

  cudnnBackendDescriptor_t get() const { return descriptor_; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  void set(cudnnBackendAttributeName_t name, const SdpaDescriptor& value);
  void finalize();
  bool try_finalize();  // false: the library cannot do it

 private:
  const SdpaApi* api_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

// Dimensions and strides of the tensors, [batch, head, row, column] in elements, as sdpa.h says.
struct SdpaSizes {
  std::int64_t batch, group, seq, width;
  std::vector<std::int64_t> packed, out, rows;  // strides of q, k, v and their gradients; of out; of logsumexp
  cudnnDataType_t type;
  float scale;  // 1 / sqrt(width)

  SdpaSizes(const AttentionShape& s, cudnnDataType_t type);
};

// Device memory. Forward: the first five.
struct SdpaPointers {
  const void *query = nullptr, *key = nullptr, *value = nullptr;
  const void *out = nullptr, *logsumexp = nullptr;
  const void *d_out = nullptr, *d_query = nullptr, *d_key = nullptr, *d_value = nullptr;
  const void* query_sums = nullptr;  // fp32 [batch, group, seq, width], zeros before each call
  const void* row_sums = nullptr;    // fp32 [batch, group, seq]
};

// The first plan of the library's heuristic that it can do, of those whose result does not change from run to run, as
// far as the library says. Throws DeviceError if there is none.
class SdpaPlan {
 public:
  // For the device of `handle`, or, if it is null, that of `properties`.
  SdpaPlan(const SdpaApi& api, cudnnHandle_t handle, const SdpaDescriptor* properties, const SdpaSizes& sizes,
           bool backward);
  std::size_t workspace() const { return workspace_; }
  std::int64_t engine() const { return engine_; }
  void run(cudnnHandle_t handle, const SdpaPointers& p, void* workspace, cudaStream_t stream) const;

 private:
  struct Tensor {
    cudnnBackendDescriptor_t descriptor;
    std::vector<std::int64_t> sizes;
  };
  using Place = const void* SdpaPointers::*;

  SdpaDescriptor& make(cudnnBackendDescriptorType_t type);
  Tensor tensor(std::vector<std::int64_t> sizes, const std::vector<std::int64_t>& strides, cudnnDataType_t type,
                bool is_virtual, bool by_value, std::int64_t* id);
  Tensor kept(Place place, std::vector<std::int64_t> sizes, const std::vector<std::int64_t>& strides,
              cudnnDataType_t type);
  Tensor between(std::vector<std::int64_t> sizes, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Tensor scalar(float value);
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* b, const Tensor& y,
                   const Tensor* select = nullptr, std::int64_t axis = -1);
  void multiply(const Tensor& a, const Tensor& b, const Tensor& c);
  void reduce(cudnnReduceTensorOp_t how, const Tensor& x, const Tensor& y);
  Tensor transposed(const Tensor& x, std::vector<std::int64_t> sizes, const std::vector<std::int64_t>& strides,
                    cudnnDataType_t type);
  void finish_operation(SdpaDescriptor& operation);
  Tensor scores(const SdpaSizes& s, const Tensor& query, const Tensor& key);
  Tensor masked(const SdpaSizes& s, const Tensor& x);
  void build_forward(const SdpaSizes& s);
  void build_backward(const SdpaSizes& s);
  void gradient_of_keys(const SdpaSizes& s, const Tensor& weights, const Tensor& of, const Tensor& gradient);
  void choose(cudnnHandle_t handle, const SdpaDescriptor* properties);
  bool repeats(cudnnBackendDescriptor_t engine);

  const SdpaApi& api_;
  std::deque<SdpaDescriptor> descriptors_;  // as long as the plan
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<std::pair<std::int64_t, Place>> places_;
  std::deque<std::pair<std::int64_t, float>> scalars_;
  std::int64_t ids_ = 0, engine_ = -1;
  cudnnBackendDescriptor_t plan_ = nullptr;
  std::size_t workspace_ = 0;
};

}  // namespace rehearse::kernels::cuda
