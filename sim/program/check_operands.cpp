// Whether an op's operands fit its kind: how many it reads and writes, and the elements of each, as the comments of
// op.h give them. Transfers also have the type of the buffers they move. Leaves out the types of other operands
// (kernels take mixed precision in many combinations) and the size of a gathered or scattered shard, which the group
// decides (check_ranks.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "sim/base/moment_codes.h"
#include "sim/program/check_parts.h"
#include "sim/program/describe.h"

namespace rehearse::program {
namespace {

constexpr std::int64_t kAny = -1;
using Sizes = std::vector<std::int64_t>;

// Elements of every operand. Operands that op.h marks optional without a flag in the shape (a norm's beta) are expected
// if the op has as many operands as with them.
struct Expected {
  Sizes reads, writes;
};

struct ExpectedOf {
  const Op& op;

  Expected operator()(const Gemm& g) const {
    const std::int64_t c = g.batch * g.m * g.n;
    Sizes reads = {g.batch * g.m * g.k, g.batch * g.k * g.n};
    if (is_narrow(op.dtype)) reads = {kAny, kAny};  // with their scales
    if (g.bias) reads.push_back(g.n);
    if (g.accumulate) reads.push_back(c);
    Sizes writes = {c};
    if (g.epilogue == Epilogue::gelu) writes.push_back(c);
    if (g.epilogue == Epilogue::gelu_backward) reads.push_back(c);
    if (g.epilogue == Epilogue::bias_gradient) {
      reads.push_back(g.m);
      writes.push_back(g.m);
    }
    // Scales of whole tensors.
    if (is_narrow(op.dtype) && op.reads.size() == reads.size() + 2) reads.insert(reads.end(), 2, 1);
    return {reads, writes};
  }

  Expected operator()(const Attention& a) const {
    const std::int64_t tokens = a.seq * a.micro_batch;
    const std::int64_t query = tokens * a.heads * a.head_dim, out = tokens * a.heads * a.values();
    const std::int64_t qkv = query + tokens * a.kv_heads * (a.head_dim + a.values());
    const std::int64_t logsumexp = tokens * a.heads;
    const bool flash = a.part == AttentionPart::flash_forward || a.part == AttentionPart::flash_backward;
    if (a.keys > 0 && flash) {
      const std::int64_t kv = a.keys * a.micro_batch * a.kv_heads * (a.head_dim + a.values());
      if (a.part == AttentionPart::flash_forward)
        return {a.merge ? Sizes{qkv, kv, out, logsumexp} : Sizes{qkv, kv}, {out, logsumexp}};
      return {a.merge ? Sizes{out, qkv, kv, out, logsumexp, query} : Sizes{out, qkv, kv, out, logsumexp}, {query, kv}};
    }
    const std::int64_t s = a.micro_batch * a.heads * a.seq * a.compared(), table = a.heads * a.bias_buckets;
    const std::int64_t kv = a.keys * a.micro_batch * a.kv_heads * (a.head_dim + a.values());
    const std::int64_t queries = a.keys > 0 ? query : qkv, keys = a.keys > 0 ? kv : qkv;
    switch (a.part) {
      case AttentionPart::flash_forward:
        return {{qkv}, {out, logsumexp}};
      case AttentionPart::flash_backward:
        return {{out, qkv, out, logsumexp}, {qkv}};
      case AttentionPart::scores:
        return {a.keys > 0 ? Sizes{queries, keys} : Sizes{qkv}, {s}};
      case AttentionPart::softmax:
        return {table > 0 ? Sizes{s, table} : Sizes{s}, {s}};
      case AttentionPart::bias_gradient:
        return {{s, table}, {table}};
      case AttentionPart::sinks:
        return {{out, logsumexp, a.sinks}, {out, logsumexp}};
      case AttentionPart::sink_gradient:
        return {{out, out, logsumexp, a.sinks, a.sinks}, {a.sinks}};
      case AttentionPart::dropout:
        return {{s}, {s, s}};
      case AttentionPart::context:
        return {{s, keys}, {out}};
      case AttentionPart::context_backward_probs:
        return {{out, keys}, {s}};
      case AttentionPart::context_backward_value:
        return {{out, s}, {keys}};
      case AttentionPart::softmax_backward:
        return {a.softcap > 0 ? Sizes{s, s, s} : Sizes{s, s}, {s}};
      case AttentionPart::dropout_backward:
        return {{s, s}, {s}};
      case AttentionPart::scores_backward_query:
        return {{s, keys}, {queries}};
      case AttentionPart::scores_backward_key:
        return {{s, queries}, {keys}};
    }
    return {};
  }

