// Gradients as they go over the wire: known answers, sums of several ranks against plain arithmetic, error feedback,
// and that nothing depends on threads.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/base/gradient_code.h"
#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

using Sent = GradientCode::Sent;
using Bytes8 = std::vector<std::uint8_t>;

GradientCode code_of(std::int64_t n, int bits, Sent sent = Sent::all, std::int64_t kept = 0, std::int64_t chunk = 64) {
  GradientCode c;
  c.elements = n, c.bits = bits, c.sent = sent, c.chunk = chunk;
  c.kept = sent == Sent::all ? n : kept;
  return c;
}

Bytes8 packed_by(Device& device, const GradientCode& c, const GradientDraw& d, const Floats& x,
                 float* residual = nullptr) {
  // Aligned as buffers are.
  Bytes8 packed(static_cast<std::size_t>(c.bytes()), 0xFF);
  device.compress(c, d, x.data(), residual, packed.data());
  return packed;
}

Floats sum_of(Device& device, const GradientCode& c, const GradientDraw& d, const std::vector<Bytes8>& members) {
  Bytes8 all;
  for (const Bytes8& m : members) all.insert(all.end(), m.begin(), m.end());
  Floats x = poisoned(c.elements);
  device.decompress(c, d, static_cast<std::int64_t>(members.size()), all.data(), x.data());
  return x;
}

Floats through(Device& device, const GradientCode& c, const GradientDraw& d, const Floats& x) {
  return sum_of(device, c, d, {packed_by(device, c, d, x)});
}

const Floats& million() {
  static const Floats x = Random(5).normal(1'000'000, 0.01);
  return x;
}

double energy(const Floats& x) {
  return std::accumulate(x.begin(), x.end(), 0.0,
                         [](double sum, float v) { return sum + static_cast<double>(v) * static_cast<double>(v); });
}

// 10^6 numbers of N(0, 0.01^2) lie within about +-4.9 sigma: 255 steps of 3.84e-4, a quarter of which is the mean
// error.
TEST(GradientCodes, EightBitsOfAMillionNormalsAreNearAndAFourth) {
  const auto device = make_cpu_device(2);
  const GradientCode c = code_of(1'000'000, 8, Sent::all, 0, 1'000'000);
  EXPECT_EQ(c.bytes(), 1'000'008);
  EXPECT_NEAR(4e6 / static_cast<double>(c.bytes()), 3.99997, 5e-6);
  const Floats back = through(*device, c, {}, million());
  double error = 0;
  for (std::size_t i = 0; i < back.size(); ++i) error += std::abs(static_cast<double>(back[i] - million()[i])) / 1e6;
  EXPECT_GT(error, 8.8e-5);
  EXPECT_LT(error, 1.0e-4);
}

