// See cuda_gpu.h: each call of Gpu is one of the CUDA runtime's (kernels/cuda/runtime.h). A stream gets a device and
// its workspace when kernels are first queued on it, which must be before anything is captured.
#include "execute/rank/gpu/cuda_gpu.h"

#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/cuda/blas.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/library_attention.h"
#include "kernels/cuda/nvml.h"
#include "kernels/cuda/runtime.h"
#include "sim/base/units.h"

namespace rehearse::execute {
namespace {

namespace cuda = kernels::cuda;

constexpr double kMsPerSecond = 1e3;

class CudaGpu final : public Gpu {
 public:
  CudaGpu(int index, const cuda::BlasApi* blas, const cuda::SdpaApi* sdpa)
      : index_((cuda::use_device(index), index)), facts_(cuda::device_facts(index)), nvml_(facts_.pci_bus_id) {
    options_.blas_api = blas;
    options_.sdpa_api = sdpa;
    REHEARSE_CUDA(cudaFree(nullptr));  // makes the context
  }
  ~CudaGpu() override {
    try {
      cuda::use_device(index_);
    } catch (const std::exception&) {  // a broken context: what it held is gone with it
    }
  }

  void bind_thread() override { cuda::use_device(index_); }
  std::string name() const override { return facts_.name; }

  Memory memory() override {
    std::size_t free = 0, total = 0;
    REHEARSE_CUDA(cudaMemGetInfo(&free, &total));
    return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
  }

  void* allocate(std::int64_t bytes) override {
    try {
      return device_memory_.emplace_back(static_cast<std::size_t>(bytes)).data();
    } catch (const cuda::DeviceError& error) {
      if (error.code() != cudaErrorMemoryAllocation) throw;
      (void)cudaGetLastError();  // reported already
      const Memory m = memory();
      throw GpuOutOfMemory(fmt::format("{} asked for, {} of {} free", format_bytes(Bytes(bytes)),
                                       format_bytes(Bytes(m.free_bytes)), format_bytes(Bytes(m.total_bytes))),
                           bytes);
    }
  }
  std::byte* allocate_host(std::int64_t bytes) override {
    return pinned_.emplace_back(static_cast<std::size_t>(bytes)).as<std::byte>();
  }

  Stream make_stream(bool urgent) override {
    streams_.push_back(
        std::make_unique<Queue>(urgent ? cuda::Stream::Priority::urgent : cuda::Stream::Priority::normal));
    return static_cast<Stream>(streams_.size()) - 1;
  }
  void* native(Stream stream) override { return at(stream).get(); }

  kernels::Device& device(Stream stream) override {
    Queue& q = *streams_[static_cast<std::size_t>(stream)];
    if (!q.device) {
      q.workspace = cuda::DeviceMemory(cuda::device_workspace_bytes(facts_.major));
      q.device.emplace(q.stream, options_, q.workspace.data(), q.workspace.bytes());
    }
    return *q.device;
  }

  kernels::DeviceState state() override { return nvml_.state(); }
  std::vector<result::ProductUse> products() override {
    std::set<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::string>> used;
    for (const auto& q : streams_) {
      const cuda::Blas* blas = q->device ? q->device->blas_in_use() : nullptr;
      if (blas == nullptr) continue;
      for (const auto& [p, algorithm, index] : blas->performed())
        if (p.batch == 1) used.emplace(cuda::form_text(p), p.m, p.n, p.k, algorithm.name());
    }
    for (const auto& q : streams_)
      if (const cuda::LibraryAttention* attention = q->device ? q->device->library_attention() : nullptr)
        for (const auto& p : attention->performed())
          used.emplace(fmt::format("attention {} {}", p.pass == cuda::Sdpa::Pass::forward ? "forward" : "backward",
                                   rehearse::name_of(p.type)),
                       p.shape.micro_batch * p.shape.seq, p.shape.heads * p.shape.head_dim, p.shape.seq, p.by);
    std::vector<result::ProductUse> list;
    for (const auto& [form, m, n, k, algorithm] : used) list.push_back({form, m, n, k, algorithm});
    return list;
  }

  void attention_by_library() override { options_.library_attention = true; }
  void measure_products() override { options_.measure_products = true; }
  Settled settle_products() override {
    options_.measure_products = false;
    Settled settled;
    for (const auto& q : streams_) {
      if (!q->device) continue;
      q->device->settle_products();
      if (const cuda::Blas* blas = q->device->blas_in_use(); blas != nullptr)
        for (const cuda::Blas::Performed& p : blas->performed()) {
          ++settled.products;
          settled.others += p.index > 0 ? 1 : 0;
        }
    }
    return settled;
  }

  Event make_event(bool timing) override {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::make_unique<cuda::Event>(timing ? cuda::Event::Use::timing : cuda::Event::Use::ordering));
    return static_cast<Event>(events_.size()) - 1;
  }
  void record(Event event, Stream stream) override { at(stream).record(of(event)); }
  void wait(Stream stream, Event event) override { at(stream).wait(of(event)); }
  bool done(Event event) override { return of(event).done(); }
  double elapsed_s(Event from, Event to) override { return cuda::Event::elapsed_ms(of(from), of(to)) / kMsPerSecond; }

  void to_device(Stream stream, void* device, const void* host, std::int64_t bytes) override {
    cuda::copy(device, host, static_cast<std::size_t>(bytes), at(stream));
  }
  void to_host(Stream stream, void* host, const void* device, std::int64_t bytes) override {
    cuda::copy(host, device, static_cast<std::size_t>(bytes), at(stream));
  }
  void copy(Stream stream, void* to, const void* from, std::int64_t bytes) override {
    cuda::copy(to, from, static_cast<std::size_t>(bytes), at(stream));
  }
  void set_bytes(Stream stream, void* device, int value, std::int64_t bytes) override {
    cuda::set_bytes(device, value, static_cast<std::size_t>(bytes), at(stream));
  }

  Graph capture(Stream stream, const std::function<void()>& record) override {
    graphs_.emplace_back(at(stream), record);
    return static_cast<Graph>(graphs_.size()) - 1;
  }
  void launch(Graph graph, Stream stream) override { graphs_[static_cast<std::size_t>(graph)].launch(at(stream)); }

 private:
  struct Queue {
    explicit Queue(cuda::Stream::Priority priority) : stream(priority) {}
    cuda::Stream stream;
    cuda::DeviceMemory workspace;
    std::optional<cuda::CudaDevice> device;
  };
  cuda::Stream& at(Stream stream) const { return streams_[static_cast<std::size_t>(stream)]->stream; }
  // The vector may grow while another thread asks.
  const cuda::Event& of(Event event) const {
    const std::lock_guard lock(mutex_);
    return *events_[static_cast<std::size_t>(event)];
  }

  const int index_;
  const cuda::DeviceFacts facts_;
  const cuda::Nvml nvml_;
  cuda::CudaDevice::Options options_;
  std::vector<cuda::DeviceMemory> device_memory_;
  std::vector<cuda::PinnedMemory> pinned_;
  std::vector<std::unique_ptr<Queue>> streams_;
  mutable std::mutex mutex_;  // of events_
  std::vector<std::unique_ptr<cuda::Event>> events_;
  std::vector<cuda::Graph> graphs_;
};

}  // namespace

std::unique_ptr<Gpu> make_cuda_gpu(int index, const kernels::cuda::BlasApi* blas, const kernels::cuda::SdpaApi* sdpa) {
  return std::make_unique<CudaGpu>(index, blas, sdpa);
}

}  // namespace rehearse::execute
