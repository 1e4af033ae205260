// The functions of the CUDA runtime that we call, for one fictitious device whose streams do everything at once, on the
// calling thread. A stream that is captured records what it is given; other streams join by events, as on a device.
// Errors that the real runtime gives for wrong use are given where tests can meet them.
#include "tests/gpu/emulator/runtime.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda_emulator.h"
#include "tests/gpu/emulator/emulator.h"

using Work = std::function<void()>;
using Clock = std::chrono::steady_clock;

struct CUgraph_st {
  std::vector<Work> work;
  bool ended = false;  // its capture
};
struct CUgraphExec_st {
  std::vector<Work> work;
};
struct CUstream_st {
  std::shared_ptr<CUgraph_st> capture;
  bool origin = false;  // of the capture
  bool captured() const { return capture && !capture->ended; }
};
struct CUevent_st {
  bool timing = true;
  bool recorded = false;
  std::shared_ptr<CUgraph_st> capture;  // recorded on a stream that was captured
  Clock::time_point time;
  bool captured() const { return capture && !capture->ended; }
};

namespace {

constexpr int kSharedOptIn = 227 << 10, kSharedAlways = 48 << 10, kMultiprocessors = 132;

thread_local cudaError_t last_error = cudaSuccess;
std::mutex mutex;
std::map<const void*, int> shared_limit;  // of kernels, raised by cudaFuncSetAttribute
std::set<CUstream_st*> capturing;

cudaError_t done(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

CUstream_st* stream_of(cudaStream_t s) {
  static CUstream_st legacy;
  return s == nullptr || s == cudaStreamLegacy || s == cudaStreamPerThread ? &legacy : s;
}

// Does the work now or, on a stream that is captured, later.
template <class F>
cudaError_t queue(cudaStream_t stream, F&& work) {
  CUstream_st* s = stream_of(stream);
  if (s->captured()) {
    s->capture->work.emplace_back(std::forward<F>(work));
  } else {
    work();
  }
  return cudaSuccess;
}

// The runtime refuses to wait while this thread captures.
bool captures() {
  const std::lock_guard lock(mutex);
  return !capturing.empty();
}

}  // namespace

namespace emulator {

cudaError_t launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                   std::function<void()> thread) {
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64 || grid.y > 65535 || grid.z > 65535 || grid.x > 2147483647U ||
      grid.x == 0 || grid.y == 0 || grid.z == 0)
    return done(cudaErrorInvalidConfiguration);
  {
    const std::lock_guard lock(mutex);
    const auto limit = shared_limit.find(kernel);
    if (shared_bytes > static_cast<std::size_t>(limit == shared_limit.end() ? kSharedAlways : limit->second))
      return done(cudaErrorInvalidValue);
  }
  return queue(stream, [=] { run_grid(grid, block, shared_bytes, thread); });
}

}  // namespace emulator

