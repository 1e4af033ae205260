#include "sim/cost/shape_space.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace rehearse::cost {
namespace {

constexpr std::size_t kNearest = 6;
constexpr double kSameShape = 1e-6;  // octaves
constexpr double kMargin = 0.5;      // octaves outside the measured that still count as inside

}  // namespace

ShapeKey parse_shape(std::string_view text) {
  ShapeKey key;
  while (!text.empty()) {
    const std::string_view token = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), token.size() + 1));
    if (token.empty()) continue;
    const auto equals = token.find('=');
    double value = 0;
    if (equals == std::string_view::npos) {
      key.words.emplace(token);
      continue;
    }
    const std::string_view number = token.substr(equals + 1);
    std::from_chars(number.data(), number.data() + number.size(), value);
    if (value > 0) key.log2_numbers.emplace(token.substr(0, equals), std::log2(value));
  }
  return key;
}

// A number that only one of them has (a batch that is 1 elsewhere) counts from 1.
double distance(const ShapeKey& a, const ShapeKey& b) {
  double squares = 0;
  const auto value = [](const ShapeKey& key, const std::string& name) {
    const auto found = key.log2_numbers.find(name);
    return found == key.log2_numbers.end() ? 0.0 : found->second;
  };
  for (const auto& [name, log2] : a.log2_numbers) squares += std::pow(log2 - value(b, name), 2);
  for (const auto& [name, log2] : b.log2_numbers)
    if (!a.log2_numbers.contains(name)) squares += log2 * log2;
  for (const std::string& word : a.words) squares += b.words.contains(word) ? 0 : 1;
  for (const std::string& word : b.words) squares += a.words.contains(word) ? 0 : 1;
  return std::sqrt(squares);
}

void ShapeSpace::add(const std::string& shape, double ratio) {
  Point point{parse_shape(shape), std::log(ratio)};
  for (const auto& [name, log2] : point.shape.log2_numbers) {
    Extent& extent = extents_.try_emplace(name, Extent{log2, log2}).first->second;
    extent = {std::min(extent.low, log2), std::max(extent.high, log2)};
  }
  points_.push_back(std::move(point));
}

ShapeSpace::Answer ShapeSpace::at(const ShapeKey& shape, std::size_t left_out) const {
  std::vector<std::pair<double, std::size_t>> near;
  for (std::size_t i = 0; i < points_.size(); ++i)
    if (i != left_out) near.emplace_back(distance(shape, points_[i].shape), i);
  if (near.empty()) return {};
  const std::size_t count = std::min(kNearest, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(count), near.end());
  double sum = 0, weights = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double weight = 1 / (near[i].first * near[i].first + kSameShape);
    sum += weight * points_[near[i].second].log_ratio;
    weights += weight;
  }
  Answer answer{std::exp(sum / weights), true};
  for (const auto& [name, log2] : shape.log2_numbers) {
    const auto extent = extents_.find(name);
    answer.inside = answer.inside && extent != extents_.end() && log2 >= extent->second.low - kMargin &&
                    log2 <= extent->second.high + kMargin;
  }
  return answer;
}

void ShapeSpace::leave_one_out(std::size_t most, std::vector<double>& ratios) const {
  if (points_.size() < 2) return;
  const std::size_t stride = std::max<std::size_t>(1, points_.size() / most);
  for (std::size_t i = 0; i < points_.size(); i += stride)
    ratios.push_back(std::exp(points_[i].log_ratio) / at(points_[i].shape, i).ratio);
}

}  // namespace rehearse::cost
