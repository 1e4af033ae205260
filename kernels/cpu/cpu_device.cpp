// What the typed calls share: widening, rounding, and the calls that do more than that (casts, optimizer, embeddings,
// the loss scale). The others are in cpu_device_calls.cpp.
#include "kernels/cpu/cpu_device.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/half_convert.h"
#include "sim/base/check.h"
#include "sim/base/moment_codes.h"

namespace rehearse::kernels::cpu {

float* CpuKernels::scratch(int worker, std::int64_t n) {
  auto& memory = scratch_[static_cast<std::size_t>(worker)];
  if (memory.size() < static_cast<std::size_t>(n)) memory.resize(static_cast<std::size_t>(n));
  return memory.data();
}

float* CpuDevice::scratch(std::size_t operand, std::int64_t n) {
  REHEARSE_CHECK(operand < kOperands, "more than {} operands", kOperands);
  auto& memory = scratch_[operand];
  if (memory.size() < static_cast<std::size_t>(n)) {
    memory = {};  // not both at once
    memory.resize(static_cast<std::size_t>(n));
  }
  return memory.data();
}

void CpuDevice::convert(std::int64_t n, In x, Out y) {
  REHEARSE_CHECK(x.type == y.type || (!is_narrow(x.type) && !is_narrow(y.type)), "{} as {} without a scale",
                 name_of(x.type), name_of(y.type));
  kernels_.parallel(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    const In source = from(x, begin);
    const Out target = from(y, begin);
    if (source.type == target.type) {
      std::memcpy(target.data, source.data, static_cast<std::size_t>((end - begin) * size_of(source.type)));
    } else if (target.type == DType::f32) {
      widen(source.type, source.data, end - begin, static_cast<float*>(target.data));
    } else if (source.type == DType::f32) {
      narrow(target.type, static_cast<const float*>(source.data), end - begin, target.data);
    } else {
      std::array<float, 512> block;
      for (std::int64_t i = 0; i < end - begin; i += 512) {
        const std::int64_t count = std::min<std::int64_t>(512, end - begin - i);
        widen(source.type, from(source, i).data, count, block.data());
        narrow(target.type, block.data(), count, from(target, i).data);
      }
    }
  });
}

const float* Widened::read(In x, std::int64_t n) {
  if (!x || fp32(x)) return static_cast<const float*>(x.data);
  float* copy = device_.scratch(operands_++, n);
  if (x.layout) {
    REHEARSE_CHECK(n == x.layout->rows * x.layout->cols, "{} elements of an 8-bit copy of {} x {}", n, x.layout->rows,
                   x.layout->cols);
    device_.kernels_.fp8_widen(*x.layout, x.type, static_cast<const std::uint8_t*>(x.data), copy);
    return copy;
  }
  device_.convert(n, x, copy);
  return copy;
}
float* Widened::write(Out y, std::int64_t n) {
  if (!y || fp32(y)) return static_cast<float*>(y.data);
  float* copy = device_.scratch(operands_++, n);
  written_[writes_++] = {copy, y, n};
  return copy;
}
float* Widened::update(Out y, std::int64_t n) {
  float* copy = write(y, n);
  if (y && !fp32(y)) device_.convert(n, y, copy);
  return copy;
}
Widened::~Widened() {
  for (std::size_t i = 0; i < writes_; ++i) device_.convert(written_[i].n, written_[i].from, written_[i].to);
}

void CpuDevice::copy(std::int64_t n, In x, Out y) {
  if (fp32(x) && fp32(y)) return kernels_.copy(n, static_cast<const float*>(x.data), static_cast<float*>(y.data));
  convert(n, x, y);
}

