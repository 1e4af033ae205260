// Ops of experts beside their products (op.h, GroupedGemm); operands as op.h has them, reads -> writes.
#pragma once

#include <cstdint>

namespace rehearse::program {

// A bias for each group of rows, beside GroupedGemm: forward {y [rows, n], b [groups, n], loads f32 [groups]?, weights
// f32 [rows]?} -> {y}: y += share * weight * b. backward {dy [rows, n], loads?, weights?, db [groups, n]} -> {db}
// (accumulates): the sum of each group's rows, times their weights. weights_backward {dy, b, loads?, dweights f32
// [rows]} -> {dweights}: += share * dy . b. share: 1 over the ranks that each add their part of the product and all of
// the bias to one sum.
enum class GroupedBiasPart : unsigned char { forward, backward, weights_backward };
struct GroupedBias {
  GroupedBiasPart part = GroupedBiasPart::forward;
  std::int64_t groups = 1, rows = 0, n = 0;  // rows: of the buffers
  bool counted = false, weighted = false;
  std::int64_t shares = 1;  // share = 1 / shares
  friend bool operator==(const GroupedBias&, const GroupedBias&) = default;
};

// Rows times a number each: forward {x [rows, cols], weights f32 [rows]} -> {y}; backward {dy, x, weights} -> {dx,
// dweights f32 [rows]}.
struct RowScale {
  bool backward = false;
  std::int64_t rows = 0, cols = 0;
  friend bool operator==(const RowScale&, const RowScale&) = default;
};

}  // namespace rehearse::program
