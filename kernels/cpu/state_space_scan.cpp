// The scan of a Mamba-2 mixer in chunks, and its gradients (sim/base/state_space.h, whose names are used here). A unit
// of work is a head or a group of one chunk of one sequence, or all chunks where states pass; each is one thread's, in
// a fixed order.
//
// With e_ij = exp(l_i - l_j) and g_j = exp(l_last - l_j), gradients of a chunk's tokens are
// clang-format off
//   dx_j     = step_j (sum_{i >= j} cb_ij e_ij d_raw_i + g_j d_states B_j) + d d_raw_j
//   d_step_j = x_j . (what is in brackets)
//   dB_j     = sum over heads of g_j step_j d_states^T x_j, and sum_i d_cb_ij C_i
//   dC_i     = sum over heads of exp(l_i) entering^T d_raw_i, and sum_j d_cb_ij B_j
//   d_cb_ij  = sum over heads of e_ij step_j (d_raw_i . x_j)
// clang-format on
// and every term that has exp(l_i - l_j) in it adds itself to the gradient of l_i and takes itself off that of l_j.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/state_space_view.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cpu {
namespace {

using Operands = std::span<const float* const>;
using Results = std::span<float* const>;

void states(const StateSpaceView& v, const ChunkOf& c, std::int64_t head, const float* xbc, const float* step,
            const float* l, float* out) {
  float* const state = out + v.of_state(c.sequence, c.chunk, head);
  std::fill_n(state, v.p * v.n, 0.0F);
  const float last = l[v.of_token(v.row(c.first + c.count - 1, c.sequence), head)];
  for (std::int64_t j = 0; j < c.count; ++j) {
    const std::int64_t row = v.row(c.first + j, c.sequence), at = v.of_token(row, head);
    const float factor = std::exp(last - l[at]) * step[at];
    const float* const x = xbc + v.channels(row, head);
    for (std::int64_t p = 0; p < v.p; ++p)
      add_scaled(factor * x[p], xbc + v.keys(row, head / v.h), state + p * v.n, v.n);
  }
}

void passing(const StateSpaceView& v, std::int64_t sequence, std::int64_t head, const float* states, const float* l,
             float* entering) {
  const std::int64_t size = v.p * v.n;
  std::fill_n(entering + v.of_state(sequence, 0, head), size, 0.0F);
  for (std::int64_t c = 0; c + 1 < v.s.chunks(); ++c) {
    const float decay = std::exp(l[v.of_token(v.row((c + 1) * v.s.chunk - 1, sequence), head)]);
    const float* const from = entering + v.of_state(sequence, c, head);
    const float* const left = states + v.of_state(sequence, c, head);
    float* const to = entering + v.of_state(sequence, c + 1, head);
    for (std::int64_t i = 0; i < size; ++i) to[i] = decay * from[i] + left[i];
  }
}

// Of what a chunk leaves, d_states, the last chunk's nobody reads.
void passing_backward(const StateSpaceView& v, std::int64_t sequence, std::int64_t head, const float* d_entering,
                      const float* entering, const float* l, float* d_states, float* d_pass) {
  const std::int64_t size = v.p * v.n;
  for (std::int64_t c = v.s.chunks() - 1; c >= 0; --c) {
    float* const d_state = d_states + v.of_state(sequence, c, head);
    d_pass[v.of_pass(sequence, c, head)] = 0;
    if (c + 1 == v.s.chunks()) {
      std::fill_n(d_state, size, 0.0F);
      continue;
    }
    // The gradient of what enters chunk c + 1: of its own tokens, and through the decay over it.
    const ChunkOf next(v.s, sequence * v.s.chunks() + c + 1);
    const float* const own = d_entering + v.of_state(sequence, c + 1, head);
    const float* const through = d_states + v.of_state(sequence, c + 1, head);
    const float over = std::exp(l[v.of_token(v.row(next.first + next.count - 1, sequence), head)]);
    for (std::int64_t i = 0; i < size; ++i) d_state[i] = own[i] + over * through[i];
    const float decay = std::exp(l[v.of_token(v.row((c + 1) * v.s.chunk - 1, sequence), head)]);
    d_pass[v.of_pass(sequence, c, head)] = decay * dot(d_state, entering + v.of_state(sequence, c, head), size);
  }
}

void scores(const StateSpaceView& v, const ChunkOf& c, std::int64_t group, const float* xbc, float* out) {
  float* const cb = out + v.of_scores(c.sequence, c.chunk, group);
  std::fill_n(cb, v.s.chunk * v.s.chunk, 0.0F);
  for (std::int64_t i = 0; i < c.count; ++i)
    for (std::int64_t j = 0; j <= i; ++j)
      cb[i * v.s.chunk + j] = dot(xbc + v.queries(v.row(c.first + i, c.sequence), group),
                                  xbc + v.keys(v.row(c.first + j, c.sequence), group), v.n);
}

// A head's tokens of one chunk.
struct HeadOfChunk {
  const StateSpaceView& v;
  const ChunkOf& c;
  std::int64_t head;
  const float *step, *l;

