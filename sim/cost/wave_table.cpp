#include "sim/cost/wave_table.h"

#include <algorithm>
#include <cmath>

namespace rehearse::cost {
namespace {

std::int64_t& size_of(ProductKey& key, int d) {
  return d == 0 ? key.m : d == 1 ? key.n : key.k;
}
std::int64_t size_of(const ProductKey& key, int d) {
  return d == 0 ? key.m : d == 1 ? key.n : key.k;
}
ProductKey without(ProductKey key, int d) {
  size_of(key, d) = 0;
  return key;
}

bool same_configuration(const ProductPoint& a, const ProductPoint& b) {
  return a.tile.m == b.tile.m && a.tile.n == b.tile.n && a.split == b.split && a.stages == b.stages;
}

double tiles_of(const ProductPoint& like, const ProductKey& key) {
  return std::ceil(static_cast<double>(key.m) / like.tile.m) * std::ceil(static_cast<double>(key.n) / like.tile.n) *
         like.split;
}

}  // namespace

WaveTable::WaveTable(const std::vector<ProductPoint>& points, int sms, double launch, double sustained)
    : sms_(sms), launch_(launch) {
  for (const ProductPoint& p : points)
    if (!p.held_out) points_[p.key] = {p, p.sustained > 0 ? p.sustained : p.seconds / sustained};
  for (const auto& [key, entry] : points_)
    for (const int d : {kM, kN, kK})
      lines_[static_cast<std::size_t>(d)][without(key, d)].emplace(size_of(key, d), entry);
}

std::optional<WaveTable::Answer> WaveTable::find(const ProductKey& key) const {
  if (const auto found = points_.find(key); found != points_.end())
    return Answer{found->second.seconds, Coverage::exact};
  const auto seconds = interpolate(key);
  if (!seconds) return std::nullopt;
  return Answer{*seconds, Coverage::interpolated};
}

// Along the line whose two neighbours are nearest to one another.
std::optional<double> WaveTable::interpolate(const ProductKey& key) const {
  std::optional<double> best;
  double least = INFINITY;
  for (const Dimension d : {kM, kN, kK}) {
    const Line* l = line(key, d);
    if (l == nullptr) continue;
    const auto above = l->upper_bound(size_of(key, d));
    const auto at_least = l->lower_bound(size_of(key, d));
    if (above == l->end() || at_least == l->begin()) continue;
    const double span = static_cast<double>(above->first) / static_cast<double>(std::prev(at_least)->first);
    if (span >= least) continue;
    least = span;
    best = between(key, d);
  }
  return best;
}

const WaveTable::Line* WaveTable::line(const ProductKey& key, Dimension d) const {
  const auto& lines = lines_[static_cast<std::size_t>(d)];
  const auto found = lines.find(without(key, d));
  return found == lines.end() ? nullptr : &found->second;
}

std::optional<double> WaveTable::between(const ProductKey& key, Dimension d) const {
  const Line& l = *line(key, d);
  const std::int64_t size = size_of(key, d);
  const Entry& high = l.upper_bound(size)->second;
  const Entry& low = std::prev(l.lower_bound(size))->second;
  const auto from = static_cast<double>(size_of(low.point.key, d)),
             to = static_cast<double>(size_of(high.point.key, d));
  const double share = (static_cast<double>(size) - from) / (to - from);
  if (d == kK || low.point.tile.m == 0 || high.point.tile.m == 0) return std::lerp(low.seconds, high.seconds, share);
  return stepwise(low, high, key, share);
}

// Whole waves that a product of this size takes with a point's tile and split.
double WaveTable::waves(const ProductPoint& like, const ProductKey& key) const {
  const double slots = like.waves > 0 ? std::max(1.0, tiles_of(like, like.key) / like.waves) : sms_;
  return std::ceil(tiles_of(like, key) / slots * (1 - 1e-9));
}

double WaveTable::stepwise(const Entry& low, const Entry& high, const ProductKey& key, double share) const {
  const double least = std::min(low.seconds, high.seconds), most = std::max(low.seconds, high.seconds);
  if (same_configuration(low.point, high.point)) {
    const double w0 = waves(low.point, low.point.key), w1 = waves(high.point, high.point.key);
    const double w = waves(low.point, key);
    if (w0 == w1) return std::lerp(low.seconds, high.seconds, share);
    return std::lerp(low.seconds, high.seconds, std::clamp((w - w0) / (w1 - w0), 0.0, 1.0));
  }
  const auto continued = [&](const Entry& e) {
    const double fixed = std::min(launch_, e.seconds / 2);
    return fixed + (e.seconds - fixed) * waves(e.point, key) / waves(e.point, e.point.key);
  };
  return std::clamp(std::min(continued(low), continued(high)), least, most);
}

std::vector<double> WaveTable::leave_one_out() const {
  std::vector<double> ratios;
  WaveTable others = *this;
  // One point at a time is taken off its lines.
  for (const auto& [key, entry] : points_) {
    for (const int d : {kM, kN, kK})
      others.lines_[static_cast<std::size_t>(d)].at(without(key, d)).erase(size_of(key, d));
    if (const auto seconds = others.interpolate(key)) ratios.push_back(*seconds / entry.seconds);
    for (const int d : {kM, kN, kK})
      others.lines_[static_cast<std::size_t>(d)].at(without(key, d)).emplace(size_of(key, d), entry);
  }
  return ratios;
}

}  // namespace rehearse::cost
