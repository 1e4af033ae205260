// What performing a rank asks of a GPU and its driver: memory, streams, events, copies, kernels on a stream, recorded
// launches. Small and virtual so that the rank above it (gpu_rank.h) is the same over CUDA (cuda_gpu.cpp) and over the
// tests' GPU, whose streams run late and in any order that events allow.
//
// One thread issues; done() may be asked from any thread that called bind_thread(). Streams and events are numbers;
// they and all memory go with the Gpu. Errors are kernels::DeviceError or the like: std::exceptions that say what
// failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/device_state.h"
#include "sim/result/result.h"

namespace rehearse::execute {

// The device has no room for `wanted` bytes.
class GpuOutOfMemory : public std::runtime_error {
 public:
  GpuOutOfMemory(const std::string& text, std::int64_t wanted) : std::runtime_error(text), wanted_(wanted) {}
  std::int64_t wanted() const { return wanted_; }

 private:
  std::int64_t wanted_;
};

class Gpu {
 public:
  using Stream = int;
  using Event = int;
  using Graph = int;
  struct Memory {
    std::int64_t free_bytes = 0, total_bytes = 0;  // of the whole device, whoever uses it
  };

  virtual ~Gpu() = default;  // waits for nothing

  virtual void bind_thread() = 0;  // before a thread's first call
  virtual std::string name() const = 0;
  virtual Memory memory() = 0;
  virtual void* allocate(std::int64_t bytes) = 0;            // device memory; throws GpuOutOfMemory
  virtual std::byte* allocate_host(std::int64_t bytes) = 0;  // pinned host memory

  // `urgent`: for transfers, whose kernels shall start before others that wait for room on the device.
  virtual Stream make_stream(bool urgent) = 0;
  virtual void* native(Stream stream) = 0;             // cudaStream_t, for other libraries
  virtual kernels::Device& device(Stream stream) = 0;  // its kernels are queued on the stream
  // Clocks, power and temperature now; any thread. Not known: nobody can say.
  virtual kernels::DeviceState state() { return {}; }
  // The matrix products queued so far, each once, with the algorithm that the library chose.
  virtual std::vector<result::ProductUse> products() { return {}; }
  // Before the first device(): the library's algorithms for each product are timed as it is queued, and the fastest
  // taken from settle_products() on, which says how many products that are and of how many it is not the library's own
  // first choice.
  virtual void measure_products() {}
  // Before the first device(): attention by the device's library where that computes what our kernels do; products()
  // says of each pass of each shape by what it was done.
  virtual void attention_by_library() {}
  struct Settled {
    int products = 0, others = 0;
  };
  virtual Settled settle_products() { return {}; }
  virtual Event make_event(bool timing) = 0;
  virtual void record(Event event, Stream stream) = 0;
  virtual void wait(Stream stream, Event event) = 0;   // for the event's latest record; none: goes on
  virtual bool done(Event event) = 0;                  // whether its latest record has been reached; none: yes
  virtual double elapsed_s(Event from, Event to) = 0;  // both done, with timing

  // Queued on the stream. `host` must stay until the copy is done; pinned, or the call may wait.
  virtual void to_device(Stream stream, void* device, const void* host, std::int64_t bytes) = 0;
  virtual void to_host(Stream stream, void* host, const void* device, std::int64_t bytes) = 0;
  virtual void copy(Stream stream, void* to, const void* from, std::int64_t bytes) = 0;  // within the device
  virtual void set_bytes(Stream stream, void* device, int value, std::int64_t bytes) = 0;

  // What `record` queues on `stream`, and on streams that wait for its events, is recorded and not run; all of them
  // must have come back to `stream` by the end.
  virtual Graph capture(Stream stream, const std::function<void()>& record) = 0;
  virtual void launch(Graph graph, Stream stream) = 0;
};

}  // namespace rehearse::execute
