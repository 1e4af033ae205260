// Constants of a system found again from times made with them, and sizes that were left out predicted.
#include "sim/collective/fit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rehearse::collective {
namespace {

using nccl::Placement;
using program::CollectiveKind;
using Choice = FittedSystem::Choice;

const nccl::Machine kMachine{.generation = nccl::Generation::ampere, .nvlink_gbps = 240, .nic_gbps = 24};

// Given a machine that takes 1.5 times NCCL's latencies and 1.25 times its time for the bytes, by the protocol that
// NCCL chooses, and 1 ns for every 400 bytes of a rank's own share.
double made_us(CollectiveKind kind, const Placement& place, double bytes) {
  const nccl::Estimate own = nccl::best(kMachine, place, kind, bytes);
  return bytes / place.ranks / 400e3 + 1.5 * own.latency_us + 1.25 * (own.time_us - own.latency_us);
}

std::vector<Observation> every_other_size(int from, const std::vector<int>& groups = {2, 4, 8}) {
  std::vector<Observation> out;
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::all_to_all})
    for (const int ranks : groups)
      for (int i = from; i < 20; i += 2) {
        const double bytes = 1024.0 * std::pow(2, i);
        out.push_back({kind, {ranks, 1, ranks}, bytes, made_us(kind, {ranks, 1, ranks}, bytes)});
      }
  return out;
}

TEST(FittedSystem, FindsConstantsAgain) {
  const FittedSystem system(every_other_size(0), kMachine);
  EXPECT_TRUE(system.as_nccl_chooses());
  EXPECT_NEAR(system.copy_us_per_byte() * 400e3, 1, 0.01);
  for (const Choice& choice : {Choice{Algorithm::ring, Protocol::ll}, Choice{Algorithm::ring, Protocol::simple},
                               Choice{Algorithm::direct, Protocol::simple}}) {
    EXPECT_NEAR(system.constants().at(choice).latency, 1.5, 0.01) << name_of(choice.first);
    EXPECT_NEAR(system.constants().at(choice).per_byte, 1.25, 0.01) << name_of(choice.first);
  }
}

// A machine whose every collective is 3 us faster than NCCL's latency, and whose hops take twice as long: the least
// latency and what hops add are two constants, found where several numbers of ranks show them and only there.
TEST(FittedSystem, LeastLatencyAndHopsAreTwoConstants) {
  const auto made = [](const std::vector<int>& groups) {
    std::vector<Observation> out;
    for (Observation o : every_other_size(0, groups)) {
      if (o.kind != CollectiveKind::all_gather) continue;
      const nccl::Estimate own = nccl::best(kMachine, o.place, o.kind, o.bytes);
      const nccl::Estimate pair = nccl::estimate(kMachine, {2, 1, 2}, nccl::ring_channels(kMachine, {2, 1, 2}), o.kind,
                                                 own.algorithm, own.protocol, o.bytes);
      o.time_us = pair.latency_us - 3 + 2 * (own.latency_us - pair.latency_us) + own.time_us - own.latency_us;
      out.push_back(o);
    }
    return out;
  };
  const Choice ring{Algorithm::ring, Protocol::ll};
  const FittedSystem system(made({2, 4, 8}), kMachine);
  EXPECT_NEAR(system.constants().at(ring).least_us, system.constants().at(ring).reference_us - 3, 0.01);
  EXPECT_NEAR(system.constants().at(ring).latency, 2, 0.01);
  EXPECT_TRUE(system.constants().at(ring).hops_show);
  const Observation six = {CollectiveKind::all_gather, {6, 1, 6}, 16, 0};
  const nccl::Estimate own = nccl::best(kMachine, six.place, six.kind, six.bytes);
  EXPECT_NEAR(system.predict(six.kind, six.place, six.bytes).time_us,
              system.constants().at(ring).least_us + 2 * (own.latency_us - system.constants().at(ring).reference_us) +
                  own.time_us - own.latency_us,
              0.05);
  EXPECT_FALSE(FittedSystem(made({8}), kMachine).constants().at(ring).hops_show);
}

// One number of ranks: a rank's own share is a part of the bytes like any other, and belongs to the bandwidth.
TEST(FittedSystem, CopyNeedsSeveralNumbersOfRanks) {
  const FittedSystem system(every_other_size(0, {8}), kMachine);
  EXPECT_EQ(system.copy_us_per_byte(), 0);
  EXPECT_GT(system.constants().at({Algorithm::ring, Protocol::simple}).per_byte, 1.25);
}

TEST(FittedSystem, PredictsTheSizesLeftOut) {
  const FittedSystem system(every_other_size(0), kMachine);
  for (const Observation& o : every_other_size(1)) {
    const FittedSystem::Prediction p = system.predict(o.kind, o.place, o.bytes);
    EXPECT_NEAR(p.time_us / o.time_us, 1, 0.01) << o.bytes;
    EXPECT_LE(p.low, p.time_us);
    EXPECT_GE(p.high, p.time_us);
  }
}

// Given a machine that leaves LL for Simple at 64 KiB where NCCL's own constants would stay far longer.
TEST(FittedSystem, WhereNcclsChoiceExplainsLessTheFastestRuns) {
  const Placement place{8, 1, 8};
  std::vector<Observation> seen;
  for (int i = 0; i < 20; ++i) {
    const double bytes = 1024.0 * std::pow(2, i);
    const Protocol p = bytes <= 65536 ? Protocol::ll : Protocol::simple;
    const nccl::Estimate own = nccl::estimate(kMachine, place, nccl::ring_channels(kMachine, place),
                                              CollectiveKind::all_gather, Algorithm::ring, p, bytes);
    const double moving = own.time_us - own.latency_us;
    seen.push_back({CollectiveKind::all_gather, place, bytes,
                    p == Protocol::ll ? own.latency_us + 20 * moving : own.latency_us / 2 + moving});
  }
  const FittedSystem system(seen, kMachine);
  EXPECT_FALSE(system.as_nccl_chooses());
  EXPECT_EQ(system.predict(CollectiveKind::all_gather, place, 2048).protocol, Protocol::ll);
  EXPECT_EQ(system.predict(CollectiveKind::all_gather, place, 1 << 29).protocol, Protocol::simple);
  EXPECT_FALSE(system.knows(CollectiveKind::all_to_all, place));
}

TEST(FittedSystem, OneObservationIsReproduced) {
  const FittedSystem system({{CollectiveKind::all_gather, {4, 1, 4}, 1e6, 20}}, kMachine);
  EXPECT_NEAR(system.predict(CollectiveKind::all_gather, {4, 1, 4}, 1e6).time_us, 20, 1e-6);
}

}  // namespace
}  // namespace rehearse::collective
