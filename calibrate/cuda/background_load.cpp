#include "calibrate/cuda/background_load.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <numeric>
#include <vector>

#include "sim/base/check.h"

namespace rehearse::calibrate::gpu {
namespace {

using kernels::cuda::DeviceMemory;
using kernels::cuda::Stream;
using Clock = std::chrono::steady_clock;

constexpr auto kLongestStart = std::chrono::milliseconds(200);

}  // namespace

double BackgroundLoad::beside(unsigned blocks, const std::function<void(Signals*, Stream&)>& start,
                              const std::function<double()>& time) {
  REHEARSE_CHECK(blocks <= Signals::kMostBlocks, "{} blocks", blocks);
  const kernels::cuda::PinnedMemory memory(sizeof(Signals));
  auto* const signals = new (memory.data()) Signals;
  Stream stream(Stream::Priority::urgent);
  start(signals, stream);
  const auto began = Clock::now();
  const auto all_run = [&] {
    return std::all_of(signals->started, signals->started + blocks, [](const volatile unsigned& s) { return s != 0; });
  };
  while (!all_run() && Clock::now() - began < kLongestStart) {
  }
  double seconds = 0;
  try {
    if (all_run()) seconds = time();
  } catch (...) {
    signals->stop = 1;  // its signals lie in memory that is freed now
    (void)cudaStreamSynchronize(stream.get());
    throw;
  }
  signals->stop = 1;
  stream.synchronize();
  return seconds;
}

double BackgroundLoad::beside_holder(int sms, const std::function<double()>& time) {
  return beside(
      static_cast<unsigned>(sms),
      [&](Signals* signals, Stream& stream) { launch_holder(sms, shared_bytes_, signals, stream); }, time);
}

double BackgroundLoad::beside_mover(double& rate, const std::function<double()>& time) {
  constexpr std::size_t kBytes = std::size_t{512} << 20;  // beyond any cache
  const DeviceMemory buffer(kBytes);
  const kernels::cuda::PinnedMemory moved(kMoverBlocks * sizeof(unsigned long long));
  const auto began = Clock::now();
  const double seconds = beside(
      kMoverBlocks,
      [&](Signals* signals, Stream& stream) {
        launch_mover(buffer.data(), kBytes, rate, signals, moved.as<unsigned long long>(), stream);
      },
      time);
  const double passed = std::chrono::duration<double>(Clock::now() - began).count();
  if (seconds <= 0) return 0;
  const auto* counts = moved.as<unsigned long long>();
  const auto chunks = static_cast<double>(std::accumulate(counts, counts + kMoverBlocks, 0ULL));
  rate = 2 * chunks * static_cast<double>(kMoverChunk) / passed;
  return seconds;
}

}  // namespace rehearse::calibrate::gpu
