// Exact look-up and kriging of gemm_table.h. Neighbours are found by a scan: tables hold hundreds of points, and a scan
// of a thousand takes microseconds; equal distances are ordered by the points' order in the file.
#include "sim/cost/gemm_table.h"

#include <algorithm>
#include <cmath>
#include <mutex>

namespace rehearse::cost {
namespace {

// In octaves of m, n, k. Leave-one-out error on the A100 and H100 tables is flat within 0.2% around these values.
constexpr double kRange = 2, kMirrorDistance = 1, kSpare = 0.5;
constexpr double kNugget = 0.1;
constexpr int kNeighbours = 8;
constexpr double kSlack = 1 + 1e-9;  // rounding of a squared distance

std::array<double, 3> log2_of(const GemmShape& s) {
  return {std::log2(static_cast<double>(s.m)), std::log2(static_cast<double>(s.n)),
          std::log2(static_cast<double>(s.k))};
}

double squared_distance(const std::array<double, 3>& a, const std::array<double, 3>& b) {
  const double x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
  return x * x + y * y + z * z;
}
double distance(const std::array<double, 3>& a, const std::array<double, 3>& b) {
  return std::sqrt(squared_distance(a, b));
}

double covariance(double distance) {
  const double scaled = std::sqrt(3.0) * distance / kRange;
  return (1 + scaled) * std::exp(-scaled);
}

// Solves A x = b in place for a symmetric positive definite A of order n.
using Matrix = std::array<std::array<double, kNeighbours>, kNeighbours>;
void solve(Matrix& a, std::array<double, kNeighbours>& b, int n) {
  for (int i = 0; i < n; ++i) {
    for (int row = i + 1; row < n; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (int column = i; column < n; ++column) a[row][column] -= factor * a[i][column];
      b[row] -= factor * b[i];
    }
  }
  for (int i = n - 1; i >= 0; --i) {
    for (int column = i + 1; column < n; ++column) b[i] -= a[i][column] * b[column];
    b[i] /= a[i][i];
  }
}

}  // namespace

std::size_t GemmTable::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = 0;
  for (const std::int64_t value : {key.m, key.n, key.k})
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15ull;
  return static_cast<std::size_t>(hash ^ (hash >> 32));
}

GemmTable::GemmTable(GemmMachine machine, GemmConstants constants, const std::vector<GemmPoint>& points)
    : machine_(std::move(machine)), constants_(constants) {
  for (const GemmPoint& point : points) {
    const Key key{point.shape.m, point.shape.n, point.shape.k};
    const auto [place, is_new] = index_.try_emplace(key, static_cast<int>(points_.size()));
    if (is_new) {
      points_.push_back(point);
    } else {
      points_[static_cast<std::size_t>(place->second)] = point;
    }
  }
  low_.fill(INFINITY), high_.fill(-INFINITY);
  for (std::size_t i = 0; i < points_.size(); ++i) {
    residual_.push_back(std::log(points_[i].seconds / gemm_seconds(machine_, constants_, points_[i].shape)));
    const auto at = log2_of(points_[i].shape);
    places_.push_back({at, static_cast<int>(i), false});
    for (std::size_t d = 0; d < 3; ++d) low_[d] = std::min(low_[d], at[d]), high_[d] = std::max(high_[d], at[d]);
  }
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const auto at = places_[i].log2_shape;
    if (at[0] != at[1]) places_.push_back({{at[1], at[0], at[2]}, static_cast<int>(i), true});
  }
}

std::optional<double> GemmTable::exact_seconds(const GemmShape& shape) const {
  if (shape.batch != 1) return std::nullopt;
  const auto found = index_.find({shape.m, shape.n, shape.k});
  if (found == index_.end()) return std::nullopt;
  return points_[static_cast<std::size_t>(found->second)].seconds;
}

bool GemmTable::covers(const GemmShape& shape) const {
  if (empty() || shape.batch != 1) return false;
  const auto inside = [&](const std::array<double, 3>& at) {
    for (std::size_t d = 0; d < 3; ++d)
      if (at[d] < low_[d] - kSpare || at[d] > high_[d] + kSpare) return false;
    return true;
  };
  const auto at = log2_of(shape);
  return inside(at) || inside({at[1], at[0], at[2]});
}

double GemmTable::correction(const GemmShape& shape) const {
  const Key key{shape.m, shape.n, shape.k};
  {
    const std::shared_lock lock(known_->mutex);
    const auto found = known_->factors.find(key);
    if (found != known_->factors.end()) return found->second;
  }
  const double factor = correction(shape, -1);
  const std::unique_lock lock(known_->mutex);
  return known_->factors.emplace(key, factor).first->second;
}

double GemmTable::correction(const GemmShape& shape, int left_out) const {
  struct Near {
    double distance;
    int place;
    bool operator<(const Near& other) const {
      return distance != other.distance ? distance < other.distance : place < other.place;
    }
  };
  std::array<Near, kNeighbours> near;
  int count = 0;
  const auto at = log2_of(shape);
  double limit[2] = {INFINITY, INFINITY};  // squared distance to beat: points, mirror images
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    const double squared = squared_distance(at, place.log2_shape);
    if (squared > limit[place.mirrored] || place.point == left_out) continue;
    const Near candidate{std::sqrt(squared) + (place.mirrored ? kMirrorDistance : 0.0), static_cast<int>(i)};
    if (count == kNeighbours && !(candidate < near[kNeighbours - 1])) continue;
    int position = count < kNeighbours ? count++ : kNeighbours - 1;
    for (; position > 0 && candidate < near[position - 1]; --position) near[position] = near[position - 1];
    near[position] = candidate;
    if (count < kNeighbours) continue;
    const double worst = near[kNeighbours - 1].distance, mirrored = std::max(0.0, worst - kMirrorDistance);
    limit[0] = worst * worst * kSlack, limit[1] = mirrored * mirrored * kSlack;
  }
  Matrix a;
  std::array<double, kNeighbours> weights{};
  for (int i = 0; i < count; ++i) {
    const Place& p = places_[near[i].place];
    for (int j = 0; j < i; ++j) {
      const Place& q = places_[near[j].place];
      const double apart = p.mirrored != q.mirrored ? kMirrorDistance : 0.0;
      a[i][j] = a[j][i] = covariance(distance(p.log2_shape, q.log2_shape) + apart);
    }
    a[i][i] = 1 + kNugget;
    weights[i] = residual_[p.point];
  }
  solve(a, weights, count);
  double log_factor = 0;
  for (int i = 0; i < count; ++i) log_factor += weights[i] * covariance(near[i].distance);
  return std::exp(log_factor);
}

std::vector<double> GemmTable::leave_one_out() const {
  std::vector<double> ratios;
  ratios.reserve(points_.size());
  for (std::size_t i = 0; i < points_.size(); ++i)
    ratios.push_back(std::exp(residual_[i]) / correction(points_[i].shape, static_cast<int>(i)));
  return ratios;
}

}  // namespace rehearse::cost
