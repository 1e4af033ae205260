// The arrangement of ranks: rank <-> coordinates on the axes, the members of groups, the peers of point-to-point legs.
// rank = sum over axes in rank order (fastest first) of coordinate * stride.
#pragma once

#include <array>
#include <vector>

#include "sim/base/axis.h"

namespace rehearse::plan {

class RankGrid {
 public:
  // sizes of the axes that a plan orders, indexed by Axis; every size >= 1, `replicas` (Axis::replica) too.
  RankGrid(const std::array<int, std::tuple_size_v<AxisOrder>>& sizes, const AxisOrder& order, int replicas = 1);

  int ranks() const { return ranks_; }
  int size(Axis axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  int coordinate(int rank, Axis axis) const {
    const auto a = static_cast<std::size_t>(axis);
    return rank / strides_[a] % sizes_[a];
  }
  Coordinates coordinates(int rank) const;
  int rank(const Coordinates& coordinates) const;
  // The place of `rank` among the ranks that differ from it on these axes only, in rank order.
  int position(int rank, AxisSet axes) const;
  // The rank `offset` further on `axis`, wrapping around.
  int peer(int rank, Axis axis, int offset) const;
  // Ranks that agree with `rank` on all axes but `axes`; on the pipeline axis only the listed coordinates if any are.
  // In rank order. Contains `rank` unless its own pipeline coordinate is not listed. tensor_block > 0: on the tensor
  // axis only coordinates of the block of so many consecutive ones that `rank` is in.
  std::vector<int> members(int rank, const std::vector<Axis>& axes, const std::vector<int>& pipeline_only = {},
                           int tensor_block = 0) const;

 private:
  std::array<int, kAxes> sizes_{}, strides_{};
  std::array<Axis, kAxes> order_{};
  int ranks_;
};

}  // namespace rehearse::plan
