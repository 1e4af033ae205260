// The attention of a token that is decoded: one query a head over keys and values that lie behind one another, in two
// passes, scores and their softmax, then the values they weigh. A sequence's head is one thread's; sums are taken in
// the order of tokens.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/attention_view.h"
#include "kernels/cpu/cpu_kernels.h"
#include "sim/base/check.h"

namespace rehearse::kernels::cpu {

void CpuKernels::cached_attention(const AttentionShape& s, std::span<const CachedSequence> sequences, const float* qkv,
                                  float* out) {
  REHEARSE_CHECK(s.seq == 1 && static_cast<std::int64_t>(sequences.size()) == s.micro_batch,
                 "{} tokens of each of {} sequences are decoded, of which {} are cached", s.seq, s.micro_batch,
                 sequences.size());
  const AttentionView view(s);
  const std::int64_t row = s.kv_heads * (s.head_dim + s.values());
  pool_.ranges(s.micro_batch * s.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> scores;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t batch = i / s.heads, head = i % s.heads;
      const CachedSequence& cached = sequences[static_cast<std::size_t>(batch)];
      float* const to = out + view.out(batch, head);
      for (std::int64_t d = 0; d < s.values(); ++d) to[d] = 0;
      if (cached.tokens == 0) continue;
      const float* const query = qkv + view.query(batch, head);
      const float* const keys = cached.keys_values + head / view.group * (s.head_dim + s.values());
      const std::int64_t first = s.window > 0 ? std::max<std::int64_t>(0, cached.tokens - s.window) : 0;
      scores.assign(static_cast<std::size_t>(cached.tokens - first), 0);
      const float slope = s.alibi_heads > 0 ? s.slope(head) : 0;
      float largest = std::numeric_limits<float>::lowest();
      for (std::int64_t t = first; t < cached.tokens; ++t) {
        float sum = 0;
        for (std::int64_t d = 0; d < s.head_dim; ++d) sum += query[d] * keys[t * row + d];
        sum *= static_cast<float>(s.scale());
        if (s.softcap > 0) sum = static_cast<float>(s.softcap * std::tanh(static_cast<double>(sum) / s.softcap));
        sum += slope * static_cast<float>(t - (cached.tokens - 1));
        scores[static_cast<std::size_t>(t - first)] = sum;
        largest = std::max(largest, sum);
      }
      float total = 0;
      for (float& score : scores) total += score = std::exp(score - largest);
      for (std::int64_t t = first; t < cached.tokens; ++t) {
        const float weight = scores[static_cast<std::size_t>(t - first)] / total;
        const float* const value = keys + t * row + s.head_dim;
        for (std::int64_t d = 0; d < s.values(); ++d) to[d] += weight * value[d];
      }
    }
  });
}

}  // namespace rehearse::kernels::cpu
