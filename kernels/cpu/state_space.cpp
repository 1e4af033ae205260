// What a Mamba-2 mixer does token by token: convolution, steps, gate and norm (sim/base/state_space.h). Work is cut by
// rows, heads or channels, and sums over rows are in their order, so that a call is deterministic. The scan is in
// state_space_scan.cpp.
#include <array>
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/state_space_view.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cpu {
namespace {

constexpr float kNormEpsilon = 1e-5F;  // megatron/core/ssm/mamba_mixer.py, RMSNormGated(eps=1e-5)

float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
}
// log(1 + e^x).
float softplus(float x) {
  return std::max(x, 0.0F) + std::log1p(std::exp(-std::fabs(x)));
}

// What the filter of channel c of a group gives at a row, before SiLU.
float filtered(const StateSpaceView& v, std::int64_t row, std::int64_t group, std::int64_t c, const float* in,
               const float* w, const float* b) {
  const std::int64_t k = v.s.conv, channel = group * v.x + c, token = row / v.s.micro_batch;
  float sum = b[channel];
  for (std::int64_t i = std::max<std::int64_t>(0, k - 1 - token); i < k; ++i)
    sum += w[channel * k + i] * in[v.in_conv(row - (k - 1 - i) * v.s.micro_batch, group) + c];
  return sum;
}

}  // namespace

void CpuKernels::state_space_conv(const StateSpace& s, const float* in, const float* w, const float* b, float* xbc) {
  const StateSpaceView v(s);
  pool_.ranges(s.tokens(), 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t g = 0; g < s.groups; ++g)
        for (std::int64_t c = 0; c < v.x; ++c) {
          const float pre = filtered(v, row, g, c, in, w, b);
          xbc[(row * s.groups + g) * v.x + c] = pre * sigmoid(pre);
        }
  });
}

void CpuKernels::state_space_conv_backward(const StateSpace& s, const float* d_xbc, const float* in, const float* w,
                                           const float* b, float* d_in, float* dw, float* db) {
  const StateSpaceView v(s);
  const std::int64_t k = s.conv, channels = s.groups * v.x;
  std::vector<float> d_pre(static_cast<std::size_t>(s.tokens() * channels));
  pool_.ranges(s.tokens(), 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t g = 0; g < s.groups; ++g)
        for (std::int64_t c = 0; c < v.x; ++c) {
          const std::int64_t at = (row * s.groups + g) * v.x + c;
          const float pre = filtered(v, row, g, c, in, w, b), share = sigmoid(pre);
          d_pre[static_cast<std::size_t>(at)] = d_xbc[at] * share * (1 + pre * (1 - share));
        }
  });
  pool_.ranges(s.tokens(), 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t later = std::min(k, s.seq - row / s.micro_batch);  // tokens whose filters see this one
      for (std::int64_t g = 0; g < s.groups; ++g)
        for (std::int64_t c = 0; c < v.x; ++c) {
          const std::int64_t channel = g * v.x + c;
          float sum = 0;
          for (std::int64_t ahead = 0; ahead < later; ++ahead)
            sum += w[channel * k + k - 1 - ahead] *
                   d_pre[static_cast<std::size_t>((row + ahead * s.micro_batch) * channels + channel)];
          d_in[v.in_conv(row, g) + c] = sum;
        }
    }
  });
  pool_.ranges(channels, 16, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<double> sums(static_cast<std::size_t>((end - begin) * (k + 1)));
    for (std::int64_t row = 0; row < s.tokens(); ++row) {
      const std::int64_t token = row / s.micro_batch;
      for (std::int64_t channel = begin; channel < end; ++channel) {
        double* const sum = sums.data() + (channel - begin) * (k + 1);
        const double d = static_cast<double>(d_pre[static_cast<std::size_t>(row * channels + channel)]);
        for (std::int64_t i = std::max<std::int64_t>(0, k - 1 - token); i < k; ++i)
          sum[i] +=
              d * static_cast<double>(in[v.in_conv(row - (k - 1 - i) * s.micro_batch, channel / v.x) + channel % v.x]);
        sum[k] += d;
      }
    }
    for (std::int64_t channel = begin; channel < end; ++channel) {
      const double* const sum = sums.data() + (channel - begin) * (k + 1);
      for (std::int64_t i = 0; i < k; ++i) dw[channel * k + i] += static_cast<float>(sum[i]);
      db[channel] += static_cast<float>(sum[k]);
    }
  });
}

