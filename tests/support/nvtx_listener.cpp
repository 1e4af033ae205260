// A library that NVTX loads in a profiler's place (NVTX_INJECTION64_PATH): it writes what it is told to the file that
// REHEARSE_NVTX_LOG names, a line each: "domain NAME", "push THREAD PAYLOAD NAME", "pop THREAD".
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace {

std::mutex mutex;
std::FILE* file = nullptr;
std::deque<std::string> names;

std::size_t thread_number() {
  return std::hash<std::thread::id>()(std::this_thread::get_id());
}

nvtxDomainHandle_t create(const char* name) {
  const std::lock_guard lock(mutex);
  std::fprintf(file, "domain %s\n", name);
  return reinterpret_cast<nvtxDomainHandle_t>(&names.emplace_back(name));
}
nvtxStringHandle_t register_string(nvtxDomainHandle_t /*domain*/, const char* text) {
  const std::lock_guard lock(mutex);
  return reinterpret_cast<nvtxStringHandle_t>(&names.emplace_back(text));
}
int push(nvtxDomainHandle_t /*domain*/, const nvtxEventAttributes_t* range) {
  const std::lock_guard lock(mutex);
  const auto* name = reinterpret_cast<const std::string*>(range->message.registered);
  std::fprintf(file, "push %zu %lld %s\n", thread_number(), static_cast<long long>(range->payload.llValue),
               range->messageType == NVTX_MESSAGE_TYPE_REGISTERED ? name->c_str() : "(not registered)");
  return 0;
}
int pop(nvtxDomainHandle_t /*domain*/) {
  const std::lock_guard lock(mutex);
  std::fprintf(file, "pop %zu\n", thread_number());
  std::fflush(file);
  return 0;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const char* path = std::getenv("REHEARSE_NVTX_LOG");
  file = path == nullptr ? nullptr : std::fopen(path, "a");
  if (file == nullptr) return 0;
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create);
  *table[NVTX_CBID_CORE2_DomainRegisterStringA] = reinterpret_cast<NvtxFunctionPointer>(register_string);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
