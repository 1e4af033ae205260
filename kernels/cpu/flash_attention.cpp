// Attention in tiles with an online softmax (Dao et al. 2022, arXiv 2205.14135; Dao 2023, arXiv 2307.08691): no more
// than a kQueries x kKeys tile of the probabilities exists at a time. The backward pass recomputes P from logsumexp and
// uses rowsum(P dP) = rowsum(dO O), which holds with dropout too. Forward tiles of queries are independent; in the
// backward pass a thread owns a key head and the query heads it serves, so gradients add in a fixed order.
//
// Rows come in runs of positions that follow one another: one run from 0 where an operand holds whole sequences, two
// chunks a rank where tokens are spread over a context group. A tile lies within a run of queries and a run of keys.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/attention_view.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/dropout_row.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd.h"

namespace rehearse::kernels::cpu {
namespace flash {

// Queries and keys of a tile; the tile that a thread keeps (queries forward, keys backward) is the smaller, as what it
// computes above the diagonal is wasted.
constexpr std::int64_t kQueries = 64, kKeys = 128, kQueriesBackward = 128, kKeysBackward = 64;

// Rows [row, row + count) of an operand are the positions from `position` on.
struct Run {
  std::int64_t row, count, position;
};
using Runs = std::vector<Run>;

struct Tile {
  std::int64_t batch, head, first_query, queries, query_position, first_key, keys, key_position;

  // Keys [first, end) of the tile are those that query `i` of the tile sees.
  struct Seen {
    std::int64_t first, end;
  };
  Seen seen(const AttentionShape& s, std::int64_t i) const {
    const std::int64_t position = query_position + i;
    const std::int64_t end = s.causal ? std::clamp<std::int64_t>(position - key_position + 1, 0, keys) : keys;
    return {std::clamp<std::int64_t>(s.first_seen(batch, position) - key_position, 0, end), end};
  }
  void at_keys(const Run& run, std::int64_t offset, std::int64_t count) {
    first_key = run.row + offset, key_position = run.position + offset, keys = count;
  }
  void at_queries(const Run& run, std::int64_t offset, std::int64_t count) {
    first_query = run.row + offset, query_position = run.position + offset, queries = count;
  }
};

// Where keys and values lie: in packed qkv, or in kv [rows, kv_heads, head_dim + value_dim].
struct KeyPlaces {
  const float* data;
  std::int64_t stride;                     // between positions of one sequence
  std::int64_t batch, head, first, value;  // offsets: of a sequence, of a key head, of its key, from there of its value

  static KeyPlaces packed(const AttentionShape& s, const float* qkv) {
    const std::int64_t group = s.heads / s.kv_heads, head = (group + 1) * s.head_dim + s.values();
    return {qkv, s.micro_batch * s.kv_heads * head, s.kv_heads * head, head, group * s.head_dim, s.head_dim};
  }
  static KeyPlaces apart(const AttentionShape& s, const float* kv) {
    const std::int64_t head = s.head_dim + s.values();
    return {kv, s.micro_batch * s.kv_heads * head, s.kv_heads * head, head, 0, s.head_dim};
  }
  std::int64_t key(const Tile& t, std::int64_t group) const {
    return t.batch * batch + t.head / group * head + first + t.first_key * stride;
  }
};

// Where gradients go: queries' as in packed qkv, or in d_q [rows, heads, head_dim]; the key's and the value's as
// KeyPlaces.
struct Gradients {
  float* query;
  bool packed;
  float* keys;
};

// What both passes hold of the call.
struct Flash {
  const AttentionShape& s;
  const DropoutSite& site;
  const float* qkv;
  KeyPlaces places;
  Runs query_runs, key_runs;
  std::int64_t whole;  // tokens of a sequence, or of the row that it is a document of
  AttentionView view;
  DropoutRow drop;
  float scale, cap;            // cap: of scaled scores; 0: they stay
  std::int64_t row_first = 0;  // the first of the document's tokens in the row

  // n scores become those that the softmax reads, scaled and capped.
  void cap_scores(std::int64_t n, float* row) const {
    for (std::int64_t k = 0; k < n; ++k) row[k] = cap * std::tanh(row[k] * scale / cap);
  }
  // Scaled, and with the slope of the tile's head by distance from query i; `first` is the first of the tile's keys.
  void add_distances(const Tile& t, std::int64_t i, std::int64_t first, std::int64_t n, float* row) const {
    const float slope = s.slope(t.head);
    const std::int64_t behind = t.key_position + first - (t.query_position + i);
    for (std::int64_t k = 0; k < n; ++k) row[k] = row[k] * scale + slope * static_cast<float>(behind + k);
  }
  // What the softmax multiplies scores by.
  float factor() const { return cap > 0 || s.alibi_heads > 0 ? 1 : scale; }

