// See sparse_data.h.
#include "execute/sparse_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/random.h"

namespace rehearse::execute {
namespace {

using program::InputKind;

// What a key of the generator is for; mixed with the seed.
enum SparsePurpose : std::uint64_t { kRow = 201, kRowWeight, kDense, kDenseWeight, kScatter };

// What is looked up of an example, in turn: rows of tables, or tokens of one.
struct Lookup {
  std::int64_t rows = 0, count = 1;
};

class SparseData : public Data {
 public:
  SparseData(const model::Model& model, std::int64_t seed)
      : outputs_(model.outputs()),
        width_(model.tokens > 0 ? 0 : model.input().elements()),
        seed_(seed),
        loss_(model.loss) {
    if (model.tokens > 0) lookups_.push_back({model.layer_list.front().vocab, model.tokens});
    if (const model::Layer* tables = model::tables_of(model.layer_list))
      for (std::size_t f = 0; f < tables->rows.size(); ++f)
        lookups_.push_back({tables->rows[f], tables->lookups_of(f)});
    for (const Lookup& lookup : lookups_) per_example_ += lookup.count;
  }

  void load(InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements, void* out) override {
    const auto n = static_cast<std::int64_t>(numbers.size());
    const bool ids = kind == InputKind::sparse || kind == InputKind::tokens;
    const std::int64_t each = ids                         ? per_example_
                              : kind == InputKind::labels ? 1
                              : kind == InputKind::values ? outputs_
                                                          : width_;
    REHEARSE_CHECK(elements == n * each, "{} elements for {} examples of {}", elements, n, each);
    switch (kind) {
      case InputKind::sparse:
        return load_rows(numbers, static_cast<std::int32_t*>(out));
      case InputKind::tokens:
        return load_tokens(numbers, static_cast<std::int32_t*>(out));
      case InputKind::labels:
        for (std::int64_t i = 0; i < n; ++i)
          static_cast<std::int32_t*>(out)[i] = class_of(numbers[static_cast<std::size_t>(i)]);
        return;
      case InputKind::values:
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t k = 0; k < outputs_; ++k)
            static_cast<float*>(out)[i * outputs_ + k] = value_of(numbers[static_cast<std::size_t>(i)], k);
        return;
      default:
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < width_; ++j)
            static_cast<float*>(out)[i * width_ + j] =
                static_cast<float>(draw(kDense, j, numbers[static_cast<std::size_t>(i)]));
    }
  }

  std::int64_t examples() const override { return 0; }
  std::string description() const override {
    return fmt::format("made examples: {} rows looked up, {} numbers, {} output{}", per_example_, width_, outputs_,
                       outputs_ == 1 ? "" : "s");
  }

 private:
  // [feature][example, look-up].
  void load_rows(const std::vector<std::int64_t>& numbers, std::int32_t* to) const {
    std::int64_t first = 0;
    for (const Lookup& lookup : lookups_) {
      for (const std::int64_t number : numbers)
        for (std::int64_t i = 0; i < lookup.count; ++i) *to++ = row_of(number, first + i, lookup.rows);
      first += lookup.count;
    }
  }
  // [token, example].
  void load_tokens(const std::vector<std::int64_t>& numbers, std::int32_t* to) const {
    for (std::int64_t i = 0; i < lookups_.front().count; ++i)
      for (const std::int64_t number : numbers) *to++ = row_of(number, i, lookups_.front().rows);
  }
  // P(row) = log((row + 2) / (row + 1)) / log(rows + 1).
  std::int32_t row_of(std::int64_t number, std::int64_t lookup, std::int64_t rows) const {
    const double u = (draw(kRow, lookup, number) + 1) / 2;
    const double row = std::floor(std::exp(u * std::log(static_cast<double>(rows) + 1)) - 1);
    return static_cast<std::int32_t>(std::clamp<double>(row, 0, static_cast<double>(rows - 1)));
  }
  double score(std::int64_t number, std::int64_t k) const {
    double rows = 0, dense = 0;
    std::int64_t first = 0;
    for (std::size_t f = 0; f < lookups_.size(); ++f) {
      for (std::int64_t i = 0; i < lookups_[f].count; ++i)
        rows +=
            draw(kRowWeight, row_of(number, first + i, lookups_[f].rows), static_cast<std::int64_t>(f) * outputs_ + k);
      first += lookups_[f].count;
    }
    for (std::int64_t j = 0; j < width_; ++j) dense += draw(kDenseWeight, k * width_ + j, 0) * draw(kDense, j, number);
    const auto mean = [](double sum, std::int64_t terms) {
      return terms > 0 ? sum / std::sqrt(static_cast<double>(terms)) : 0;
    };
    return mean(rows, per_example_) + mean(dense, width_) + 0.1 * draw(kScatter, k, number);
  }
  float value_of(std::int64_t number, std::int64_t k) const {
    const double s = score(number, k);
    return loss_ == model::LossKind::binary_cross_entropy ? (s > 0 ? 1.0F : 0.0F) : static_cast<float>(s);
  }
  std::int32_t class_of(std::int64_t number) const {
    std::int64_t best = 0;
    double highest = score(number, 0);
    for (std::int64_t k = 1; k < outputs_; ++k)
      if (const double s = score(number, k); s > highest) highest = s, best = k;
    return static_cast<std::int32_t>(best);
  }
  // Uniform in [-1, 1).
  double draw(SparsePurpose purpose, std::int64_t low, std::int64_t high) const {
    const auto words = Philox::draw(mix_key(static_cast<std::uint64_t>(seed_), purpose),
                                    static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(high));
    return 2 * static_cast<double>(Philox::uniform(words[0])) - 1;
  }

  std::int64_t outputs_, width_, per_example_ = 0, seed_;
  model::LossKind loss_;
  std::vector<Lookup> lookups_;
};

}  // namespace

bool reads_sparse_data(const model::Model& model) {
  return model.tokens > 0 || model.loss == model::LossKind::binary_cross_entropy ||
         model::tables_of(model.layer_list) != nullptr;
}

std::unique_ptr<Data> make_sparse_data(const model::Model& model, std::int64_t seed) {
  return std::make_unique<SparseData>(model, seed);
}

}  // namespace rehearse::execute
