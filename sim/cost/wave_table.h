// Measured products of a GPU, by exact shape, and what they say about shapes on a line between two of them: all sizes
// but one equal. Along M or N a product takes whole waves of tiles,
//   w = ceil(ceil(M / tile_m) * ceil(N / tile_n) * split / slots),   T = t0 + w * c,
// so time goes step-wise in w between two points of one tile and split, never linearly across a step; where the two
// points were run with different tiles, each continues at its own cost a wave and the faster is taken, within what the
// two took. Along K, T is linear (WaveTune, arXiv 2604.10187; NeuSight, arXiv 2407.13853). slots, the tiles that run at
// once, are those of the waves that the library reported, else the multiprocessors. Leaves out: shapes off every line.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/cost/measured_device.h"

namespace rehearse::cost {

class WaveTable {
 public:
  // `launch`: the part of a product's time that does not grow with waves, where one point alone must tell.
  // `sustained`: burst / long-run time of products for which only the burst was measured. Later points replace earlier
  // ones of the same key; held-out points are left out.
  WaveTable(const std::vector<ProductPoint>& points, int sms, double launch, double sustained);

  struct Answer {
    double seconds = 0;  // in a long run
    Coverage coverage = Coverage::exact;
  };
  std::optional<Answer> find(const ProductKey& key) const;
  bool empty() const { return points_.empty(); }
  // predicted / measured of every point that others enclose, predicted without it: by key order.
  std::vector<double> leave_one_out() const;

 private:
  enum Dimension { kM, kN, kK };
  struct Entry {
    ProductPoint point;
    double seconds = 0;
  };
  using Line = std::map<std::int64_t, Entry>;  // by the size that varies
  const Line* line(const ProductKey& key, Dimension d) const;
  std::optional<double> between(const ProductKey& key, Dimension d) const;
  std::optional<double> interpolate(const ProductKey& key) const;
  double waves(const ProductPoint& like, const ProductKey& key) const;
  double stepwise(const Entry& low, const Entry& high, const ProductKey& key, double share) const;

  int sms_;
  double launch_;
  std::map<ProductKey, Entry> points_;
  std::array<std::map<ProductKey, Line>, 3> lines_;  // keyed with the varying size 0
};

}  // namespace rehearse::cost
