#include "sim/cost/flash_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>

#include "sim/base/window.h"

namespace rehearse::cost {
namespace {

constexpr std::int64_t kFlashRows = 128;  // queries of a tile in FlashAttention-2 and -3
constexpr std::int64_t kFlashKeys = 128;  // keys of one

program::Attention shape_of(const FlashPoint& p) {
  program::Attention a;
  a.micro_batch = p.batch, a.heads = p.heads, a.kv_heads = p.kv_heads, a.seq = p.seq, a.head_dim = p.head_dim;
  a.value_dim = p.value_dim;
  a.causal = p.causal;
  return a;
}

double mean_error(const std::vector<FlashPoint>& points, bool backward, int sms, double fixed, const FlashRate& rate) {
  double sum = 0;
  for (const FlashPoint& p : points) {
    if (p.backward != backward) continue;
    const double flops = flash_flops(p), measured = flops / p.flops_per_second;
    sum += std::fabs(std::log(measured / (fixed + flash_compute_seconds(shape_of(p), rate, 1, flops, sms, sms))));
  }
  return sum;
}

}  // namespace

double flash_flops(const FlashPoint& p) {
  const std::int64_t values = p.value_dim > 0 ? p.value_dim : p.head_dim;
  const std::int64_t columns = p.backward ? 3 * p.head_dim + 2 * values : p.head_dim + values;
  return 2 * static_cast<double>(p.batch * p.heads) * static_cast<double>(p.seq) * static_cast<double>(p.seq) *
         static_cast<double>(columns);
}

// Tile t of as many queries begins with query 128 t, which sees keys from 128 t - window + 1 on: tile t - d of keys, d
// = (window - 1) / 128 rounded up. So tiles see tiles as queries see keys, through a window of d + 1.
std::int64_t visited_tiles(std::int64_t seq, std::int64_t window) {
  static_assert(kFlashRows == kFlashKeys);
  const std::int64_t tiles = (seq + kFlashRows - 1) / kFlashRows;
  return window_pairs(tiles, window > 0 ? (window + kFlashKeys - 2) / kFlashKeys + 1 : 0);
}

double flash_compute_seconds(const program::Attention& a, const FlashRate& rate, double scale, double flops,
                             int device_sms, double sms) {
  double causal = a.causal ? 0.5 : 1, tail_share = a.causal ? 1 : 0.5;
  // Documents are sequences of their own, as kernels of variable lengths take them.
  const bool packed = a.document > 0 && a.document < a.compared();
  const std::int64_t seq = packed ? std::min(a.document, a.seq) : a.seq;
  const double sequences = static_cast<double>(a.micro_batch) * static_cast<double>(a.seq) / static_cast<double>(seq);
  // Of a context group that gathers keys a rank's queries are among all of the sequence's.
  const std::int64_t whole = packed ? a.document : a.compared();
  if (a.window > 0 && a.window < whole) {
    flops *= static_cast<double>(whole) / static_cast<double>(a.window);  // of all keys
    causal *= static_cast<double>(visited_tiles(whole, a.window)) / static_cast<double>(visited_tiles(whole, 0));
    tail_share = 0.5 + 0.5 * static_cast<double>(a.window) / static_cast<double>(whole);
  }
  const double keys = static_cast<double>(packed ? a.document : a.compared()) * causal;
  const std::int64_t row_tiles = (seq + kFlashRows - 1) / kFlashRows;
  const double tiles = static_cast<double>(row_tiles * a.heads) * sequences;
  const double head_dim = static_cast<double>(a.head_dim + a.values()) / 2;
  const double narrow = std::clamp((128 - head_dim) / 64, 0.0, 1.0);
  const double tail = rate.tail * tail_share;
  const double per_sm = rate.rate * scale * (1 - narrow * (1 - rate.head_dim_64)) / device_sms;
  return flops * causal / per_sm * (1 / sms + tail / tiles) * (1 + rate.ramp / keys);
}

SplitBackward split_backward(const program::Attention& a, int device_sms, int sms) {
  const std::int64_t heads = a.micro_batch * a.heads;
  SplitBackward split;
  split.blocks = (device_sms + heads - 1) / heads;
  // Tiles of keys of a head, and how many tiles of queries each is multiplied with.
  const std::int64_t tiles = (a.compared() + kFlashKeys - 1) / kFlashKeys;
  std::vector<double> of_block(static_cast<std::size_t>(split.blocks));
  for (std::int64_t tile = 0; tile < tiles; ++tile)
    of_block[static_cast<std::size_t>(tile % split.blocks)] += static_cast<double>(a.causal ? tiles - tile : tiles);
  const double total = static_cast<double>(heads) * std::accumulate(of_block.begin(), of_block.end(), 0.0);
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (int i = 0; i < sms; ++i) free.push(0);
  double last = 0;
  for (std::int64_t i = 0; i < heads * split.blocks; ++i) {
    const double end = free.top() + of_block[static_cast<std::size_t>(i % split.blocks)];
    free.pop();
    free.push(end);
    last = std::max(last, end);
  }
  split.makespan = last * sms / total;
  return split;
}

std::int64_t split_backward_bytes(const program::Attention& a, int device_sms) {
  return split_backward(a, device_sms, device_sms).blocks * 4 * a.micro_batch * a.heads * a.seq * a.head_dim;
}

std::int64_t score_gradients_bytes(const program::Attention& a) {
  return 2 * a.micro_batch * a.heads * a.seq * a.compared();
}

double flash_split_seconds(const program::Attention& a, const FlashRate& rate, double scale, double flops,
                           int device_sms, int sms) {
  FlashRate busy = rate;
  busy.tail = 0;
  return flash_compute_seconds(a, busy, scale, flops, device_sms, sms) * split_backward(a, device_sms, sms).makespan;
}

double flash_dropout_seconds(const program::Attention& a, double flops, double sms, double hertz) {
  if (a.dropout <= 0) return 0;
  constexpr double kForwardCycles = 0.025, kBackwardCycles = 0.2;  // of a multiprocessor, a score
  const bool backward = a.part == program::AttentionPart::flash_backward;
  const double columns =
      backward ? static_cast<double>(3 * a.head_dim + 2 * a.values()) : static_cast<double>(a.head_dim + a.values());
  const double scores = flops / (2 * columns) * (a.causal ? 0.5 : 1);
  return scores * (backward ? kBackwardCycles : kForwardCycles) / (sms * hertz);
}

FlashRate fit_flash_rate(const std::vector<FlashPoint>& points, bool backward, int device_sms, double fixed,
                         FlashRate start) {
  constexpr std::array kFields = {&FlashRate::rate, &FlashRate::tail, &FlashRate::ramp, &FlashRate::head_dim_64};
  constexpr double kLastStep = 1e-3;
  std::array<double, kFields.size()> steps;
  steps.fill(0.5);
  double error = mean_error(points, backward, device_sms, fixed, start);
  while (error > 0 && *std::max_element(steps.begin(), steps.end()) > kLastStep) {
    bool improved = false;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      for (const double factor : {1 + steps[i], 1 - steps[i]}) {
        FlashRate trial = start;
        trial.*kFields[i] *= factor;
        trial.head_dim_64 = std::min(trial.head_dim_64, 1.0);
        const double trial_error = mean_error(points, backward, device_sms, fixed, trial);
        if (trial_error >= error) continue;
        start = trial, error = trial_error, improved = true;
        break;
      }
    }
    if (!improved)
      for (double& step : steps) step /= 2;
  }
  return start;
}

}  // namespace rehearse::cost
