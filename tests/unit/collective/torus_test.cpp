// Collectives along whole dimensions of a torus, on a pod of TPU v4 in several shapes: what the links need in closed
// form, bytes that members send, and which groups are refused.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "sim/cluster/topology.h"
#include "sim/collective/algorithms/algorithm.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

constexpr std::int64_t kGibibyte = std::int64_t{1} << 30;
constexpr double kLink = 45e9;  // bytes/s of a direction: 50 GB/s at 0.9 (topologies/tpu-v4.yaml)

std::unique_ptr<cluster::Cluster> pod(const std::string& dims, int chips, const std::string& wrap = "true") {
  return cluster::build_cluster("tpu-v4", chips, {{"fabric.dims", dims}, {"fabric.wrap", wrap}}, 1,
                                REHEARSE_SOURCE_DIR);
}

Group every(const cluster::Cluster& cluster, int count, int stride = 1) {
  std::vector<int> members;
  for (int i = 0; i < count; ++i) members.push_back(i * stride);
  return group_of(cluster, members);
}

double seconds(const cluster::Cluster& cluster, const Group& group, CollectiveKind kind) {
  return in_rounds(cluster, group, algorithms::torus().rounds(group, kind, kGibibyte)).activity.min_duration.seconds();
}

std::string refused(const Group& group, CollectiveKind kind = CollectiveKind::all_reduce) {
  return std::string(algorithms::torus().refusal({}, group.place, kind, std::nullopt));
}

// All six links of a chip are busy throughout: a half of B bytes over n members takes B (n - 1)/n / (6 links).
TEST(Torus, ACubeUsesAllItsLinks) {
  const auto cluster = pod("[8, 8, 8]", 512);
  const Group group = every(*cluster, 512);
  const double half = kGibibyte * (511.0 / 512) / (6 * kLink);
  EXPECT_NEAR(seconds(*cluster, group, CollectiveKind::reduce_scatter), half, half * 1e-5);
  EXPECT_NEAR(seconds(*cluster, group, CollectiveKind::all_gather), half, half * 1e-5);
  EXPECT_NEAR(seconds(*cluster, group, CollectiveKind::all_reduce), 2 * half, half * 2e-5);
}

// Rows of a dimension: two links a chip; planes: four. A ring of two has one.
TEST(Torus, RowsAndPlanesUseTheirDimensionsLinks) {
  const auto cluster = pod("[4, 8, 8]", 256);
  const Group row = every(*cluster, 4), plane = every(*cluster, 64, 4);
  ASSERT_EQ(row.torus.size(), 1U);
  ASSERT_EQ(plane.torus.size(), 2U);
  const double of_row = kGibibyte * (3.0 / 4) / (2 * kLink), of_plane = kGibibyte * (63.0 / 64) / (4 * kLink);
  EXPECT_NEAR(seconds(*cluster, row, CollectiveKind::all_gather), of_row, of_row * 1e-5);
  EXPECT_NEAR(seconds(*cluster, plane, CollectiveKind::all_gather), of_plane, of_plane * 1e-5);
  const auto two = pod("[2, 4]", 8);
  const double of_two = kGibibyte * (1.0 / 2) / kLink;
  EXPECT_NEAR(seconds(*two, every(*two, 2), CollectiveKind::all_gather), of_two, of_two * 1e-5);
}

// Whatever the sizes of the dimensions, a member sends all but its own share of a half, to neighbours alone.
TEST(Torus, MembersSendWhatAHalfNeeds) {
  const auto cluster = pod("[3, 4, 8]", 96);
  const Group group = every(*cluster, 96);
  std::map<std::size_t, double> sent;
  for (const Round& round : algorithms::torus().rounds(group, CollectiveKind::reduce_scatter, kGibibyte))
    for (const Round::Message& m : round.messages) {
      sent[m.from] += static_cast<double>(m.bytes * round.repeat);
      const cluster::Route route = cluster->route(group.members[m.from], group.members[m.to]);
      EXPECT_EQ(route.resources.size(), 3U);  // out of the chip, one link, into the other
    }
  ASSERT_EQ(sent.size(), 96U);
  for (const auto& [member, bytes] : sent) EXPECT_NEAR(bytes, kGibibyte * (95.0 / 96), kGibibyte * 1e-5);
}

TEST(Torus, GroupsThatFillNoDimensionAreRefused) {
  const auto cluster = pod("[4, 8, 8]", 256);
  EXPECT_EQ(refused(every(*cluster, 4)), "");
  EXPECT_NE(refused(every(*cluster, 2)), "");                                    // half of a row
  EXPECT_NE(refused(every(*cluster, 4, 2)), "");                                 // every other chip of two rows
  EXPECT_NE(refused(group_of(*cluster, {0, 1, 2, 3, 4, 5, 6, 8 + 4 * 8})), "");  // as many as two rows
  EXPECT_NE(refused(every(*cluster, 4), CollectiveKind::all_to_all), "");
  const auto mesh = pod("[4, 8, 8]", 256, "false");
  EXPECT_NE(refused(every(*mesh, 4)), "");
  const auto nodes = cluster::build_cluster("dgx-a100", 16, {}, 1, REHEARSE_SOURCE_DIR);
  EXPECT_NE(refused(every(*nodes, 16)), "");
}

}  // namespace
}  // namespace rehearse::collective
