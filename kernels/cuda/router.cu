// Choosing experts for tokens: a warp a token, whose scores lie in shared memory; and where the rows of their choices
// go: a block an expert, which looks through all choices in their order, so that rows have the CPU's order and no
// number is added atomically. Bytes they must move: the logits once each way; choices once for each expert, from the
// second-level cache.
#include <cmath>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/require.h"

namespace rehearse::kernels::cuda {
namespace {

constexpr int kRouterWarps = 4, kPlaceThreads = 256;

// The highest of `n` values that are not taken, of equal ones the first; all lanes get it. `taken`: below nothing.
__device__ std::int64_t first_highest(const float* values, const unsigned char* taken, std::int64_t n) {
  const auto lane = static_cast<std::int64_t>(threadIdx.x);
  float best = 0;
  long long at = -1;
  for (std::int64_t i = lane; i < n; i += 32)
    if (!taken[i] && (at < 0 || values[i] > best)) best = values[i], at = i;
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, best, lanes);
    const long long there = __shfl_xor_sync(kAllLanes, at, lanes);
    if (there >= 0 && (at < 0 || other > best || (!(best > other) && there < at))) best = other, at = there;
  }
  return at;
}

// Scores of a token, not divided by their sum, which all lanes get.
template <class T>
__device__ float token_scores(const RouterShape& s, const Source<T>& logits, std::int64_t token, float* row,
                              float* scores) {
  const auto lane = static_cast<std::int64_t>(threadIdx.x);
  float top = -INFINITY, sum = 0;
  for (std::int64_t e = lane; e < s.experts; e += 32) {
    row[e] = logits.get(token * s.experts + e);
    top = row[e] > top ? row[e] : top;
  }
  top = warp_max(top);
  for (std::int64_t e = lane; e < s.experts; e += 32) {
    scores[e] = s.sigmoid ? 1.0F / (1.0F + expf(-row[e])) : expf(row[e] - top);
    sum += scores[e];
  }
  sum = warp_sum(sum);
  __syncwarp();
  return sum;
}

// A warp's shared memory: of each expert the logit, the score and whether it is taken; of each group its score and
// whether it is.
struct RouterRoom {
  float *row, *scores, *group;
  unsigned char *taken, *group_taken;
};
__host__ __device__ inline std::int64_t router_room(const RouterShape& s) {
  return (4 * (2 * s.experts + s.groups) + s.experts + s.groups + 3) / 4 * 4;
}
__device__ RouterRoom room_of_warp(const RouterShape& s, unsigned char* shared) {
  unsigned char* own = shared + static_cast<std::int64_t>(threadIdx.y) * router_room(s);
  RouterRoom room;
  room.row = reinterpret_cast<float*>(own);
  room.scores = room.row + s.experts;
  room.group = room.scores + s.experts;
  room.taken = reinterpret_cast<unsigned char*>(room.group + s.groups);
  room.group_taken = room.taken + s.experts;
  return room;
}

// Experts of all groups but the best ones count as taken.
__device__ void take_other_groups(const RouterShape& s, const RouterRoom& room) {
  const auto lane = static_cast<std::int64_t>(threadIdx.x);
  const std::int64_t size = s.experts / s.groups;
  for (std::int64_t g = lane; g < s.groups; g += 32) {
    float first = 0, second = 0;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
      const float score = room.scores[e];
      if (score > first) {
        second = first;
        first = score;
      } else if (score > second) {
        second = score;
      }
    }
    room.group[g] = s.sigmoid ? first + second : first;
    room.group_taken[g] = 0;
  }
  __syncwarp();
  for (std::int64_t i = 0; i < s.groups_per_token; ++i) {
    const std::int64_t g = first_highest(room.group, room.group_taken, s.groups);
    __syncwarp();
    if (lane == 0) room.group_taken[g] = 1;
    __syncwarp();
  }
  for (std::int64_t e = lane; e < s.experts; e += 32) room.taken[e] = room.group_taken[e / size] ? 0 : 1;
  __syncwarp();
}