  Expected operator()(const LatentHeads& l) const {
    const Sizes parts{l.query_elements(), l.key_value_elements(), l.tokens * l.rope}, packed{l.packed_elements()};
    return l.backward ? Expected{packed, parts} : Expected{parts, packed};
  }
  Expected operator()(const StateSpace& s) const { return {s.reads(), s.writes()}; }
  Expected operator()(const Norm& n) const {
    const std::int64_t x = n.rows * n.cols;
    const std::int64_t stats = n.rows * (n.rms ? 1 : 2);
    switch (n.part) {
      case NormPart::forward:
        return of_norm(op.reads.size(), op.writes.size(), x, n.cols, stats);
      case NormPart::backward_input:
        return {n.add_residual ? Sizes{x, x, stats, n.cols, x} : Sizes{x, x, stats, n.cols}, {x}};
      case NormPart::backward_weight:
        if (op.reads.size() == 5) return {{x, x, stats, n.cols, n.cols}, {n.cols, n.cols}};
        return {{x, x, stats, n.cols}, {n.cols}};
    }
    return {};
  }

  Expected operator()(const HeadNorm& n) const {
    const std::int64_t raw = n.heads() * n.head_dim, d = n.head_dim;
    switch (n.part) {
      case NormPart::forward:
        return {{n.packed(), d, d}, {n.packed(), raw, n.heads()}};
      case NormPart::backward_input:
        return {{n.packed(), raw, n.heads(), d, d}, {n.packed()}};
      case NormPart::backward_weight:
        return {{n.packed(), raw, n.heads(), d, d}, {d, d}};
    }
    return {};
  }

  static Expected of_update(std::int64_t n, std::size_t writes) {
    const Sizes tables{n, n * (1 + kFp8History), n};
    return {tables, writes == 4 ? Sizes{n, n * (1 + kFp8History), n, n} : tables};
  }
  // The output in 8 bits has a scale that is made of a largest value, and says its own: with delayed scaling the norm
  // does what a cast would.
  static Expected of_norm(std::size_t reads, std::size_t writes, std::int64_t x, std::int64_t cols,
                          std::int64_t stats) {
    const bool casts = writes == 4;
    Expected e{{x, cols}, {x, stats}};
    if (reads == (casts ? 4U : 3U)) e.reads.push_back(cols);
    if (!casts) return e;
    e.reads.push_back(1);
    e.writes.insert(e.writes.end(), 2, 1);
    return e;
  }

  Expected operator()(const Activation& a) const {
    const std::int64_t y = a.rows * a.cols;
    const std::int64_t x = is_gated(a.fn) ? 2 * y : y;
    if (a.weighted) return a.backward ? Expected{{y, x, a.rows}, {x, a.rows}} : Expected{{x, a.rows}, {y}};
    if (is_gated(a.fn) && a.separate) {  // perhaps with silu's result behind the others
      if (!a.backward && op.writes.size() == 2) return {op.reads.size() == 2 ? Sizes{y, y} : Sizes{x}, {y, y}};
      if (a.backward && op.reads.size() > 2) return {op.reads.size() == 4 ? Sizes{y, y, y, y} : Sizes{y, x, y}, {x}};
    }
    if (is_gated(a.fn) && op.reads.size() == (a.backward ? 3U : 2U))
      return a.backward ? Expected{{y, y, y}, {x}} : Expected{{y, y}, {y}};
    return a.backward ? Expected{{y, x}, {x}} : Expected{{x}, {y}};
  }

