// Groups of rows, experts', have a call each: a group's copy by columns lies behind that of the one before.
#include "execute/rank/fp8_call.h"

#include "sim/base/check.h"

namespace rehearse::execute {
namespace {

using kernels::Fp8Layout;
using kernels::In;
using kernels::Out;
using program::ElementwiseFn;

float* fp32(const Out& operand) {
  REHEARSE_CHECK(operand.type == DType::f32, "an operand of {} where fp32 is needed", name_of(operand.type));
  return static_cast<float*>(operand.data);
}

In at(const Out& of, std::int64_t byte, const Fp8Layout* layout = nullptr) {
  return {static_cast<const std::byte*>(of.data) + byte, of.type, layout};
}
Out at_out(const Out& of, std::int64_t byte) {
  return of ? Out(static_cast<std::byte*>(of.data) + byte, of.type) : of;
}

// Rows of a group, and where they and their copies begin, in bytes.
struct Group {
  std::int64_t rows = 0, first = 0, row_copy = 0, column_copy = 0;
};

// body(group) of `rows` rows in `groups`, which have as many each, or those that `loads` says.
template <class Body>
void over_groups(const plan::Training& t, std::int64_t rows, std::int64_t cols, std::int64_t groups, const float* loads,
                 const Body& body) {
  Group g;
  for (std::int64_t i = 0; i < groups; ++i) {
    g.rows = loads != nullptr ? static_cast<std::int64_t>(loads[i]) : rows / groups;
    REHEARSE_CHECK(g.first + g.rows <= rows, "{} rows of {} groups", rows, groups);
    body(i, g);
    g.first += g.rows;
    g.row_copy += fp8_layout(t, g.rows, cols, false).bytes();
    g.column_copy += fp8_layout(t, g.rows, cols, true).bytes();
  }
}

std::int64_t rows_of_all(const float* loads, std::int64_t groups) {
  double rows = 0;
  for (std::int64_t i = 0; i < groups; ++i) rows += static_cast<double>(loads[i]);
  return static_cast<std::int64_t>(rows);
}

// Copies are written first, then what delayed scaling records, then the scale.
void cast(const program::Elementwise& e, std::span<const Out> reads, std::span<const Out> writes,
          const CallContext& c) {
  REHEARSE_CHECK(e.cols > 0, "a cast that was lowered to be simulated");
  const plan::Training& t = c.scenario.training;
  const bool column = e.fn != ElementwiseFn::fp8_cast;
  const bool both = column && writes.size() > 1 && is_narrow(writes[1].type);
  const std::size_t copies = both ? 2 : 1;
  const Out row = both || !column ? writes[0] : Out(), by_column = column ? writes[copies - 1] : Out();
  kernels::Fp8Scale scale;
  if (t.four_bits() || (t.fp8_block() == 0 && !t.fp8_rows())) {
    scale.largest = fp32(reads[1]);
    scale.inverse = fp32(writes.back());
    if (writes.size() == copies + 2) scale.amax = fp32(writes[copies]);
  }
  const float* loads = e.counted ? fp32(reads.back()) : nullptr;
  if (e.each_column) scale.largest = fp32(reads[1]);
  over_groups(t, e.elements / e.cols, e.cols, e.groups, loads, [&](std::int64_t, const Group& g) {
    Fp8Layout layout = fp8_layout(t, g.rows, e.cols, e.each_column);
    layout.square = e.square && (t.four_bits() || t.fp8_recipe == plan::Fp8Recipe::blockwise);
    layout.at_random = e.at_random;
    if (e.at_random) layout.draw = static_cast<std::uint64_t>(t.seed) << 32 ^ static_cast<std::uint64_t>(c.step->step);
    c.device.fp8_cast(layout, at(reads[0], g.first * e.cols * size_of(reads[0].type)), scale, at_out(row, g.row_copy),
                      at_out(by_column, g.column_copy));
  });
}

// What a copy by rows gives by columns: its transpose, or where blocks have scales a cast of what it stands for.
void turn(const program::Elementwise& e, std::span<const Out> reads, std::span<const Out> writes,
          const CallContext& c) {
  REHEARSE_CHECK(e.cols > 0, "a transpose that was lowered to be simulated");
  const plan::Training& t = c.scenario.training;
  const std::int64_t rows = e.elements / fp8_layout(t, 1, e.cols, false).bytes();
  const float* loads = e.counted ? fp32(reads.back()) : nullptr;
  over_groups(t, rows, e.cols, e.groups, loads, [&](std::int64_t, const Group& g) {
    const In from = at(reads[0], g.row_copy);
    const Out to = at_out(writes[0], g.column_copy);
    if (t.fp8_block() == 0) return c.device.fp8_transpose(g.rows, e.cols, from, to);
    c.device.fp8_recast(fp8_layout(t, g.rows, e.cols, false), from, to);
  });
}

}  // namespace

Fp8Layout fp8_layout(const plan::Training& t, std::int64_t rows, std::int64_t cols, bool columns) {
  Fp8Layout l;
  l.rows = rows, l.cols = cols;
  if (t.four_bits()) {
    l.block = 16, l.packed = 2, l.columns = columns;
    return l;
  }
  l.block = t.fp8_rows() ? (columns ? rows : cols) : t.fp8_block();
  l.powers = t.fp8_recipe == plan::Fp8Recipe::mxfp8;
  l.columns = columns && (l.block > 0 || t.fp8_transposes);
  return l;
}

void call_fp8(const program::Elementwise& e, std::span<const Out> reads, std::span<const Out> writes,
              const CallContext& c) {
  switch (e.fn) {
    case ElementwiseFn::fp8_amax: {
      if (e.each_column) return c.device.fp8_column_amax(e.elements / e.cols, e.cols, reads[0], fp32(writes[0]));
      const std::int64_t n = e.counted ? rows_of_all(fp32(reads.back()), e.groups) * e.cols : e.elements;
      return c.device.fp8_amax(n, reads[0], fp32(writes[0]));
    }
    case ElementwiseFn::fp8_transpose:
      return turn(e, reads, writes, c);
    case ElementwiseFn::fp8_widen:
      return c.device.fp8_widen(fp8_layout(c.scenario.training, e.elements / e.cols, e.cols, false), reads[0],
                                writes[0]);
    case ElementwiseFn::fp8_scale_update:
      REHEARSE_CHECK(writes.size() >= 3, "scales without a history: lowered to be simulated");
      if (writes.size() == 4) c.device.copy(e.elements, reads[2], writes[3]);
      return c.device.fp8_update(e.elements, program::kFp8History, fp32(writes[0]), fp32(writes[1]), fp32(writes[2]));
    default:
      return cast(e, reads, writes, c);
  }
}

void call_fp8(const program::GroupedGemm& p, std::span<const Out> reads, std::span<const Out> writes,
              const CallContext& c) {
  using program::GroupedPart;
  const plan::Training& t = c.scenario.training;
  const float* loads = p.counted ? fp32(reads[2]) : nullptr;
  const std::int64_t rows = std::max(p.rows, p.room), out_size = size_of(writes[0].type);
  std::int64_t column_a = 0, column_b = 0;  // of operands by columns, whose groups have copies of their own
  over_groups(t, rows, p.k, p.groups, loads, [&](std::int64_t i, const Group& g) {
    const bool weight = p.part == GroupedPart::backward_weight, forward = p.part == GroupedPart::forward;
    Fp8Layout a = fp8_layout(t, g.rows, weight || !forward ? p.n : p.k, weight);
    Fp8Layout b = weight ? fp8_layout(t, g.rows, p.k, true) : fp8_layout(t, p.n, p.k, !forward);
    if (a.block == 0) a.inverse = fp32(reads[reads.size() - 2]), b.inverse = fp32(reads.back());
    const std::int64_t row_of_a = fp8_layout(t, 1, a.cols, false).bytes();
    const In from_a = at(reads[0], weight ? column_a : g.first * row_of_a, &a);
    const In from_b = at(reads[1], weight ? column_b : i * b.bytes(), &b);
    column_a += a.bytes(), column_b += b.bytes();
    if (weight)
      return c.device.gemm({p.n, p.k, g.rows, true, false, p.accumulate}, from_a, from_b, nullptr,
                           at_out(writes[0], i * p.n * p.k * out_size));
    if (g.rows == 0) return;
    const std::int64_t n = forward ? p.n : p.k;
    c.device.gemm({g.rows, n, forward ? p.k : p.n, false, forward}, from_a, from_b, nullptr,
                  at_out(writes[0], g.first * n * out_size));
  });
}

}  // namespace rehearse::execute
