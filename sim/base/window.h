// Sliding windows: query i of a sequence sees keys j with i - window < j <= i, itself and the window - 1 before it, "at
// most W tokens" (Jiang et al. 2023, arXiv 2310.06825, section 2), as transformers masks them (sliding_window_overlay
// in masking_utils.py: kv_idx > q_idx - sliding_window). Window 0: all keys before it, as causal attention has them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rehearse {

// Pairs of a query and a key that it sees: the sum of min(i + 1, window) over i < seq.
constexpr std::int64_t window_pairs(std::int64_t seq, std::int64_t window) {
  const std::int64_t w = window > 0 ? std::min(seq, window) : seq;
  return w * (w + 1) / 2 + (seq - w) * w;
}

// Keys that a query counts for in FLOPs, as attention is counted everywhere in Rehearse: in full, those of the mask's
// widest row for each, the first rows of a causal mask or of a window not discounted.
constexpr std::int64_t counted_keys(std::int64_t seq, std::int64_t window) {
  return window > 0 ? std::min(seq, window) : seq;
}

// The share of causal attention's pairs, seq (seq + 1) / 2, that a window leaves; exactly 1 without one.
constexpr double window_share(std::int64_t seq, std::int64_t window) {
  if (window <= 0 || window >= seq) return 1;
  return static_cast<double>(window_pairs(seq, window)) / static_cast<double>(window_pairs(seq, 0));
}

}  // namespace rehearse
