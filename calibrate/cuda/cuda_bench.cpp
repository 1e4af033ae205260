#include "calibrate/cuda/cuda_bench.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "calibrate/cuda/background_load.h"
#include "calibrate/cuda/cuda_run.h"
#include "calibrate/cuda/load_kernels.h"
#include "calibrate/cuda/nccl_times.h"
#include "calibrate/gpu/walk.h"
#include "calibrate/statistics.h"
#include "execute/rank/gpu/cuda_gpu.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/nvml.h"

namespace rehearse::calibrate::gpu {
namespace {

using kernels::cuda::CudaDevice;
using kernels::cuda::DeviceError;
using kernels::cuda::DeviceMemory;
using kernels::cuda::PinnedMemory;
using kernels::cuda::Stream;

// 1000 * major + 100 * minor before 9, 10000 * major + 100 * minor since (cudnn_version.h).
std::string cudnn_version() {
  void* library = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "";
  const auto version = reinterpret_cast<std::size_t (*)()>(::dlsym(library, "cudnnGetVersion"));
  if (version == nullptr) return "";
  const std::size_t v = version();
  return fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100);
}

std::string dotted(int version) {  // 13000 is 13.0
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

class CudaBench final : public Bench {
 public:
  CudaBench(int device, const kernels::cuda::BlasApi* api, bool measure_products)
      : index_((kernels::cuda::use_device(device), device)),
        api_(api),
        facts_(kernels::cuda::device_facts(device)),
        nvml_(facts_.pci_bus_id),
        workspace_(kernels::cuda::device_workspace_bytes(facts_.major)),
        timer_(stream_),
        device_(stream_, {.blas_api = api}, workspace_.data(), workspace_.bytes()),
        step_(sizeof(kernels::StepValues)),
        shared_{stream_, device_, nullptr, step_.as<kernels::StepValues>(), measure_products} {
    kernels::StepValues values;
    values.lr = 1e-4F;
    kernels::cuda::copy(step_.data(), &values, sizeof values, stream_);
    stream_.synchronize();
    std::string reason;
    if (api == nullptr) api = kernels::cuda::find_blas_api(&reason);
    if (api == nullptr) return;
    try {
      shared_.blas = &device_.blas();
    } catch (const DeviceError&) {
      if (!recoverable()) throw;
    }
  }

  double now() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  Facts facts() override {
    Facts f;
    f.name = facts_.name;
    f.sms = facts_.multiprocessors, f.major = facts_.major, f.minor = facts_.minor;
    f.memory_bytes = facts_.memory_bytes, f.l2_bytes = facts_.l2_bytes;
    // Two transfers a clock of the memory, as `deviceQuery` of the CUDA samples reckons.
    f.memory_bandwidth = 2.0 * static_cast<double>(facts_.memory_clock_khz) * 1e3 * facts_.memory_bus_bits / 8;
    f.devices = kernels::cuda::device_count();
    f.driver = nvml_.driver_version();
    if (f.driver.empty()) f.driver = "CUDA " + dotted(facts_.driver_version);
    f.runtime = dotted(facts_.runtime_version);
    if (shared_.blas != nullptr) f.cublas = fmt::format("{}", shared_.blas->version());
    f.cudnn = cudnn_version();
    f.nccl = nccl_version();
    return f;
  }
  State state() override { return nvml_.state(); }

  std::unique_ptr<Run> kernel(const Kernel& kernel) override {
    try {
      return run_of(kernel);
    } catch (const DeviceError& error) {
      if (!recoverable()) throw;
      problem_ = error.what();
      return nullptr;
    }
  }
  Walk walk(const plan::Scenario& scenario, const program::Program& program, int stage, int steps,
            const std::function<void()>& poll) override {
    try {
      auto walked = gpu::walk({scenario, program, stage, steps, kLongestWalkS, shared_.measure_products, poll},
                              execute::make_cuda_gpu(index_, api_));
      kernels::cuda::use_device(index_);
      return walked;
    } catch (const execute::GpuOutOfMemory& error) {
      problem_ = error.what();
    } catch (const std::runtime_error& error) {
      problem_ = error.what();
      if (!recoverable()) throw;
    }
    return {};
  }
  // By the driver's count, of the whole device; one workspace, as a rank has.
  std::int64_t reserve() override {
    std::size_t free = 0, total = 0;
    REHEARSE_CUDA(cudaDeviceSynchronize());
    REHEARSE_CUDA(cudaMemGetInfo(&free, &total));
    return static_cast<std::int64_t>(total - free);
  }
  std::string problem() const override { return problem_; }

  double copy(const std::string& direction, std::int64_t bytes) override;
  cost::LaunchTimes launches() override;
  double beside(const Kernel& product, int& sms, double& bytes_per_s) override;
  std::vector<Transfer> transfers(double deadline) override {
    auto list = nccl_times(
        facts_.major, [this] { return now(); }, deadline);
    kernels::cuda::use_device(index_);
    return list;
  }

 private:
  // After a failed call: whether the device still works, as it does when there was no memory, or no such kernel. What
  // breaks a context stays its answer to every later call.
  static bool recoverable() {
    (void)cudaGetLastError();
    return cudaDeviceSynchronize() == cudaSuccess;
  }
  std::unique_ptr<CudaRun> run_of(const Kernel& kernel) {
    std::size_t free = 0, total = 0;
    REHEARSE_CUDA(cudaMemGetInfo(&free, &total));
    Operands operands(kernel, facts_.l2_bytes, static_cast<std::int64_t>(free), stream_);
    if (operands.empty()) throw DeviceError("no memory for its operands");
    return std::make_unique<CudaRun>(kernel, std::move(operands), shared_);
  }
  double timed(int times, const std::function<void(int)>& queue);

  static constexpr double kLongestWalkS = 60;  // of steps: something hangs

  int index_;
  const kernels::cuda::BlasApi* api_;  // null: this machine's library
  kernels::cuda::DeviceFacts facts_;
  kernels::cuda::Nvml nvml_;
  Stream stream_;
  DeviceMemory workspace_;
  kernels::cuda::StreamTimer timer_;
  CudaDevice device_;
  DeviceMemory step_;
  Shared shared_;
  std::string problem_;
};

// Median over five of the device time of one of `times` in a row.
double CudaBench::timed(int times, const std::function<void(int)>& queue) {
  std::vector<double> samples;
  for (int repetition = 0; repetition < 6; ++repetition) {
    const double seconds = timer_.time([&] {
      for (int i = 0; i < times; ++i) queue(i);
    });
    if (repetition > 0) samples.push_back(seconds / times);
  }
  return std::max(median(samples), 1e-9);
}

double CudaBench::copy(const std::string& direction, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  const int times = bytes < (1 << 22) ? 50 : 4;
  if (direction == "to_peer") {
    int reachable = 0;
    const int peer = index_ == 0 ? 1 : 0;
    if (kernels::cuda::device_count() < 2) return 0;
    REHEARSE_CUDA(cudaDeviceCanAccessPeer(&reachable, index_, peer));
    if (reachable == 0) return 0;
    const DeviceMemory here(size);
    kernels::cuda::use_device(peer);
    const DeviceMemory there(size);
    kernels::cuda::use_device(index_);
    return timed(times, [&](int) {
      REHEARSE_CUDA(cudaMemcpyPeerAsync(there.data(), peer, here.data(), index_, size, stream_.get()));
    });
  }
  // Two sets on the device, so that small copies go beyond one place; those of 256 MiB are beyond any cache anyway.
  const std::array<DeviceMemory, 2> from = {DeviceMemory(size), DeviceMemory(size)};
  const DeviceMemory to(size);
  const PinnedMemory host(direction == "on_device" ? 0 : size);
  return timed(times, [&](int i) {
    void* const source = from[static_cast<std::size_t>(i % 2)].data();
    if (direction == "on_device") kernels::cuda::copy(to.data(), source, size, stream_);
    if (direction == "to_device") kernels::cuda::copy(to.data(), host.data(), size, stream_);
    if (direction == "from_device") kernels::cuda::copy(host.data(), source, size, stream_);
  });
}

// Of kernels that do nothing: what the host takes to launch one, and how far apart they begin on the device.
cost::LaunchTimes CudaBench::launches() {
  constexpr int kPlain = 500, kNodes = 200;
  const auto host_seconds = [&](int count, const std::function<void()>& work) {
    std::vector<double> samples;
    for (int repetition = 0; repetition < 10; ++repetition) {
      const double began = now();
      work();
      samples.push_back((now() - began) / count);
      stream_.synchronize();
    }
    return median(samples);
  };
  cost::LaunchTimes times;
  times.plain = host_seconds(kPlain, [&] {
    for (int i = 0; i < kPlain; ++i) launch_nothing(stream_);
  });
  times.plain_gap = timed(kPlain, [&](int) { launch_nothing(stream_); });
  const kernels::cuda::Graph graph(stream_, [&] {
    for (int i = 0; i < kNodes; ++i) launch_nothing(stream_);
  });
  times.graph = host_seconds(kNodes, [&] { graph.launch(stream_); });
  times.graph_gap = timed(5, [&](int) { graph.launch(stream_); }) / kNodes;
  return times;
}

double CudaBench::beside(const Kernel& product, int& sms, double& bytes_per_s) {
  try {
    const std::unique_ptr<CudaRun> run = run_of(product);
    const int launches = std::clamp(static_cast<int>(0.02 / run->launch(1)), 1, 200);
    const auto time = [&] { return run->launch(launches); };
    time();
    const double alone = std::min(time(), time());
    BackgroundLoad load(static_cast<int>(facts_.shared_bytes_per_block));
    const double together = sms > 0 ? load.beside_holder(sms, time) : load.beside_mover(bytes_per_s, time);
    return together > 0 ? together / alone : 0;
  } catch (const DeviceError&) {
    if (!recoverable()) throw;
    return 0;
  }
}

}  // namespace

std::unique_ptr<Bench> make_cuda_bench(int device, const kernels::cuda::BlasApi* blas, bool measure_products) {
  return std::make_unique<CudaBench>(device, blas, measure_products);
}

}  // namespace rehearse::calibrate::gpu
