// Transfer plans: closed forms of the plain model, which bytes cross which resources, and the measured models.
#include "sim/collective/collective.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "sim/cluster/topology.h"
#include "sim/collective/measurements.h"
#include "sim/collective/wire.h"
#include "tests/support/temporary.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

const std::string kRoot = REHEARSE_SOURCE_DIR;

std::unique_ptr<cluster::Cluster> dgx(int devices, const cluster::Overrides& overrides = {},
                                      const std::string& name = "dgx-a100") {
  return cluster::build_cluster(name, devices, overrides, 0, kRoot);
}

std::string device(const std::string& name) {
  return kRoot + "/calibrate/devices/" + name + ".yaml";
}

std::vector<int> first(int count) {
  std::vector<int> members(static_cast<std::size_t>(count));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

// `per_node` members on each of `nodes` nodes of 8, from local index `local` on.
std::vector<int> spread(int nodes, int per_node, int local = 0) {
  std::vector<int> members;
  for (int node = 0; node < nodes; ++node)
    for (int i = 0; i < per_node; ++i) members.push_back(8 * node + local + i);
  return members;
}

std::map<std::string, std::int64_t> bytes_by_resource(const cluster::Cluster& cluster, const TransferPlan& plan) {
  std::map<std::string, std::int64_t> bytes;
  for (const Activity& activity : plan.activities)
    for (const Use& use : activity.uses)
      bytes[cluster.resources()[static_cast<std::size_t>(use.resource)].name] += use.bytes;
  return bytes;
}

std::int64_t sum_ending(const std::map<std::string, std::int64_t>& bytes, const std::string& suffix) {
  std::int64_t sum = 0;
  for (const auto& [name, count] : bytes)
    if (name.ends_with(suffix)) sum += count;
  return sum;
}

double seconds(const TransferPlan& plan) {
  return plan.alone().seconds();
}

TEST(PlainModel, RingAllReduceIsTheClosedForm) {
  // n = 8, B = 240 MB, 240 GB/s: 2 * 7 steps of 1 us, and 2 * 7/8 * 1 ms.
  const auto cluster = dgx(8);
  const auto model = make_plain_model(*cluster, Time::from_us(1));
  const TransferPlan plan = model->collective(CollectiveKind::all_reduce, first(8), Bytes(240'000'000));
  EXPECT_EQ(plan.startup, Time::from_us(14));
  EXPECT_EQ(plan.alone(), Time::from_us(14 + 1750));
  ASSERT_EQ(plan.activities.size(), 1U) << "all channels of a node are merged";
  EXPECT_EQ(plan.activities[0].uses.size(), 16U);
}

TEST(PlainModel, DataParallelOfThree) {
  // 2 * 2/3 * 90 MB = 120 MB at 240 GB/s: 500 us, after 4 steps.
  const auto cluster = dgx(8);
  const auto model = make_plain_model(*cluster, Time::from_us(2));
  EXPECT_EQ(model->collective(CollectiveKind::all_reduce, {1, 4, 6}, Bytes(90'000'000)).alone(), Time::from_us(508));
  EXPECT_EQ(model->collective(CollectiveKind::all_gather, {1, 4, 6}, Bytes(90'000'000)).alone(), Time::from_us(254));
}

TEST(PlainModel, NodesOfOneMemberMoveAtNicSpeed) {
  // Four nodes, one rank each: 2 * 3/4 * 24 MB at 24 GB/s = 1.5 ms.
  const auto cluster = dgx(32);
  const auto model = make_plain_model(*cluster, Time());
  const TransferPlan plan = model->collective(CollectiveKind::all_reduce, spread(4, 1), Bytes(24'000'000));
  EXPECT_EQ(plan.alone(), Time::from_us(1500));
  EXPECT_EQ(plan.activities.size(), 1U);
}

TEST(PlainModel, NodesOfEightUseAllNics) {
  // 16 ranks: 2 * 15/16 * 192 MB = 360 MB over eight NICs of 24 GB/s.
  const auto cluster = dgx(16);
  const auto model = make_plain_model(*cluster, Time());
  const TransferPlan plan = model->collective(CollectiveKind::all_reduce, first(16), Bytes(192'000'000));
  EXPECT_EQ(plan.activities.size(), 8U) << "one channel a NIC";
  EXPECT_EQ(plan.alone(), Time::from_us(1875));
}

TEST(PlainModel, HalvingTheNicsDoublesRingsBetweenNodesOnly) {
  const auto whole = dgx(16);
  const auto half = dgx(16, {{"nic.bandwidth", "100Gbps"}});
  const auto fast = make_plain_model(*whole, Time());
  const auto slow = make_plain_model(*half, Time());
  const Bytes bytes(96'000'000);
  EXPECT_EQ(slow->collective(CollectiveKind::all_reduce, first(16), bytes).alone(),
            fast->collective(CollectiveKind::all_reduce, first(16), bytes).alone() * 2);
  EXPECT_EQ(slow->collective(CollectiveKind::all_reduce, first(8), bytes).alone(),
            fast->collective(CollectiveKind::all_reduce, first(8), bytes).alone());
  EXPECT_EQ(slow->send(0, 8, bytes).alone(), fast->send(0, 8, bytes).alone() * 2);
}

TEST(PlainModel, OversubscribedSpineSlowsOtherRailsOnly) {
  const auto cluster = dgx(16, {{"fabric.nodes_per_unit", "2"}, {"fabric.oversubscription", "4"}});
  const auto model = make_plain_model(*cluster, Time());
  EXPECT_EQ(model->send(0, 8, Bytes(24'000'000)).alone(), Time::from_us(1000));
  EXPECT_EQ(model->send(0, 9, Bytes(24'000'000)).alone(), Time::from_us(2000)) << "leaf up: 2 x 24 / 4 GB/s";
}

TEST(PlainModel, LoopbackCarriesAllMembersBytes) {
  const auto cluster = cluster::build_cluster("local", 4, {{"loopback.bandwidth", "1GB/s"}}, 1, kRoot);
  const auto model = make_plain_model(*cluster, Time());
  // Four members send 2 * 3/4 * 1 MB each through one path.
  EXPECT_EQ(model->collective(CollectiveKind::all_reduce, first(4), Bytes(1'000'000)).alone(), Time::from_us(6000));
}

TEST(Wire, EveryEdgeOfARingCarriesTheSameBytesAndNothingIsLost) {
  const auto cluster = dgx(32);
  const auto model = make_plain_model(*cluster, Time());
  const auto bytes =
      bytes_by_resource(*cluster, model->collective(CollectiveKind::all_reduce, first(32), Bytes(64'000'000)));
  // A ring of 32 has 32 edges of 2 * 31/32 * 64 MB = 124 MB: 28 inside nodes and 4 between, over eight channels.
  EXPECT_EQ(sum_ending(bytes, "nvlink-out"), 28 * 124'000'000LL);
  EXPECT_EQ(sum_ending(bytes, "nvlink-in"), 28 * 124'000'000LL);
  EXPECT_EQ(bytes.at("node2/nic5-out"), 15'500'000);
  EXPECT_EQ(bytes.at("node2/nic5-in"), 15'500'000);
  EXPECT_EQ(sum_ending(bytes, "-up"), 0) << "one rail of one unit stays in the leaf";
}

TEST(Wire, ChannelsShareOddBytesWithoutLosingAny) {
  const auto cluster = dgx(16);
  const auto model = make_plain_model(*cluster, Time());
  const auto bytes =
      bytes_by_resource(*cluster, model->collective(CollectiveKind::all_gather, first(16), Bytes(16 * 1001)));
  EXPECT_EQ(sum_ending(bytes, "-out") - sum_ending(bytes, "nvlink-out"), 2 * 15 * 1001)
      << "two edges between the nodes";
}

TEST(Wire, GroupsWithUnevenMembersUseTheSmallestNodesChannels) {
  const auto cluster = dgx(16);
  const auto model = make_plain_model(*cluster, Time());
  const TransferPlan plan = model->collective(CollectiveKind::all_reduce, {0, 1, 2, 3, 8, 9}, Bytes(6'000'000));
  EXPECT_EQ(plan.activities.size(), 2U);
  const auto bytes = bytes_by_resource(*cluster, plan);
  EXPECT_EQ(sum_ending(bytes, "nvlink-out"), 4 * 10'000'000) << "6 edges of 10 MB, 2 of them between nodes";
  EXPECT_EQ(bytes.at("node0/nic1-out"), 5'000'000);
}

TEST(Wire, MembersOnOtherRailsCrossTheSpine) {
  const auto cluster = dgx(16);
  const auto model = make_plain_model(*cluster, Time());
  const auto bytes =
      bytes_by_resource(*cluster, model->collective(CollectiveKind::all_gather, {2, 11}, Bytes(2'000'000)));
  EXPECT_EQ(bytes.at("unit0/leaf2-up"), 1'000'000);
  EXPECT_EQ(bytes.at("unit0/leaf3-down"), 1'000'000);
}

TEST(Wire, BroadcastNeverReturnsToItsRoot) {
  const auto cluster = dgx(16);
  const auto model = make_plain_model(*cluster, Time());
  for (const std::vector<int>& members : {std::vector<int>{2, 0, 1}, std::vector<int>{3, 2, 10, 11}}) {
    const auto bytes =
        bytes_by_resource(*cluster, model->collective(CollectiveKind::broadcast, members, Bytes(1'000'000)));
    const std::string root = "gpu" + std::to_string(members[0]);
    EXPECT_EQ(bytes.contains("node0/" + root + "/nvlink-in"), false) << root;
    EXPECT_EQ(sum_ending(bytes, "-in"), static_cast<std::int64_t>(members.size() - 1) * 1'000'000)
        << "each other receives once";
  }
}

TEST(Wire, AReduceIsABroadcastTheOtherWay) {
  const auto cluster = dgx(16);
  const auto model = make_plain_model(*cluster, Time());
  for (const std::vector<int>& members : {std::vector<int>{2, 0, 1}, std::vector<int>{3, 2, 10, 11}}) {
    const auto bytes =
        bytes_by_resource(*cluster, model->collective(CollectiveKind::reduce, members, Bytes(1'000'000)));
    const std::string root = "gpu" + std::to_string(members[0]);
    EXPECT_EQ(bytes.contains("node0/" + root + "/nvlink-out"), false) << root;
    EXPECT_EQ(sum_ending(bytes, "-out"), static_cast<std::int64_t>(members.size() - 1) * 1'000'000)
        << "each other sends once";
    EXPECT_EQ(model->collective(CollectiveKind::reduce, members, Bytes(1'000'000)).alone(),
              model->collective(CollectiveKind::broadcast, members, Bytes(1'000'000)).alone());
  }
}

TEST(Wire, AllToAllSendsEachPairItsShareOverTheReceiversRail) {
  const auto cluster = dgx(16);
  const auto model = make_plain_model(*cluster, Time());
  const auto bytes =
      bytes_by_resource(*cluster, model->collective(CollectiveKind::all_to_all, first(16), Bytes(16'000'000)));
  EXPECT_EQ(bytes.at("node0/nic3-out"), 8'000'000) << "8 members of node 0 send 1 MB each to device 11";
  EXPECT_EQ(bytes.at("node1/nic3-in"), 8'000'000);
  EXPECT_EQ(bytes.at("node0/gpu3/nvlink-out"), 14'000'000) << "7 MB to neighbours, and 7 MB to their NICs";
  EXPECT_EQ(sum_ending(bytes, "-up"), 0);
}

TEST(Wire, AllToAllWithoutARelayCrossesRails) {
  const auto cluster = dgx(16);
  const auto model = make_plain_model(*cluster, Time());
  const auto bytes =
      bytes_by_resource(*cluster, model->collective(CollectiveKind::all_to_all, {0, 9}, Bytes(2'000'000)));
  EXPECT_EQ(bytes.at("unit0/leaf0-up"), 1'000'000);
  EXPECT_EQ(bytes.at("node1/nic1-in"), 1'000'000);
}

TEST(Wire, UsesAreSortedAndUnique) {
  const auto cluster = dgx(1024);
  const auto model = make_model(*cluster, device("a100-sxm-80g"));
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::broadcast, CollectiveKind::all_to_all, CollectiveKind::reduce})
    for (const Activity& activity : model->collective(kind, spread(40, 3), Bytes(1 << 20)).activities)
      for (std::size_t i = 1; i < activity.uses.size(); ++i)
        ASSERT_LT(activity.uses[i - 1].resource, activity.uses[i].resource);
}