template <class T>
__global__ void __launch_bounds__(32 * kRouterWarps)
    router_gate_kernel(RouterShape s, Source<T> logits, float* weights, std::int32_t* chosen) {
  REHEARSE_DYNAMIC_SHARED(unsigned char, shared);
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kRouterWarps + threadIdx.y;
  if (token >= s.tokens) return;
  const RouterRoom room = room_of_warp(s, shared);
  token_scores(s, logits, token, room.row, room.scores);
  for (std::int64_t e = threadIdx.x; e < s.experts; e += 32) room.taken[e] = 0;
  __syncwarp();
  if (s.groups_per_token < s.groups) take_other_groups(s, room);
  float total = 0;
  for (std::int64_t k = 0; k < s.top_k; ++k) {
    const std::int64_t e = first_highest(room.row, room.taken, s.experts);
    total += room.scores[e];
    __syncwarp();
    if (threadIdx.x == 0) {
      room.taken[e] = 1;
      chosen[token * s.top_k + k] = static_cast<std::int32_t>(e);
      weights[token * s.top_k + k] = room.scores[e];
    }
    __syncwarp();
  }
  if (threadIdx.x > 0) return;
  for (std::int64_t k = 0; k < s.top_k; ++k) weights[token * s.top_k + k] /= total;
}

// A thread a token. Others may have higher scores, by any factor: of a softmax what is common to all drops out.
template <class T>
__global__ void __launch_bounds__(kPlaceThreads)
    router_weights_kernel(RouterShape s, Source<T> logits, const std::int32_t* chosen, float* weights) {
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kPlaceThreads + threadIdx.x;
  if (token >= s.tokens) return;
  const std::int32_t* own = chosen + token * s.top_k;
  float* to = weights + token * s.top_k;
  const auto top_k = static_cast<int>(s.top_k);
  const std::int64_t row = token * s.experts;
  float top = -INFINITY, sum = 0;
  for (int k = 0; k < top_k; ++k) {
    to[k] = logits.get(row + own[k]);
    top = fmaxf(top, to[k]);
  }
  for (int k = 0; k < top_k; ++k) {
    to[k] = s.sigmoid ? 1.0F / (1.0F + expf(-to[k])) : expf(to[k] - top);
    sum += to[k];
  }
  for (int k = 0; k < top_k; ++k) to[k] /= sum;
}

template <class T>
__global__ void __launch_bounds__(32 * kRouterWarps)
    router_backward_kernel(RouterShape s, double aux, const float* d_weights, Source<T> logits,
                           const std::int32_t* chosen, const float* loads, const float* loss_scale,
                           Target<AnyType> d_logits) {
  REHEARSE_DYNAMIC_SHARED(unsigned char, shared);
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kRouterWarps + threadIdx.y;
  if (token >= s.tokens) return;
  const RouterRoom room = room_of_warp(s, shared);
  const float all = token_scores(s, logits, token, room.row, room.scores);
  const std::int32_t* own = chosen + token * s.top_k;
  const float* dw = d_weights + token * s.top_k;
  float total = 0, dot = 0;
  for (std::int64_t k = 0; k < s.top_k; ++k) total += room.scores[own[k]];
  for (std::int64_t k = 0; k < s.top_k; ++k) dot += dw[k] * room.scores[own[k]] / total;
  const double by = loss_scale ? aux * static_cast<double>(*loss_scale) : aux;
  double mean = 0;
  if (loads) {
    for (std::int64_t e = threadIdx.x; e < s.experts; e += 32)
      mean += by * static_cast<double>(loads[e]) * static_cast<double>(room.scores[e]) / static_cast<double>(all);
    mean = warp_sum(mean);
  }
  for (std::int64_t e = threadIdx.x; e < s.experts; e += 32) {
    float d = 0;
    for (std::int64_t k = 0; k < s.top_k; ++k)
      if (own[k] == e) d = (dw[k] - dot) / total;
    if (loads) d += static_cast<float>((by * static_cast<double>(loads[e]) - mean) / static_cast<double>(all));
    const float score = room.scores[e];
    d_logits.put(token * s.experts + e, d * score * (s.sigmoid ? 1.0F - score : 1.0F));
  }
}

