// The axes of the rank grid: how the ranks of a plan are arranged. A rank has one coordinate on each axis.
#pragma once

#include <array>
#include <string_view>

namespace rehearse {

enum class Axis : unsigned char { tensor, context, expert, data, pipeline };
inline constexpr int kAxes = 5;
inline constexpr std::array<std::string_view, kAxes> kAxisNames = {"tensor", "context", "expert", "data", "pipeline"};
constexpr std::string_view name_of(Axis axis) {
  return kAxisNames[static_cast<std::size_t>(axis)];
}

// Of a rank, indexed by Axis.
using Coordinates = std::array<int, kAxes>;

}  // namespace rehearse
