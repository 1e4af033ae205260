// Sinks of attention: see cpu_only_calls.h. Work is cut by rows; a sink's gradient adds its rows in their order.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_device.h"

namespace rehearse::kernels::cpu {

void CpuKernels::attention_sinks(const AttentionShape& s, const float* sinks, float* out, float* logsumexp) {
  const std::int64_t values = s.values();
  pool_.ranges(s.seq * s.micro_batch, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin * s.heads; i < end * s.heads; ++i) {
      const float sink = sinks[i % s.heads], l = logsumexp[i], more = std::log1p(std::exp(-std::fabs(l - sink)));
      const float share = 1 / (1 + std::exp(sink - l));
      for (std::int64_t c = 0; c < values; ++c) out[i * values + c] *= share;
      logsumexp[i] = std::max(l, sink) + more;
    }
  });
}

void CpuKernels::attention_sink_gradient(const AttentionShape& s, const float* d_out, const float* out,
                                         const float* logsumexp, const float* sinks, float* d_sinks) {
  const std::int64_t values = s.values(), rows = s.seq * s.micro_batch;
  pool_.ranges(s.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t head = begin; head < end; ++head) {
      double sum = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t i = row * s.heads + head;
        double along = 0;
        for (std::int64_t c = i * values; c < (i + 1) * values; ++c) along += static_cast<double>(d_out[c]) * out[c];
        sum -= std::exp(static_cast<double>(sinks[head]) - logsumexp[i]) * along;
      }
      d_sinks[head] += static_cast<float>(sum);
    }
  });
}

void CpuDevice::attention_sinks(const AttentionShape& s, In sinks, Out out, float* logsumexp) {
  Widened w(*this);
  const std::int64_t n = s.seq * s.micro_batch * s.heads * s.values();
  kernels_.attention_sinks(s, w.read(sinks, s.heads), w.update(out, n), logsumexp);
}
void CpuDevice::attention_sink_gradient(const AttentionShape& s, In d_out, In out, const float* logsumexp, In sinks,
                                        Out d_sinks) {
  Widened w(*this);
  const std::int64_t n = s.seq * s.micro_batch * s.heads * s.values();
  kernels_.attention_sink_gradient(s, w.read(d_out, n), w.read(out, n), logsumexp, w.read(sinks, s.heads),
                                   w.update(d_sinks, s.heads));
}

}  // namespace rehearse::kernels::cpu
