// See sdpa.h. Without cuDNN's headers there is none.
#include "kernels/cuda/sdpa.h"

#if __has_include(<cudnn_graph.h>)
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <tuple>

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sdpa_graph.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cuda {
namespace {

using Key = std::tuple<Sdpa::Pass, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, DType>;

class CudnnSdpa final : public Sdpa {
 public:
  CudnnSdpa(const SdpaApi& api, const std::string& device_properties) : api_(api) {
    if (!device_properties.empty()) {
      properties_.emplace(api, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
      properties_->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                       static_cast<std::int64_t>(device_properties.size()), device_properties.data());
      properties_->finalize();
    } else if (const cudnnStatus_t status = api.create(&handle_); status != CUDNN_STATUS_SUCCESS) {
      throw DeviceError("cudnnCreate failed: " + last_error(api), status);
    }
  }
  ~CudnnSdpa() override {
    plans_.clear();
    if (handle_ != nullptr) api_.destroy(handle_);
  }

  std::string version() const override {
    const std::size_t v = api_.version();
    return fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100);
  }
  std::string prepare(Pass pass, const AttentionShape& s, DType type) override {
    const Planned& planned = plan_of(pass, s, type);
    const std::size_t bytes = planned.plan.workspace() + planned.scratch;
    if (handle_ != nullptr && memory_.bytes() < bytes) memory_ = DeviceMemory(bytes);
    return fmt::format("engine {}, {} bytes", planned.plan.engine(), bytes);
  }

  void forward(const AttentionShape& s, In qkv, Out out, float* logsumexp, cudaStream_t stream) override {
    const Planned& planned = plan_of(Pass::forward, s, qkv.type);
    SdpaPointers p;
    packed(s, qkv.type, qkv.data, &p.query, &p.key, &p.value);
    p.out = out.data, p.logsumexp = logsumexp;
    run(planned, p, stream);
  }
  void backward(const AttentionShape& s, In d_out, In qkv, In out, const float* logsumexp, Out d_qkv,
                cudaStream_t stream) override {
    const Planned& planned = plan_of(Pass::backward, s, qkv.type);
    SdpaPointers p;
    packed(s, qkv.type, qkv.data, &p.query, &p.key, &p.value);
    packed(s, qkv.type, d_qkv.data, &p.d_query, &p.d_key, &p.d_value);
    p.out = out.data, p.logsumexp = logsumexp, p.d_out = d_out.data;
    p.query_sums = memory_.data();
    p.row_sums = memory_.as<char>() + planned.query_sums;
    set_bytes_of_sums(planned, stream);
    run(planned, p, stream);
  }

 private:
  struct Planned {
    SdpaPlan plan;
    std::size_t query_sums, scratch;  // bytes of ours in front of the plan's workspace
  };

  const Planned& plan_of(Pass pass, const AttentionShape& s, DType type) {
    const Key key{pass, s.micro_batch, s.heads, s.kv_heads, s.seq, s.head_dim, type};
    if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
    REHEARSE_CHECK(s.causal && (type == DType::bf16 || type == DType::f16), "attention that is not compared");
    const SdpaSizes sizes(s, type == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF);
    const bool back = pass == Pass::backward;
    const auto rows = static_cast<std::size_t>(s.micro_batch * s.heads * s.seq);
    const std::size_t sums = back ? rows * static_cast<std::size_t>(s.head_dim) * sizeof(float) : 0;
    const std::size_t scratch = back ? sums + (rows * sizeof(float) + 255) / 256 * 256 : 0;
    return plans_
        .emplace(key,
                 Planned{SdpaPlan(api_, handle_, properties_ ? &*properties_ : nullptr, sizes, back), sums, scratch})
        .first->second;
  }
  static void packed(const AttentionShape& s, DType type, const void* qkv, const void** query, const void** key,
                     const void** value) {
    const std::int64_t head = s.head_dim * size_of(type), group = s.heads / s.kv_heads;
    const auto* bytes = static_cast<const char*>(qkv);
    *query = bytes, *key = bytes + group * head, *value = bytes + (group + 1) * head;
  }
  void set_bytes_of_sums(const Planned& planned, cudaStream_t stream) const {
    REHEARSE_CHECK(memory_.bytes() >= planned.scratch, "a backward pass that was not prepared");
    REHEARSE_CUDA(cudaMemsetAsync(memory_.data(), 0, planned.query_sums, stream));
  }
  void run(const Planned& planned, const SdpaPointers& p, cudaStream_t stream) const {
    REHEARSE_CHECK(memory_.bytes() >= planned.scratch + planned.plan.workspace(), "attention that was not prepared");
    planned.plan.run(handle_, p, memory_.as<char>() + planned.scratch, stream);
  }

  const SdpaApi& api_;
  cudnnHandle_t handle_ = nullptr;
  std::optional<SdpaDescriptor> properties_;
  std::map<Key, Planned> plans_;
  DeviceMemory memory_;
};

}  // namespace

std::unique_ptr<Sdpa> Sdpa::load(std::string* reason, const SdpaApi* api, const std::string& device_properties) {
  if (api == nullptr) api = find_sdpa_api(reason);
  if (api == nullptr) return nullptr;
  try {
    return std::make_unique<CudnnSdpa>(*api, device_properties);
  } catch (const DeviceError& error) {
    *reason = error.what();
    return nullptr;
  }
}

}  // namespace rehearse::kernels::cuda
#else
namespace rehearse::kernels::cuda {

std::unique_ptr<Sdpa> Sdpa::load(std::string* reason, const SdpaApi*, const std::string&) {
  *reason = "built without cuDNN's headers";
  return nullptr;
}

}  // namespace rehearse::kernels::cuda
#endif
