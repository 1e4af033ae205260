// Sparse features' look-ups and the updates of the rows that were looked up, products of pairs of vectors, and binary
// cross-entropy. Each table's rows are added to in the order of the ids, and sums are taken in double, so that no
// result depends on the number of threads.
#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/half_convert.h"

namespace rehearse::kernels::cpu {
namespace {

constexpr std::int64_t kPairGrain = 8;

// Elements of a row of any type, from and to fp32.
void read_row(const Out& table, std::int64_t row, std::int64_t cols, float* to) {
  const auto* bytes = static_cast<const std::byte*>(table.data) + row * cols * size_of(table.type);
  if (table.type == DType::f32)
    std::copy_n(reinterpret_cast<const float*>(bytes), cols, to);
  else
    widen(table.type, bytes, cols, to);
}
void write_row(const Out& table, std::int64_t row, std::int64_t cols, const float* from) {
  auto* bytes = static_cast<std::byte*>(table.data) + row * cols * size_of(table.type);
  if (table.type == DType::f32)
    std::copy_n(from, cols, reinterpret_cast<float*>(bytes));
  else
    narrow(table.type, from, cols, bytes);
}

double weight_of(const BagShape& s, const BagTable& table) {
  return s.mean ? 1 / static_cast<double>(table.lookups) : 1;
}

// Where a feature's ids and vectors are: of example b of slice s its first id, and its vector.
struct BagPlaces {
  std::int64_t first_id, ids_of_slice, first_vector, vectors_of_slice, lookups, batch;

  std::int64_t id(std::int64_t slice, std::int64_t b) const { return slice * ids_of_slice + first_id + b * lookups; }
  std::int64_t vector(std::int64_t slice, std::int64_t b) const { return slice * vectors_of_slice + first_vector + b; }
};

// each(table, places), for several features at once.
template <class Kernels, class Each>
void over_tables(Kernels& kernels, std::span<const BagTable> tables, const BagShape& s, const Each& each) {
  const auto n = static_cast<std::int64_t>(tables.size());
  std::vector<std::int64_t> first(tables.size() + 1, 0);
  for (std::size_t f = 0; f < tables.size(); ++f) first[f + 1] = first[f] + s.batch * tables[f].lookups;
  kernels.parallel(n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t f = begin; f < end; ++f) {
      const BagTable& table = tables[static_cast<std::size_t>(f)];
      each(table, BagPlaces{first[static_cast<std::size_t>(f)], first.back(), f * s.batch, n * s.batch, table.lookups,
                            s.batch});
    }
  });
}

// The sum of the gradients of each row that a feature's ids name.
std::map<std::int32_t, std::vector<double>> row_gradients(const BagShape& s, const BagTable& table, const float* dy,
                                                          const std::int32_t* ids, const BagPlaces& at) {
  std::map<std::int32_t, std::vector<double>> sums;
  const double weight = weight_of(s, table);
  for (std::int64_t slice = 0; slice < s.slices; ++slice)
    for (std::int64_t b = 0; b < s.batch; ++b) {
      const float* d = dy + at.vector(slice, b) * s.cols;
      for (std::int64_t k = 0; k < table.lookups; ++k) {
        std::vector<double>& sum =
            sums.try_emplace(ids[at.id(slice, b) + k], static_cast<std::size_t>(s.cols), 0.0).first->second;
        for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += weight * static_cast<double>(d[c]);
      }
    }
  return sums;
}

}  // namespace

void CpuDevice::embedding_bags_forward(const BagShape& s, std::span<const BagTable> tables, const std::int32_t* ids,
                                       Out y) {
  Widened w(*this);
  float* out = w.write(y, static_cast<std::int64_t>(tables.size()) * s.slices * s.batch * s.cols);
  over_tables(kernels_, tables, s, [&](const BagTable& table, const BagPlaces& at) {
    std::vector<float> row(static_cast<std::size_t>(s.cols));
    const auto weight = static_cast<float>(weight_of(s, table));
    for (std::int64_t i = 0; i < s.slices * s.batch; ++i) {
      const std::int64_t slice = i / s.batch, b = i % s.batch;
      float* to = out + at.vector(slice, b) * s.cols;
      std::fill_n(to, s.cols, 0.0F);
      for (std::int64_t k = 0; k < table.lookups; ++k) {
        read_row(table.values, ids[at.id(slice, b) + k], s.cols, row.data());
        for (std::int64_t c = 0; c < s.cols; ++c) to[c] += weight * row[static_cast<std::size_t>(c)];
      }
    }
  });
}

