// The step of a reduction that every Communicator makes: what one member adds to the partial result. All go over the
// members in group order, in fp32, so that losses do not depend on what carries the numbers; a result of 16 bits is
// rounded once, at the end.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/device.h"
#include "sim/base/half.h"
#include "sim/program/op.h"

namespace rehearse::execute {

using kernels::In;
using kernels::Out;

// Element i, and the place of n elements.
inline const std::byte* at(In x, std::int64_t i) {
  return static_cast<const std::byte*>(x.data) + i * size_of(x.type);
}
inline std::byte* at(Out y, std::int64_t i) {
  return static_cast<std::byte*>(y.data) + i * size_of(y.type);
}
inline In from(In x, std::int64_t i) {
  return {at(x, i), x.type};
}
inline Out from(Out y, std::int64_t i) {
  return {at(y, i), y.type};
}
// Of one type.
inline void copy_elements(In x, Out y, std::int64_t count) {
  if (x.data != y.data && count > 0) std::memmove(y.data, x.data, static_cast<std::size_t>(count * size_of(x.type)));
}

// into[0 .. count) plus x, or the maximum of both.
inline void fold(program::ReduceOp op, float* into, const float* x, std::int64_t count) {
  if (op == program::ReduceOp::sum)
    for (std::int64_t i = 0; i < count; ++i) into[i] += x[i];
  else
    for (std::int64_t i = 0; i < count; ++i) into[i] = std::max(into[i], x[i]);
}

// y[0 .. count) = the sum (or maximum) of parts[m][first .. first + count) over m, in order. Element by element all
// parts are read before y is written, so y may be any of them.
template <class Parts>
void reduce(const Parts& parts, program::ReduceOp op, std::int64_t first, std::int64_t count, Out y) {
  constexpr std::int64_t kBlock = 1024;  // elements summed at a time: partial sums stay in the first-level cache
  std::array<float, kBlock> sum, wide;
  for (std::int64_t i = 0; i < count; i += kBlock) {
    const std::int64_t n = std::min(kBlock, count - i);
    to_float(parts[0].type, at(parts[0], first + i), n, sum.data());
    for (std::size_t m = 1; m < parts.size(); ++m) {
      const In part = from(parts[m], first + i);
      if (part.type == DType::f32) {
        fold(op, sum.data(), static_cast<const float*>(part.data), n);
      } else {
        to_float(part.type, part.data, n, wide.data());
        fold(op, sum.data(), wide.data(), n);
      }
    }
    from_float(y.type, sum.data(), n, at(y, i));
  }
}

}  // namespace rehearse::execute