// DeepSeek-V3's kernels hold 20 while rows are forwarded (DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.2).
TEST(Wire, ForwardingHoldsTwentyMultiprocessors) {
  const auto cluster = dgx(16);
  const auto model = make_model(*cluster, device("h100-sxm"));
  const Exchange forwarded{std::vector<Bytes>(16, Bytes(1 << 20)), false, {64, 4, 8, 4}};
  const TransferPlan plan = model->exchange(first(16), forwarded);
  EXPECT_EQ(plan.algorithm, "forwarding");
  EXPECT_EQ(plan.sms, 20);
  EXPECT_NE(model->exchange(first(16), {forwarded.parts, false, {}}).sms, 20);
}

TEST(AnyModel, AGroupOfOneOrNothingToMoveTakesNoTime) {
  const auto cluster = dgx(8);
  const auto measured = make_model(*cluster, device("a100-sxm-80g"));
  const auto plain = make_plain_model(*cluster, Time::from_us(1));
  const auto free = make_free_model();
  EXPECT_EQ(measured->collective(CollectiveKind::all_reduce, {3}, Bytes(1 << 20)).alone(), Time());
  EXPECT_EQ(measured->collective(CollectiveKind::all_reduce, first(8), Bytes(0)).alone(), Time());
  EXPECT_EQ(plain->collective(CollectiveKind::all_reduce, {3}, Bytes(1 << 20)).alone(), Time());
  EXPECT_EQ(free->collective(CollectiveKind::all_reduce, first(8), Bytes(1 << 30)).alone(), Time());
  EXPECT_TRUE(free->send(0, 1, Bytes(1 << 30)).activities.empty());
}

