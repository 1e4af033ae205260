// Choosing experts for tokens, and moving rows between the order of tokens and that of experts. Work is cut by tokens,
// or by rows, each of which one thread writes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cpu {
namespace {

// Scores of one token, not divided by their sum; returns the sum.
float expert_scores(const RouterShape& s, const float* logits, float* scores) {
  float total = 0;
  if (s.sigmoid) {
    for (std::int64_t e = 0; e < s.experts; ++e) total += scores[e] = 1 / (1 + std::exp(-logits[e]));
    return total;
  }
  const float top = *std::max_element(logits, logits + s.experts);
  for (std::int64_t e = 0; e < s.experts; ++e) total += scores[e] = std::exp(logits[e] - top);
  return total;
}

// What a token's scores are divided by to be weights: the chosen ones' sum, or of raw weights what makes them scores of
// all experts, of a softmax the sum of all.
float weight_divisor(const RouterShape& s, float chosen, float all) {
  if (!s.raw) return chosen;
  return s.sigmoid ? 1 : all;
}

// The numbers of the experts that a token may choose: those of its best groups, in the order of the groups.
void add_candidates(const RouterShape& s, const std::vector<float>& scores, std::vector<std::int32_t>& candidates) {
  candidates.resize(static_cast<std::size_t>(s.groups_per_token * (s.experts / s.groups)));
  if (s.groups_per_token == s.groups) return std::iota(candidates.begin(), candidates.end(), 0);
  const std::int64_t size = s.experts / s.groups;
  std::vector<std::pair<float, std::int64_t>> best;  // least first, so the score's sign is turned
  for (std::int64_t g = 0; g < s.groups; ++g) {
    std::array<float, 2> two{};
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
      const float score = scores[static_cast<std::size_t>(e)];
      if (score > two[0])
        two = {score, two[0]};
      else
        two[1] = std::max(two[1], score);
    }
    best.emplace_back(-(s.sigmoid ? two[0] + two[1] : two[0]), g);
  }
  std::sort(best.begin(), best.end());
  auto to = candidates.begin();
  for (std::int64_t i = 0; i < s.groups_per_token; ++i, to += size)
    std::iota(to, to + size, static_cast<std::int32_t>(best[static_cast<std::size_t>(i)].second * size));
}

}  // namespace

void CpuKernels::router_gate(const RouterShape& s, const float* logits, float* weights, std::int32_t* chosen) {
  pool_.ranges(s.tokens, 16, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> scores(static_cast<std::size_t>(s.experts));
    std::vector<std::int32_t> order;
    for (std::int64_t t = begin; t < end; ++t) {
      const float* row = logits + t * s.experts;
      const float all = expert_scores(s, row, scores.data());
      add_candidates(s, scores, order);
      std::partial_sort(order.begin(), order.begin() + s.top_k, order.end(),
                        [&](std::int32_t a, std::int32_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); });
      float total = 0;
      for (std::int64_t k = 0; k < s.top_k; ++k)
        total += scores[static_cast<std::size_t>(order[static_cast<std::size_t>(k)])];
      const float divisor = weight_divisor(s, total, all);
      for (std::int64_t k = 0; k < s.top_k; ++k) {
        const std::int32_t e = order[static_cast<std::size_t>(k)];
        chosen[t * s.top_k + k] = e;
        weights[t * s.top_k + k] = scores[static_cast<std::size_t>(e)] / divisor;
      }
    }
  });
}

void CpuKernels::router_place(const RouterShape& s, const std::int32_t* chosen, std::int32_t* places, float* loads) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(s.experts), 0), next(counts.size());
  for (std::int64_t i = 0; i < s.tokens * s.top_k; ++i) ++counts[static_cast<std::size_t>(chosen[i])];
  std::int64_t first = 0;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    loads[e] = static_cast<float>(counts[e]);
    next[e] = first;
    first += s.capacity > 0 ? s.capacity : counts[e];
  }
  for (std::int64_t k = 0; k < s.top_k; ++k)
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      const std::int64_t i = t * s.top_k + k, e = chosen[i];
      std::int64_t& row = next[static_cast<std::size_t>(e)];
      const bool full = s.capacity > 0 && row == (e + 1) * s.capacity;
      places[i] = full ? -1 : static_cast<std::int32_t>(row++);
    }
}