  // Of whole sequences.
  Flash(const AttentionShape& shape, const DropoutSite& dropout, const float* packed)
      : Flash(shape, dropout, packed, KeyPlaces::packed(shape, packed), {{0, shape.seq, 0}}, {{0, shape.seq, 0}},
              shape.seq) {}
  Flash(const AttentionShape& shape, const DropoutSite& dropout, const float* packed, const KeyPlaces& kv, Runs queries,
        Runs keys, std::int64_t tokens)
      : s(shape),
        site(dropout),
        qkv(packed),
        places(kv),
        query_runs(std::move(queries)),
        key_runs(std::move(keys)),
        whole(tokens),
        view(shape),
        drop(dropout),
        scale(static_cast<float>(shape.scale())),
        cap(static_cast<float>(shape.softcap)) {}

  Operand query(const Tile& t) const {
    return {qkv + view.query(t.batch, t.head) + t.first_query * view.qkv_stride, view.qkv_stride};
  }
  Operand key(const Tile& t) const { return {places.data + places.key(t, view.group), places.stride}; }
  Operand value(const Tile& t) const { return {places.data + places.key(t, view.group) + places.value, places.stride}; }

  // body(offset, count, numbers) over n keys of row i of a tile, from key `first` on.
  template <class Body>
  void over_numbers(const Tile& t, std::int64_t i, std::int64_t first, std::int64_t n, const Body& body) const {
    DropoutRow::pieces(drop.key, drop.first_sequence + t.batch, row_first + t.query_position + i,
                       attention_column(site.first_head + t.head, whole, row_first + t.key_position + first), n, body);
  }

