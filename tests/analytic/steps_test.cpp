// Collectives performed message by message against closed forms: n ranks, S bytes, links of B bytes a second, a latency
// of a for each message. Nothing else is on the network.
#include "sim/collective/steps.h"

#include <gtest/gtest.h>

#include <numeric>

#include "sim/cluster/machines.h"
#include "sim/cluster/topology.h"
#include "sim/engine/step_runs.h"
#include "sim/plan/sections.h"

namespace rehearse {
namespace {

using collective::Algorithm;
using program::CollectiveKind;

constexpr double kNic = 50e9, kPort = 400e9, kLatency = 5e-6;

cluster::FatTree tree(int devices, int per_node) {
  cluster::FatTreeNumbers n;
  n.name = "flat";
  n.devices_per_node = n.nics_per_node = per_node;
  n.nvlink = Bandwidth(static_cast<std::int64_t>(kPort)), n.nic = Bandwidth(static_cast<std::int64_t>(kNic));
  n.nodes_per_unit = 4096;
  return {n, devices};
}

std::vector<int> all_of(int devices) {
  std::vector<int> members(static_cast<std::size_t>(devices));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

double seconds(int devices, int per_node, CollectiveKind kind, Algorithm algorithm, std::int64_t bytes) {
  const cluster::FatTree cluster = tree(devices, per_node);
  collective::Steps steps =
      collective::steps_of(cluster, collective::group_of(cluster, all_of(devices)), kind, algorithm, bytes);
  collective::set_times(steps, cluster, 1, false, Time::from_seconds(kLatency));
  return engine::run_steps(cluster, std::move(steps)).time.seconds();
}

#define EXPECT_TIME(value, expected) EXPECT_NEAR((value) / (expected), 1, 1e-4)

constexpr double kBytes = 1 << 30;

TEST(StepsClosedForm, RingOverNodes) {
  for (const int n : {2, 5, 16}) {
    const double share = kBytes / n / kNic;
    EXPECT_TIME(seconds(n, 1, CollectiveKind::all_reduce, Algorithm::ring, 1 << 30), 2 * (n - 1) * (kLatency + share));
    EXPECT_TIME(seconds(n, 1, CollectiveKind::all_gather, Algorithm::ring, 1 << 30), (n - 1) * (kLatency + share));
    EXPECT_TIME(seconds(n, 1, CollectiveKind::reduce_scatter, Algorithm::ring, 1 << 30), (n - 1) * (kLatency + share));
  }
}

// Eight channels, one a NIC, of 62 messages of S/(8 n) each. Inside a node messages are faster, so the next one waits
// at the NIC already and latencies hide behind it.
TEST(StepsClosedForm, RingsOverRails) {
  const double moving = 62 * kBytes / 8 / 32 / kNic;
  const double time = seconds(32, 8, CollectiveKind::all_reduce, Algorithm::ring, 1 << 30);
  EXPECT_GE(time, moving);
  EXPECT_LE(time, moving + 62 * kLatency);
}

// A pipeline of C = 2048 chunks of 512 KiB down a line.
TEST(StepsClosedForm, BroadcastAndReduce) {
  for (const CollectiveKind kind : {CollectiveKind::broadcast, CollectiveKind::reduce})
    EXPECT_TIME(seconds(6, 1, kind, Algorithm::ring, 1 << 30), 5 * kLatency + (2048 + 4) * kBytes / 2048 / kNic);
}

// Two nodes: each is the root of one tree with half of the bytes: S out and in of either. Four and more: a node in the
// middle of one tree has two children and a parent there and a parent in the other: 2 S.
TEST(StepsClosedForm, DoubleBinaryTree) {
  const double two = seconds(2, 1, CollectiveKind::all_reduce, Algorithm::tree, 1 << 30);
  EXPECT_GE(two, kBytes / kNic);
  EXPECT_LE(two, 1.02 * kBytes / kNic);
  for (const int n : {4, 7, 16}) {
    const double time = seconds(n, 1, CollectiveKind::all_reduce, Algorithm::tree, 1 << 30);
    EXPECT_GE(time, 0.999 * 2 * kBytes / kNic) << n;
    EXPECT_LE(time, 1.03 * 2 * kBytes / kNic) << n;
  }
}

// Bruck: ceil(log2 n) rounds, (n-1)/n S in all.
TEST(StepsClosedForm, Pat) {
  for (const int n : {8, 11}) {
    const double rounds = n == 8 ? 3 : 4;
    for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter})
      EXPECT_TIME(seconds(n, 1, kind, Algorithm::pat, 1 << 30), rounds * kLatency + (n - 1.0) / n * kBytes / kNic);
  }
}

TEST(StepsClosedForm, DirectAndAllToAll) {
  const double exchange = kLatency + 15.0 / 16 * kBytes / kNic;
  EXPECT_TIME(seconds(16, 1, CollectiveKind::all_to_all, Algorithm::direct, 1 << 30), exchange);
  EXPECT_TIME(seconds(16, 1, CollectiveKind::all_gather, Algorithm::direct, 1 << 30), exchange);
  EXPECT_TIME(seconds(16, 1, CollectiveKind::all_reduce, Algorithm::direct, 1 << 30), 2 * exchange);
}

// 2 log2 n rounds of halving sizes: 2 (n-1)/n S. Of six ranks two hand S to a partner first and get it back; the other
// two do not wait for that, and what they send meanwhile shares the partners' NICs, which holds
// everybody up: 3.5 S become at most 5 S.
TEST(StepsClosedForm, HalvingDoubling) {
  EXPECT_TIME(seconds(8, 1, CollectiveKind::all_reduce, Algorithm::halving_doubling, 1 << 30),
              6 * kLatency + 2 * 7.0 / 8 * kBytes / kNic);
  const double six = seconds(6, 1, CollectiveKind::all_reduce, Algorithm::halving_doubling, 1 << 30);
  EXPECT_GE(six, (2 * 3.0 / 4 + 2) * kBytes / kNic);
  EXPECT_LE(six, 5 * kBytes / kNic + 8 * kLatency);
}

// Reduce-scatter and all-gather of 7 steps of S/8 inside, 2 (4-1) steps of S/32 between.
TEST(StepsClosedForm, Hierarchical) {
  EXPECT_TIME(seconds(32, 8, CollectiveKind::all_reduce, Algorithm::hierarchical, 1 << 30),
              14 * (kLatency + kBytes / 8 / kPort) + 6 * (kLatency + kBytes / 32 / kNic));
}

// Every NIC carries 8 x 3 messages of S/32, each in 16 parts; before the first leaves, a part of 7 comes over NVLink.
TEST(StepsClosedForm, AllToAllOverRails) {
  const double message = kBytes / 32;
  EXPECT_TIME(seconds(32, 8, CollectiveKind::all_to_all, Algorithm::direct, 1 << 30),
              2 * kLatency + 7 * message / 16 / kPort + 24 * message / kNic);
}

// What the calibrated model says of a collective alone is what its steps take, on the machines that are shipped.
TEST(Fidelities, StepsTakeWhatTheFlowTakesAlone) {
  const std::string root = REHEARSE_SOURCE_DIR;
  for (const auto& [topology, device] : {std::pair{"dgx-a100", "a100-sxm-80g"}, std::pair{"dgx-h100", "h100-sxm"}}) {
    const auto cluster = cluster::build_cluster(topology, 32, {}, 1, root);
    const auto flow = collective::make_model(*cluster, root + "/calibrate/devices/" + device + ".yaml");
    const auto stepped = collective::make_stepped_model(*flow, *cluster);
    const auto analytic = collective::make_analytic_model(*flow);
    for (const int ranks : {8, 32})
      for (const CollectiveKind kind :
           {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
            CollectiveKind::broadcast, CollectiveKind::reduce, CollectiveKind::all_to_all}) {
        const auto plan = stepped->collective(kind, all_of(ranks), Bytes(std::int64_t{1} << 32));
        EXPECT_EQ(analytic->collective(kind, all_of(ranks), Bytes(std::int64_t{1} << 32)).alone(), plan.alone());
        if (plan.steps == nullptr) continue;  // NVLS
        const double time = engine::run_steps(*cluster, *plan.steps).time.seconds();
        EXPECT_NEAR(time / plan.alone().seconds(), 1, 0.02)
            << topology << " " << ranks << " ranks, kind " << static_cast<int>(kind) << " " << plan.algorithm;
      }
  }
}

// What is pinned goes the same way at every fidelity: rounds of equal parts one after the other, trees with what fills
// them. CollNet and NVLS have no messages between ranks and stay flows.
TEST(Fidelities, OfWhatIsPinned) {
  const std::string root = REHEARSE_SOURCE_DIR;
  for (const auto& [topology, device] : {std::pair{"dgx-a100", "a100-sxm-80g"}, std::pair{"dgx-h100", "h100-sxm"}}) {
    const auto cluster = cluster::build_cluster(topology, 32, {{"fabric.sharp", "true"}}, 1, root);
    for (const auto& [kind, algorithm] :
         {std::pair{"all_reduce", "ring"}, std::pair{"all_reduce", "direct"},
          std::pair{"all_reduce", "halving_doubling"}, std::pair{"all_reduce", "hierarchical"},
          std::pair{"all_reduce", "collnet_chain"}, std::pair{"all_gather", "direct"},
          std::pair{"all_gather", "halving_doubling"}, std::pair{"reduce_scatter", "direct"},
          std::pair{"reduce_scatter", "halving_doubling"}, std::pair{"all_to_all", "direct"}}) {
      const collective::Pins pins{collective::pin_of(kind, algorithm, "simple", "cluster.collectives[0]")};
      const auto flow = collective::make_model(*cluster, root + "/calibrate/devices/" + device + ".yaml", pins);
      const auto stepped = collective::make_stepped_model(*flow, *cluster);
      const auto analytic = collective::make_analytic_model(*flow);
      const Bytes bytes(std::int64_t{1} << 32);
      const auto plan = stepped->collective(pins[0].kind, all_of(32), bytes);
      EXPECT_EQ(plan.algorithm, algorithm);
      EXPECT_EQ(analytic->collective(pins[0].kind, all_of(32), bytes).alone(), plan.alone());
      EXPECT_EQ(plan.steps == nullptr, std::string(algorithm) == "collnet_chain");
      if (plan.steps == nullptr) continue;
      const double time = engine::run_steps(*cluster, *plan.steps).time.seconds();
      EXPECT_NEAR(time / plan.alone().seconds(), 1, 0.02) << topology << " " << kind << " " << algorithm;
    }
  }
}

// Without measurements and NCCL: a NIC a rank, 5 us a message between nodes, S bytes.
TEST(Fidelities, ClosedFormsOfWhatIsPinned) {
  cluster::FatTreeNumbers numbers;
  numbers.name = "flat";
  numbers.devices_per_node = numbers.nics_per_node = 8;
  numbers.nvlink = Bandwidth(static_cast<std::int64_t>(kPort)),
  numbers.nic = Bandwidth(static_cast<std::int64_t>(kNic));
  numbers.nvlink_latency = Time::from_us(1), numbers.nic_latency = Time::from_us(5);
  numbers.nodes_per_unit = 4096;
  const cluster::FatTree cluster(numbers, 32);
  const auto alone = [&](const char* kind, const char* algorithm) {
    const collective::Pins pins{collective::pin_of(kind, algorithm, "auto", "")};
    const auto model = collective::make_model(cluster, "", pins);
    return model->collective(pins[0].kind, all_of(32), Bytes(1 << 30)).alone().seconds();
  };
  // 7 + 7 steps of S/8 inside, 2 x 3 of S/32 between.
  EXPECT_TIME(alone("all_reduce", "hierarchical"), 14 * (1e-6 + kBytes / 8 / kPort) + 6 * (5e-6 + kBytes / 32 / kNic));
  // Halves: S/2, S/4 over the NICs, S/8, S/16, S/32 inside, and back.
  const double inside = 3 * 1e-6 + (1.0 / 8 + 1.0 / 16 + 1.0 / 32) * kBytes / kPort,
               between = 2 * 5e-6 + 0.75 * kBytes / kNic;
  EXPECT_TIME(alone("all_reduce", "halving_doubling"), 2 * (inside + between));
  EXPECT_TIME(alone("all_gather", "halving_doubling"), inside + between);
  // Each to each at once: 24 of 32 parts leave by the NIC.
  EXPECT_TIME(alone("all_reduce", "direct"), 2 * (5e-6 + 24.0 / 32 * kBytes / kNic));
  EXPECT_TIME(alone("reduce_scatter", "direct"), 5e-6 + 24.0 / 32 * kBytes / kNic);
}

// A scenario's words are found again as the model's.
TEST(Pins, AScenarioHasTheWordsOfTheModel) {
  for (const std::string_view kind : kCollectiveKindWords)
    EXPECT_EQ(collective::name_of(collective::pin_of(kind, "auto", "auto", "").kind), kind);
  for (const std::string_view name : kCollectiveAlgorithmWords) {
    const collective::Pin pin = collective::pin_of("all_reduce", name, "auto", "");
    EXPECT_EQ(pin.algorithm ? collective::name_of(*pin.algorithm) : "auto", name);
  }
  for (const std::string_view name : kCollectiveProtocolWords) {
    const collective::Pin pin = collective::pin_of("all_reduce", "auto", name, "");
    EXPECT_EQ(pin.protocol ? collective::name_of(*pin.protocol) : "auto", name);
  }
}

}  // namespace
}  // namespace rehearse
