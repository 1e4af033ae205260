// Collectives and messages of 16-bit elements, the same expectations whatever carries them: reductions are the fp32
// sums in group order, rounded once; everything else arrives bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "execute/transport/communicator.h"
#include "sim/base/half.h"

namespace rehearse::execute {

using Halves = std::vector<std::uint16_t>;

// Of sizes from 2^-6 to 2^5, so that the order of a sum and every rounding on the way would show.
inline Halves halves_of(DType type, int rank, std::int64_t n) {
  Halves x(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const auto k = static_cast<float>((i * 7919 + rank * 104'729 + 13) % 1009);
    const float value = std::ldexp(1 + k / 1009, static_cast<int>(i + 5 * rank) % 12 - 6) * (i % 3 == 0 ? -1.0F : 1.0F);
    from_float(type, &value, 1, &x[static_cast<std::size_t>(i)]);
  }
  return x;
}

inline Halves reduced_halves(DType type, program::ReduceOp op, int ranks, std::int64_t n) {
  std::vector<float> total(static_cast<std::size_t>(n));
  for (int r = 0; r < ranks; ++r) {
    const Halves x = halves_of(type, r, n);
    for (std::size_t i = 0; i < x.size(); ++i) {
      float value = 0;
      to_float(type, &x[i], 1, &value);
      total[i] = r == 0 ? value : op == program::ReduceOp::sum ? total[i] + value : std::max(total[i], value);
    }
  }
  Halves result(total.size());
  from_float(type, total.data(), n, result.data());
  return result;
}

// Ranks 0 .. ranks - 1 are the group's members; `next` gives the next call on it. `each`: elements of a shard.
inline void expect_half_collectives(Communicator& c, DType type, int rank, int ranks, std::int64_t each,
                                    const std::function<CollectiveCall()>& next) {
  using kernels::Out;
  const std::int64_t n = each * ranks;
  const auto out = [&](Halves& x, std::int64_t first = 0) { return Out(x.data() + first, type); };
  const Halves own = halves_of(type, rank, n), sum = reduced_halves(type, program::ReduceOp::sum, ranks, n);
  const auto shard = [&](const Halves& x, int r) { return Halves(x.begin() + r * each, x.begin() + (r + 1) * each); };

  Halves in_place = own, apart(own.size());
  c.all_reduce(next(), program::ReduceOp::sum, out(in_place), out(in_place), n);
  EXPECT_EQ(in_place, sum);
  in_place = own;
  c.all_reduce(next(), program::ReduceOp::max, out(in_place), out(apart), n);
  EXPECT_EQ(apart, reduced_halves(type, program::ReduceOp::max, ranks, n));
  EXPECT_EQ(in_place, own) << "what is sent stays";

  Halves part(static_cast<std::size_t>(each));
  c.reduce_scatter(next(), out(in_place), out(part), n);
  EXPECT_EQ(part, shard(sum, rank));
  c.reduce_scatter(next(), out(in_place), out(in_place, rank * each), n);
  EXPECT_EQ(shard(in_place, rank), shard(sum, rank));
  c.all_gather(next(), out(part), out(apart), n);
  EXPECT_EQ(apart, sum);
  c.all_gather(next(), out(in_place, rank * each), out(in_place), n);
  EXPECT_EQ(in_place, sum);

  in_place = own;
  c.broadcast(next(), out(in_place), out(in_place), n);
  EXPECT_EQ(in_place, halves_of(type, 0, n));
  in_place = own;
  c.reduce(next(), program::ReduceOp::sum, out(in_place), out(in_place), n);
  EXPECT_EQ(in_place, rank == 0 ? sum : own);
  in_place = own;
  c.all_to_all(next(), out(in_place), out(in_place), n);
  for (int r = 0; r < ranks; ++r) EXPECT_EQ(shard(in_place, r), shard(halves_of(type, r, n), rank)) << r;

  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  in_place = own;
  c.exchange(std::vector{Message{true, right, 7, 0, out(in_place), n}, Message{false, left, 7, 0, out(apart), n}});
  EXPECT_EQ(apart, halves_of(type, left, n));

  // 8-bit copies are only gathered.
  const auto bytes_of = [&](int r) {
    std::vector<std::uint8_t> x(static_cast<std::size_t>(each));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(i * 37 + static_cast<std::size_t>(r));
    return x;
  };
  std::vector<std::uint8_t> copy = bytes_of(rank), gathered(static_cast<std::size_t>(n)), all;
  for (int r = 0; r < ranks; ++r) {
    const std::vector<std::uint8_t> x = bytes_of(r);
    all.insert(all.end(), x.begin(), x.end());
  }
  c.all_gather(next(), {copy.data(), DType::e4m3}, {gathered.data(), DType::e4m3}, n);
  EXPECT_EQ(gathered, all);
}

}  // namespace rehearse::execute