  std::int64_t document_end(std::int64_t batch, std::int64_t position) const;
  void forward_queries(Tile t, float* scratch, bool merge, float* out, float* logsumexp) const;
  void softmax_step(const Tile& t, float* scores, float* acc, float* maxima, float* sums) const;
  void backward_keys(Tile t, float* scratch, const float* d_out, const float* logsumexp, const float* delta,
                     const Gradients& to, bool add_query, bool add_key) const;
  void backward_scores(const Tile& t, const float* logsumexp, const float* delta, float* p, float* d_p) const;
};

// The token after the last of the document of token `position`.
std::int64_t Flash::document_end(std::int64_t batch, std::int64_t position) const {
  const std::int32_t* row = s.document_starts + batch * s.document_row;
  return std::upper_bound(row + position, row + s.document_row, static_cast<std::int32_t>(position)) - row;
}

Operand transposed(Operand o) {
  return {o.data, o.stride, true};
}

// One tile of scores becomes unnormalised probabilities against the running maximum; what was accumulated before is
// rescaled to it.
void Flash::softmax_step(const Tile& t, float* scores, float* acc, float* maxima, float* sums) const {
  for (std::int64_t i = 0; i < t.queries; ++i) {
    const Tile::Seen seen = t.seen(s, i);
    const std::int64_t n = seen.end - seen.first;
    float* const whole_row = scores + i * kKeys;
    float* row = whole_row + seen.first;
    std::fill(whole_row, row, 0.0f);
    std::fill(row + n, whole_row + t.keys, 0.0f);
    if (n == 0) continue;
    if (cap > 0) cap_scores(n, row);
    if (s.alibi_heads > 0) add_distances(t, i, seen.first, n, row);
    const float before = maxima[i], now = max(before, max_of(n, row) * factor());
    const float total = sum_terms(n, [=, factor = factor()](std::int64_t k, auto tag) {
      const auto e = exp(get(row + k, tag) * factor - now);
      put(row + k, e);
      return e;
    });
    const float fade = exp(before - now);
    maxima[i] = now;
    sums[i] = sums[i] * fade + total;
    if (fade != 1) {
      for (std::int64_t c = 0; c < s.values(); ++c) acc[i * s.values() + c] *= fade;
    }
    if (site.probability > 0) {
      over_numbers(t, i, seen.first, n, [&](std::int64_t offset, std::int64_t count, const std::uint16_t* numbers) {
        float* p = row + offset;
        drop.each(count, numbers, nullptr, [=, factor = drop.kept_scale](std::int64_t k, auto tag, auto keep) {
          put(p + k, kept(get(p + k, tag) * factor, keep));
        });
      });
    }
  }
}

void Flash::forward_queries(Tile t, float* scratch, bool merge, float* out, float* logsumexp) const {
  const std::int64_t width = s.values();
  float *scores = scratch, *acc = scores + kQueries * kKeys, *maxima = acc + kQueries * width,
        *sums = maxima + kQueries;
  std::fill_n(acc, t.queries * width, 0.0f);
  std::fill_n(maxima, t.queries, -std::numeric_limits<float>::infinity());
  std::fill_n(sums, t.queries, 0.0f);
  for (const Run& run : key_runs) {
    const std::int64_t seen =
        s.causal ? std::clamp<std::int64_t>(t.query_position + t.queries - run.position, 0, run.count) : run.count;
    const std::int64_t first =
        std::clamp<std::int64_t>(s.first_seen(t.batch, t.query_position) - run.position, 0, seen);
    for (std::int64_t offset = first; offset < seen; offset += kKeys) {
      t.at_keys(run, offset, std::min(kKeys, seen - offset));
      multiply(t.queries, t.keys, s.head_dim, query(t), transposed(key(t)), false, scores, kKeys);
      softmax_step(t, scores, acc, maxima, sums);
      multiply(t.queries, width, t.keys, {scores, kKeys}, value(t), true, acc, width);
    }
  }
  for (std::int64_t i = 0; i < t.queries; ++i) {
    float* y = out + view.out(t.batch, t.head) + (t.first_query + i) * view.out_stride;
    float& kept = logsumexp[view.per_row(t.first_query + i, t.batch, t.head)];
    if (merge && sums[i] == 0) continue;  // saw none of these keys
    const float here = maxima[i] + std::log(sums[i]);
    if (!merge) {
      const float inverse = 1 / sums[i];
      for (std::int64_t c = 0; c < width; ++c) y[c] = acc[i * width + c] * inverse;
      kept = here;
      continue;
    }
    // out = (e^before out + e^here (acc / sum)) / (e^before + e^here)
    const float before = kept, most = std::max(before, here);
    const float together = most + std::log(std::exp(before - most) + std::exp(here - most));
    const float old = std::exp(before - together), fresh = std::exp(maxima[i] - together);
    for (std::int64_t c = 0; c < width; ++c) y[c] = y[c] * old + acc[i * width + c] * fresh;
    kept = together;
  }
}

// Scores become the (dropped) probabilities that multiplied V; dO V^T becomes the gradient of the unscaled scores.
void Flash::backward_scores(const Tile& t, const float* logsumexp, const float* delta, float* p, float* d_p) const {
  for (std::int64_t i = 0; i < t.queries; ++i) {
    const Tile::Seen seen = t.seen(s, i);
    const std::int64_t n = seen.end - seen.first, after = t.keys - seen.first;
    float* prob = p + i * kKeysBackward + seen.first;
    float* grad = d_p + i * kKeysBackward + seen.first;
    const float offset = logsumexp[view.per_row(t.first_query + i, t.batch, t.head)];
    const float mean = delta[t.first_query + i], factor = this->factor();
    if (s.alibi_heads > 0) add_distances(t, i, seen.first, n, prob);
    std::array<float, kKeysBackward> slopes;
    if (cap > 0) {
      cap_scores(n, prob);
      for (std::int64_t k = 0; k < n; ++k) slopes[static_cast<std::size_t>(k)] = 1 - prob[k] / cap * (prob[k] / cap);
    }
    if (site.probability > 0) {
      over_numbers(t, i, seen.first, n, [&](std::int64_t first, std::int64_t count, const std::uint16_t* numbers) {
        drop.each(count, numbers, nullptr, [&](std::int64_t k, auto tag, auto keep) {
          const auto probability = exp(get(prob + first + k, tag) * factor - offset);
          const auto d = kept(get(grad + first + k, tag) * drop.kept_scale, keep);
          put(grad + first + k, probability * (d - mean) * scale);
          put(prob + first + k, kept(probability * drop.kept_scale, keep));
        });
      });
    } else {
      each(0, n, [&](std::int64_t k, auto tag) {
        const auto probability = exp(get(prob + k, tag) * factor - offset);
        put(grad + k, probability * (get(grad + k, tag) - mean) * scale);
        put(prob + k, probability);
      });
    }
    for (std::int64_t k = 0; cap > 0 && k < n; ++k) grad[k] *= slopes[static_cast<std::size_t>(k)];
    for (float* row : {prob, grad}) {
      std::fill(row - seen.first, row, 0.0f);
      std::fill(row + n, row + after, 0.0f);
    }
  }
}

// The gradients that a tile of keys gives and gets, from all queries of one head that see it. They are added to what
// the query's and the key's hold, or are its first.
void Flash::backward_keys(Tile t, float* scratch, const float* d_out, const float* logsumexp, const float* delta,
                          const Gradients& to, bool add_query, bool add_key) const {
  float *p = scratch, *d_p = p + kQueriesBackward * kKeysBackward;
  float* d_key = to.keys + places.key(t, view.group);
  float* d_value = d_key + places.value;
  const std::int64_t out = view.out(t.batch, t.head);
  const std::int64_t query_stride = to.packed ? view.qkv_stride : s.micro_batch * s.heads * s.head_dim;
  float* const d_query =
      to.query + (to.packed ? view.query(t.batch, t.head) : (t.batch * s.heads + t.head) * s.head_dim);
  for (const Run& run : query_runs) {
    const std::int64_t unseeing = s.causal ? std::clamp<std::int64_t>(t.key_position - run.position, 0, run.count) : 0;
    const std::int64_t last = t.key_position + t.keys - 1;  // of the keys, which s.window - 1 queries after it see
    std::int64_t end = run.count;
    if (s.window > 0) end = std::clamp<std::int64_t>(last + s.window - run.position, 0, end);
    if (s.document_starts != nullptr)
      end = std::clamp<std::int64_t>(document_end(t.batch, last) - run.position, 0, end);
    for (std::int64_t offset = unseeing; offset < end; offset += kQueriesBackward) {
      t.at_queries(run, offset, std::min(kQueriesBackward, end - offset));
      const Operand grad = {d_out + out + t.first_query * view.out_stride, view.out_stride};
      multiply(t.queries, t.keys, s.head_dim, this->query(t), transposed(key(t)), false, p, kKeysBackward);
      multiply(t.queries, t.keys, s.values(), grad, transposed(value(t)), false, d_p, kKeysBackward);
      backward_scores(t, logsumexp, delta, p, d_p);
      multiply(t.keys, s.values(), t.queries, {p, kKeysBackward, true}, grad, add_key, d_value, places.stride);
      multiply(t.keys, s.head_dim, t.queries, {d_p, kKeysBackward, true}, this->query(t), add_key, d_key,
               places.stride);
      multiply(t.queries, s.head_dim, t.keys, {d_p, kKeysBackward}, key(t), add_query,
               d_query + t.first_query * query_stride, query_stride);
      add_key = true;
    }
  }
}

// rowsum(dO O) of every query of a head.
void fill_delta(const Flash& flash, std::int64_t batch, std::int64_t head, const float* d_out, const float* out,
                float* delta) {
  const AttentionView& view = flash.view;
  for (std::int64_t t = 0; t < flash.s.seq; ++t) {
    const std::int64_t at = view.out(batch, head) + t * view.out_stride;
    delta[t] = dot(flash.s.values(), d_out + at, out + at);
  }
}

struct QueryTile {
  std::int64_t first, count, position;
};
std::vector<QueryTile> query_tiles(const Runs& runs) {
  std::vector<QueryTile> tiles;
  for (const Run& run : runs)
    for (std::int64_t offset = 0; offset < run.count; offset += kQueries)
      tiles.push_back({run.row + offset, std::min(kQueries, run.count - offset), run.position + offset});
  return tiles;
}

// The chunks of a rank from row `row` on, and of all ranks.
void add_chunks(const AttentionShape& s, const ContextPart& part, std::int64_t rank, std::int64_t row, Runs& runs) {
  const std::int64_t chunk = s.seq / 2;
  runs.push_back({row, chunk, rank * chunk});
  runs.push_back({row + chunk, chunk, (2 * part.ranks - 1 - rank) * chunk});
}

Flash context_flash(const AttentionShape& s, const ContextPart& part, const DropoutSite& site, const float* qkv,
                    const float* kv) {
  Runs queries, keys;
  add_chunks(s, part, part.rank, 0, queries);
  if (part.key_rank >= 0) add_chunks(s, part, part.key_rank, 0, keys);
  for (std::int64_t r = 0; part.key_rank < 0 && r < part.ranks; ++r) add_chunks(s, part, r, r * s.seq, keys);
  Flash flash{s,
              site,
              qkv,
              KeyPlaces::apart(s, kv),
              std::move(queries),
              std::move(keys),
              part.row > 0 ? part.row : s.seq * part.ranks};
  flash.row_first = part.first;
  return flash;
}

}  // namespace flash

void CpuKernels::flash_tiles(const flash::Flash& flash, bool merge, float* out, float* logsumexp) {
  const AttentionShape& s = flash.s;
  const std::vector<flash::QueryTile> tiles = flash::query_tiles(flash.query_runs);
  const auto count = static_cast<std::int64_t>(tiles.size());
  pool_.ranges(s.micro_batch * s.heads * count, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* memory = scratch(worker, flash::kQueries * (flash::kKeys + s.values() + 2));
    for (std::int64_t i = begin; i < end; ++i) {
      const flash::QueryTile& q = tiles[static_cast<std::size_t>(i % count)];
      const std::int64_t head = i / count;
      flash.forward_queries({head / s.heads, head % s.heads, q.first, q.count, q.position, 0, 0, 0}, memory, merge, out,
                            logsumexp);
    }
  });
}
void CpuKernels::flash_key_tiles(const flash::Flash& flash, const float* d_out, const float* out,
                                 const float* logsumexp, const flash::Gradients& to, bool add) {
  const AttentionShape& s = flash.s;
  constexpr std::int64_t kTile = flash::kKeysBackward, kScores = 2 * flash::kQueriesBackward * kTile;
  pool_.ranges(s.micro_batch * s.kv_heads, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* memory = scratch(worker, kScores + s.seq);
    float* delta = memory + kScores;
    for (std::int64_t i = begin * flash.view.group; i < end * flash.view.group; ++i) {
      flash::Tile tile{i / s.heads, i % s.heads, 0, 0, 0, 0, 0, 0};
      flash::fill_delta(flash, tile.batch, tile.head, d_out, out, delta);
      bool first = true;
      for (const flash::Run& run : flash.key_runs)
        for (std::int64_t offset = 0; offset < run.count; offset += kTile) {
          tile.at_keys(run, offset, std::min(kTile, run.count - offset));
          flash.backward_keys(tile, memory, d_out, logsumexp, delta, to, add || !first,
                              add || tile.head % flash.view.group > 0);
          first = false;
        }
    }
  });
}