// With scores s, weights w_i = s_i / z: ds_i = dw_i / z, less (sum of dw w) / z of those scores whose sum is z: the
// chosen ones, all, or where z is 1 none. The auxiliary loss is of q = s / sum of all: ds_e += (dq_e - sum of dq q) /
// that sum. Of a softmax, s = exp(logit - top) and dlogit = s ds; of a sigmoid, dlogit = s (1 - s) ds.
void CpuKernels::router_gate_backward(const RouterShape& s, double aux, const float* d_weights, const float* logits,
                                      const std::int32_t* chosen, const float* loads, float* d_logits) {
  pool_.ranges(s.tokens, 16, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> scores(static_cast<std::size_t>(s.experts)), d_scores(scores.size());
    for (std::int64_t t = begin; t < end; ++t) {
      const float all = expert_scores(s, logits + t * s.experts, scores.data());
      const std::int32_t* own = chosen + t * s.top_k;
      const float* dw = d_weights + t * s.top_k;
      const auto score = [&](std::int64_t k) { return scores[static_cast<std::size_t>(own[k])]; };
      float total = 0, dot = 0;
      for (std::int64_t k = 0; k < s.top_k; ++k) total += score(k);
      const float z = weight_divisor(s, total, all);
      for (std::int64_t k = 0; k < s.top_k; ++k) dot += dw[k] * score(k) / z;
      const float others = s.raw && !s.sigmoid ? -dot / z : 0.0F;
      std::fill(d_scores.begin(), d_scores.end(), others);
      for (std::int64_t k = 0; k < s.top_k; ++k)
        d_scores[static_cast<std::size_t>(own[k])] = s.raw ? others + dw[k] / z : (dw[k] - dot) / z;
      if (loads) {
        double mean = 0;
        for (std::size_t e = 0; e < scores.size(); ++e) mean += aux * loads[e] * scores[e] / all;
        for (std::size_t e = 0; e < scores.size(); ++e)
          d_scores[e] += static_cast<float>((aux * loads[e] - mean) / all);
      }
      for (std::size_t e = 0; e < scores.size(); ++e)
        d_logits[static_cast<std::size_t>(t * s.experts) + e] =
            d_scores[e] * scores[e] * (s.sigmoid ? 1 - scores[e] : 1);
    }
  });
}

template <class Element>
void CpuKernels::permute(const PermuteShape& s, const Element* x, const std::int32_t* places, Element* y) {
  std::vector<std::int64_t> token(static_cast<std::size_t>(s.rows), -1);
  for (std::int64_t i = 0; i < s.tokens * s.top_k; ++i) {
    if (places[i] < 0) continue;
    REHEARSE_CHECK(places[i] < s.rows, "a token's row {} of {} rows", places[i], s.rows);
    token[static_cast<std::size_t>(places[i])] = i / s.top_k;
  }
  pool_.ranges(s.rows, std::max<std::int64_t>(1, kGrain / s.cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t t = token[static_cast<std::size_t>(r)];
      if (t < 0)
        std::fill_n(y + r * s.cols, s.cols, Element{});
      else
        std::copy_n(x + t * s.cols, s.cols, y + r * s.cols);
    }
  });
}
template void CpuKernels::permute(const PermuteShape&, const float*, const std::int32_t*, float*);
template void CpuKernels::permute(const PermuteShape&, const std::uint8_t*, const std::int32_t*, std::uint8_t*);

void CpuKernels::unpermute(const PermuteShape& s, const float* y, const std::int32_t* places, const float* weights,
                           float* out) {
  pool_.ranges(s.tokens, std::max<std::int64_t>(1, kGrain / s.cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* o = out + t * s.cols;
      std::fill_n(o, s.cols, 0.0F);
      for (std::int64_t i = t * s.top_k; i < (t + 1) * s.top_k; ++i) {
        if (places[i] < 0) continue;
        const float* row = y + places[i] * s.cols;
        const float w = weights ? weights[i] : 1.0F;
        each(0, s.cols, [=](std::int64_t c, auto tag) { put(o + c, get(o + c, tag) + get(row + c, tag) * w); });
      }
    }
  });
}

void CpuKernels::unpermute_backward(const PermuteShape& s, const float* d_out, const float* y,
                                    const std::int32_t* places, const float* weights, float* d_y, float* d_weights) {
  std::vector<std::int64_t> choice(static_cast<std::size_t>(s.rows), -1);
  for (std::int64_t i = 0; i < s.tokens * s.top_k; ++i) {
    d_weights[i] = 0;
    if (places[i] < 0) continue;
    REHEARSE_CHECK(places[i] < s.rows, "a token's row {} of {} rows", places[i], s.rows);
    choice[static_cast<std::size_t>(places[i])] = i;
  }
  pool_.ranges(s.rows, std::max<std::int64_t>(1, kGrain / s.cols), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t i = choice[static_cast<std::size_t>(r)];
      float* to = d_y + r * s.cols;
      if (i < 0) {
        std::fill_n(to, s.cols, 0.0F);
        continue;
      }
      const float* d = d_out + i / s.top_k * s.cols;
      const float* row = y + r * s.cols;
      const float w = weights[i];
      each(0, s.cols, [=](std::int64_t c, auto tag) { put(to + c, get(d + c, tag) * w); });
      d_weights[i] = sum_terms(s.cols, [=](std::int64_t c, auto tag) { return get(d + c, tag) * get(row + c, tag); });
    }
  });
}

}  // namespace rehearse::kernels::cpu
