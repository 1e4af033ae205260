// The axes of the rank grid: how the ranks of a plan are arranged. A rank has one coordinate on each axis.
//
// expert, data and replica together number the data-parallel replicas. Where experts are spread over ranks, replicas
// that differ on expert hold different ones; else it has size 1. Where ZeRO shards over some replicas only (hybrid
// sharding), data counts those that shard together and replica their groups; else replica has size 1. Plans order the
// first five; replica comes right after data, so replicas are numbered as if data were one axis.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

namespace rehearse {

enum class Axis : unsigned char { tensor, context, expert, data, pipeline, replica };
inline constexpr int kAxes = 6;
inline constexpr std::array<std::string_view, kAxes> kAxisNames = {"tensor", "context",  "expert",
                                                                   "data",   "pipeline", "replica"};
constexpr std::string_view name_of(Axis axis) {
  return kAxisNames[static_cast<std::size_t>(axis)];
}

// As a plan gives it: each but replica once, the fastest-varying first.
using AxisOrder = std::array<Axis, 5>;

// Of a rank, indexed by Axis.
using Coordinates = std::array<int, kAxes>;

class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) bits_ = static_cast<unsigned char>(bits_ | bit(axis));
  }
  constexpr bool contains(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr unsigned bits() const { return bits_; }
  friend constexpr bool operator==(AxisSet, AxisSet) = default;

 private:
  static constexpr unsigned bit(Axis axis) { return 1U << static_cast<unsigned>(axis); }
  unsigned char bits_ = 0;
};

// Over which ZeRO shards: a rank keeps the part that is its place among these ranks.
inline constexpr AxisSet kShardAxes = {Axis::context, Axis::expert, Axis::data};
// Where experts are spread over ranks: those that hold different ones (and those of a tensor group that does not split
// them), and those that hold the same, over which ZeRO shards these.
inline constexpr AxisSet kExpertAxes = {Axis::context, Axis::expert};
inline constexpr AxisSet kExpertShardAxes = {Axis::data};

}  // namespace rehearse