TEST(AnyModel, MembersMayComeInAnyOrder) {
  const auto cluster = dgx(16);
  const auto model = make_model(*cluster, device("a100-sxm-80g"));
  const TransferPlan a = model->collective(CollectiveKind::all_reduce, {0, 1, 8, 9}, Bytes(1 << 20));
  const TransferPlan b = model->collective(CollectiveKind::all_reduce, {9, 0, 8, 1}, Bytes(1 << 20));
  EXPECT_EQ(a.alone(), b.alone());
  EXPECT_EQ(bytes_by_resource(*cluster, a), bytes_by_resource(*cluster, b));
}

// A calibration is one file: its collectives are a section with the table as a literal block.
class CalibratedCollectives : public testing::Test {
 protected:
  std::string write(const std::string& section) {
    file_ = test::temporary_path("collectives.yaml");
    std::ofstream(file_) << "rehearse_device: 1\nname: planted\n" << section;
    return file_;
  }
  void TearDown() override { std::filesystem::remove(file_); }
  std::string file_;
};
const std::string kSection =
    "collectives:\n  library: NCCL 2.28.9\n  model: nccl\n  generation: hopper\n  cpu: intel\n"
    "  measured_on: {nvlink: 370.8GB/s, nic: 47GB/s}\n  blocks: {node: 24, nodes: 16, nvls: 16, send: 2}\n"
    "  interval: {exact: [0.9, 1.1], interpolated: [0.9, 1.1], extrapolated: [0.7, 1.4], spec: [0.6, 1.7]}\n"
    "  rows: |\n    collective,gpus,nodes,bytes,time_us,source\n    all_reduce,8,1,1048576,31.5,measured\n";

