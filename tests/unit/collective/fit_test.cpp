// Constants of a system found again from times made with them, and sizes that were left out predicted.
#include "sim/collective/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sim/collective/wire.h"

namespace rehearse::collective {
namespace {

using nccl::Algorithm;
using nccl::Placement;
using nccl::Protocol;
using program::CollectiveKind;

// Given a machine whose rings take 5 us, 0.25 us a step and 40 GB/s by LL, 0.5 us and 160 GB/s by LL128, 3 us and 240
// GB/s by Simple, and whose own share B/n costs 1 ns for 400 bytes.
double made_us(CollectiveKind kind, int ranks, double bytes) {
  const double steps = (kind == CollectiveKind::all_reduce ? 2.0 : 1.0) * (ranks - 1);
  const double wire = bytes * wire_factor(kind, ranks);
  const double slowest = std::min({0.25 * steps + wire / 40e3, 0.5 * steps + wire / 160e3, 3 * steps + wire / 240e3});
  return 5 + bytes / ranks / 400e3 + slowest;
}

std::vector<Observation> every_other_size(int from) {
  std::vector<Observation> out;
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather})
    for (const int ranks : {2, 4, 8})
      for (int i = from; i < 20; i += 2) {
        const double bytes = 1024.0 * std::pow(2, i);
        out.push_back({kind, {ranks, 1, ranks}, bytes, made_us(kind, ranks, bytes)});
      }
  return out;
}

TEST(FittedSystem, FindsConstantsAgain) {
  const FittedSystem system(every_other_size(0), false);
  EXPECT_NEAR(system.floor_us(), 5, 0.25);
  const auto simple = system.constants().at({Algorithm::ring, CollectiveKind::all_reduce, Protocol::simple});
  EXPECT_NEAR(1e-3 / simple.us_per_byte, 240, 12);
}

TEST(FittedSystem, PredictsTheSizesLeftOut) {
  const FittedSystem system(every_other_size(0), false);
  std::vector<double> errors;
  for (const Observation& o : every_other_size(1)) {
    const FittedSystem::Prediction p = system.predict(o.kind, o.place, o.bytes);
    errors.push_back(std::abs(p.time_us / o.time_us - 1));
    EXPECT_LE(p.low, p.time_us);
    EXPECT_GE(p.high, p.time_us);
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[errors.size() / 2], 0.01);
  EXPECT_LT(errors.back(), 0.15);
}

TEST(FittedSystem, SmallSizesTakeTheLowestLatencyLargeOnesTheHighestBandwidth) {
  const FittedSystem system(every_other_size(0), false);
  EXPECT_EQ(system.predict(CollectiveKind::all_reduce, {8, 1, 8}, 2048).protocol, Protocol::ll);
  EXPECT_EQ(system.predict(CollectiveKind::all_reduce, {8, 1, 8}, 1 << 29).protocol, Protocol::simple);
  EXPECT_FALSE(system.knows(CollectiveKind::all_to_all, {8, 1, 8}));
}

TEST(FittedSystem, OneObservationIsReproduced) {
  const FittedSystem system({{CollectiveKind::all_gather, {4, 1, 4}, 1e6, 20}}, true);
  EXPECT_NEAR(system.predict(CollectiveKind::all_gather, {4, 1, 4}, 1e6).time_us, 20, 1e-6);
}

}  // namespace
}  // namespace rehearse::collective
