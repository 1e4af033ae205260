// See pace_watch.h.
#include "execute/pace_watch.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <thread>

#include "kernels/device.h"
#include "sim/base/check.h"
#include "sim/base/quantile.h"

namespace rehearse::execute {
namespace {

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Processor seconds of `times` calls, after one that does not count.
template <class Work>
double seconds_of(int times, Work work) {
  work();
  const double before = thread_seconds();
  for (int i = 0; i < times; ++i) work();
  return thread_seconds() - before;
}

ProbeTimes probe_core() {
  constexpr std::int64_t kSide = 256, kCopied = 1 << 20;
  constexpr int kProducts = 16, kCopies = 8;
  const auto device = kernels::make_cpu_device(1);
  const std::vector<float> a(kSide * kSide, 0.5F), from(kCopied, 0.5F);
  std::vector<float> c(kSide * kSide), to(kCopied);
  ProbeTimes times;
  times.product_s = seconds_of(kProducts, [&] {
    device->gemm({kSide, kSide, kSide}, a.data(), a.data(), nullptr, c.data());
  });
  times.copy_s = seconds_of(kCopies, [&] { device->copy(kCopied, from.data(), to.data()); });
  return times;
}

// Standard deviation of a sample; 0 of one.
double deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (n - 1));
}

}  // namespace

ProbeTimes probe_pace(int cores) {
  std::vector<ProbeTimes> each(static_cast<std::size_t>(std::max(1, cores)));
  std::vector<std::thread> threads;
  for (ProbeTimes& one : each) threads.emplace_back([&one] { one = probe_core(); });
  for (auto& thread : threads) thread.join();
  ProbeTimes mean;
  for (const ProbeTimes& one : each) mean.product_s += one.product_s, mean.copy_s += one.copy_s;
  mean.product_s /= static_cast<double>(each.size()), mean.copy_s /= static_cast<double>(each.size());
  return mean;
}

void add_probes(const std::vector<PaceLap>& laps, Pace& pace) {
  constexpr double kShortest = 0.2;  // seconds: ticks of /proc/stat are of 10 ms
  pace.probes = static_cast<int>(laps.size());
  if (laps.empty()) return;
  std::vector<double> products, copies, slowness;
  for (const PaceLap& lap : laps) {
    REHEARSE_CHECK(lap.work.product_s > 0 && lap.work.copy_s > 0, "a probe of {} and {} s", lap.work.product_s,
                   lap.work.copy_s);
    products.push_back(lap.work.product_s), copies.push_back(lap.work.copy_s);
    Pace then = pace;
    then.taken = lap.taken;
    if (lap.seconds >= kShortest)
      slowness.push_back(std::log((lap.work.product_s + lap.work.copy_s) * then.crowding_by_load()));
  }
  pace.product_s = median(std::move(products)), pace.copy_s = median(std::move(copies));
  pace.spread = deviation(slowness);
}

void PaceWatch::probe() {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = laps_.empty() ? 0 : std::chrono::duration<double>(now - probed_).count();
  const double taken = since_probe_.share();
  laps_.push_back({probe_pace(cores_), seconds, taken});
  since_probe_ = OtherLoad();
  probed_ = std::chrono::steady_clock::now();
}

void PaceWatch::begin_stretch() {
  load_ = OtherLoad();
  waits_ = ThreadWaits();
  ended_ = false;
}

void PaceWatch::look() {
  constexpr std::chrono::milliseconds kPause{25};
  const auto now = std::chrono::steady_clock::now();
  if (ended_ || now - looked_ < kPause) return;
  looked_ = now;
  waits_.look();
}

void PaceWatch::end_stretch() {
  taken_ = load_.share(), stolen_ = load_.stolen();
  ended_ = true;
}

Pace PaceWatch::pace(double wanted) const {
  Pace pace;
  pace.taken = ended_ ? taken_ : load_.share(), pace.stolen = ended_ ? stolen_ : load_.stolen();
  pace.waited = waits_.waited();
  pace.cores = cores_, pace.wanted = wanted;
  add_probes(laps_, pace);
  return pace;
}

}  // namespace rehearse::execute
