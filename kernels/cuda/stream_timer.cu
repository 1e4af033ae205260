#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream_timer.h"

namespace rehearse::kernels::cuda {
namespace {

// On a GPU only: the emulator runs a kernel where it is launched, and this one would wait for what comes behind it.
#ifdef __CUDACC__
__global__ void hold_kernel(const volatile unsigned* go, unsigned long long longest_ns) {
  unsigned long long began = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (*go == 0 && now - began < longest_ns);
}
#endif

}  // namespace

StreamTimer::StreamTimer(Stream& stream)
    : stream_(stream), begin_(Event::Use::timing), end_(Event::Use::timing), signal_(sizeof(unsigned)) {}

double StreamTimer::time(const std::function<void()>& queue) {
  auto* const go = static_cast<volatile unsigned*>(signal_.data());
  *go = 0;
#ifdef __CUDACC__
  launch(hold_kernel, dim3(1), dim3(1), 0, stream_, go, static_cast<unsigned long long>(kLongestHoldMs * 1e6));
#endif
  try {
    stream_.record(begin_);
    queue();
    stream_.record(end_);
  } catch (...) {
    *go = 1;
    throw;
  }
  *go = 1;
  end_.synchronize();
  return Event::elapsed_ms(begin_, end_) * 1e-3;
}

}  // namespace rehearse::kernels::cuda