void CpuDevice::copy_strided(const StridedCopy& s, In x, Out y) {
  REHEARSE_CHECK(x.type == y.type, "a strided copy from {} to {}", name_of(x.type), name_of(y.type));
  const std::int64_t size = size_of(x.type), pieces = s.outer * s.inner;
  const auto* from = static_cast<const std::byte*>(x.data);
  auto* to = static_cast<std::byte*>(y.data);
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, s.cols));
  kernels_.parallel(pieces, grain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t i = p / s.inner, j = p % s.inner;
      std::memcpy(to + (s.to.first + i * s.to.outer + j * s.to.inner) * size,
                  from + (s.from.first + i * s.from.outer + j * s.from.inner) * size,
                  static_cast<std::size_t>(s.cols * size));
    }
  });
}

void CpuDevice::fill(std::int64_t n, float value, Out y) {
  if (size_of(y.type) == 1 || y.type == DType::i32) {  // masks, codes, places
    REHEARSE_CHECK(value == 0, "a fill of {} with {}, expected 0", name_of(y.type), value);
    std::memset(y.data, 0, static_cast<std::size_t>(n * size_of(y.type)));
    return;
  }
  if (fp32(y)) return kernels_.fill(n, value, static_cast<float*>(y.data));
  const std::uint16_t half = y.type == DType::bf16 ? bf16_of_float(value) : f16_of_float(value);
  kernels_.parallel(n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    std::fill(static_cast<std::uint16_t*>(y.data) + begin, static_cast<std::uint16_t*>(y.data) + end, half);
  });
}

namespace {

// The rows of [first_row, first_row + rows) that `ids` name, ascending; each id's place among them, or -1.
void rows_used(std::int64_t tokens, std::int64_t rows, std::int64_t first_row, const std::int32_t* ids,
               std::vector<std::int32_t>& used, std::vector<std::int32_t>& places) {
  const auto inside = [=](std::int32_t id) { return id >= first_row && id < first_row + rows; };
  used.clear();
  for (std::int64_t t = 0; t < tokens; ++t)
    if (inside(ids[t])) used.push_back(static_cast<std::int32_t>(ids[t] - first_row));
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  places.assign(static_cast<std::size_t>(tokens), -1);
  for (std::int64_t t = 0; t < tokens; ++t)
    if (inside(ids[t]))
      places[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(
          std::lower_bound(used.begin(), used.end(), static_cast<std::int32_t>(ids[t] - first_row)) - used.begin());
}

}  // namespace

void CpuDevice::embedding_forward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                                  const std::int32_t* ids, In table, Out y) {
  Widened w(*this);
  if (fp32(table))
    return kernels_.embedding_forward(tokens, rows, cols, first_row, ids, w.read(table, 0), w.write(y, tokens * cols));
  rows_used(tokens, rows, first_row, ids, rows_, row_ids_);
  const auto used = static_cast<std::int64_t>(rows_.size());
  float* part = scratch(kOperands - 1, used * cols);
  for (std::int64_t i = 0; i < used; ++i)
    widen(table.type, from(table, rows_[static_cast<std::size_t>(i)] * cols).data, cols, part + i * cols);
  kernels_.embedding_forward(tokens, used, cols, 0, row_ids_.data(), part, w.write(y, tokens * cols));
}

void CpuDevice::embedding_backward(std::int64_t tokens, std::int64_t rows, std::int64_t cols, std::int64_t first_row,
                                   In dy, const std::int32_t* ids, Out d_table) {
  Widened w(*this);
  const float* d = w.read(dy, tokens * cols);
  if (fp32(d_table))
    return kernels_.embedding_backward(tokens, rows, cols, first_row, d, ids, static_cast<float*>(d_table.data));
  rows_used(tokens, rows, first_row, ids, rows_, row_ids_);
  const auto used = static_cast<std::int64_t>(rows_.size());
  float* part = scratch(kOperands - 1, used * cols);
  const auto row = [&](std::int64_t i) { return from(d_table, rows_[static_cast<std::size_t>(i)] * cols).data; };
  for (std::int64_t i = 0; i < used; ++i) widen(d_table.type, row(i), cols, part + i * cols);
  kernels_.embedding_backward(tokens, used, cols, 0, d, row_ids_.data(), part);
  for (std::int64_t i = 0; i < used; ++i) narrow(d_table.type, part + i * cols, cols, row(i));
}

