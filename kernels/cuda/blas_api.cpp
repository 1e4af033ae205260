// Finds cuBLASLt by dlopen. A function that is missing counts as a library that cannot be used.
#include "kernels/cuda/blas_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "kernels/cuda/runtime.h"

namespace rehearse::kernels::cuda {
namespace {

struct Loaded {
  BlasApi api;
  bool usable = false;
  std::string reason;  // why not
};

template <class Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool fill(void* library, BlasApi* api, std::string* missing) {
  const auto need = [&](const char* name, auto* function) {
    if (find(library, name, function)) return;
    *missing += (missing->empty() ? "it lacks " : ", ") + std::string(name);
  };
  need("cublasLtCreate", &api->create);
  need("cublasLtDestroy", &api->destroy);
  need("cublasLtGetVersion", &api->version);
  need("cublasLtGetStatusString", &api->status_string);
  need("cublasLtMatmul", &api->matmul);
  need("cublasLtMatmulDescCreate", &api->desc_create);
  need("cublasLtMatmulDescDestroy", &api->desc_destroy);
  need("cublasLtMatmulDescSetAttribute", &api->desc_set);
  need("cublasLtMatrixLayoutCreate", &api->layout_create);
  need("cublasLtMatrixLayoutDestroy", &api->layout_destroy);
  need("cublasLtMatrixLayoutSetAttribute", &api->layout_set);
  need("cublasLtMatmulPreferenceCreate", &api->preference_create);
  need("cublasLtMatmulPreferenceDestroy", &api->preference_destroy);
  need("cublasLtMatmulPreferenceSetAttribute", &api->preference_set);
  need("cublasLtMatmulAlgoGetHeuristic", &api->heuristic);
  need("cublasLtMatmulAlgoConfigGetAttribute", &api->config_get);
  return missing->empty();
}

Loaded load() {
  std::vector<std::string> names = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
  if (const char* named = std::getenv("REHEARSE_CUBLASLT"); named && *named) names = {named};
  Loaded loaded;
  for (const std::string& name : names) {
    std::string missing;
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library && fill(library, &loaded.api, &missing)) {
      loaded.usable = true;
      return loaded;  // stays loaded to the process' end
    }
    const char* why = library ? missing.c_str() : dlerror();
    loaded.reason += (loaded.reason.empty() ? "" : "; ") + name + ": " + (why ? why : "unknown");
    if (library) dlclose(library);
  }
  return loaded;
}

const Loaded& loaded_once() {
  static const Loaded loaded = load();
  return loaded;
}

}  // namespace

const BlasApi* find_blas_api(std::string* reason) {
  const Loaded& loaded = loaded_once();
  if (loaded.usable) return &loaded.api;
  *reason = "cuBLASLt cannot be loaded (" + loaded.reason + ")";
  return nullptr;
}

const BlasApi& blas_api() {
  std::string reason;
  const BlasApi* api = find_blas_api(&reason);
  if (!api) throw DeviceError(reason);
  return *api;
}

}  // namespace rehearse::kernels::cuda