TEST_F(CalibratedCollectives, AreExactWhereMeasured) {
  const auto cluster = dgx(8, {}, "dgx-h100");
  const auto model = make_model(*cluster, write(kSection));
  const TransferPlan plan = model->collective(CollectiveKind::all_reduce, first(8), Bytes(1 << 20));
  EXPECT_NEAR(seconds(plan) * 1e6, 31.5, 1e-6);
  EXPECT_EQ(plan.coverage, Coverage::exact);
}

// A measured run's, on top of the device's own: of equal group and size they replace it.
TEST_F(CalibratedCollectives, MayBeAddedToTheDevices) {
  const auto cluster = dgx(8, {}, "dgx-h100");
  const std::string added = write(
      "measurements_for: h100-sxm\ncollectives:\n  rows: |\n    collective,gpus,nodes,bytes,time_us,source\n"
      "    all_reduce,8,1,1048576,77.5,trace\n    all_gather,4,1,3145728,123.25,trace\n");
  const auto model = make_model(*cluster, device("h100-sxm"), {}, {added});
  EXPECT_NEAR(seconds(model->collective(CollectiveKind::all_reduce, first(8), Bytes(1 << 20))) * 1e6, 77.5, 1e-6);
  const TransferPlan gather = model->collective(CollectiveKind::all_gather, first(4), Bytes(3 << 20));
  EXPECT_NEAR(seconds(gather) * 1e6, 123.25, 1e-6);
  EXPECT_EQ(gather.coverage, Coverage::exact);
}