  Expected operator()(const Elementwise& e) const {
    const std::int64_t n = e.elements;
    switch (e.fn) {
      case ElementwiseFn::add:
      case ElementwiseFn::accumulate:
      case ElementwiseFn::dropout_backward:
        return {{n, n}, {n}};
      case ElementwiseFn::cast:
      case ElementwiseFn::copy:
      case ElementwiseFn::scale:
        return {{n}, {n}};
      case ElementwiseFn::fill:
        return {{}, {n}};
      case ElementwiseFn::bias_dropout_add:
        return {e.bias ? Sizes{n, e.cols, n} : Sizes{n, n}, e.dropout > 0 ? Sizes{n, n} : Sizes{n}};
      case ElementwiseFn::dropout:
        return {{n}, {n, n}};
      case ElementwiseFn::bias_grad:
        return {{n, e.cols}, {e.cols}};
      case ElementwiseFn::add_position:
        return {{n, kAny}, {n}};
      case ElementwiseFn::position_grad:
        return {{n, kAny}, {kAny}};
      case ElementwiseFn::rope:
      case ElementwiseFn::rope_backward:
        return {{kAny}, {kAny}};
      case ElementwiseFn::fp8_amax:
        return of_groups(e, {{n}, {e.each_column ? e.cols : 1}});
      case ElementwiseFn::fp8_cast:
      case ElementwiseFn::fp8_cast_transpose: {
        const std::size_t most = e.fn == ElementwiseFn::fp8_cast ? 3 : 4;
        return of_groups(e, {op.reads.size() == (e.counted ? 3U : 2U) ? Sizes{n, e.each_column ? e.cols : 1} : Sizes{n},
                             Sizes(std::clamp<std::size_t>(op.writes.size(), 1, most), kAny)});
      }
      case ElementwiseFn::fp8_transpose:
        return of_groups(e, {{kAny}, {kAny}});
      case ElementwiseFn::hadamard_cast:
        return {{n, 1}, Sizes(std::clamp<std::size_t>(op.writes.size(), 1, 2), kAny)};
      case ElementwiseFn::fp8_widen:
        return {{kAny}, {n}};
      case ElementwiseFn::fp8_scale_update:
        return op.reads.size() == 1 ? Expected{{n}, {n}} : of_update(n, op.writes.size());
    }
    return {};
  }

  static Expected of_groups(const Elementwise& e, Expected all) {
    if (e.counted) all.reads.push_back(e.groups);
    return all;
  }

  Expected operator()(const StridedCopy&) const { return {{kAny}, {kAny}}; }

  Expected operator()(const Router& r) const {
    const std::int64_t logits = r.tokens * r.experts, choices = r.tokens * r.top_k;
    switch (r.part) {
      case RouterPart::gate:
        return {{logits}, {choices, choices}};
      case RouterPart::place:
        return {{choices}, {choices, r.own > 0 ? r.own : r.experts}};
      case RouterPart::receive:
        return {{r.sources * r.experts}, {r.tokens, r.own}};
      case RouterPart::gate_backward: {
        Expected e{{choices, logits, choices}, {logits}};
        if (r.aux > 0) e.reads.push_back(r.experts);
        if (r.scaled) e.reads.push_back(2);
        return e;
      }
    }
    return {};
  }

  Expected operator()(const Permute& p) const {
    const std::int64_t x = p.tokens * p.cols, y = p.rows * p.cols, choices = p.tokens * p.top_k;
    switch (p.part) {
      case PermutePart::permute:
        return {{x, choices}, {y}};
      case PermutePart::unpermute:
        return {{y, choices, choices}, {x}};
      case PermutePart::unpermute_backward:
        return {{x, y, choices, choices}, {y, choices}};
      case PermutePart::permute_backward:
        return {{y, choices}, {x}};
    }
    return {};
  }

  Expected operator()(const GroupedGemm& g) const {
    const std::int64_t rows = std::max(g.rows, g.room), x = rows * g.k, y = rows * g.n, w = g.groups * g.n * g.k;
    Expected e = g.part == GroupedPart::forward          ? Expected{{x, w}, {y}}
                 : g.part == GroupedPart::backward_input ? Expected{{y, w}, {x}}
                                                         : Expected{{y, x}, {w}};
    if (is_narrow(op.dtype)) e.reads = {kAny, kAny};  // with their scales
    if (g.counted) e.reads.push_back(g.groups);
    if (g.accumulate) e.reads.push_back(w);
    if (is_fp8(op.dtype) && op.reads.size() == e.reads.size() + 2) e.reads.insert(e.reads.end(), 2, 1);
    return e;
  }