// Calls write(i, how many before it) for each i of [0, n), in order, of which matches(i) says so; how many those are.
// All threads of the block call it.
template <class Matches, class Write>
__device__ std::int64_t each_match(std::int64_t n, const Matches& matches, const Write& write) {
  __shared__ int of_warps[kPlaceThreads / 32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  std::int64_t found = 0;
  for (std::int64_t first = 0; first < n; first += kPlaceThreads) {
    const std::int64_t i = first + threadIdx.x;
    const bool own = i < n && matches(i);
    const unsigned lanes = __ballot_sync(kAllLanes, own ? 1 : 0);
    if (lane == 0) of_warps[warp] = __popc(lanes);
    __syncthreads();
    std::int64_t before = found;
    for (unsigned w = 0; w < kPlaceThreads / 32; ++w) {
      if (w < warp) before += of_warps[w];
      found += of_warps[w];
    }
    if (own) write(i, before + __popc(lanes & ((1U << lane) - 1U)));
    __syncthreads();
  }
  return found;
}

// How many of `n` choices are below `expert`, and as many as that: all threads get both.
__device__ void count_choices(std::int64_t n, const std::int32_t* chosen, std::int64_t from, std::int64_t expert,
                              std::int64_t* below, std::int64_t* of) {
  __shared__ double shared[2 * kPlaceThreads / 32];
  double less = 0, same = 0;  // exact
  for (std::int64_t i = threadIdx.x; i < n; i += kPlaceThreads) {
    if (chosen[i] >= from && chosen[i] < expert) less += 1;
    if (chosen[i] == expert) same += 1;
  }
  *below = static_cast<std::int64_t>(row_sum(less, shared));
  *of = static_cast<std::int64_t>(row_sum(same, shared + kPlaceThreads / 32));
  __syncthreads();
}

// First choices of all tokens before second ones.
__global__ void __launch_bounds__(kPlaceThreads)
    router_place_kernel(RouterShape s, const std::int32_t* chosen, std::int32_t* places, float* loads) {
  const auto expert = static_cast<std::int64_t>(blockIdx.x);
  std::int64_t below = 0, of = 0;
  count_choices(s.tokens * s.top_k, chosen, 0, expert, &below, &of);
  const std::int64_t first = s.capacity > 0 ? expert * s.capacity : below;
  if (threadIdx.x == 0) loads[expert] = static_cast<float>(of);
  const auto choice = [&](std::int64_t i) { return i % s.tokens * s.top_k + i / s.tokens; };
  each_match(
      s.tokens * s.top_k, [&](std::int64_t i) { return chosen[choice(i)] == expert; },
      [&](std::int64_t i, std::int64_t before) {
        const bool full = s.capacity > 0 && before >= s.capacity;
        places[choice(i)] = full ? -1 : static_cast<std::int32_t>(first + before);
      });
}

// A block an own expert, and one more for the choices of others.
__global__ void __launch_bounds__(kPlaceThreads)
    place_own_kernel(OwnRows s, const std::int32_t* chosen, std::int32_t* places, float* loads) {
  const std::int64_t own = blockIdx.x, expert = s.first + own, n = s.tokens * s.top_k;
  if (own == s.own) {
    for (std::int64_t i = threadIdx.x; i < n; i += kPlaceThreads)
      if (chosen[i] < s.first || chosen[i] >= s.first + s.own) places[i] = -1;
    return;
  }
  std::int64_t below = 0, of = 0;
  count_choices(n, chosen, s.first, expert, &below, &of);
  if (threadIdx.x == 0) loads[own] = static_cast<float>(of);
  each_match(
      n, [&](std::int64_t i) { return chosen[i] == expert; },
      [&](std::int64_t i, std::int64_t before) { places[i] = static_cast<std::int32_t>(below + before); });
}

__global__ void __launch_bounds__(kPlaceThreads) no_places(std::int64_t n, std::int32_t* places) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kPlaceThreads + threadIdx.x;
  if (i < n) places[i] = -1;
}