void CpuKernels::state_space_steps(const StateSpace& s, const float* in, const float* dt_bias, const float* a_log,
                                   float* step, float* l) {
  const StateSpaceView v(s);
  pool_.ranges(s.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t head = begin; head < end; ++head) {
      const float a = -std::exp(a_log[head]);
      for (std::int64_t b = 0; b < s.micro_batch; ++b) {
        float sum = 0;
        for (std::int64_t t = 0; t < s.seq; ++t) {
          const std::int64_t row = v.row(t, b), at = v.of_token(row, head);
          if (t % s.chunk == 0) sum = 0;
          step[at] = softplus(in[v.in_step(row, head)] + dt_bias[head]);
          l[at] = sum += step[at] * a;
        }
      }
    }
  });
}

// A token's log decay is in the sums of its chunk's tokens from itself on.
void CpuKernels::state_space_steps_backward(const StateSpace& s, const StateSpaceDecays& d_l, const float* d_step,
                                            const float* step, const float* in, const float* dt_bias,
                                            const float* a_log, float* d_in, float* d_dt_bias, float* d_a_log) {
  const StateSpaceView v(s);
  pool_.ranges(s.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t head = begin; head < end; ++head) {
      const float a = -std::exp(a_log[head]);
      double of_bias = 0, of_a = 0;
      for (std::int64_t b = 0; b < s.micro_batch; ++b) {
        float behind = 0;
        for (std::int64_t t = s.seq - 1; t >= 0; --t) {
          const std::int64_t row = v.row(t, b), at = v.of_token(row, head);
          if ((t + 1) % s.chunk == 0 || t + 1 == s.seq) behind = d_l.pass[v.of_pass(b, t / s.chunk, head)];
          behind += d_l.scan[at] + d_l.state[at] + d_l.read[at];
          const float d_raw = (d_step[at] + behind * a) * sigmoid(in[v.in_step(row, head)] + dt_bias[head]);
          d_in[v.in_step(row, head)] = d_raw;
          of_bias += static_cast<double>(d_raw);
          of_a += static_cast<double>(behind) * static_cast<double>(step[at] * a);
        }
      }
      d_dt_bias[head] += static_cast<float>(of_bias);
      d_a_log[head] += static_cast<float>(of_a);
    }
  });
}

void CpuKernels::state_space_gate_backward(const StateSpace& s, const float* dy, const float* in, const float* raw,
                                           const float* xbc, float* d_in, float* d_raw, float* dd) {
  const StateSpaceView v(s);
  pool_.ranges(s.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t head = begin; head < end; ++head) {
      double sum = 0;
      for (std::int64_t row = 0; row < s.tokens(); ++row) {
        const std::int64_t gate = v.in_gate(row, head), at = v.out(row, head), x = v.channels(row, head);
        for (std::int64_t c = 0; c < v.p; ++c) {
          const float z = in[gate + c], share = sigmoid(z);
          d_in[gate + c] = dy[at + c] * raw[at + c] * share * (1 + z * (1 - share));
          d_raw[at + c] = dy[at + c] * z * share;
          sum += static_cast<double>(d_raw[at + c]) * static_cast<double>(xbc[x + c]);
        }
      }
      dd[head] += static_cast<float>(sum);
    }
  });
}

void CpuKernels::state_space_norm(const StateSpace& s, const float* y, const float* gamma, float* out, float* stats) {
  const std::int64_t cols = s.group_inner();
  pool_.ranges(s.tokens() * s.groups, 4, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* const x = y + i * cols;
      const float* const g = gamma + i % s.groups * cols;
      const float scale = 1 / std::sqrt(dot(x, x, cols) / static_cast<float>(cols) + kNormEpsilon);
      stats[i] = scale;
      for (std::int64_t c = 0; c < cols; ++c) out[i * cols + c] = x[c] * scale * g[c];
    }
  });
}

