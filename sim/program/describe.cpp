// Key=value texts of ops. Only what distinguishes two ops of one kind is given: a batch of one, or dimensions that
// follow from others, are left out.
#include "sim/program/describe.h"

#include <fmt/format.h>

#include "sim/base/half.h"

namespace rehearse::program {
namespace {

struct ShapeText {
  const Role& role;
  const Op& op;

  std::string operator()(const Gemm& g) const {
    std::string text = fmt::format("m={} n={} k={}", g.m, g.n, g.k);
    if (g.batch != 1) text += fmt::format(" batch={}", g.batch);
    if (g.transpose_a) text += " transpose_a";
    if (g.transpose_b) text += " transpose_b";
    if (g.bias) text += " bias";
    if (g.accumulate) text += " accumulate";
    if (g.epilogue != Epilogue::none) text += fmt::format(" {}", name_of(g.epilogue));
    if (g.row_scales) text += " row_scales";
    return text;
  }
  std::string operator()(const Attention& a) const {
    std::string text =
        fmt::format("micro_batch={} heads={} seq={} head_dim={}", a.micro_batch, a.heads, a.seq, a.head_dim);
    if (a.values() != a.head_dim) text += fmt::format(" value_dim={}", a.values());
    if (a.kv_heads != a.heads) text += fmt::format(" kv_heads={}", a.kv_heads);
    if (a.keys > 0) text += fmt::format(" keys={}{}", a.keys, a.merge ? " merge" : "");
    if (a.causal) text += " causal";
    if (a.window > 0) text += fmt::format(" window={}", a.window);
    if (a.document > 0) text += fmt::format(" {}={}", a.chunks ? "chunk" : "document", a.document);
    if (a.cached > 0) text += fmt::format(" cached={}", a.cached);
    if (a.unscaled) text += " unscaled";
    if (a.bias_buckets > 0) text += fmt::format(" bias={}/{}", a.bias_buckets, a.bias_distance);
    if (a.softcap > 0) text += fmt::format(" softcap={}", a.softcap);
    if (a.dropout > 0) text += fmt::format(" dropout={}", a.dropout);
    return text;
  }
  std::string operator()(const LatentHeads& l) const {
    return fmt::format("tokens={} heads={} nope={} rope={} value={}", l.tokens, l.heads, l.nope, l.rope, l.value);
  }
  std::string operator()(const StateSpace& s) const {
    return fmt::format("tokens={} sequences={} heads={} groups={} head_dim={} state={} chunk={}", s.tokens(),
                       s.micro_batch, s.heads, s.groups, s.head_dim, s.state, s.chunk);
  }
  std::string operator()(const Norm& n) const {
    return fmt::format("rows={} cols={}{}", n.rows, n.cols, n.add_residual ? " add_residual" : "");
  }
  std::string operator()(const HeadNorm& n) const {
    return fmt::format("rows={} kv_heads={} group={} head_dim={}", n.rows, n.kv_heads, n.group, n.head_dim);
  }
  std::string operator()(const Activation& a) const { return fmt::format("rows={} cols={}", a.rows, a.cols); }
  std::string operator()(const Elementwise& e) const {
    std::string text = fmt::format("elements={}", e.elements);
    if (e.cols > 0) text += fmt::format(" cols={}", e.cols);
    if (e.dropout > 0) text += fmt::format(" dropout={}", e.dropout);
    if (e.each_column) text += " each_column";
    return text;
  }
  std::string operator()(const StridedCopy& c) const {
    return fmt::format("outer={} inner={} cols={} from={}+{}+{} to={}+{}+{}", c.outer, c.inner, c.cols, c.from.first,
                       c.from.outer, c.from.inner, c.to.first, c.to.outer, c.to.inner);
  }
  std::string operator()(const Router& r) const {
    std::string text = fmt::format("tokens={} experts={} top_k={}", r.tokens, r.experts, r.top_k);
    if (r.capacity > 0) text += fmt::format(" capacity={}", r.capacity);
    if (r.sources > 0) text += fmt::format(" sources={} own={}", r.sources, r.own);
    return text;
  }
  std::string operator()(const Permute& p) const {
    return fmt::format("tokens={} top_k={} rows={} cols={}", p.tokens, p.top_k, p.rows, p.cols);
  }
  std::string operator()(const GroupedGemm& g) const {
    return fmt::format("rows={} n={} k={} groups={}{}{}{}{}", g.rows, g.n, g.k, g.groups,
                       g.accumulate ? " accumulate" : "", g.counted ? " counted" : "",
                       g.room > 0 ? fmt::format(" room={}", g.room) : "",
                       g.chosen > 0 ? fmt::format(" chosen={:.4g}", g.chosen) : "");
  }
  std::string operator()(const GroupedBias& g) const {
    return fmt::format("rows={} n={} groups={}{}{}", g.rows, g.n, g.groups, g.counted ? " counted" : "",
                       g.weighted ? " weighted" : "");
  }
  std::string operator()(const RowScale& r) const { return fmt::format("rows={} cols={}", r.rows, r.cols); }
  std::string operator()(const Embedding& e) const {
    return fmt::format("tokens={} rows={} cols={}", e.tokens, e.rows, e.cols);
  }
  std::string operator()(const EmbeddingBags& e) const {
    std::int64_t rows = 0, lookups = 0;
    for (const BagTable& t : e.tables) rows += t.rows, lookups += t.lookups;
    return fmt::format("batch={} tables={} rows={} lookups={} cols={}{}{}", e.slices * e.batch, e.tables.size(), rows,
                       lookups, e.cols, e.mean ? " mean" : "", e.adagrad ? " adagrad" : "");
  }
  std::string operator()(const Pairs& p) const {
    return fmt::format("batch={} vectors={} cols={}", p.batch, p.vectors, p.cols);
  }
  std::string operator()(const BinaryCrossEntropy& b) const { return fmt::format("elements={}", b.elements); }
  std::string operator()(const Lamb& l) const {
    return fmt::format("elements={} tensors={}{}", l.elements, l.tensors.size(), l.master ? " master" : "");
  }
  std::string operator()(const CrossEntropy& c) const { return fmt::format("rows={} cols={}", c.rows, c.cols); }
  std::string operator()(const MeanSquaredError& m) const { return fmt::format("elements={}", m.elements); }
  std::string operator()(const Optimizer& o) const {
    if (o.eight_bits) return fmt::format("elements={}{} int8_moments", o.elements, o.master ? " master" : "");
    // What is written behind the parameter and its fp32 copy are moments.
    const bool moments = op.writes.size() > (o.master ? 2 : 1);
    const bool halves = moments && is_half(role.buffers[static_cast<std::size_t>(op.writes.back().buffer)].dtype);
    return fmt::format("elements={}{}{}", o.elements, o.master ? " master" : "", halves ? " bf16_moments" : "");
  }
  std::string operator()(const Adafactor& a) const {
    return fmt::format("rows={} cols={}{}", a.rows, a.cols, a.master ? " master" : "");
  }
  std::string operator()(const AdafactorParts& a) const {
    return fmt::format("elements={} tensors={}{}", a.elements, a.tensors.size(), a.master ? " master" : "");
  }
  std::string operator()(const Muon& m) const {
    if (!m.multiplies()) return fmt::format("elements={}{}", m.elements, m.master ? " master" : "");
    return fmt::format("rows={} cols={}{}{}", m.rows, m.cols,
                       m.matrices > 1 ? fmt::format(" matrices={}", m.matrices) : "", m.master ? " master" : "");
  }
  std::string operator()(const Compress& c) const {
    static constexpr const char* kSent[] = {"", " largest", " random"};
    return fmt::format("elements={} kept={}{} bits={}{}{}{}{}", c.code.elements, c.code.kept,
                       kSent[static_cast<std::size_t>(c.code.sent)], c.code.bits,
                       c.code.quantised() ? fmt::format(" chunk={}", c.code.chunk) : "",
                       c.code.stochastic && !c.decompress ? " stochastic" : "",
                       c.corrected  ? " momentum"
                       : c.feedback ? " feedback"
                                    : "",
                       c.decompress ? fmt::format(" members={}", c.members) : "");
  }
  std::string operator()(const LowRank& l) const {
    if (l.part == LowRankPart::orthogonalise) return fmt::format("rows={} rank={}", l.rows, l.rank);
    if (l.part == LowRankPart::keep) return fmt::format("elements={}", l.elements);
    return fmt::format("elements={} parts={}", l.packed(), l.rest.size());
  }
  std::string operator()(const OuterStep& o) const {
    return fmt::format("elements={} workers={}{}", o.elements, o.workers, o.master ? " master" : "");
  }
  std::string operator()(const CountedTargets& c) const { return c.mean ? "" : fmt::format("rows={}", c.rows); }
  std::string operator()(const SumSquares& s) const { return fmt::format("elements={}", s.elements); }
  std::string operator()(const ClipCoefficient& c) const { return fmt::format("max_norm={}", c.max_norm); }
  std::string operator()(const UpdateLossScale& u) const { return fmt::format("interval={}", u.interval); }
  std::string operator()(const Conv2d& c) const {
    return fmt::format("batch={} c_in={} c_out={} height={} width={} kernel={} stride={} pad={}{}{}", c.batch, c.c_in,
                       c.c_out, c.height, c.width, c.kernel, c.stride, c.pad, c.bias ? "" : " no_bias",
                       c.groups > 1 ? fmt::format(" groups={}", c.groups) : "");
  }
  std::string operator()(const Pool2d& p) const {
    return fmt::format("batch={} channels={} height={} width={} window={}{}", p.batch, p.channels, p.height, p.width,
                       p.window, p.plain() ? "" : fmt::format(" stride={} pad={}", p.step(), p.pad));
  }
  std::string operator()(const AveragePool& p) const {
    return fmt::format("batch={} channels={} pixels={}", p.batch, p.channels, p.pixels);
  }
  std::string operator()(const ChannelScale& c) const {
    return fmt::format("batch={} channels={} pixels={}", c.batch, c.channels, c.pixels);
  }
  std::string operator()(const BatchNorm& n) const {
    return fmt::format("batch={} channels={} pixels={}", n.batch, n.channels, n.pixels);
  }
  std::string operator()(const Input& i) const {
    return fmt::format("elements={}", i.elements) + (i.bytes > 0 ? fmt::format(" bytes={}", i.bytes) : "");
  }
  std::string operator()(const Collective& c) const {
    return fmt::format("elements={} {}{}{}", c.elements, name_of(op.dtype), c.reduce == ReduceOp::max ? " max" : "",
                       !c.counted ? "" : fmt::format(" {} own={}", c.back ? "counted back" : "counted", c.own));
  }
  std::string operator()(const PointToPoint& p) const {
    std::string text;
    for (const Leg& leg : p.legs) {
      if (!text.empty()) text += ", ";
      text += fmt::format("{} {}{:+d} elements={} {}", leg.send ? "send" : "receive", name_of(leg.axis), leg.offset,
                          leg.elements, name_of(op.dtype));
    }
    return text;
  }
  std::string operator()(const HostSync&) const { return ""; }
};

}  // namespace

std::string shape_text(const Role& role, const Op& op) {
  return std::visit(ShapeText{role, op}, op.shape);
}

std::string slot_text(const Role& role, const Slot& slot) {
  const std::string& body = role.bodies[static_cast<std::size_t>(slot.body)].name;
  return slot.micro_batch < 0 ? body : fmt::format("{} micro-batch {}", body, slot.micro_batch);
}

std::string place_text(const Role& role, int slot, int op) {
  const Slot& s = role.slots[static_cast<std::size_t>(slot)];
  const Body& body = role.bodies[static_cast<std::size_t>(s.body)];
  return fmt::format("'{}' (slot {}: {})", body.ops[static_cast<std::size_t>(op)].name, slot, slot_text(role, s));
}

std::string rank_text(const Role& role, int rank) {
  return fmt::format("rank {} ({})", rank, role.name);
}

}  // namespace rehearse::program