TEST_F(CalibratedCollectives, AreTheTopologysForOneGpu) {
  EXPECT_TRUE(takes_collectives_of_topology(write("collectives: {of: topology}\n")));
  EXPECT_FALSE(find_measured_data(file_).has_value());
  EXPECT_FALSE(takes_collectives_of_topology(device("h100-sxm")));
}

TEST_F(CalibratedCollectives, WhatIsWrongIsToldWithItsLine) {
  const std::string file = write(kSection + "    all_redue,8,1,4,1,measured\n");
  try {
    find_measured_data(file);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_EQ(error.diagnostics().front().line, 14);
    EXPECT_EQ(error.diagnostics().front().hint, "did you mean 'all_reduce'?");
  }
}

class MeasuredDevices : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(MeasuredDevices, ReproduceEveryMeasuredPoint) {
  const auto [topology, name] = GetParam();
  const auto cluster = dgx(128, {}, topology);
  const auto model = make_model(*cluster, device(name));
  const MeasuredData data = read_measured_data(kRoot + "/calibrate/devices/" + name + ".collectives.yaml");
  ASSERT_GE(data.points.size(), 12U);
  for (const auto& [key, points] : data.points) {
    const auto& [kind, ranks, nodes] = key;
    for (const Point& point : points) {
      const TransferPlan plan = model->collective(kind, spread(nodes, ranks / nodes), Bytes(point.bytes));
      EXPECT_NEAR(seconds(plan) * 1e6, point.time_us, 1e-6 + 1e-9 * point.time_us);
      EXPECT_EQ(plan.coverage, Coverage::exact);
      EXPECT_LE(plan.low, 1);
      EXPECT_GE(plan.high, 1);
      const Bottleneck slowest = bottleneck(*cluster, plan.activities);
      EXPECT_LE(slowest.ports, plan.activities[0].min_duration) << "the ports allow what was measured";
    }
  }
}

TEST_P(MeasuredDevices, InterpolateBetweenSizesAndExtrapolateToOtherGroups) {
  const auto [topology, name] = GetParam();
  const auto cluster = dgx(128, {}, topology);
  const auto model = make_model(*cluster, device(name));
  const TransferPlan between = model->collective(CollectiveKind::all_gather, first(8), Bytes(100'000'000));
  EXPECT_EQ(between.coverage, Coverage::interpolated);
  EXPECT_GT(between.alone(), model->collective(CollectiveKind::all_gather, first(8), Bytes(67'108'864)).alone());
  EXPECT_LT(between.alone(), model->collective(CollectiveKind::all_gather, first(8), Bytes(134'217'728)).alone());
  EXPECT_EQ(model->collective(CollectiveKind::all_gather, first(6), Bytes(1 << 20)).coverage, Coverage::extrapolated);
  EXPECT_EQ(model->collective(CollectiveKind::all_gather, first(64), Bytes(1 << 20)).coverage, Coverage::extrapolated);
  EXPECT_EQ(model->collective(CollectiveKind::all_gather, {0, 1, 2, 3, 8, 9, 10, 16}, Bytes(1 << 20)).coverage,
            Coverage::extrapolated);
}

