// NCCL as a table of functions that is loaded when ranks need it, so that the program starts where there is none. Types
// and signatures are those of the toolkit's nccl.h (2.28); nothing of the library is linked. The library is the one
// that REHEARSE_NCCL_LIBRARY names, else the first libnccl.so.2 that the dynamic loader finds. It is never unloaded:
// its threads outlive whatever uses it.
#pragma once

#include <nccl.h>

#include <optional>
#include <stdexcept>
#include <string>

namespace rehearse::execute::nccl {

struct Api {
  decltype(&::ncclGetVersion) get_version = nullptr;
  decltype(&::ncclGetErrorString) get_error_string = nullptr;
  decltype(&::ncclGetLastError) get_last_error = nullptr;  // null before NCCL 2.13
  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclCommInitRank) comm_init_rank = nullptr;
  decltype(&::ncclCommInitRankConfig) comm_init_rank_config = nullptr;  // null before NCCL 2.14
  decltype(&::ncclCommSplit) comm_split = nullptr;                      // null before NCCL 2.18
  decltype(&::ncclCommFinalize) comm_finalize = nullptr;                // null before NCCL 2.14
  decltype(&::ncclCommDestroy) comm_destroy = nullptr;
  decltype(&::ncclCommAbort) comm_abort = nullptr;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&::ncclAllReduce) all_reduce = nullptr;
  decltype(&::ncclAllGather) all_gather = nullptr;
  decltype(&::ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&::ncclBroadcast) broadcast = nullptr;
  decltype(&::ncclReduce) reduce = nullptr;
  decltype(&::ncclSend) send = nullptr;
  decltype(&::ncclRecv) recv = nullptr;
  decltype(&::ncclGroupStart) group_start = nullptr;
  decltype(&::ncclGroupEnd) group_end = nullptr;

  std::string file;  // the library, as found
  int version = 0;   // 22809 for 2.28.9
};

// "2.28.9"; before 2.9 the numbers were packed otherwise, as nccl.h says.
std::string version_text(int version);

// Nothing if there is no library or it lacks a function that every version has; `reason` then says which.
std::optional<Api> load(std::string& reason);

class NcclError : public std::runtime_error {
 public:
  NcclError(ncclResult_t result, const std::string& what) : std::runtime_error(what), result_(result) {}
  ncclResult_t result() const { return result_; }

 private:
  ncclResult_t result_;
};

// Throws NcclError with the expression, NCCL's own words and the place, unless `result` is success or in progress (of
// communicators that do not block).
void check(const Api& api, ncclResult_t result, const char* expression, const char* file, int line);

}  // namespace rehearse::execute::nccl

// REHEARSE_NCCL(api, all_reduce(...)): calls the table's function and checks it.
#define REHEARSE_NCCL(api, call) ::rehearse::execute::nccl::check((api), (api).call, #call, __FILE__, __LINE__)