  Expected operator()(const GroupedBias& g) const {
    const std::int64_t y = g.rows * g.n, b = g.groups * g.n;
    Expected e = g.part == GroupedBiasPart::weights_backward ? Expected{{y, b}, {g.rows}}
                 : g.part == GroupedBiasPart::forward        ? Expected{{y, b}, {y}}
                                                             : Expected{{y}, {b}};
    if (g.counted) e.reads.push_back(g.groups);
    if (g.weighted && g.part != GroupedBiasPart::weights_backward) e.reads.push_back(g.rows);
    if (g.part != GroupedBiasPart::forward) e.reads.push_back(g.part == GroupedBiasPart::backward ? b : g.rows);
    return e;
  }

  Expected operator()(const RowScale& r) const {
    const std::int64_t x = r.rows * r.cols;
    return r.backward ? Expected{{x, x, r.rows}, {x, r.rows}} : Expected{{x, r.rows}, {x}};
  }

  Expected operator()(const Embedding& e) const {
    const std::int64_t y = e.tokens * e.cols;
    const std::int64_t table = e.rows * e.cols;
    return e.backward ? Expected{{y, e.tokens, table}, {table}} : Expected{{e.tokens, table}, {y}};
  }

  // A chain of kernels has tensors between them.
  Expected operator()(const CrossEntropy& c) const {
    Expected e = operands_of(c);
    const std::size_t most = e.writes.size() + 2;  // tensors beside the results
    while (e.writes.size() < std::min(op.writes.size(), most)) e.writes.push_back(c.rows * c.cols);
    return e;
  }

  Expected operands_of(const CrossEntropy& c) const {
    const std::int64_t logits = c.rows * c.cols;
    switch (c.part) {
      case CrossEntropyPart::fused_forward:
        return {{logits, c.rows, 1}, {2 * c.rows, 1}};
      case CrossEntropyPart::row_max:
        return {{logits}, {c.rows}};
      case CrossEntropyPart::exp_sum:
        return {{logits, c.rows, c.rows}, {2 * c.rows}};
      case CrossEntropyPart::loss:
        return {{2 * c.rows, 1}, {1}};
      case CrossEntropyPart::backward: {
        Expected e{{logits, c.rows, 2 * c.rows}, {logits}};
        if (op.reads.size() == (c.scaled ? 5 : 4)) e.reads = {logits, c.rows, c.rows, 2 * c.rows};
        if (c.scaled) e.reads.push_back(2);
        return e;
      }
    }
    return {};
  }

  Expected operator()(const MeanSquaredError& m) const {
    const std::int64_t n = m.elements;
    if (!m.backward) return {{n, n, 1}, {1}};
    return m.scaled ? Expected{{n, n, 2}, {n}} : Expected{{n, n}, {n}};
  }

  Expected operator()(const Optimizer& o) const {
    const std::int64_t n = o.elements;
    Sizes reads = {n};
    if (o.clip) reads.push_back(1);
    Sizes state(o.master ? 2 : 1, n);  // the parameter and what is kept beside it
    const bool momentum = !o.adam && op.reads.size() > reads.size() + state.size();
    const std::size_t moments = o.adam ? 2 : momentum ? 1 : 0;
    state.resize(state.size() + moments, n);
    if (o.eight_bits) state.resize(state.size() + moments, n / kMomentBlock);
    reads.insert(reads.end(), state.begin(), state.end());
    return {reads, state};
  }

  Expected operator()(const Adafactor& a) const {
    Sizes reads = {a.elements()};
    if (a.clip) reads.push_back(1);
    Sizes state(a.master ? 2 : 1, a.elements());
    if (a.rows > 0) state.push_back(a.rows);
    state.push_back(a.cols);
    reads.insert(reads.end(), state.begin(), state.end());
    return {reads, state};
  }

  Expected operator()(const AdafactorParts& a) const {
    const auto tensors = static_cast<std::int64_t>(a.tensors.size());
    Expected e;
    e.reads = a.clip ? Sizes{a.elements, 1} : Sizes{a.elements};
    if (a.part == AdafactorPart::sums) {
      e.writes = {a.sums};
    } else if (a.part == AdafactorPart::squares) {
      if (a.sums > 0) e.reads.push_back(a.sums);
      e.reads.push_back(a.means);
      e.writes = {a.means, tensors};
    } else {
      e.writes = Sizes(a.master ? 2 : 1, a.elements);
      e.reads.insert(e.reads.end(), {a.means, tensors});
      e.reads.insert(e.reads.end(), e.writes.begin(), e.writes.end());
    }
    return e;
  }