TEST_P(MeasuredDevices, NeverBeatTheNicsBetweenNodes) {
  const auto [topology, name] = GetParam();
  const auto cluster = dgx(128, {}, topology);
  const auto model = make_model(*cluster, device(name));
  const double nic = static_cast<double>(cluster->resources().at(16).capacity.per_s());
  const double bytes = 4e9;
  for (const int nodes : {3, 4, 8, 16}) {
    const double all = wire_factor(CollectiveKind::all_gather, 8 * nodes) * bytes /
                       seconds(model->collective(CollectiveKind::all_gather, first(8 * nodes), Bytes(4'000'000'000)));
    EXPECT_LE(all, 8 * nic * 1.000001) << nodes;
    EXPECT_GT(all, 0.5 * 8 * nic) << nodes;
    const double one = wire_factor(CollectiveKind::all_reduce, nodes) * bytes /
                       seconds(model->collective(CollectiveKind::all_reduce, spread(nodes, 1), Bytes(4'000'000'000)));
    EXPECT_LE(one, nic * 1.000001) << nodes;
    EXPECT_GT(one, 0.5 * nic) << nodes;
  }
}

TEST_P(MeasuredDevices, SendsAreSlowerBetweenNodes) {
  const auto [topology, name] = GetParam();
  const auto cluster = dgx(32, {}, topology);
  const auto model = make_model(*cluster, device(name));
  const TransferPlan near = model->send(0, 1, Bytes(64 << 20));
  const TransferPlan far = model->send(0, 8, Bytes(64 << 20));
  EXPECT_LT(near.alone() * 3, far.alone());
  EXPECT_EQ(near.coverage, Coverage::interpolated);
  EXPECT_EQ(far.coverage, Coverage::spec) << "nothing of the kind is measured";
  EXPECT_EQ(near.sms, 2);
  EXPECT_EQ(bytes_by_resource(*cluster, far).at("node1/nic0-in"), 64 << 20);
}

INSTANTIATE_TEST_SUITE_P(Shipped, MeasuredDevices,
                         testing::Values(std::pair{"dgx-a100", "a100-sxm-80g"},
                                         std::pair{"dgx-a100-40g", "a100-sxm-40g"}, std::pair{"dgx-h100", "h100-sxm"},
                                         std::pair{"hgx-b200", "b200-sxm"}));

TEST(MeasuredModel, StretchesOnlyTheMovingPart) {
  const auto cluster = dgx(8);
  const auto model = make_model(*cluster, device("a100-sxm-80g"));
  const TransferPlan small = model->collective(CollectiveKind::all_reduce, first(8), Bytes(1024));
  EXPECT_LT(small.activities[0].min_duration.seconds(), 0.01 * seconds(small)) << "1 KiB is all latency";
  const TransferPlan large = model->collective(CollectiveKind::all_reduce, first(8), Bytes(1 << 30));
  EXPECT_GT(large.activities[0].min_duration.seconds(), 0.9 * seconds(large)) << "1 GiB is nearly all bandwidth";
}

TEST(MeasuredModel, HoldsTheBlocksOfTheAlgorithm) {
  const auto a100 = dgx(16);
  const auto h100 = dgx(16, {}, "dgx-h100");
  const Bytes bytes(1 << 28);
  EXPECT_EQ(make_model(*a100, device("a100-sxm-80g"))->collective(CollectiveKind::all_reduce, first(8), bytes).sms, 24);
  EXPECT_EQ(make_model(*a100, device("a100-sxm-80g"))->collective(CollectiveKind::all_gather, first(16), bytes).sms,
            16);
  const TransferPlan nvls =
      make_model(*h100, device("h100-sxm"))->collective(CollectiveKind::all_reduce, first(8), bytes);
  EXPECT_EQ(nvls.algorithm, "nvls");
  EXPECT_EQ(nvls.sms, 16);
}

TEST(MeasuredModel, OtherRatesThanMeasuredAreExtrapolated) {
  const auto slower = dgx(32, {{"nic.bandwidth", "100Gbps"}}, "dgx-a100-40g");
  const auto model = make_model(*slower, device("a100-sxm-40g"));
  const auto reference = dgx(32, {}, "dgx-a100-40g");
  const auto measured = make_model(*reference, device("a100-sxm-40g"));
  const Bytes bytes(std::int64_t{1} << 32);
  const TransferPlan plan = model->collective(CollectiveKind::all_reduce, first(32), bytes);
  EXPECT_EQ(plan.coverage, Coverage::extrapolated);
  EXPECT_NEAR(seconds(plan) / seconds(measured->collective(CollectiveKind::all_reduce, first(32), bytes)), 2, 0.1);
  EXPECT_EQ(model->collective(CollectiveKind::all_reduce, first(8), bytes).alone(),
            measured->collective(CollectiveKind::all_reduce, first(8), bytes).alone())
      << "inside a node nothing changed";
}

TEST(MeasuredModel, AnOversubscribedSpineLengthensTransfersAcrossIt) {
  const cluster::Overrides tight = {{"fabric.nodes_per_unit", "2"}, {"fabric.oversubscription", "8"}};
  const auto model_cluster = dgx(32, tight);
  const auto wide = dgx(32);
  const Bytes bytes(1 << 30);
  const double slow = seconds(
      make_model(*model_cluster, device("a100-sxm-80g"))->collective(CollectiveKind::all_gather, first(32), bytes));
  const double fast =
      seconds(make_model(*wide, device("a100-sxm-80g"))->collective(CollectiveKind::all_gather, first(32), bytes));
  EXPECT_GT(slow, 3 * fast) << "a leaf's uplinks carry 2 NICs / 8";
}

TEST(MeasuredModel, TheTopologysLatenciesCount) {
  // 16 members, 8 a node: a ring all-reduce of 1 KiB passes 30 edges, 2 of them between the nodes, a tree passes 14
  // and 2.
  const auto shipped = dgx(16);
  const Bytes bytes(1024);
  const double before =
      seconds(make_model(*shipped, device("a100-sxm-80g"))->collective(CollectiveKind::all_reduce, first(16), bytes));
  const auto grown = [&](const char* key, const char* latency) {
    const auto other = dgx(16, {{key, latency}});
    return seconds(
               make_model(*other, device("a100-sxm-80g"))->collective(CollectiveKind::all_reduce, first(16), bytes)) -
           before;
  };
  EXPECT_GT(grown("nic.latency", "1002700ns"), 2 * 0.9e-3) << "two passes over the network of 1 ms more each";
  EXPECT_GT(grown("nvlink.latency", "1000600ns"), 14 * 0.9e-3);
  EXPECT_LT(grown("nic.latency", "0"), 0);
  EXPECT_NEAR(grown("fabric.hop_latency", "1ms"), 0, 1e-12) << "both nodes hang on the same leaves";
}

TEST(MeasuredModel, SwitchesAboveTheLeavesAddTheirHops) {
  // Six nodes, two a unit: of the five edges of a ring's all-gather two cross units, over two switches more each.
  const cluster::Overrides far = {{"fabric.nodes_per_unit", "2"}};
  const auto near = dgx(48), apart = dgx(48, far);
  const auto time = [](const cluster::Cluster& c) {
    return make_model(c, device("a100-sxm-80g"))->collective(CollectiveKind::all_gather, spread(6, 1), Bytes(4096));
  };
  EXPECT_EQ(time(*apart).startup - time(*near).startup, Time::from_ns(2 * 2 * 130));
  const auto send = [](const cluster::Cluster& c) {
    return make_model(c, device("a100-sxm-80g"))->send(0, 16, Bytes(4096)).startup;
  };
  EXPECT_EQ(send(*apart) - send(*near), Time::from_ns(2 * 130));
}

TEST(MeasuredModel, OneNodesSmallGroupsSayNothingAboutTheNetwork) {
  // Measured on one node, two devices reach 150 of NVLink's 240 GB/s at most, eight 213 or more. One device a node
  // waits for its NIC of 24 GB/s, which all-gather and reduce-scatter fill as an all-reduce, their sum, does.
  const auto cluster = dgx(128);
  const auto model = make_model(*cluster, device("a100-sxm-80g"));
  const Bytes bytes(std::int64_t{1} << 30);
  const double reduce = seconds(model->collective(CollectiveKind::all_reduce, spread(16, 1), bytes));
  const double gather = seconds(model->collective(CollectiveKind::all_gather, spread(16, 1), bytes));
  const double scatter = seconds(model->collective(CollectiveKind::reduce_scatter, spread(16, 1), bytes));
  EXPECT_NEAR((gather + scatter) / reduce, 1, 0.12);
  EXPECT_GT(15.0 / 16 * static_cast<double>(bytes.count()) / gather, 0.8 * 24e9);
}

TEST(SpecModel, WithoutMeasurementsTheTopologySpeaks) {
  const auto cluster = dgx(8);
  for (const std::string& file : {std::string(), kRoot + "/calibrate/devices/none.yaml"}) {
    const TransferPlan plan =
        make_model(*cluster, file)->collective(CollectiveKind::all_reduce, first(8), Bytes(240'000'000));
    EXPECT_EQ(plan.coverage, Coverage::spec);
    EXPECT_NEAR(seconds(plan) * 1e6, 14 * 0.6 + 1750, 1e-3);
    EXPECT_EQ(plan.sms, 0);
    EXPECT_LT(plan.low, 1);
  }
}

TEST(SpecModel, TheLocalHostSharesItsLoopback) {
  const auto cluster =
      cluster::build_cluster("local", 4, {{"loopback.bandwidth", "1GB/s"}, {"loopback.latency", "5us"}}, 1, kRoot);
  const auto model = make_model(*cluster, "");
  EXPECT_NEAR(seconds(model->collective(CollectiveKind::all_reduce, first(4), Bytes(1'000'000))) * 1e6, 6 * 5 + 6000,
              1e-3);
  EXPECT_NEAR(seconds(model->send(0, 1, Bytes(1'000'000))) * 1e6, 5 + 1000, 1e-3);
}

class BadMeasurements : public testing::Test {
 protected:
  // What reading a device's collectives reports; "" if they are read.
  std::string errors(const std::string& yaml, const std::string& csv) {
    const std::string folder = test::temporary_path("collective");
    std::filesystem::create_directories(folder);
    const std::string base = folder + "/bad-device";
    std::ofstream(base + ".collectives.yaml") << yaml;
    std::ofstream(base + ".csv") << csv;
    const auto cluster = dgx(8);
    try {
      make_model(*cluster, base + ".yaml");
      return "";
    } catch (const InputError& error) {
      std::string text;
      for (const Diagnostic& d : error.diagnostics()) text += d.text() + "\n";
      return text;
    }
  }
  const std::string good_yaml_ =
      "collectives: 1\nmodel: ring\ninterval: {exact: [1, 1], interpolated: [0.9, 1.1], extrapolated: [0.5, 2], spec: "
      "[0.5, "
      "2]}\nmeasurements: bad-device.csv\n";
  const std::string header_ = "collective,gpus,nodes,bytes,time_us,source\n";
};

TEST_F(BadMeasurements, GoodOnesAreRead) {
  EXPECT_EQ(errors(good_yaml_, header_ + "all_reduce,2,1,1024,5.5,me\n"), "");
}

TEST_F(BadMeasurements, EveryBadRowIsNamedWithItsLine) {
  const std::string text =
      errors(good_yaml_, header_ +
                             "all_reduse,2,1,1024,5,x\nall_reduce,1,1,1024,5,x\n"
                             "all_reduce,2,1,1024,-5,x\nall_reduce,2,1,1024\nall_reduce,4,3,8,5,x\n"
                             "all_reduce,2,1,8,5,x\nall_reduce,2,1,8,6,x\n");
  EXPECT_NE(text.find(".csv:2:"), std::string::npos) << text;
  EXPECT_NE(text.find("did you mean 'all_reduce'?"), std::string::npos) << text;
  for (const char* line : {".csv:3:", ".csv:4:", ".csv:5:", ".csv:6:", ".csv:8:"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  EXPECT_EQ(text.find(".csv:7:"), std::string::npos) << text;
}

TEST_F(BadMeasurements, BadKeysAndIntervalsAreNamed) {
  const std::string text =
      errors("collectives: 1\nmodel: nccl\nintervall: {}\ninterval: {exact: [2, 1]}\nmeasurements: none.csv\n", "");
  EXPECT_NE(text.find("intervall"), std::string::npos) << text;
  EXPECT_NE(text.find("interval.exact"), std::string::npos) << text;
  EXPECT_NE(text.find("generation"), std::string::npos) << text;
  EXPECT_NE(text.find("measured_on"), std::string::npos) << text;
  EXPECT_NE(errors(good_yaml_, "bytes,time\n").find(".csv:1:"), std::string::npos);
}

}  // namespace
}  // namespace rehearse::collective
