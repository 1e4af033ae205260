#include "calibrate/machine.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "calibrate/lone_kernel.h"
#include "calibrate/statistics.h"
#include "kernels/device.h"

namespace rehearse::calibrate {
namespace {

using cost::Load;
using Floats = std::vector<float>;

// What keeps one core busy, on memory of its own. once() is a few hundred microseconds to a few milliseconds.
class Work {
 public:
  explicit Work(Load load) : load_(load), device_(kernels::make_cpu_device(1)) {
    const std::size_t n = load == Load::gemm ? kSide * kSide : kStream;
    for (Floats* buffer : {&a_, &b_, &c_}) buffer->assign(n, 0.5F);
  }
  void once() {
    constexpr auto n = static_cast<std::int64_t>(kStream);
    switch (load_) {
      case Load::gemm:
        return device_->gemm({kSide, kSide, kSide}, a_.data(), b_.data(), nullptr, c_.data());
      case Load::memory:
        return device_->copy(n, a_.data(), c_.data());
      case Load::transfer:
        return device_->add(n, a_.data(), b_.data(), c_.data());
    }
  }

 private:
  static constexpr std::size_t kSide = 256, kStream = 4 << 20;

  Load load_;
  std::unique_ptr<kernels::Device> device_;
  Floats a_, b_, c_;
};

// Cores that are busy with a load as long as it lives.
class Beside {
 public:
  Beside(Load load, int cores) {
    for (int i = 0; i < cores; ++i)
      threads_.emplace_back([this, load] {
        Work work(load);
        ++ready_;
        while (!stop_.load(std::memory_order_relaxed)) work.once();
      });
    while (ready_ < cores) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~Beside() {
    stop_ = true;
    for (auto& thread : threads_) thread.join();
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<int> ready_ = 0;
  std::vector<std::thread> threads_;
};

double time_of(Work& work, double seconds, const Budget& budget) {
  return median(repeat_polled([&] { work.once(); }, seconds, budget));
}

}  // namespace

Peaks measure_peaks(int cores, double seconds, const Budget& budget) {
  constexpr std::int64_t kSide = 1024, kCopy = 16 << 20;
  const auto device = kernels::make_cpu_device(cores);
  Peaks peaks;
  {
    const Floats a(kSide * kSide, 0.5F), b(kSide * kSide, 0.5F);
    Floats c(kSide * kSide);
    const auto times = repeat(
        [&] {
          device->gemm({kSide, kSide, kSide}, a.data(), b.data(), nullptr, c.data());
        },
        seconds / 2);
    peaks.flops = 2.0 * kSide * kSide * kSide / *std::min_element(times.begin(), times.end());
  }
  const Floats x(kCopy, 0.5F);
  Floats y(kCopy);
  const auto times = repeat_polled([&] { device->copy(kCopy, x.data(), y.data()); }, seconds / 2, budget);
  peaks.bandwidth = 2.0 * kCopy * sizeof(float) / *std::min_element(times.begin(), times.end());
  return peaks;
}

double best_product_rate(const std::vector<cost::CalibratedKernel>& kernels, int cores) {
  double best = 0;
  for (const cost::CalibratedKernel& k : kernels)
    // Busy cores / threads of a rank: so many did the same at a time.
    if (k.kind == "gemm" && k.dtype == program::DType::f32 && k.busy == cores && k.repetitions >= 3)
      best = std::max(best, k.flops / k.time.p10 * k.busy / k.threads);
  return best;
}

Slowdowns measure_sharing(int cores, double seconds, const Budget& budget) {
  constexpr std::array kAll = {Load::gemm, Load::memory, Load::transfer};
  Slowdowns slowdowns;
  for (auto& row : slowdowns) row.fill(1);
  if (cores < 2) return slowdowns;
  const double each = seconds / (cost::kLoads * (cost::kLoads + 1));
  for (const Load what : kAll) {
    Work work(what);
    const double alone = time_of(work, each, budget);
    for (const Load beside : kAll) {
      budget.poll();
      if (budget.spent()) return slowdowns;
      const Beside others(beside, cores - 1);
      // Faster alongside others than alone is noise.
      slowdowns[static_cast<std::size_t>(what)][static_cast<std::size_t>(beside)] =
          std::max(1.0, time_of(work, each, budget) / alone);
    }
  }
  return slowdowns;
}

}  // namespace rehearse::calibrate