  Expected operator()(const Muon& m) const {
    const std::size_t values = m.part == MuonPart::orthogonal ? 1 : m.master ? 2 : 1;
    const bool momentum = m.part == MuonPart::momentum || m.part == MuonPart::whole;
    Sizes writes(m.part == MuonPart::momentum ? 2 : values + (momentum ? 1 : 0), m.elements), reads = {m.elements};
    if (m.part == MuonPart::update || m.part == MuonPart::orthogonal) reads.front() *= m.parts;
    if (m.clip) reads.push_back(1);
    const std::size_t states = m.part == MuonPart::orthogonal ? 0 : m.part == MuonPart::momentum ? 1 : writes.size();
    reads.insert(reads.end(), states, m.elements);
    if (m.multiplies()) writes.push_back(m.scratch());
    return {reads, writes};
  }

  Expected operator()(const Compress& c) const {
    const std::int64_t packed = c.code.adds_up() ? c.code.kept : c.code.bytes() * c.members;
    const std::int64_t n = c.code.elements;
    if (c.decompress) return {{packed}, {n}};
    if (c.corrected) return {c.clip ? Sizes{n, n, n, 1} : Sizes{n, n, n}, {packed, n, n}};
    return c.feedback ? Expected{{c.code.elements, c.code.elements}, {packed, c.code.elements}}
                      : Expected{{c.code.elements}, {packed}};
  }
  Expected operator()(const LowRank& l) const {
    switch (l.part) {
      case LowRankPart::orthogonalise:
        return {{l.rows * l.rank}, {l.rows * l.rank}};
      case LowRankPart::pack:
        return {{l.elements}, {l.packed()}};
      case LowRankPart::unpack:
        return {{l.packed()}, {l.elements}};
      case LowRankPart::keep:
        return {{l.elements, l.elements}, {l.elements}};
    }
    return {};
  }
  // The parameter, and its fp32 copy, are written alone.
  Expected operator()(const OuterStep& o) const {
    const std::int64_t n = o.elements;
    const Sizes values(o.master ? 2 : 1, n);
    if (o.part == OuterPart::difference) return {{n, n}, {n}};
    if (o.part == OuterPart::mean) return {{n}, values};
    Expected e{o.momentum ? Sizes{n, n, n} : Sizes{n, n}, o.momentum ? Sizes{n, n} : Sizes{n}};
    e.writes.insert(e.writes.end(), values.begin(), values.end());
    return e;
  }
  Expected operator()(const EmbeddingBags& e) const {
    const std::int64_t y = static_cast<std::int64_t>(e.tables.size()) * e.slices * e.batch * e.cols;
    Sizes tables, sums;
    for (const BagTable& t : e.tables) tables.push_back(t.rows * e.cols), sums.push_back(t.rows);
    if (e.adagrad) tables.insert(tables.end(), sums.begin(), sums.end());
    Expected expected{e.part == BagPart::forward ? Sizes{e.ids()} : Sizes{y, e.ids()}, tables};
    expected.reads.insert(expected.reads.end(), tables.begin(), tables.end());
    if (e.part == BagPart::forward) expected.writes = {y};
    return expected;
  }
  Expected operator()(const Pairs& p) const {
    const std::int64_t products = p.batch * p.vectors * p.vectors, x = p.batch * p.cols,
                       y = p.batch * (p.cols + p.count());
    return p.backward ? Expected{{y}, {products, x}} : Expected{{products, x}, {y}};
  }
  Expected operator()(const BinaryCrossEntropy& b) const {
    const std::int64_t n = b.elements;
    if (b.backward) return {b.scaled ? Sizes{n, n, 2} : Sizes{n, n}, {n}};
    return {{n, n, 1}, {1}};
  }
  Expected operator()(const Lamb& l) const {
    const std::int64_t n = l.elements, squares = 2 * static_cast<std::int64_t>(l.tensors.size());
    Expected e;
    e.reads = l.part == LambPart::moments ? Sizes{n} : Sizes{n, squares};
    if (l.clip) e.reads.push_back(1);
    if (l.part == LambPart::moments) {
      e.reads.insert(e.reads.end(), 3, n);
      e.writes = {n, n, n, squares};
    } else {
      e.writes = Sizes(l.master ? 2 : 1, n);
      e.reads.insert(e.reads.end(), e.writes.begin(), e.writes.end());
    }
    return e;
  }