// A block an own expert: of each source in turn its rows, which lie behind those of the slice's earlier sources and of
// the source's earlier own experts.
__global__ void __launch_bounds__(kPlaceThreads)
    receive_rows_kernel(ReceivedRows s, const float* counts, std::int32_t* places, float* loads) {
  const std::int64_t expert = blockIdx.x, in_slice = s.sources / s.slices, room = s.rows / s.slices;
  const auto count = [&](std::int64_t source, std::int64_t e) {
    return static_cast<std::int64_t>(counts[source * s.experts + s.first + e]);
  };
  std::int64_t next = 0, load = 0;
  for (std::int64_t source = 0; source < s.sources; ++source) {
    for (std::int64_t e = 0; e < expert; ++e) next += count(source, e);
    load += count(source, expert);
  }
  if (threadIdx.x == 0) loads[expert] = static_cast<float>(load);
  for (std::int64_t slice = 0; slice < s.slices; ++slice) {
    std::int64_t row = slice * room;
    const std::int64_t end = row + room;
    for (std::int64_t source = slice * in_slice; source < (slice + 1) * in_slice; ++source) {
      std::int64_t before = 0, all = 0;
      for (std::int64_t e = 0; e < s.own; ++e) {
        if (e < expert) before += count(source, e);
        all += count(source, e);
      }
      const std::int64_t here = count(source, expert);
      for (std::int64_t i = threadIdx.x; i < here; i += kPlaceThreads)
        if (row + before + i < end) places[row + before + i] = static_cast<std::int32_t>(next + i);
      next += here;
      row += all;
    }
  }
}

void require_scaled(const RouterShape& s) {
  REHEARSE_REQUIRE(!s.raw, "a router on GPUs scales its weights to add to 1");
}

}  // namespace

void CudaDevice::router_gate(const RouterShape& s, In logits, float* weights, std::int32_t* chosen) {
  require_scaled(s);
  const auto shared = static_cast<std::size_t>(kRouterWarps * router_room(s));
  by_type({logits}, [&]<class T>() {
    launch(router_gate_kernel<T>, grid_of(ceil_div(s.tokens, kRouterWarps)), dim3(32, kRouterWarps), shared, stream_, s,
           Source<T>(logits), weights, chosen);
  });
}

void CudaDevice::router_weights(const RouterShape& s, In logits, const std::int32_t* chosen, float* weights) {
  require_scaled(s);
  by_type({logits}, [&]<class T>() {
    launch(router_weights_kernel<T>, grid_of(ceil_div(s.tokens, kPlaceThreads)), kPlaceThreads, 0, stream_, s,
           Source<T>(logits), chosen, weights);
  });
}

void CudaDevice::router_gate_backward(const RouterShape& s, double aux, const float* d_weights, In logits,
                                      const std::int32_t* chosen, const float* loads, const float* loss_scale,
                                      Out d_logits) {
  require_scaled(s);
  const auto shared = static_cast<std::size_t>(kRouterWarps * router_room(s));
  by_type({logits}, [&]<class T>() {
    launch(router_backward_kernel<T>, grid_of(ceil_div(s.tokens, kRouterWarps)), dim3(32, kRouterWarps), shared,
           stream_, s, aux, d_weights, Source<T>(logits), chosen, loads, loss_scale, Target<AnyType>(d_logits));
  });
}

void CudaDevice::router_place(const RouterShape& s, const std::int32_t* chosen, std::int32_t* places, float* loads) {
  launch(router_place_kernel, grid_of(s.experts), kPlaceThreads, 0, stream_, s, chosen, places, loads);
}

void CudaDevice::place_own_rows(const OwnRows& s, const std::int32_t* chosen, std::int32_t* places, float* loads) {
  launch(place_own_kernel, grid_of(s.own + 1), kPlaceThreads, 0, stream_, s, chosen, places, loads);
}

void CudaDevice::receive_rows(const ReceivedRows& s, const float* counts, std::int32_t* places, float* loads) {
  launch(no_places, grid_of(ceil_div(s.rows, kPlaceThreads)), kPlaceThreads, 0, stream_, s.rows, places);
  launch(receive_rows_kernel, grid_of(s.own), kPlaceThreads, 0, stream_, s, counts, places, loads);
}

}  // namespace rehearse::kernels::cuda
