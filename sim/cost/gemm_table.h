// Measured matrix products, and what they say about shapes in between. Between points the model (gemm_model.h) supplies
// tiles and waves, and its logarithmic error is interpolated over (log m, log n, log k) by kriging from the nearest
// points: Matern-3/2 covariance with a nugget for the noise of measurements and of the library's choices. Each point
// also stands, at an added distance, for its mirror image (n, m, k): the same product, transposed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "sim/cost/gemm_model.h"

namespace rehearse::cost {

class GemmTable {
 public:
  // A later point of the same shape replaces the earlier one. Points have batch 1.
  GemmTable(GemmMachine machine, GemmConstants constants, const std::vector<GemmPoint>& points);

  bool empty() const { return points_.empty(); }
  std::size_t size() const { return points_.size(); }
  std::optional<double> exact_seconds(const GemmShape& shape) const;
  // The factor on the model's time for this shape; 1 far from all points. A model has few shapes, and its layers and
  // stages ask for each again and again, so what has been worked out is kept; any threads may ask.
  double correction(const GemmShape& shape) const;
  // Whether the shape or its mirror lies inside the box of the points (with half an octave to spare).
  bool covers(const GemmShape& shape) const;

  // measured / predicted of every point, predicted from all others.
  std::vector<double> leave_one_out() const;
  const std::vector<GemmPoint>& points() const { return points_; }

 private:
  struct Place {
    std::array<double, 3> log2_shape;
    int point;
    bool mirrored;
  };
  struct Key {
    std::int64_t m, n, k;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  struct Known {
    std::shared_mutex mutex;
    std::unordered_map<Key, double, KeyHash> factors;
  };
  double correction(const GemmShape& shape, int left_out) const;

  GemmMachine machine_;
  GemmConstants constants_;
  std::vector<GemmPoint> points_;
  std::vector<double> residual_;  // log(measured / model)
  std::vector<Place> places_;     // each point, then each mirror image
  std::unordered_map<Key, int, KeyHash> index_;
  std::array<double, 3> low_{}, high_{};
  std::unique_ptr<Known> known_ = std::make_unique<Known>();
};

}  // namespace rehearse::cost