// Of a normal distribution the largest share p has 2 (t phi(t) + Q(t)) of the energy, t with 2 Q(t) = p: 43.9, 8.5 and
// 1.28%.
TEST(GradientCodes, TheLargestKeepTheirShareOfTheEnergy) {
  const auto device = make_cpu_device(2);
  const double whole = energy(million());
  for (const auto& [kept, share, near] :
       {std::tuple{100'000, 0.44, 0.005}, {10'000, 0.085, 0.002}, {1'000, 0.013, 0.001}}) {
    const GradientCode c = code_of(1'000'000, 32, Sent::largest, kept);
    EXPECT_EQ(c.bytes(), 8 * kept) << "a value and its place";
    EXPECT_NEAR(energy(through(*device, c, {}, million())) / whole, share, near) << kept;
  }
}

// Written out: chunk by chunk the least and the greatest value, and codes between.
TEST(GradientCodes, AreTheArithmeticWrittenOut) {
  const auto device = make_cpu_device(2);
  const Floats x = Random(7).normal(203);
  for (const int bits : {8, 4, 2, 1}) {
    const GradientCode c = code_of(203, bits);
    const Floats back = through(*device, c, {}, x);
    for (std::size_t begin = 0; begin < x.size(); begin += 64) {
      const std::size_t end = std::min(x.size(), begin + 64);
      const auto [low, high] = std::minmax_element(x.data() + begin, x.data() + end);
      double mean = 0;
      for (std::size_t i = begin; i < end; ++i)
        mean += std::abs(static_cast<double>(x[i])) / static_cast<double>(end - begin);
      for (std::size_t i = begin; i < end; ++i) {
        const double step = static_cast<double>(*high - *low) / ((1 << bits) - 1), zero = static_cast<double>(*low);
        const double code = std::round(static_cast<double>(x[i] - *low) / step);
        const double expected = bits == 1 ? std::copysign(mean, static_cast<double>(x[i])) : zero + code * step;
        ASSERT_NEAR(static_cast<double>(back[i]), expected, 1e-6) << bits << " bits, " << i;
      }
    }
  }
}

TEST(GradientCodes, OfSeveralRanksAddUpInTheirPlaces) {
  const auto device = make_cpu_device(1);
  const Floats a = {0, 5, -1, 0.5F, -7, 2, 0, 0}, b = {3, 4, 0, 0, 0, -1, 0, 1};
  const GradientCode c = code_of(8, 32, Sent::largest, 2);
  EXPECT_EQ(sum_of(*device, c, {}, {packed_by(*device, c, {}, a), packed_by(*device, c, {}, b)}),
            (Floats{3, 9, 0, 0, -7, 0, 0, 0}));
  const Floats same(8, 1.0F);
  EXPECT_EQ(through(*device, c, {}, same), (Floats{1, 1, 0, 0, 0, 0, 0, 0})) << "of equal ones the first";
}

// Drawn anew in each step, alike on all ranks, each place as often; scaled up so that the mean is right.
TEST(GradientCodes, RandomPlacesAreTheSameOnAllRanksAndRightInTheMean) {
  const auto device = make_cpu_device(1);
  GradientCode c = code_of(20, 32, Sent::random, 5);
  c.unbiased = true;
  EXPECT_EQ(c.bytes(), 20) << "no places";
  Floats x(20);
  std::iota(x.begin(), x.end(), 1.0F);
  Values mean(20);
  for (std::uint64_t step = 0; step < 4000; ++step) {
    GradientDraw d{3, 1, 0, step};
    const Bytes8 first = packed_by(*device, c, d, x);
    d.member = 1;
    ASSERT_EQ(packed_by(*device, c, d, x), first);
    const Floats back = sum_of(*device, c, d, {first});
    EXPECT_EQ(std::count_if(back.begin(), back.end(), [](float v) { return v != 0; }), 5);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(back[i]) / 4000;
  }
  // The share of steps with a place is 1/4 +- sqrt(3/16 / 4000) = 0.0068; five times that, times 4.
  for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(mean[i] / static_cast<double>(x[i]), 1, 0.14) << i;
}

TEST(GradientCodes, StochasticRoundingIsRightInTheMeanAndRepeats) {
  const auto device = make_cpu_device(2);
  GradientCode c = code_of(64, 2);
  c.stochastic = true;
  const Floats x = Random(9).normal(64);
  Values mean(64);
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const double step_size = static_cast<double>(*high - *low) / 3;
  for (std::uint64_t step = 0; step < 2000; ++step) {
    const Floats back = through(*device, c, {1, 2, 3, step}, x);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += static_cast<double>(back[i]) / 2000;
  }
  // A draw's deviation is half a step at most; five of the mean's.
  for (std::size_t i = 0; i < mean.size(); ++i)
    EXPECT_NEAR(mean[i], static_cast<double>(x[i]), 5 * step_size / 2 / std::sqrt(2000.0)) << i;
  const Bytes8 one = packed_by(*device, c, {1, 2, 3, 4}, x);
  EXPECT_EQ(packed_by(*make_cpu_device(1), c, {1, 2, 3, 4}, x), one);
  EXPECT_NE(packed_by(*device, c, {1, 2, 4, 4}, x), one) << "another rank";
  EXPECT_NE(packed_by(*device, c, {1, 2, 3, 5}, x), one) << "another step";
}

// What is sent and what is kept are the gradient and what was kept before.
TEST(GradientCodes, ErrorFeedbackKeepsWhatIsNotSent) {
  const auto device = make_cpu_device(2);
  for (const GradientCode& c : {code_of(100, 4), code_of(100, 1), code_of(100, 32, Sent::largest, 7),
                                code_of(100, 32, Sent::random, 7), code_of(100, 8, Sent::largest, 21, 8)}) {
    Random random(11);
    Floats residual(100, 0.0F);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Floats x = random.normal(100), before = residual;
      const GradientDraw d{1, 2, 3, step};
      const Floats sent = sum_of(*device, c, d, {packed_by(*device, c, d, x, residual.data())});
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_NEAR(static_cast<double>(sent[i] + residual[i]), static_cast<double>(x[i] + before[i]), 2e-6) << i;
    }
    EXPECT_GT(energy(residual), 0);
  }
}

TEST(GradientCodes, DoNotDependOnThreads) {
  const Floats& x = million();
  for (const GradientCode& c :
       {code_of(1'000'000, 4, Sent::all, 0, 2048), code_of(1'000'000, 8, Sent::largest, 9999)}) {
    const auto one = make_cpu_device(1), two = make_cpu_device(2);
    const Bytes8 packed = packed_by(*one, c, {}, x);
    EXPECT_EQ(packed_by(*two, c, {}, x), packed);
    EXPECT_EQ(sum_of(*two, c, {}, {packed, packed}), sum_of(*one, c, {}, {packed, packed}));
  }
}

TEST(GradientCodes, WhatIsNoNumberStaysNone) {
  const auto device = make_cpu_device(1);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const int bits : {32, 8, 1})
      for (const Sent sent : {Sent::all, Sent::largest}) {
        if (bits == 32 && sent == Sent::all) continue;
        Floats x(64, 0.5F);
        x[9] = bad;
        EXPECT_FALSE(std::isfinite(through(*device, code_of(64, bits, sent, 8), {}, x)[9])) << bits;
      }
}

}  // namespace
}  // namespace rehearse::kernels
