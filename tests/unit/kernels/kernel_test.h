// What the kernel tests share: fresh random data, poisoned outputs, and comparison by relative norm |x - y| / |y|,
// which is NaN, and so fails, where a kernel leaves an output unwritten. Gradients are compared with central
// differences of a reference forward pass in double precision, whole where the input is small and along random
// directions where not.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "tests/unit/kernels/reference.h"

namespace rehearse::kernels {

using Floats = std::vector<float>;
using reference::at;
using reference::Values;

inline constexpr double kTolerance = 1e-5;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  Floats normal(std::int64_t n, double deviation = 1) {
    std::normal_distribution<float> d(0, static_cast<float>(deviation));
    Floats v(at(n));
    for (float& x : v) x = d(engine_);
    return v;
  }
  std::vector<std::int32_t> below(std::int64_t n, std::int32_t bound) {
    std::uniform_int_distribution<std::int32_t> d(0, bound - 1);
    std::vector<std::int32_t> v(at(n));
    for (auto& x : v) x = d(engine_);
    return v;
  }

 private:
  std::mt19937 engine_;
};

inline Floats poisoned(std::int64_t n) {
  return Floats(at(n), std::numeric_limits<float>::quiet_NaN());
}
inline Values doubles(const Floats& x) {
  return Values(x.begin(), x.end());
}

inline double dot(const Values& a, const Values& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

inline double relative_error(const Values& x, const Values& expected) {
  if (x.size() != expected.size()) return std::numeric_limits<double>::infinity();
  Values difference = x;
  for (std::size_t i = 0; i < x.size(); ++i) difference[i] -= expected[i];
  const double norm = std::sqrt(dot(expected, expected));
  return std::sqrt(dot(difference, difference)) / (norm > 0 ? norm : 1);
}
inline double relative_error(const Floats& x, const Values& expected) {
  return relative_error(doubles(x), expected);
}

inline Values minus(const Floats& a, const Floats& b) {
  Values d = doubles(a);
  for (std::size_t i = 0; i < d.size(); ++i) d[i] -= static_cast<double>(b[i]);
  return d;
}

// Central differences of a smooth loss at x: every component if x has at most 700, else compared along 3 directions.
// `gradient` may be the difference of two float arrays.
inline void expect_gradient(const std::function<double(const Values&)>& loss, const Floats& x, const Values& gradient,
                            double tolerance = kTolerance) {
  constexpr double kStep = 1e-5;
  ASSERT_EQ(x.size(), gradient.size());
  const auto along = [&](const Values& direction) {
    Values plus = doubles(x), minus = plus;
    for (std::size_t i = 0; i < x.size(); ++i) {
      plus[i] += kStep * direction[i];
      minus[i] -= kStep * direction[i];
    }
    return (loss(plus) - loss(minus)) / (2 * kStep);
  };
  if (x.size() <= 700) {
    Values expected;
    for (std::size_t i = 0; i < x.size(); ++i) {
      Values unit(x.size(), 0);
      unit[i] = 1;
      expected.push_back(along(unit));
    }
    EXPECT_LE(relative_error(gradient, expected), tolerance);
    return;
  }
  Random random(99);
  const double norm = std::sqrt(dot(gradient, gradient));
  for (int i = 0; i < 3; ++i) {
    // Half along the gradient itself, so that the derivative is of the size of the gradient.
    Values direction = doubles(random.normal(static_cast<std::int64_t>(x.size())));
    const double length = std::sqrt(dot(direction, direction));
    for (std::size_t k = 0; k < x.size(); ++k) direction[k] = 10 * (direction[k] / length + gradient[k] / norm);
    const double expected = along(direction);
    EXPECT_LE(std::abs(dot(direction, gradient) - expected), tolerance * std::abs(expected));
  }
}

// Tests run on one thread and on three.
class KernelTest : public testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Device> device = make_cpu_device(GetParam());
  Random random{20260101};
};

}  // namespace rehearse::kernels
