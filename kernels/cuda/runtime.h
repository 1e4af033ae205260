// The CUDA runtime as objects that own what they name and calls that throw. Every call goes through REHEARSE_CUDA.
// Objects belong to the device that was current when they were made (use_device), may be moved but not copied, and are
// not to be used by two threads at once. Work on a Stream is asynchronous: an error of a kernel shows at a later call.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cuda/cuda.h"

namespace rehearse::kernels::cuda {

// A call of CUDA (or of a library on it) that failed: what was called, its code and the place.
class DeviceError : public std::runtime_error {
 public:
  explicit DeviceError(const std::string& message, int code = 0) : std::runtime_error(message), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

[[noreturn]] void fail(const char* expression, cudaError_t code, const char* file, int line);

#define REHEARSE_CUDA(expression)                                                       \
  do {                                                                                  \
    const cudaError_t rehearse_code_ = (expression);                                    \
    if (rehearse_code_ != cudaSuccess) [[unlikely]]                                     \
      ::rehearse::kernels::cuda::fail(#expression, rehearse_code_, __FILE__, __LINE__); \
  } while (false)

// The calling thread's calls are for this device from now on.
void use_device(int device);

class Event {
 public:
  // One that only orders is cheaper than one that takes the time.
  enum class Use : unsigned char { ordering, timing };
  explicit Event(Use use = Use::ordering);
  ~Event();
  Event(Event&& o) noexcept : event_(std::exchange(o.event_, nullptr)) {}
  Event& operator=(Event&& o) noexcept {
    std::swap(event_, o.event_);
    return *this;
  }

  cudaEvent_t get() const { return event_; }
  bool done() const;
  void synchronize() const;
  // Milliseconds, to about half a microsecond; both are done and take the time.
  static double elapsed_ms(const Event& begin, const Event& end);

 private:
  cudaEvent_t event_ = nullptr;
};

class Stream {
 public:
  // Non-blocking: does not wait for the legacy default stream. `urgent`: the device's greatest priority (for
  // communication kernels).
  enum class Priority : unsigned char { normal, urgent };
  explicit Stream(Priority priority = Priority::normal);
  ~Stream();
  Stream(Stream&& o) noexcept : stream_(std::exchange(o.stream_, nullptr)) {}
  Stream& operator=(Stream&& o) noexcept {
    std::swap(stream_, o.stream_);
    return *this;
  }

  cudaStream_t get() const { return stream_; }
  bool idle() const;
  void synchronize() const;
  void record(const Event& event);
  void wait(const Event& event);  // what is queued from now on

 private:
  cudaStream_t stream_ = nullptr;
};

// `bytes` of the device, not initialised, at a multiple of 256; null for 0 bytes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Page-locked memory of the host: copies from and to it run in parallel with everything else.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// What `record` queues on a stream, recorded once to be launched as a whole, many times. Nothing runs while it is
// recorded. Other streams join by waiting for an event of this one, and must be joined back the same way.
class Graph {
 public:
  Graph() = default;
  Graph(Stream& stream, const std::function<void()>& record);
  ~Graph();
  Graph(Graph&& o) noexcept : graph_(std::exchange(o.graph_, nullptr)), nodes_(o.nodes_) {}
  Graph& operator=(Graph&& o) noexcept {
    std::swap(graph_, o.graph_);
    std::swap(nodes_, o.nodes_);
    return *this;
  }

  explicit operator bool() const { return graph_ != nullptr; }
  std::size_t nodes() const { return nodes_; }
  void launch(Stream& stream) const;

 private:
  cudaGraphExec_t graph_ = nullptr;
  std::size_t nodes_ = 0;
};

// Any direction: the runtime knows where an address lies. Host memory that is not pinned makes the call wait.
void copy(void* to, const void* from, std::size_t bytes, Stream& stream);
void set_bytes(void* to, int value, std::size_t bytes, Stream& stream);

}  // namespace rehearse::kernels::cuda