  Expected operator()(const CountedTargets& c) const { return {{c.mean ? 1 : c.rows, 2}, {c.mean ? 1 : 2}}; }
  Expected operator()(const SumSquares& s) const { return {{s.elements, 1}, {1}}; }
  Expected operator()(const ClipCoefficient& c) const { return {c.scaled ? Sizes{1, 2} : Sizes{1}, {1}}; }
  Expected operator()(const UpdateLossScale&) const { return {{1, 2}, {2}}; }

  Expected operator()(const Conv2d& c) const {
    const std::int64_t x = c.batch * c.c_in * c.height * c.width;
    const std::int64_t y = c.batch * c.c_out * c.out_height() * c.out_width();
    const std::int64_t w = c.c_out * c.group_in() * c.kernel * c.kernel;
    switch (c.part) {
      case ConvPart::forward:
        return {c.bias ? Sizes{x, w, c.c_out} : Sizes{x, w}, {y}};
      case ConvPart::backward_input:
        return {{y, w}, {x}};
      case ConvPart::backward_weight:
        return c.bias ? Expected{{y, x, w, c.c_out}, {w, c.c_out}} : Expected{{y, x, w}, {w}};
    }
    return {};
  }
  Expected operator()(const Pool2d& p) const {
    const std::int64_t x = p.batch * p.channels * p.height * p.width;
    const std::int64_t y = p.batch * p.channels * p.out_height() * p.out_width();
    return p.backward ? Expected{{y, y}, {x}} : Expected{{x}, {y, y}};
  }
  Expected operator()(const AveragePool& p) const {
    const std::int64_t y = p.batch * p.channels, x = y * p.pixels;
    return p.backward ? Expected{{y}, {x}} : Expected{{x}, {y}};
  }
  Expected operator()(const ChannelScale& c) const {
    const std::int64_t f = c.batch * c.channels, x = f * c.pixels;
    return c.backward ? Expected{{x, x, f}, {x, f}} : Expected{{x, f}, {x}};
  }
  Expected operator()(const BatchNorm& n) const {
    const std::int64_t c = n.channels, x = n.batch * c * n.pixels, sums = 2 * c;
    switch (n.part) {
      case BatchNormPart::forward:
        return {{x, c, c}, {x, sums}};
      case BatchNormPart::backward:
        return {{x, x, sums, c, c, c}, {x, c, c, sums}};
      case BatchNormPart::sums:
        return {{x}, {sums}};
      case BatchNormPart::normalise:
        return {{x, sums, c, c}, {x}};
      case BatchNormPart::backward_sums:
        return {{x, x, sums}, {sums}};
      case BatchNormPart::backward_weight:
        return {{sums, c, c}, {c, c}};
      case BatchNormPart::backward_input:
        return {{x, x, sums, c, sums}, {x}};
    }
    return {};
  }

  Expected operator()(const Input& i) const { return {{}, {i.elements}}; }
  Expected operator()(const Collective& c) const {
    switch (c.kind) {
      case CollectiveKind::all_reduce:
      case CollectiveKind::broadcast:
      case CollectiveKind::reduce:
        return {{c.elements}, {c.elements}};
      case CollectiveKind::all_to_all:
        return all_to_all(c);
      case CollectiveKind::all_gather:
        return {{kAny}, {c.elements}};
      case CollectiveKind::reduce_scatter:
        return {{c.elements}, {kAny}};
    }
    return {};
  }

  Expected all_to_all(const Collective& c) const {
    const bool whole = !c.counted && c.own == 0;
    Expected e = whole    ? Expected{{c.elements}, {c.elements}}
                 : c.back ? Expected{{c.own}, {c.elements}}
                          : Expected{{c.elements}, {c.own}};
    if (c.counted) e.reads.push_back(kAny);
    if (op.writes.size() == 2) e.reads.push_back(kAny), e.writes.push_back(kAny);  // what goes along
    return e;
  }