  std::int64_t row(std::int64_t i) const { return v.row(c.first + i, c.sequence); }
  float log_decay(std::int64_t i) const { return l[v.of_token(row(i), head)]; }
  float decay(std::int64_t i, std::int64_t j) const { return std::exp(log_decay(i) - log_decay(j)); }
  float to_end(std::int64_t j) const { return std::exp(log_decay(c.count - 1) - log_decay(j)); }
  float size(std::int64_t j) const { return step[v.of_token(row(j), head)]; }
};

void scan(const HeadOfChunk& at, const float* cb, const float* xbc, const float* entering, float d, const float* in,
          float* y, float* raw) {
  const StateSpaceView& v = at.v;
  cb += v.of_scores(at.c.sequence, at.c.chunk, at.head / v.h);
  entering += v.of_state(at.c.sequence, at.c.chunk, at.head);
  for (std::int64_t i = 0; i < at.c.count; ++i) {
    float* const out = raw + v.out(at.row(i), at.head);
    const float* const x = xbc + v.channels(at.row(i), at.head);
    const float* const c = xbc + v.queries(at.row(i), at.head / v.h);
    const float before = std::exp(at.log_decay(i));
    for (std::int64_t p = 0; p < v.p; ++p) out[p] = d * x[p] + before * dot(entering + p * v.n, c, v.n);
    for (std::int64_t j = 0; j <= i; ++j)
      add_scaled(cb[i * v.s.chunk + j] * at.decay(i, j) * at.size(j), xbc + v.channels(at.row(j), at.head), out, v.p);
    const float* const gate = in + v.in_gate(at.row(i), at.head);
    float* const gated = y + v.out(at.row(i), at.head);
    for (std::int64_t p = 0; p < v.p; ++p) gated[p] = out[p] * gate[p] / (1 + std::exp(-gate[p]));
  }
}

void entering_backward(const HeadOfChunk& at, const float* d_raw, const float* xbc, float* out) {
  const StateSpaceView& v = at.v;
  float* const d_entering = out + v.of_state(at.c.sequence, at.c.chunk, at.head);
  std::fill_n(d_entering, v.p * v.n, 0.0F);
  for (std::int64_t i = 0; i < at.c.count; ++i) {
    const float before = std::exp(at.log_decay(i));
    const float* const d = d_raw + v.out(at.row(i), at.head);
    const float* const c = xbc + v.queries(at.row(i), at.head / v.h);
    for (std::int64_t p = 0; p < v.p; ++p) add_scaled(before * d[p], c, d_entering + p * v.n, v.n);
  }
}

void x_backward(const HeadOfChunk& at, const float* d_raw, const float* cb, const float* xbc, const float* d_states,
                float d, float* d_xbc, float* d_step) {
  const StateSpaceView& v = at.v;
  cb += v.of_scores(at.c.sequence, at.c.chunk, at.head / v.h);
  d_states += v.of_state(at.c.sequence, at.c.chunk, at.head);
  std::vector<float> sum(static_cast<std::size_t>(v.p));
  for (std::int64_t j = 0; j < at.c.count; ++j) {
    const float* const b = xbc + v.keys(at.row(j), at.head / v.h);
    const float left = at.to_end(j);
    for (std::int64_t p = 0; p < v.p; ++p) sum[static_cast<std::size_t>(p)] = left * dot(d_states + p * v.n, b, v.n);
    for (std::int64_t i = j; i < at.c.count; ++i)
      add_scaled(cb[i * v.s.chunk + j] * at.decay(i, j), d_raw + v.out(at.row(i), at.head), sum.data(), v.p);
    const std::int64_t x = v.channels(at.row(j), at.head);
    const float* const own = d_raw + v.out(at.row(j), at.head);
    d_step[v.of_token(at.row(j), at.head)] = dot(sum.data(), xbc + x, v.p);
    for (std::int64_t p = 0; p < v.p; ++p) d_xbc[x + p] = at.size(j) * sum[static_cast<std::size_t>(p)] + d * own[p];
  }
}

// Of a group: its heads in their order.
void b_backward(const StateSpaceView& v, const ChunkOf& c, std::int64_t group, Operands in, float* d_b, float* d_l) {
  const float* const xbc = in[0];
  std::vector<float> sum(static_cast<std::size_t>(v.n));
  for (std::int64_t j = 0; j < c.count; ++j)
    std::fill_n(d_b + (v.row(c.first + j, c.sequence) * v.s.groups + group) * v.n, v.n, 0.0F);
  for (std::int64_t head = group * v.h; head < (group + 1) * v.h; ++head) {
    const HeadOfChunk at{v, c, head, in[1], in[2]};
    const float* const d_state = in[3] + v.of_state(c.sequence, c.chunk, head);
    float all = 0;
    for (std::int64_t j = 0; j < c.count; ++j) {
      const float* const x = xbc + v.channels(at.row(j), head);
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (std::int64_t p = 0; p < v.p; ++p) add_scaled(x[p], d_state + p * v.n, sum.data(), v.n);
      const float factor = at.to_end(j) * at.size(j);
      add_scaled(factor, sum.data(), d_b + (at.row(j) * v.s.groups + group) * v.n, v.n);
      const float term = factor * dot(sum.data(), xbc + v.keys(at.row(j), group), v.n);
      d_l[v.of_token(at.row(j), head)] = -term;
      all += term;
    }
    d_l[v.of_token(at.row(c.count - 1), head)] += all;
  }
}

void c_backward(const StateSpaceView& v, const ChunkOf& c, std::int64_t group, Operands in, float* d_c, float* d_l) {
  std::vector<float> sum(static_cast<std::size_t>(v.n));
  for (std::int64_t i = 0; i < c.count; ++i)
    std::fill_n(d_c + (v.row(c.first + i, c.sequence) * v.s.groups + group) * v.n, v.n, 0.0F);
  for (std::int64_t head = group * v.h; head < (group + 1) * v.h; ++head) {
    const HeadOfChunk at{v, c, head, nullptr, in[1]};
    const float* const entering = in[2] + v.of_state(c.sequence, c.chunk, head);
    for (std::int64_t i = 0; i < c.count; ++i) {
      const float* const d = in[0] + v.out(at.row(i), head);
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (std::int64_t p = 0; p < v.p; ++p) add_scaled(d[p], entering + p * v.n, sum.data(), v.n);
      const float before = std::exp(at.log_decay(i));
      add_scaled(before, sum.data(), d_c + (at.row(i) * v.s.groups + group) * v.n, v.n);
      d_l[v.of_token(at.row(i), head)] = before * dot(sum.data(), in[3] + v.queries(at.row(i), group), v.n);
    }
  }
}

void scores_backward(const StateSpaceView& v, const ChunkOf& c, std::int64_t group, Operands in, float* out) {
  float* const d_cb = out + v.of_scores(c.sequence, c.chunk, group);
  std::fill_n(d_cb, v.s.chunk * v.s.chunk, 0.0F);
  for (std::int64_t head = group * v.h; head < (group + 1) * v.h; ++head) {
    const HeadOfChunk at{v, c, head, in[2], in[3]};
    for (std::int64_t i = 0; i < c.count; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        d_cb[i * v.s.chunk + j] +=
            at.decay(i, j) * at.size(j) * dot(in[0] + v.out(at.row(i), head), in[1] + v.channels(at.row(j), head), v.p);
  }
}

// B_j of the scores, or C_i; and what there is of it from the states.
void product_backward(const StateSpaceView& v, const ChunkOf& c, std::int64_t group, bool of_b, Operands in,
                      float* d_xbc) {
  const float* const d_cb = in[0] + v.of_scores(c.sequence, c.chunk, group);
  for (std::int64_t k = 0; k < c.count; ++k) {
    const std::int64_t row = v.row(c.first + k, c.sequence);
    float* const sum = d_xbc + (of_b ? v.keys(row, group) : v.queries(row, group));
    std::copy_n(in[2] + (row * v.s.groups + group) * v.n, v.n, sum);
    const std::int64_t begin = of_b ? k : 0, end = of_b ? c.count : k + 1;
    for (std::int64_t o = begin; o < end; ++o) {
      const std::int64_t other = v.row(c.first + o, c.sequence);
      add_scaled(of_b ? d_cb[o * v.s.chunk + k] : d_cb[k * v.s.chunk + o],
                 in[1] + (of_b ? v.queries(other, group) : v.keys(other, group)), sum, v.n);
    }
  }
}

void decay_backward(const HeadOfChunk& at, const float* d_raw, const float* cb, const float* xbc, float* d_l) {
  const StateSpaceView& v = at.v;
  cb += v.of_scores(at.c.sequence, at.c.chunk, at.head / v.h);
  for (std::int64_t i = 0; i < at.c.count; ++i) d_l[v.of_token(at.row(i), at.head)] = 0;
  for (std::int64_t i = 0; i < at.c.count; ++i)
    for (std::int64_t j = 0; j < i; ++j) {  // a token's own decay is none
      const float term = cb[i * v.s.chunk + j] * at.decay(i, j) * at.size(j) *
                         dot(d_raw + v.out(at.row(i), at.head), xbc + v.channels(at.row(j), at.head), v.p);
      d_l[v.of_token(at.row(i), at.head)] += term;
      d_l[v.of_token(at.row(j), at.head)] -= term;
    }
}

}  // namespace

void CpuKernels::state_space_scan(const StateSpace& s, Operands in, Results out) {
  using Part = StateSpacePart;
  const StateSpaceView v(s);
  const std::int64_t chunks = s.micro_batch * s.chunks();
  const auto by_head = [&](const auto& body) {
    pool_.ranges(chunks * s.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) body(ChunkOf(s, i / s.heads), i % s.heads);
    });
  };
  const auto by_group = [&](const auto& body) {
    pool_.ranges(chunks * s.groups, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) body(ChunkOf(s, i / s.groups), i % s.groups);
    });
  };
  const auto by_sequence = [&](const auto& body) {
    pool_.ranges(s.micro_batch * s.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) body(i / s.heads, i % s.heads);
    });
  };
  switch (s.part) {
    case Part::states:
      return by_head([&](const ChunkOf& c, std::int64_t head) { states(v, c, head, in[0], in[1], in[2], out[0]); });
    case Part::passing:
      return by_sequence([&](std::int64_t b, std::int64_t head) { passing(v, b, head, in[0], in[1], out[0]); });
    case Part::passing_backward:
      return by_sequence([&](std::int64_t b, std::int64_t head) {
        passing_backward(v, b, head, in[0], in[1], in[2], out[0], out[1]);
      });
    case Part::scores:
      return by_group([&](const ChunkOf& c, std::int64_t group) { scores(v, c, group, in[0], out[0]); });
    case Part::scan:
      return by_head([&](const ChunkOf& c, std::int64_t head) {
        scan({v, c, head, in[2], in[3]}, in[0], in[1], in[4], in[5][head], in[6], out[0], out[1]);
      });
    case Part::entering_backward:
      return by_head([&](const ChunkOf& c, std::int64_t head) {
        entering_backward({v, c, head, nullptr, in[2]}, in[0], in[1], out[0]);
      });
    case Part::x_backward:
      return by_head([&](const ChunkOf& c, std::int64_t head) {
        x_backward({v, c, head, in[3], in[4]}, in[0], in[1], in[2], in[5], in[6][head], out[0], out[1]);
      });
    case Part::b_backward:
      return by_group([&](const ChunkOf& c, std::int64_t group) { b_backward(v, c, group, in, out[0], out[1]); });
    case Part::c_backward:
      return by_group([&](const ChunkOf& c, std::int64_t group) { c_backward(v, c, group, in, out[0], out[1]); });
    case Part::scores_backward:
      return by_group([&](const ChunkOf& c, std::int64_t group) { scores_backward(v, c, group, in, out[0]); });
    case Part::b_product:
    case Part::c_product:
      return by_group([&](const ChunkOf& c, std::int64_t group) {
        product_backward(v, c, group, s.part == Part::b_product, in, out[0]);
      });
    case Part::decay_backward:
      return by_head([&](const ChunkOf& c, std::int64_t head) {
        decay_backward({v, c, head, in[3], in[4]}, in[0], in[1], in[2], out[0]);
      });
    default:
      REHEARSE_CHECK(false, "{} is no part of the scan", name_of(s.part));
  }
}

}  // namespace rehearse::kernels::cpu