// NOLINTBEGIN: names and signatures are those of cuda_runtime_api.h
extern "C" {

const char* cudaGetErrorName(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    default:
      return "an error of the emulator";
  }
}
const char* cudaGetErrorString(cudaError_t code) {
  return cudaGetErrorName(code);
}
cudaError_t cudaGetLastError() {
  const cudaError_t code = last_error;
  last_error = cudaSuccess;
  return code;
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return done(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device != 0) return done(cudaErrorInvalidDevice);
  *p = cudaDeviceProp{};
  std::strcpy(p->name, "emulated device");
  p->major = 9;
  p->multiProcessorCount = kMultiprocessors;
  p->totalGlobalMem = emulator::device_bytes();
  p->l2CacheSize = 50 << 20;
  p->sharedMemPerBlock = kSharedAlways;
  p->sharedMemPerBlockOptin = kSharedOptIn;
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxThreadsPerBlock = 1024;
  p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  if (device != 0) return done(cudaErrorInvalidDevice);
  switch (which) {
    case cudaDevAttrMultiProcessorCount:
      *value = kMultiprocessors;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = 228 << 10;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = kSharedOptIn;
      break;
    case cudaDevAttrClockRate:
      *value = 1980000;
      break;
    case cudaDevAttrMemoryClockRate:
      *value = 2619000;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = 5120;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 50 << 20;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      break;
    default:
      *value = 1;
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (device != 0 || length < 13) return done(cudaErrorInvalidDevice);
  std::strcpy(text, "0000:00:00.0");
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return done(captures() ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}
cudaError_t cudaDeviceReset() {
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *total = emulator::device_bytes();
  *free_bytes = *total - emulator::allocated_bytes();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** p, size_t bytes) {
  if (captures()) return done(cudaErrorStreamCaptureUnsupported);
  *p = bytes == 0 ? nullptr : emulator::allocate(bytes);
  return done(*p || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* p) {
  return done(p == nullptr || emulator::release(p) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaMallocHost(void** p, size_t bytes) {
  *p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return done(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) {
  return cudaMallocHost(p, bytes);
}
cudaError_t cudaFreeHost(void* p) {
  std::free(p);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  for (const void* p : {static_cast<const void*>(to), from})
    if (emulator::device_range().holds(p) && !emulator::allocated(p, bytes)) return done(cudaErrorInvalidValue);
  return queue(stream, [=] { std::memmove(to, from, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaDeviceCanAccessPeer(int* reachable, int, int) {
  *reachable = 0;  // there is no other
  return done(cudaSuccess);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  if (height > 0) {
    const size_t to_bytes = to_pitch * (height - 1) + width, from_bytes = from_pitch * (height - 1) + width;
    if (width > to_pitch || width > from_pitch ||
        (emulator::device_range().holds(to) && !emulator::allocated(to, to_bytes)) ||
        (emulator::device_range().holds(from) && !emulator::allocated(from, from_bytes)))
      return done(cudaErrorInvalidValue);
  }
  return queue(stream, [=] {
    for (size_t row = 0; row < height; ++row)
      std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (!emulator::allocated(to, bytes)) return done(cudaErrorInvalidValue);
  return queue(stream, [=] { std::memset(to, value, bytes); });
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) {
  *s = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  return cudaStreamCreateWithPriority(s, 0, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* s) {
  return cudaStreamCreateWithPriority(s, 0, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  return done(stream_of(s)->captured() ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  return cudaStreamSynchronize(s);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  CUstream_st* stream = stream_of(s);
  if (e->captured()) stream->capture = e->capture;  // joins
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* data) {
  return queue(s, [=] { f(data); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
  *e = new CUevent_st;
  (*e)->timing = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) {
  return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  e->capture = stream_of(s)->capture;
  if (e->captured()) return cudaSuccess;  // an order within the graph, which has one anyway
  e->recorded = true;
  e->time = Clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  return done(e->captured() ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  return cudaEventQuery(e);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->timing || !end->timing || !begin->recorded || !end->recorded) return done(cudaErrorInvalidResourceHandle);
  *ms = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  if (s == nullptr || s->captured()) return done(cudaErrorStreamCaptureUnsupported);
  s->capture = std::make_shared<CUgraph_st>();
  s->origin = true;
  const std::lock_guard lock(mutex);
  capturing.insert(s);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!s->origin) return done(cudaErrorStreamCaptureUnsupported);
  *graph = new CUgraph_st{s->capture->work};
  s->capture->ended = true;
  s->origin = false;
  const std::lock_guard lock(mutex);
  capturing.erase(s);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
  *status = stream_of(s)->captured() ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t*, size_t* count) {
  *count = g->work.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t g, unsigned long long) {
  *exec = new CUgraphExec_st{g->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
  return queue(s, [exec] {
    for (const Work& work : exec->work) work();
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  delete g;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute which, int value) {
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value > kSharedOptIn) return done(cudaErrorInvalidValue);
  const std::lock_guard lock(mutex);
  shared_limit[kernel] = value;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) {
  *a = cudaFuncAttributes{};
  a->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, size_t) {
  *blocks = threads > 0 ? 2048 / threads : 0;
  return cudaSuccess;
}
}
// NOLINTEND