  Expected operator()(const PointToPoint& p) const {
    Expected e;
    for (const Leg& leg : p.legs) (leg.send ? e.reads : e.writes).push_back(leg.elements);
    return e;
  }

  Expected operator()(const HostSync&) const { return {}; }
};

struct Site {
  const Role& role;
  BodyId body;
  int op;
  ViolationList& list;

  void bad(BufferId buffer, const std::string& what) const {
    const Body& b = role.bodies[static_cast<std::size_t>(body)];
    const Op& o = b.ops[static_cast<std::size_t>(op)];
    if (std::string* text = list.add("bad-operands", body, op, buffer))
      *text = fmt::format("{}: {} '{}' of body {} {}", role.name, kind_name(o.shape), o.name, b.name, what);
  }

  // `typed`: how many of the first have the op's type.
  void compare(const char* verb, const std::vector<Operand>& operands, const Sizes& expected, std::size_t typed) const {
    const Op& o = role.bodies[static_cast<std::size_t>(body)].ops[static_cast<std::size_t>(op)];
    if (operands.size() != expected.size()) {
      bad(-1, fmt::format("{} {} buffers; its kind {} {}", verb, operands.size(), verb, expected.size()));
      return;
    }
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Buffer& b = role.buffers[static_cast<std::size_t>(operands[i].buffer)];
      if (expected[i] != kAny && b.elements() != expected[i])
        bad(operands[i].buffer, fmt::format("{} '{}' with {} elements; its shape ({}) has {}", verb, b.name,
                                            b.elements(), shape_text(role, o), expected[i]));
      else if (i < typed && b.dtype != o.dtype)
        bad(operands[i].buffer,
            fmt::format("{} '{}' of {}; it moves {}", verb, b.name, name_of(b.dtype), name_of(o.dtype)));
    }
  }

  // Every piece of a strided copy lies within the buffer.
  void hold_pieces(const char* verb, const Operand& operand, const StridedCopy& c, const Strides& of) const {
    const Buffer& b = role.buffers[static_cast<std::size_t>(operand.buffer)];
    const std::int64_t along = (c.outer - 1) * of.outer, across = (c.inner - 1) * of.inner;
    const std::int64_t begin = of.first + std::min<std::int64_t>(along, 0) + std::min<std::int64_t>(across, 0);
    const std::int64_t end = of.first + std::max<std::int64_t>(along, 0) + std::max<std::int64_t>(across, 0) + c.cols;
    if (begin < 0 || end > b.elements())
      bad(operand.buffer,
          fmt::format("{} elements {} to {} of '{}', which has {}", verb, begin, end, b.name, b.elements()));
  }
};

}  // namespace

void check_operands(const Program& program, RoleId role_id, ViolationList& list) {
  const Role& role = program.roles[static_cast<std::size_t>(role_id)];
  for (BodyId b = 0; b < static_cast<BodyId>(role.bodies.size()); ++b) {
    const auto& ops = role.bodies[static_cast<std::size_t>(b)].ops;
    for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
      const Op& op = ops[static_cast<std::size_t>(i)];
      const Expected expected = std::visit(ExpectedOf{op}, op.shape);
      const Site site{role, b, i, list};
      const auto* collective = std::get_if<Collective>(&op.shape);
      const std::size_t typed = !is_transfer(op) ? 0 : collective != nullptr ? 1 : op.reads.size() + op.writes.size();
      site.compare("reads", op.reads, expected.reads, typed);
      site.compare("writes", op.writes, expected.writes, typed);
      if (const auto* c = std::get_if<StridedCopy>(&op.shape); c && op.reads.size() == 1 && op.writes.size() == 1) {
        site.hold_pieces("reads", op.reads[0], *c, c->from);
        site.hold_pieces("writes", op.writes[0], *c, c->to);
      }
      if (const Collective* c = collective) {
        const Group& group = program.groups[static_cast<std::size_t>(c->group)];
        const auto& only = group.pipeline_only;
        if (!only.empty() && std::find(only.begin(), only.end(), role.pipeline) == only.end())
          site.bad(-1, fmt::format("is on group {}, which this role is not in", group.name));
      }
    }
  }
}

}  // namespace rehearse::program
