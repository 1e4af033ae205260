// Every algorithm of the list answers the same questions where it is offered: a time, bytes on resources, messages, and
// thread blocks.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "sim/cluster/topology.h"
#include "sim/collective/algorithms/algorithm.h"
#include "sim/collective/steps.h"

namespace rehearse::collective {
namespace {

using program::CollectiveKind;

constexpr std::int64_t kMebibytes = 64 << 20;

struct Place {
  const char* name;
  int devices, stride;  // of a cluster of 32, every stride-th
};
// One node, several nodes, one rank of each node; of a torus of 2 x 4 x 4 two of its dimensions, all, one.
constexpr Place kPlaces[] = {{"node", 8, 1}, {"nodes", 32, 1}, {"rail", 4, 8}};

std::unique_ptr<cluster::Cluster> cluster_for(Algorithm algorithm) {
  if (algorithm == Algorithm::torus)
    return cluster::build_cluster("tpu-v4", 32, {{"fabric.dims", "[2, 4, 4]"}}, 1, REHEARSE_SOURCE_DIR);
  return cluster::build_cluster("dgx-h100", 32, {{"fabric.sharp", "true"}}, 1, REHEARSE_SOURCE_DIR);
}

class EveryAlgorithm : public testing::TestWithParam<Algorithm> {};

TEST_P(EveryAlgorithm, AnswersWhereItIsOffered) {
  const auto cluster = cluster_for(GetParam());
  const nccl::Machine machine{
      .generation = nccl::Generation::hopper, .pat = true, .sharp = true, .nvlink_gbps = 360, .nic_gbps = 48};
  const AlgorithmModel& model = model_of(GetParam());
  const BlockLimits limits{.node = 16, .nodes = 16, .nvls = 16};
  int offered = 0;
  for (const Place& place : kPlaces)
    for (std::size_t k = 0; k < kCollectiveKindWords.size(); ++k) {
      const auto kind = static_cast<CollectiveKind>(k);
      std::vector<int> members;
      for (int i = 0; i < place.devices; ++i) members.push_back(i * place.stride);
      const Group group = group_of(*cluster, members);
      if (!model.refusal(machine, group.place, kind, Protocol::simple).empty()) continue;
      ++offered;
      SCOPED_TRACE(std::string(place.name) + " " + std::string(kCollectiveKindWords[k]));
      std::vector<Activity> activities;
      if (model.timed_by_rounds(kind)) {
        EXPECT_TRUE(model.has_messages(kind));
        activities = {in_rounds(*cluster, group, model.rounds(group, kind, kMebibytes)).activity};
        EXPECT_GT(activities.front().min_duration, Time());
      } else {
        const nccl::Estimate e = nccl::estimate(machine, group.place, nccl::ring_channels(machine, group.place), kind,
                                                GetParam(), Protocol::simple, static_cast<double>(kMebibytes));
        EXPECT_GT(e.latency_us, 0);
        EXPECT_GT(e.time_us, e.latency_us);
        EXPECT_GT(e.gbps, 0);
        activities = model.activities(*cluster, group, kind, kMebibytes);
      }
      ASSERT_FALSE(activities.empty());
      for (const Activity& activity : activities) EXPECT_FALSE(activity.uses.empty());
      if (model.has_messages(kind)) {
        EXPECT_GT(steps_of(*cluster, group, kind, GetParam(), kMebibytes).messages(), 0);
      }
      EXPECT_EQ(model.blocks(group.place, Protocol::simple, static_cast<double>(kMebibytes), limits), 16);
    }
  EXPECT_GT(offered, 0);
}

std::vector<Algorithm> all_algorithms() {
  std::vector<Algorithm> all;
  for (int a = 0; a < kAlgorithms; ++a) all.push_back(static_cast<Algorithm>(a));
  return all;
}

INSTANTIATE_TEST_SUITE_P(List, EveryAlgorithm, testing::ValuesIn(all_algorithms()),
                         [](const auto& entry) { return std::string(name_of(entry.param)); });

TEST(AlgorithmList, EveryWordHasAModelOfItsOwn) {
  std::set<const AlgorithmModel*> models;
  for (const Algorithm algorithm : all_algorithms()) models.insert(&model_of(algorithm));
  EXPECT_EQ(models.size(), kCollectiveAlgorithmWords.size());
}

}  // namespace
}  // namespace rehearse::collective
