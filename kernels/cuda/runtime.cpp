// The CUDA runtime as objects; see runtime.h.
#include "kernels/cuda/runtime.h"

#include <fmt/format.h>

#include <array>

namespace rehearse::kernels::cuda {

void fail(const char* expression, cudaError_t code, const char* file, int line) {
  throw DeviceError(fmt::format("{} ({}, code {}) from {} at {}:{}", cudaGetErrorString(code), cudaGetErrorName(code),
                                static_cast<int>(code), expression, file, line),
                    static_cast<int>(code));
}

std::string why_no_device() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return {};
  (void)cudaGetLastError();  // the question is answered: later calls shall not find the error
  if (code == cudaSuccess || code == cudaErrorNoDevice) return "the driver knows of none";
  int driver = 0, runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  if (driver == 0) return fmt::format("no NVIDIA driver ({})", cudaGetErrorString(code));
  return fmt::format("{} (driver for CUDA {}.{}, runtime {}.{})", cudaGetErrorString(code), driver / 1000,
                     driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

namespace {

std::string printed(const cudaUUID_t& id) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof id.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(id.bytes[i]));
  }
  return text;
}

}  // namespace

DeviceFacts device_facts(int device) {
  const auto attribute = [device](cudaDeviceAttr which) {
    int value = 0;
    REHEARSE_CUDA(cudaDeviceGetAttribute(&value, which, device));
    return value;
  };
  cudaDeviceProp properties{};
  REHEARSE_CUDA(cudaGetDeviceProperties(&properties, device));
  std::array<char, 32> bus{};
  REHEARSE_CUDA(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device));
  DeviceFacts f;
  f.index = device;
  f.name = properties.name;
  f.pci_bus_id = bus.data();
  f.uuid = printed(properties.uuid);
  f.major = properties.major;
  f.minor = properties.minor;
  f.multiprocessors = properties.multiProcessorCount;
  f.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  f.l2_bytes = properties.l2CacheSize;
  f.shared_bytes_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin);
  f.shared_bytes_per_multiprocessor = static_cast<std::int64_t>(properties.sharedMemPerMultiprocessor);
  f.threads_per_multiprocessor = properties.maxThreadsPerMultiProcessor;
  f.registers_per_multiprocessor = properties.regsPerMultiprocessor;
  f.clock_khz = attribute(cudaDevAttrClockRate);
  f.memory_clock_khz = attribute(cudaDevAttrMemoryClockRate);
  f.memory_bus_bits = attribute(cudaDevAttrGlobalMemoryBusWidth);
  f.copy_engines = attribute(cudaDevAttrAsyncEngineCount);
  REHEARSE_CUDA(cudaDriverGetVersion(&f.driver_version));
  REHEARSE_CUDA(cudaRuntimeGetVersion(&f.runtime_version));
  return f;
}

void leave_device() {
  (void)cudaDeviceReset();
  (void)cudaGetLastError();
}

void use_device(int device) {
  REHEARSE_CUDA(cudaSetDevice(device));
}

Event::Event(Use use) {
  REHEARSE_CUDA(cudaEventCreateWithFlags(&event_, use == Use::timing ? cudaEventDefault : cudaEventDisableTiming));
}

Event::~Event() {
  if (event_) (void)cudaEventDestroy(event_);
}

bool Event::done() const {
  const cudaError_t code = cudaEventQuery(event_);
  if (code == cudaErrorNotReady) return false;
  REHEARSE_CUDA(code);
  return true;
}

void Event::synchronize() const {
  REHEARSE_CUDA(cudaEventSynchronize(event_));
}

double Event::elapsed_ms(const Event& begin, const Event& end) {
  float ms = 0;
  REHEARSE_CUDA(cudaEventElapsedTime(&ms, begin.event_, end.event_));
  return static_cast<double>(ms);
}

Stream::Stream(Priority priority) {
  int least = 0, greatest = 0;
  REHEARSE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  REHEARSE_CUDA(
      cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority == Priority::urgent ? greatest : least));
}

Stream::~Stream() {
  if (stream_) (void)cudaStreamDestroy(stream_);
}

bool Stream::idle() const {
  const cudaError_t code = cudaStreamQuery(stream_);
  if (code == cudaErrorNotReady) return false;
  REHEARSE_CUDA(code);
  return true;
}

void Stream::synchronize() const {
  REHEARSE_CUDA(cudaStreamSynchronize(stream_));
}

void Stream::record(const Event& event) {
  REHEARSE_CUDA(cudaEventRecord(event.get(), stream_));
}

void Stream::wait(const Event& event) {
  REHEARSE_CUDA(cudaStreamWaitEvent(stream_, event.get(), 0));
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes > 0) REHEARSE_CUDA(cudaMalloc(&data_, bytes));
}

DeviceMemory::~DeviceMemory() {
  if (data_) (void)cudaFree(data_);
}

PinnedMemory::PinnedMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes > 0) REHEARSE_CUDA(cudaMallocHost(&data_, bytes));
}

PinnedMemory::~PinnedMemory() {
  if (data_) (void)cudaFreeHost(data_);
}

Graph::Graph(Stream& stream, const std::function<void()>& record) {
  REHEARSE_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  cudaGraph_t recorded = nullptr;
  try {
    record();
  } catch (...) {
    (void)cudaStreamEndCapture(stream.get(), &recorded);
    if (recorded) (void)cudaGraphDestroy(recorded);
    (void)cudaGetLastError();
    throw;
  }
  REHEARSE_CUDA(cudaStreamEndCapture(stream.get(), &recorded));
  cudaError_t code = cudaGraphGetNodes(recorded, nullptr, &nodes_);
  if (code == cudaSuccess) code = cudaGraphInstantiate(&graph_, recorded, 0);
  (void)cudaGraphDestroy(recorded);
  REHEARSE_CUDA(code);
}

Graph::~Graph() {
  if (graph_) (void)cudaGraphExecDestroy(graph_);
}

void Graph::launch(Stream& stream) const {
  REHEARSE_CUDA(cudaGraphLaunch(graph_, stream.get()));
}

void copy(void* to, const void* from, std::size_t bytes, Stream& stream) {
  if (bytes > 0) REHEARSE_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()));
}

void set_bytes(void* to, int value, std::size_t bytes, Stream& stream) {
  if (bytes > 0) REHEARSE_CUDA(cudaMemsetAsync(to, value, bytes, stream.get()));
}

}  // namespace rehearse::kernels::cuda