void CpuKernels::flash_forward(const AttentionShape& s, const DropoutSite& site, const float* qkv, float* out,
                               float* logsumexp) {
  flash_tiles(flash::Flash(s, site, qkv), false, out, logsumexp);
}

void CpuKernels::flash_backward(const AttentionShape& s, const DropoutSite& site, const float* d_out, const float* qkv,
                                const float* out, const float* logsumexp, float* d_qkv) {
  const flash::Flash flash(s, site, qkv);
  // Without a window or documents every query sees the first tile of keys, which writes what the others add to.
  const bool masked = s.window > 0 || s.document_starts != nullptr;
  if (masked) fill(s.seq * flash.view.qkv_stride, 0, d_qkv);
  flash_key_tiles(flash, d_out, out, logsumexp, {d_qkv, true, d_qkv}, masked);
}

void CpuKernels::context_forward(const AttentionShape& s, const ContextPart& part, const DropoutSite& site,
                                 const float* qkv, const float* kv, float* out, float* logsumexp) {
  flash_tiles(flash::context_flash(s, part, site, qkv, kv), part.merge, out, logsumexp);
}

// A tile of keys may be seen by none of these queries, and a query may see none of the first tile.
void CpuKernels::context_backward(const AttentionShape& s, const ContextPart& part, const DropoutSite& site,
                                  const float* d_out, const float* qkv, const float* kv, const float* out,
                                  const float* logsumexp, float* d_q, float* d_kv) {
  const flash::Flash flash = flash::context_flash(s, part, site, qkv, kv);
  const std::int64_t keys = (part.key_rank < 0 ? part.ranks : 1) * s.seq;
  if (!part.merge) fill(s.seq * s.micro_batch * s.heads * s.head_dim, 0, d_q);
  fill(keys * flash.places.stride, 0, d_kv);
  flash_key_tiles(flash, d_out, out, logsumexp, {d_q, false, d_kv}, true);
}

}  // namespace rehearse::kernels::cpu