void CpuKernels::state_space_norm_backward(const StateSpace& s, const float* d_out, const float* y, const float* stats,
                                           const float* gamma, float* dy, float* d_gamma) {
  const std::int64_t cols = s.group_inner();
  pool_.ranges(s.tokens() * s.groups, 4, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> weighed(static_cast<std::size_t>(cols));
    for (std::int64_t i = begin; i < end; ++i) {
      const float* const x = y + i * cols;
      const float* const g = gamma + i % s.groups * cols;
      for (std::int64_t c = 0; c < cols; ++c) weighed[static_cast<std::size_t>(c)] = d_out[i * cols + c] * g[c];
      const float r = stats[i], along = dot(weighed.data(), x, cols) * r * r * r / static_cast<float>(cols);
      for (std::int64_t c = 0; c < cols; ++c)
        dy[i * cols + c] = weighed[static_cast<std::size_t>(c)] * r - x[c] * along;
    }
  });
  pool_.ranges(s.inner(), 16, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<double> sums(static_cast<std::size_t>(end - begin));
    for (std::int64_t row = 0; row < s.tokens(); ++row)
      for (std::int64_t c = begin; c < end; ++c)
        sums[static_cast<std::size_t>(c - begin)] +=
            static_cast<double>(d_out[row * s.inner() + c]) *
            static_cast<double>(y[row * s.inner() + c] * stats[row * s.groups + c / cols]);
    for (std::int64_t c = begin; c < end; ++c)
      d_gamma[c] += static_cast<float>(sums[static_cast<std::size_t>(c - begin)]);
  });
}

void CpuDevice::state_space(const StateSpace& s, std::span<const Out> reads, std::span<const Out> writes) {
  Widened wide(*this);
  const std::vector<std::int64_t> read = s.reads(), written = s.writes(), whole = s.touched_writes();
  REHEARSE_CHECK(read.size() == reads.size() && written.size() == writes.size(), "{}: {} operands read, {} written",
                 name_of(s.part), reads.size(), writes.size());
  std::array<const float*, 11> in = {};
  std::array<float*, 3> out = {};
  // What accumulates, or is written in part, is read too.
  for (std::size_t i = 0; i < written.size(); ++i) {
    bool again = whole[i] != written[i];
    for (const Out& each : reads) again = again || each.data == writes[i].data;
    out[i] = again ? wide.update(writes[i], written[i]) : wide.write(writes[i], written[i]);
  }
  for (std::size_t i = 0; i < read.size(); ++i) {
    bool own = false;
    for (const Out& each : writes) own = own || each.data == reads[i].data;
    if (!own) in[i] = wide.read(reads[i], read[i]);
  }
  using Part = StateSpacePart;
  switch (s.part) {
    case Part::conv:
      return kernels_.state_space_conv(s, in[0], in[1], in[2], out[0]);
    case Part::conv_backward:
      return kernels_.state_space_conv_backward(s, in[0], in[1], in[2], in[3], out[0], out[1], out[2]);
    case Part::steps:
      return kernels_.state_space_steps(s, in[0], in[1], in[2], out[0], out[1]);
    case Part::steps_backward:
      return kernels_.state_space_steps_backward(s, {in[0], in[1], in[2], in[3]}, in[4], in[5], in[6], in[7], in[8],
                                                 out[0], out[1], out[2]);
    case Part::gate_backward:
      return kernels_.state_space_gate_backward(s, in[0], in[1], in[2], in[3], out[0], out[1], out[2]);
    case Part::norm:
      return kernels_.state_space_norm(s, in[0], in[1], out[0], out[1]);
    case Part::norm_backward:
      return kernels_.state_space_norm_backward(s, in[0], in[1], in[2], in[3], out[0], out[1]);
    default:
      return kernels_.state_space_scan(s, in, out);
  }
}

}  // namespace rehearse::kernels::cpu
