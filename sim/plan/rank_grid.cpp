// Rank arithmetic of the grid: mixed-radix digits. With order (o1, o2, ..., fastest first) the stride of o1 is 1 and
// the stride of each next axis is the stride before it times the size before it, so rank <-> coordinates is a
// bijection. This is Megatron-LM's "tp-cp-ep-dp-pp" order string (megatron/core/parallel_state.py, RankGenerator). The
// expert axis is a plain axis here; a second grid for experts over the same ranks is left out.
#include "sim/plan/rank_grid.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "sim/base/check.h"

namespace rehearse::plan {

RankGrid::RankGrid(const std::array<int, std::tuple_size_v<AxisOrder>>& sizes, const AxisOrder& order, int replicas)
    : ranks_(0) {
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  sizes_[static_cast<std::size_t>(Axis::replica)] = replicas;
  std::size_t next = 0;
  for (const Axis axis : order) {
    order_[next++] = axis;
    if (axis == Axis::data) order_[next++] = Axis::replica;
  }
  REHEARSE_CHECK(next == order_.size(), "the rank order has no data axis");
  std::int64_t stride = 1;
  for (const Axis axis : order_) {
    const auto a = static_cast<std::size_t>(axis);
    REHEARSE_CHECK(strides_[a] == 0, "axis {} appears twice in the rank order", name_of(axis));
    REHEARSE_CHECK(sizes_[a] >= 1, "axis {} has size {}", name_of(axis), sizes_[a]);
    strides_[a] = static_cast<int>(stride);
    stride *= sizes_[a];
    REHEARSE_CHECK(stride <= std::numeric_limits<int>::max(), "the grid has more than 2^31 - 1 ranks");
  }
  ranks_ = static_cast<int>(stride);
}

Coordinates RankGrid::coordinates(int rank) const {
  Coordinates at{};
  for (int a = 0; a < kAxes; ++a) at[static_cast<std::size_t>(a)] = coordinate(rank, static_cast<Axis>(a));
  return at;
}

int RankGrid::rank(const Coordinates& coordinates) const {
  int rank = 0;
  for (std::size_t a = 0; a < kAxes; ++a) rank += coordinates[a] * strides_[a];
  return rank;
}

int RankGrid::position(int rank, AxisSet axes) const {
  int position = 0, stride = 1;
  for (const Axis axis : order_) {
    if (!axes.contains(axis)) continue;
    position += coordinate(rank, axis) * stride;
    stride *= size(axis);
  }
  return position;
}

int RankGrid::peer(int rank, Axis axis, int offset) const {
  const auto a = static_cast<std::size_t>(axis);
  const int here = coordinate(rank, axis);
  const auto moved = static_cast<int>((static_cast<std::int64_t>(here) + offset) % sizes_[a]);
  const int there = moved < 0 ? moved + sizes_[a] : moved;
  return rank + (there - here) * strides_[a];
}

std::vector<int> RankGrid::members(int rank, const std::vector<Axis>& axes, const std::vector<int>& pipeline_only,
                                   int tensor_block) const {
  std::array<bool, kAxes> varies{};
  for (const Axis axis : axes) varies[static_cast<std::size_t>(axis)] = true;
  std::vector<int> ranks = {rank};
  for (std::size_t a = 0; a < kAxes; ++a) {
    const Axis axis = static_cast<Axis>(a);
    const bool restricted = axis == Axis::pipeline && !pipeline_only.empty();
    if (!varies[a] && !restricted) continue;
    const int here = coordinate(rank, axis);
    const int block = axis == Axis::tensor ? tensor_block : 0;
    std::vector<int> next;
    for (int c = 0; c < sizes_[a]; ++c) {
      if (!varies[a] && c != here) continue;
      if (block > 0 && c / block != here / block) continue;
      if (restricted && std::find(pipeline_only.begin(), pipeline_only.end(), c) == pipeline_only.end()) continue;
      for (const int r : ranks) next.push_back(r + (c - here) * strides_[a]);
    }
    ranks = std::move(next);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace rehearse::plan
