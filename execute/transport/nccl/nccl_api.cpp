#include "execute/transport/nccl/nccl_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

namespace rehearse::execute::nccl {
namespace {

// dlsym's result as the function it is; POSIX warrants the conversion.
template <typename F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  return function != nullptr;
}

std::string file_of(void* symbol) {
  Dl_info info{};
  return ::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// The first function missing that every version has; "" if all are there.
std::string fill(void* library, Api& api) {
  const char* missing = "";
  const auto need = [&](const char* name, auto& function) {
    if (!find(library, name, function) && *missing == '\0') missing = name;
  };
  need("ncclGetVersion", api.get_version);
  need("ncclGetErrorString", api.get_error_string);
  need("ncclGetUniqueId", api.get_unique_id);
  need("ncclCommInitRank", api.comm_init_rank);
  need("ncclCommDestroy", api.comm_destroy);
  need("ncclCommAbort", api.comm_abort);
  need("ncclCommGetAsyncError", api.comm_get_async_error);
  need("ncclAllReduce", api.all_reduce);
  need("ncclAllGather", api.all_gather);
  need("ncclReduceScatter", api.reduce_scatter);
  need("ncclBroadcast", api.broadcast);
  need("ncclReduce", api.reduce);
  need("ncclSend", api.send);
  need("ncclRecv", api.recv);
  need("ncclGroupStart", api.group_start);
  need("ncclGroupEnd", api.group_end);
  find(library, "ncclGetLastError", api.get_last_error);
  find(library, "ncclCommInitRankConfig", api.comm_init_rank_config);
  find(library, "ncclCommSplit", api.comm_split);
  find(library, "ncclCommFinalize", api.comm_finalize);
  return missing;
}

}  // namespace

std::string version_text(int version) {
  const int packed = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / packed, version % packed / 100, version % 100);
}

std::optional<Api> load(std::string& reason) {
  const char* named = std::getenv("REHEARSE_NCCL_LIBRARY");
  const char* path = named != nullptr && *named != '\0' ? named : "libnccl.so.2";
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = ::dlerror();
    reason = fmt::format("no NCCL: {}", error == nullptr ? path : error);
    return std::nullopt;
  }
  Api api;
  if (const std::string missing = fill(library, api); !missing.empty()) {
    reason = fmt::format("no NCCL: {} has no {}", path, missing);
    return std::nullopt;
  }
  api.file = file_of(reinterpret_cast<void*>(api.get_version));
  if (api.get_version(&api.version) != ncclSuccess) api.version = 0;
  return api;
}

void check(const Api& api, ncclResult_t result, const char* expression, const char* file, int line) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* last = api.get_last_error != nullptr ? api.get_last_error(nullptr) : nullptr;
  throw NcclError(result, fmt::format("NCCL: {}{}{} ({}) in {} at {}:{}", api.get_error_string(result),
                                      last != nullptr && *last != '\0' ? ": " : "", last != nullptr ? last : "",
                                      static_cast<int>(result), expression, file, line));
}

}  // namespace rehearse::execute::nccl