void CpuDevice::embedding_bags_backward(const BagShape& s, std::span<const BagTable> gradients, In dy,
                                        const std::int32_t* ids) {
  Widened w(*this);
  const float* d = w.read(dy, static_cast<std::int64_t>(gradients.size()) * s.slices * s.batch * s.cols);
  over_tables(kernels_, gradients, s, [&](const BagTable& table, const BagPlaces& at) {
    std::vector<float> row(static_cast<std::size_t>(s.cols));
    for (const auto& [id, sum] : row_gradients(s, table, d, ids, at)) {
      read_row(table.values, id, s.cols, row.data());
      for (std::size_t c = 0; c < row.size(); ++c) row[c] = static_cast<float>(static_cast<double>(row[c]) + sum[c]);
      write_row(table.values, id, s.cols, row.data());
    }
  });
}

void CpuDevice::embedding_bags_update(const BagShape& s, const SparseRule& rule, std::span<const BagTable> tables,
                                      In dy, const std::int32_t* ids) {
  Widened w(*this);
  const float* d = w.read(dy, static_cast<std::int64_t>(tables.size()) * s.slices * s.batch * s.cols);
  over_tables(kernels_, tables, s, [&](const BagTable& table, const BagPlaces& at) {
    std::vector<float> row(static_cast<std::size_t>(s.cols));
    for (const auto& [id, sum] : row_gradients(s, table, d, ids, at)) {
      double by = static_cast<double>(rule.step->lr);
      if (table.sums != nullptr) {
        double squares = 0;
        for (const double g : sum) squares += g * g;
        table.sums[id] =
            static_cast<float>(static_cast<double>(table.sums[id]) + squares / static_cast<double>(s.cols));
        by /= std::sqrt(static_cast<double>(table.sums[id])) + rule.eps;
      }
      read_row(table.values, id, s.cols, row.data());
      for (std::size_t c = 0; c < row.size(); ++c)
        row[c] = static_cast<float>(static_cast<double>(row[c]) - by * sum[c]);
      write_row(table.values, id, s.cols, row.data());
    }
  });
}

void CpuDevice::pairs_forward(const PairShape& s, In products, In x, Out y) {
  Widened w(*this);
  const float* p = w.read(products, s.batch * s.vectors * s.vectors);
  const float* first = w.read(x, s.batch * s.cols);
  float* out = w.write(y, s.batch * (s.cols + s.pairs()));
  kernels_.parallel(s.batch, kPairGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      float* to = std::copy_n(first + b * s.cols, s.cols, out + b * (s.cols + s.pairs()));
      for (std::int64_t i = 1; i < s.vectors; ++i) to = std::copy_n(p + (b * s.vectors + i) * s.vectors, i, to);
    }
  });
}

void CpuDevice::pairs_backward(const PairShape& s, In dy, Out d_products, Out dx) {
  Widened w(*this);
  const float* d = w.read(dy, s.batch * (s.cols + s.pairs()));
  float* p = w.write(d_products, s.batch * s.vectors * s.vectors);
  float* first = w.write(dx, s.batch * s.cols);
  kernels_.parallel(s.batch, kPairGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const float* from = d + b * (s.cols + s.pairs());
      std::copy_n(from, s.cols, first + b * s.cols);
      from += s.cols;
      float* to = p + b * s.vectors * s.vectors;
      for (std::int64_t i = 0; i < s.vectors; ++i) {
        to[i * s.vectors + i] = 0;
        for (std::int64_t j = 0; j < i; ++j) to[i * s.vectors + j] = to[j * s.vectors + i] = *from++;
      }
    }
  });
}

// log(1 + e^x) as max(x, 0) + log(1 + e^-|x|), which overflows nowhere.
void CpuDevice::bce_forward(std::int64_t n, double scale, In x, const float* target, float* loss) {
  Widened w(*this);
  const float* logits = w.read(x, n);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(logits[i]);
    sum += std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v))) - static_cast<double>(target[i]) * v;
  }
  *loss = static_cast<float>(static_cast<double>(*loss) + scale * sum);
}

void CpuDevice::bce_backward(std::int64_t n, double scale, const float* loss_scale, In x, const float* target, Out dx) {
  Widened w(*this);
  const float* logits = w.read(x, n);
  float* to = w.write(dx, n);
  const double by = loss_scale ? scale * static_cast<double>(*loss_scale) : scale;
  for (std::int64_t i = 0; i < n; ++i)
    to[i] =
        static_cast<float>(by * (1 / (1 + std::exp(-static_cast<double>(logits[i]))) - static_cast<double>(target[i])));
}

}  // namespace rehearse::kernels::cpu