void CpuDevice::adamw(std::int64_t n, const AdamW& o, In grad, const float* coefficient, Out param, float* master,
                      Out exp_avg, Out exp_avg_sq) {
  const float factor = coefficient ? *coefficient : 1.0F;
  if (std::isnan(factor)) return;
  in_pieces(n, fp32(grad) && fp32(param), [&](std::int64_t begin, std::int64_t count) {
    Widened w(*this);
    float* p = master ? master + begin : w.update(from(param, begin), count);
    AdamW part = o;
    if (part.exp_avg_largest) part.exp_avg_largest += begin / kMomentBlock;
    if (part.exp_avg_sq_largest) part.exp_avg_sq_largest += begin / kMomentBlock;
    kernels_.adamw(count, part, w.read(from(grad, begin), count), factor, p, from(exp_avg, begin),
                   from(exp_avg_sq, begin));
    if (master) convert(count, p, from(param, begin));
  });
}

void CpuDevice::sgd(std::int64_t n, const Sgd& o, In grad, const float* coefficient, Out param, float* master,
                    Out momentum) {
  const float factor = coefficient ? *coefficient : 1.0F;
  if (std::isnan(factor)) return;
  in_pieces(n, fp32(grad) && fp32(param), [&](std::int64_t begin, std::int64_t count) {
    Widened w(*this);
    float* p = master ? master + begin : w.update(from(param, begin), count);
    Sgd part = o;
    if (part.momentum_largest) part.momentum_largest += begin / kMomentBlock;
    kernels_.sgd(count, part, w.read(from(grad, begin), count), factor, p, from(momentum, begin));
    if (master) convert(count, p, from(param, begin));
  });
}

void CpuDevice::adafactor(const Adafactor& o, In grad, const float* coefficient, Out param, float* master, float* row,
                          float* col) {
  const float factor = coefficient ? *coefficient : 1.0F;
  if (std::isnan(factor)) return;
  const std::int64_t n = o.rows > 0 ? o.rows * o.cols : o.cols;
  Widened w(*this);
  float* p = master ? master : w.update(param, n);
  kernels_.adafactor(o, w.read(grad, n), factor, p, row, col);
  if (master) convert(n, p, param);
}

void CpuDevice::muon(const Muon& o, In grad, const float* coefficient, Out param, float* master, float* momentum) {
  const float factor = coefficient ? *coefficient : 1.0F;
  if (std::isnan(factor)) return;
  Widened w(*this);
  float* p = master ? master : w.update(param, o.elements);
  kernels_.muon(o, w.read(grad, o.elements), factor, p, momentum);
  if (master) convert(o.elements, p, param);
}

void CpuDevice::muon_momentum(const Muon& o, In grad, const float* coefficient, float* momentum, Out u) {
  const float factor = coefficient ? *coefficient : 1.0F;
  Widened w(*this);
  float* all = w.write(u, o.elements);
  if (std::isnan(factor))
    std::fill_n(all, o.elements, factor);  // which muon_update sees
  else
    kernels_.muon_momentum(o, w.read(grad, o.elements), factor, momentum, all);
}

void CpuDevice::muon_update(const Muon& o, In u, Out param, float* master) {
  Widened w(*this);
  float* p = master ? master : w.update(param, o.elements);
  kernels_.muon_update(o, w.read(u, o.parts * o.elements), p);
  if (master) convert(o.elements, p, param);
}

void CpuDevice::muon_orthogonal(const Muon& o, In u, Out x) {
  Widened w(*this);
  const float* all = w.read(u, o.parts * o.elements);
  kernels_.muon_orthogonal(o, all, w.update(x, o.elements));
}

void CpuDevice::muon_apply(const Muon& o, In x, const float* coefficient, Out param, float* master) {
  if (coefficient && std::isnan(*coefficient)) return;
  Widened w(*this);
  float* p = master ? master : w.update(param, o.elements);
  kernels_.muon_apply(o, w.read(x, o.elements), p);
  if (master) convert(o.elements, p, param);
}

