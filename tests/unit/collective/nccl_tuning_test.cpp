// NCCL's performance model against values worked out from its source (tag v2.28.9-1, Intel CPUs, no network latency
// given): latency in microseconds and algorithm bandwidth in GB/s of all-reduce, for LL, LL128 and Simple.
#include "sim/collective/nccl_tuning.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/collective/algorithms/algorithm.h"

namespace rehearse::collective::nccl {
namespace {

using program::CollectiveKind;

// What NCCL prints: at a size where neither the tree correction (up to 64 B << 22) nor the long-ring factor applies,
// the latter by leaving it out of the expectation.
struct Anchor {
  const char* machine;
  Generation generation;
  Placement place;
  Channels channels;
  Algorithm algorithm;
  double latency[3], gbps[3];
};

class NcclAnchors : public testing::TestWithParam<Anchor> {};

TEST_P(NcclAnchors, LatencyAndBandwidth) {
  const Anchor& a = GetParam();
  const Machine machine{.generation = a.generation, .cpu = Cpu::intel};
  for (int p = 0; p < kProtocols; ++p) {
    const double large = 64.0 * (1 << 23);
    const Estimate e =
        estimate(machine, a.place, a.channels, CollectiveKind::all_reduce, a.algorithm, Protocol(p), large);
    const bool long_ring = a.algorithm == Algorithm::ring && a.place.nodes > 1 && Protocol(p) == Protocol::simple;
    EXPECT_NEAR(e.latency_us, a.latency[p] * (long_ring ? 1.4 : 1), a.latency[p] * 0.004)
        << a.machine << " protocol " << p;
    EXPECT_NEAR(e.gbps, a.gbps[p], 0.06) << a.machine << " protocol " << p;
    EXPECT_NEAR(e.time_us, e.latency_us + large / (1000 * e.gbps), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Systems, NcclAnchors,
                         testing::Values(Anchor{"8 H100, tree",
                                                Generation::hopper,
                                                {8, 1, 8},
                                                {12, 30},
                                                Algorithm::tree,
                                                {15.2, 31.5, 64.4},
                                                {43.6, 128.8, 165.6}},
                                         Anchor{"8 H100, ring",
                                                Generation::hopper,
                                                {8, 1, 8},
                                                {12, 30},
                                                Algorithm::ring,
                                                {15.0, 40.6, 56.0},
                                                {80.6, 189.3, 205.7}},
                                         Anchor{"8 A100, tree",
                                                Generation::ampere,
                                                {8, 1, 8},
                                                {12, 20},
                                                Algorithm::tree,
                                                {15.2, 31.5, 64.4},
                                                {29.1, 85.9, 110.4}},
                                         Anchor{"8 A100, ring",
                                                Generation::ampere,
                                                {8, 1, 8},
                                                {12, 20},
                                                Algorithm::ring,
                                                {15.0, 40.6, 56.0},
                                                {50.1, 126.2, 137.1}},
                                         Anchor{"16 H100, tree",
                                                Generation::hopper,
                                                {16, 2, 8},
                                                {8, 45},
                                                Algorithm::tree,
                                                {25.2, 48.5, 92.4},
                                                {19.5, 146.8, 165.6}},
                                         Anchor{"16 H100, ring",
                                                Generation::hopper,
                                                {16, 2, 8},
                                                {8, 45},
                                                Algorithm::ring,
                                                {40.0, 75.2, 131.6},
                                                {20.8, 156.6, 192.0}},
                                         Anchor{"128 H100, tree",
                                                Generation::hopper,
                                                {128, 16, 8},
                                                {8, 45},
                                                Algorithm::tree,
                                                {55.2, 99.5, 176.4},
                                                {10.2, 116.0, 144.0}},
                                         Anchor{"128 H100, ring",
                                                Generation::hopper,
                                                {128, 16, 8},
                                                {8, 45},
                                                Algorithm::ring,
                                                {311.6, 559.6, 1190},
                                                {10.3, 148.0, 181.4}}));

TEST(NcclTuning, NvlsOnEightH100ReachesTheBusBandwidthNvidiaStates) {
  // 8 heads x 40 GB/s x 0.85 x 7/8 x 2 = 476 GB/s of bus bandwidth.
  const Machine h100{.generation = Generation::hopper, .nvlink_gbps = 370.8, .nic_gbps = 47};
  const Placement node{8, 1, 8};
  const Estimate e = best(h100, node, CollectiveKind::all_reduce, 1e9);
  EXPECT_EQ(e.algorithm, Algorithm::nvls);
  EXPECT_NEAR(e.gbps * 14 / 8, 476, 0.1);
}

// ncclNvlsInit: no communicator of two GPUs a node, as data parallelism beside four tensor ranks a node is, has NVLS.
TEST(NcclTuning, TwoRanksOfANodeHaveNoNvls) {
  const Machine h100{.generation = Generation::hopper, .nvlink_gbps = 370.8, .nic_gbps = 47};
  const auto offered = [&](const Placement& place, Algorithm a) {
    return estimate(h100, place, ring_channels(h100, place), CollectiveKind::all_reduce, a, Protocol::simple, 1e9)
               .time_us > 0;
  };
  EXPECT_TRUE(offered({3, 1, 3}, Algorithm::nvls));
  EXPECT_FALSE(offered({2, 1, 2}, Algorithm::nvls));
  EXPECT_TRUE(offered({12, 4, 3}, Algorithm::nvls_tree));
  EXPECT_FALSE(offered({128, 64, 2}, Algorithm::nvls_tree));
}

// 16 nodes of 8: a chunk of each of 16 channels and 8 heads goes up 4 levels and down again. 64 MiB are 4 times 128
// chunks of 128 KiB (of at most 512, NCCL takes less where messages would have few), so what bandwidth says takes 1 + 8
// / 4 of its time. 8 GiB are 128 times 128 chunks of 512 KiB.
TEST(NcclTuning, AnNvlsTreeIsFilledByItsFirstChunks) {
  const Machine narrow{
      .generation = Generation::hopper, .nvls_tree_chunk = 524288, .nvlink_gbps = 370.8, .nic_gbps = 42.5};
  const Placement nodes{128, 16, 8};
  const auto moving = [&](const Machine& machine, double bytes) {
    const Estimate e = estimate(machine, nodes, ring_channels(machine, nodes), CollectiveKind::all_reduce,
                                Algorithm::nvls_tree, Protocol::simple, bytes);
    return e.time_us - e.latency_us;
  };
  constexpr double kMiB = 1 << 20;
  const double large = moving(narrow, 8192 * kMiB) / (1 + 8.0 / 128);
  EXPECT_NEAR(moving(narrow, 64 * kMiB), large / 128 * 3, 1e-6 * large);
  // By default four nodes and more have 64 KiB.
  Machine plain = narrow;
  plain.nvls_tree_chunk = 0;
  EXPECT_NEAR(moving(plain, 64 * kMiB), large / 128 * 2, 1e-6 * large);
  const Estimate chosen = best(narrow, nodes, CollectiveKind::all_reduce, 256 * kMiB);
  EXPECT_EQ(chosen.algorithm, Algorithm::nvls_tree) << "as NCCL chooses, who leaves that out";
  EXPECT_NEAR(chosen.time_us - chosen.latency_us, moving(narrow, 256 * kMiB), 1e-9 * large);
  Machine blackwell = narrow;
  blackwell.generation = Generation::blackwell;
  EXPECT_NEAR(moving(blackwell, 64 * kMiB), moving(blackwell, 8192 * kMiB) / 128, 1e-6 * large) << "tuned by tables";
}

// CollNetDirect 2 (3.7 + 0.4 x 7) + 31 us, chain 2 x 7 x 2.8 + 30 us. Through a port go B up and B down: half of its
// rate, on Hopper 0.85 of that; with two NICs a node those are less.
TEST(NcclTuning, CollNet) {
  const Placement two{16, 2, 8};
  const auto at = [&](const Machine& machine, Algorithm a) {
    return estimate(machine, two, ring_channels(machine, two), CollectiveKind::all_reduce, a, Protocol::simple, 1e9);
  };
  Machine machine{.generation = Generation::ampere, .sharp = true, .nvlink_gbps = 240, .nic_gbps = 24};
  EXPECT_NEAR(at(machine, Algorithm::collnet_direct).latency_us, 44, 1e-9);
  EXPECT_NEAR(at(machine, Algorithm::collnet_direct).gbps, 120, 1e-9);
  EXPECT_NEAR(at(machine, Algorithm::collnet_chain).latency_us, 69.2, 1e-9);
  EXPECT_NEAR(at(machine, Algorithm::collnet_chain).gbps, 120, 1e-9);
  machine.nic_gbps = 6;
  EXPECT_NEAR(at(machine, Algorithm::collnet_direct).gbps, 48, 1e-9) << "eight NICs of 6 GB/s";
  machine = {.generation = Generation::hopper, .sharp = true, .nvlink_gbps = 360, .nic_gbps = 48};
  EXPECT_NEAR(at(machine, Algorithm::collnet_direct).gbps, 153, 1e-9);
  machine.sharp = false;
  EXPECT_LT(at(machine, Algorithm::collnet_direct).time_us, 0);
  machine.sharp = true, machine.nvswitch = false;
  EXPECT_LT(at(machine, Algorithm::collnet_direct).time_us, 0);
  EXPECT_LT(at(machine, Algorithm::nvls_tree).time_us, 0);
  EXPECT_GT(at(machine, Algorithm::collnet_chain).time_us, 0);
}

TEST(NcclTuning, SmallMessagesTakeLowLatencyLargeOnesTakeRings) {
  const Machine a100{.generation = Generation::ampere, .nvlink_gbps = 240, .nic_gbps = 24};
  EXPECT_EQ(best(a100, {8, 1, 8}, CollectiveKind::all_reduce, 1024).protocol, Protocol::ll);
  EXPECT_EQ(best(a100, {128, 16, 8}, CollectiveKind::all_reduce, 1024).algorithm, Algorithm::tree);
  const Estimate large = best(a100, {128, 16, 8}, CollectiveKind::all_reduce, 4e9);
  EXPECT_EQ(large.algorithm, Algorithm::ring);
  EXPECT_EQ(large.protocol, Protocol::simple);
  EXPECT_NEAR(large.gbps * 2 * 127 / 128, 8 * 24, 1e-9) << "eight NICs of 24 GB/s";
}

TEST(NcclTuning, TimeGrowsWithSize) {
  for (const Generation g : {Generation::ampere, Generation::hopper, Generation::blackwell})
    for (const Placement place : {Placement{8, 1, 8}, Placement{16, 2, 8}, Placement{64, 8, 8}, Placement{16, 16, 1}})
      for (const CollectiveKind kind :
           {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::broadcast}) {
        const Machine machine{.generation = g, .cpu = Cpu::amd, .pat = true, .nvlink_gbps = 240, .nic_gbps = 24};
        double last = 0;
        for (double bytes = 8; bytes < 1e10; bytes *= 1.3) {
          const double time = best(machine, place, kind, bytes).time_us;
          EXPECT_GE(time, last) << bytes << " bytes, " << place.ranks << " ranks on " << place.nodes;
          last = time;
        }
      }
}

TEST(NcclTuning, SmallMessagesUseFewBlocks) {
  const Placement node{8, 1, 8};
  const AlgorithmModel& ring = model_of(Algorithm::ring);
  const BlockLimits limits{.node = 24};
  EXPECT_EQ(ring.blocks(node, Protocol::simple, 1 << 30, limits), 24);
  EXPECT_EQ(ring.blocks(node, Protocol::simple, 3 * 512 * 64, limits), 3) << "512 threads of 64 bytes a channel";
  EXPECT_EQ(ring.blocks(node, Protocol::simple, 8, limits), 1);
  EXPECT_EQ(ring.blocks(node, Protocol::ll, 8 * 3 * 512 * 8, limits), 3) << "of each rank by LL";
  EXPECT_EQ(ring.blocks({16, 2, 8}, Protocol::simple, 1 << 30, limits), 0) << "nothing is known of several nodes";
}

}  // namespace
}  // namespace rehearse::collective::nccl
