// cuDNN's functions, found by dlopen, and its descriptors. See sdpa_graph.h.
#if __has_include(<cudnn_graph.h>)
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sdpa_graph.h"

namespace rehearse::kernels::cuda {
namespace {

struct LoadedSdpa {
  SdpaApi api;
  bool usable = false;
  std::string reason;
};

LoadedSdpa load_sdpa() {
  const char* named = std::getenv("REHEARSE_CUDNN");
  const std::string name = named != nullptr && *named != '\0' ? named : "libcudnn.so.9";
  LoadedSdpa loaded;
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    loaded.reason = fmt::format("cuDNN cannot be loaded ({}: {})", name, why != nullptr ? why : "unknown");
    return loaded;
  }
  const auto need = [&](const char* function, auto* to) {
    *to = reinterpret_cast<std::remove_pointer_t<decltype(to)>>(dlsym(library, function));
    if (*to == nullptr) loaded.reason = fmt::format("{} lacks {}", name, function);
  };
  need("cudnnGetVersion", &loaded.api.version);
  need("cudnnGetLastErrorString", &loaded.api.last_error);
  need("cudnnCreate", &loaded.api.create);
  need("cudnnDestroy", &loaded.api.destroy);
  need("cudnnSetStream", &loaded.api.set_stream);
  need("cudnnBackendCreateDescriptor", &loaded.api.desc_create);
  need("cudnnBackendDestroyDescriptor", &loaded.api.desc_destroy);
  need("cudnnBackendSetAttribute", &loaded.api.set);
  need("cudnnBackendGetAttribute", &loaded.api.get);
  need("cudnnBackendFinalize", &loaded.api.finalize);
  need("cudnnBackendExecute", &loaded.api.execute);
  loaded.usable = loaded.reason.empty();
  return loaded;
}

}  // namespace

void check_cudnn(const SdpaApi& api, cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw DeviceError(fmt::format("{} failed: {} ({})", what, last_error(api), static_cast<int>(status)), status);
}

const SdpaApi* find_sdpa_api(std::string* reason) {
  static const LoadedSdpa loaded = load_sdpa();
  if (loaded.usable) return &loaded.api;
  *reason = loaded.reason;
  return nullptr;
}

std::string last_error(const SdpaApi& api) {
  std::array<char, 1024> text{};
  api.last_error(text.data(), text.size());
  return text.data();
}

SdpaDescriptor::SdpaDescriptor(const SdpaApi& api, cudnnBackendDescriptorType_t type) : api_(&api) {
  check_cudnn(api, api.desc_create(type, &descriptor_), "cudnnBackendCreateDescriptor");
}
SdpaDescriptor::~SdpaDescriptor() {
  if (descriptor_ != nullptr) api_->desc_destroy(descriptor_);
}
SdpaDescriptor::SdpaDescriptor(SdpaDescriptor&& o) noexcept
    : api_(o.api_), descriptor_(std::exchange(o.descriptor_, nullptr)) {}

void SdpaDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                         const void* values) {
  check_cudnn(*api_, api_->set(descriptor_, name, type, count, values), "cudnnBackendSetAttribute");
}
void SdpaDescriptor::set(cudnnBackendAttributeName_t name, const SdpaDescriptor& value) {
  const cudnnBackendDescriptor_t other = value.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}
bool SdpaDescriptor::try_finalize() {
  return api_->finalize(descriptor_) == CUDNN_STATUS_SUCCESS;
}
void SdpaDescriptor::finalize() {
  check_cudnn(*api_, api_->finalize(descriptor_), "cudnnBackendFinalize");
}

}  // namespace rehearse::kernels::cuda
#endif