void CpuDevice::outer_mean(std::int64_t n, std::int64_t workers, const float* sum, Out param, float* master) {
  Widened w(*this);
  float* const value = master ? master : w.write(param, n);
  kernels_.outer_mean(n, workers, sum, value);
  if (master) convert(n, value, param);
}

void CpuDevice::outer_difference(std::int64_t n, const float* value, const float* outer, float* difference) {
  kernels_.outer_difference(n, value, outer, difference);
}

void CpuDevice::outer_update(std::int64_t n, const Outer& o, const float* sum, float* outer, float* momentum, Out param,
                             float* master) {
  Widened w(*this);
  float* const value = master ? master : w.write(param, n);
  kernels_.outer_update(n, o, sum, outer, momentum, value);
  if (master) convert(n, value, param);
}

void CpuDevice::compress(const GradientCode& code, const GradientDraw& draw, In x, float* residual,
                         std::uint8_t* packed) {
  kernels_.compress(code, draw, Widened(*this).read(x, code.elements), residual, packed);
}

void CpuDevice::compress_corrected(const GradientCode& code, const GradientDraw& draw, double mu, In x,
                                   const float* coefficient, float* momentum, float* residual, std::uint8_t* packed) {
  kernels_.compress_corrected(code, draw, static_cast<float>(mu), Widened(*this).read(x, code.elements),
                              coefficient ? *coefficient : 1.0F, momentum, residual, packed);
}

void CpuDevice::orthogonalise(std::int64_t rows, std::int64_t rank, double epsilon, float* x) {
  kernels_.orthogonalise(rows, rank, epsilon, x);
}

void CpuDevice::keep_rest(std::int64_t n, std::int64_t members, std::span<const Range> rest, const float* gradients,
                          float* residual) {
  kernels_.keep_rest(n, members, rest, gradients, residual);
}

void CpuDevice::decompress(const GradientCode& code, const GradientDraw& draw, std::int64_t members,
                           const std::uint8_t* packed, Out x) {
  Widened w(*this);
  kernels_.decompress(code, draw, members, packed, w.write(x, code.elements));
}

void CpuDevice::sum_squares(std::int64_t n, In x, float* sum) {
  double total = 0;
  in_pieces(n, fp32(x), [&](std::int64_t begin, std::int64_t count) {
    total += kernels_.sum_squares(count, Widened(*this).read(from(x, begin), count));
  });
  *sum = static_cast<float>(static_cast<double>(*sum) + total);
}

void CpuDevice::count_targets(std::int64_t n, const std::int32_t* targets, float* counted) {
  *counted += static_cast<float>(std::count_if(targets, targets + n, [](std::int32_t t) { return t >= 0; }));
}

void CpuDevice::mean_of_counted(const float* counted, float* loss) {
  *loss = *counted > 0 ? *loss / *counted : 0;
}

void CpuDevice::clip_coefficient(double max_norm, const float* sum, const float* loss_scale, float* coefficient) {
  const double scale = loss_scale ? static_cast<double>(*loss_scale) : 1.0;
  const double norm = std::sqrt(static_cast<double>(*sum)) / scale;
  if (!std::isfinite(*sum)) {
    *coefficient = std::numeric_limits<float>::quiet_NaN();
  } else if (scale == 0) {
    *coefficient = 0;
  } else {
    *coefficient = static_cast<float>((max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0) / scale);
  }
}

void CpuDevice::update_loss_scale(const LossScaleRule& rule, const float* coefficient, float* state) {
  if (std::isnan(*coefficient)) {
    state[0] *= rule.backoff;
    state[1] = 0;
  } else if (state[1] += 1; state[1] >= static_cast<float>(rule.interval)) {
    state[0] *= rule.growth;
    state[1] = 0;
  }
}

std::unique_ptr<Device> make_unchecked(int threads) {
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace rehearse::kernels::cpu
