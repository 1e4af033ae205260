// The rank grid: numbering, peers and groups, worked out by hand for small grids.
#include "sim/plan/rank_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sim/base/check.h"

namespace rehearse::plan {
namespace {

constexpr AxisOrder kDefaultOrder = {Axis::tensor, Axis::context, Axis::expert, Axis::data, Axis::pipeline};

// tensor 2, data 3, pipeline 4: rank = tensor + 2 data + 6 pipeline.
RankGrid small() {
  return {{2, 1, 1, 3, 4}, kDefaultOrder};
}

TEST(RankGrid, NumbersTheFastestAxisFirst) {
  const RankGrid grid = small();
  EXPECT_EQ(grid.ranks(), 24);
  EXPECT_EQ(grid.coordinate(17, Axis::tensor), 1);
  EXPECT_EQ(grid.coordinate(17, Axis::data), 2);
  EXPECT_EQ(grid.coordinate(17, Axis::pipeline), 2);
  EXPECT_EQ(grid.coordinate(17, Axis::context), 0);
}

// tensor 2, data 2 in 3 groups that shard apart, pipeline 2: replicas are numbered as if data were one axis of 6.
TEST(RankGrid, ReplicasComeRightAfterData) {
  const RankGrid grid({2, 1, 1, 2, 2}, kDefaultOrder, 3), one({2, 1, 1, 6, 2}, kDefaultOrder);
  ASSERT_EQ(grid.ranks(), one.ranks());
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    EXPECT_EQ(grid.position(rank, {Axis::data, Axis::replica}), one.coordinate(rank, Axis::data));
    EXPECT_EQ(grid.position(rank, kShardAxes), grid.coordinate(rank, Axis::data));
  }
  EXPECT_EQ(grid.members(5, {Axis::data}), (std::vector<int>{5, 7}));
  EXPECT_EQ(grid.members(5, {Axis::replica}), (std::vector<int>{1, 5, 9}));
}

// The place of a rank in a group is what its part of a collective is.
TEST(RankGrid, APositionIsThePlaceAmongTheMembers) {
  const RankGrid grid({2, 3, 1, 2, 2}, {Axis::data, Axis::tensor, Axis::context, Axis::expert, Axis::pipeline}, 2);
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const std::vector<int> members = grid.members(rank, {Axis::context, Axis::data});
    EXPECT_EQ(members[static_cast<std::size_t>(grid.position(rank, kShardAxes))], rank);
  }
}

TEST(RankGrid, AnyOrderIsABijectionBetweenRanksAndCoordinates) {
  AxisOrder order = kDefaultOrder;
  std::sort(order.begin(), order.end());
  do {
    const RankGrid grid({2, 3, 1, 2, 4}, order);
    std::set<std::array<int, kAxes>> seen;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      std::array<int, kAxes> coordinates{};
      int rebuilt = 0, stride = 1;
      for (const Axis axis : order) {
        const int c = grid.coordinate(rank, axis);
        ASSERT_GE(c, 0);
        ASSERT_LT(c, grid.size(axis));
        coordinates[static_cast<std::size_t>(axis)] = c;
        rebuilt += c * stride;
        stride *= grid.size(axis);
      }
      EXPECT_EQ(rebuilt, rank);
      seen.insert(coordinates);
    }
    EXPECT_EQ(seen.size(), 48U) << "two ranks share their coordinates";
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(RankGrid, PeersWrapAroundAndKeepTheOtherCoordinates) {
  const RankGrid grid = small();
  EXPECT_EQ(grid.peer(17, Axis::pipeline, 1), 23);
  EXPECT_EQ(grid.peer(17, Axis::pipeline, 2), 5) << "stage 2 + 2 wraps to stage 0";
  EXPECT_EQ(grid.peer(17, Axis::pipeline, -3), 23) << "stage 2 - 3 wraps to stage 3";
  EXPECT_EQ(grid.peer(17, Axis::data, 1), 13) << "replica 2 + 1 wraps to replica 0";
  EXPECT_EQ(grid.peer(17, Axis::tensor, -1), 16);
  EXPECT_EQ(grid.peer(17, Axis::context, 5), 17) << "an axis of size 1 has no other rank";
}

TEST(RankGrid, GroupsHoldTheRanksThatDifferOnTheirAxesOnly) {
  const RankGrid grid = small();
  EXPECT_EQ(grid.members(17, {Axis::tensor}), (std::vector<int>{16, 17}));
  EXPECT_EQ(grid.members(17, {Axis::data}), (std::vector<int>{13, 15, 17}));
  EXPECT_EQ(grid.members(17, {Axis::pipeline}), (std::vector<int>{5, 11, 17, 23}));
  EXPECT_EQ(grid.members(17, {Axis::data, Axis::tensor}), (std::vector<int>{12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(grid.members(17, {}), (std::vector<int>{17}));
}

TEST(RankGrid, TheEmbeddingGroupIsTheFirstAndTheLastStage) {
  const RankGrid grid = small();
  EXPECT_EQ(grid.members(5, {Axis::pipeline}, {0, 3}), (std::vector<int>{5, 23}));
  EXPECT_EQ(grid.members(17, {Axis::pipeline}, {0, 3}), (std::vector<int>{5, 23}))
      << "a rank of a middle stage is not in the group, but finds it";
  EXPECT_EQ(grid.members(5, {Axis::data}, {0}), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(grid.members(17, {Axis::data}, {0}), (std::vector<int>{})) << "stage 2 is not listed and does not vary";
  const RankGrid one_stage({2, 1, 1, 3, 1}, kDefaultOrder);
  EXPECT_EQ(one_stage.members(4, {Axis::pipeline}, {0, 0}), (std::vector<int>{4})) << "first and last stage in one";
}

TEST(RankGrid, BlocksOfTheTensorAxisAreConsecutiveCoordinates) {
  const RankGrid grid({6, 1, 1, 2, 1}, {Axis::data, Axis::tensor, Axis::context, Axis::expert, Axis::pipeline});
  EXPECT_EQ(grid.members(5, {Axis::tensor}, {}, 2), (std::vector<int>{5, 7})) << "tensor coordinates 2 and 3";
  EXPECT_EQ(grid.members(8, {Axis::tensor}, {}, 3), (std::vector<int>{6, 8, 10}));
  EXPECT_EQ(grid.members(8, {Axis::tensor}, {}, 0).size(), 6U);
  EXPECT_EQ(grid.members(5, {Axis::tensor, Axis::data}, {}, 2), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(grid.members(5, {Axis::data}, {}, 2), (std::vector<int>{4, 5})) << "the tensor axis does not vary";
}

TEST(RankGrid, GroupsOfAKindPartitionTheRanks) {
  const RankGrid grid({2, 1, 1, 3, 4}, {Axis::pipeline, Axis::data, Axis::tensor, Axis::expert, Axis::context});
  std::vector<int> times(24);
  for (int rank = 0; rank < 24; ++rank) {
    const std::vector<int> group = grid.members(rank, {Axis::data, Axis::pipeline});
    EXPECT_EQ(group.size(), 12U);
    EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
    for (const int member : group) {
      ++times[static_cast<std::size_t>(member)];
      EXPECT_EQ(grid.members(member, {Axis::data, Axis::pipeline}), group);
    }
  }
  EXPECT_EQ(times, std::vector<int>(24, 12));
}

TEST(RankGrid, RefusesAnOrderThatIsNoPermutation) {
  EXPECT_THROW(RankGrid({2, 1, 1, 3, 4}, {Axis::tensor, Axis::tensor, Axis::expert, Axis::data, Axis::pipeline}),
               InternalError);
}

TEST(RankGrid, RanksAndCoordinatesAreEachOthersInverse) {
  const RankGrid grid({2, 1, 1, 3, 4}, {Axis::pipeline, Axis::tensor, Axis::context, Axis::expert, Axis::data});
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    EXPECT_EQ(grid.rank(grid.coordinates(rank)), rank);
    EXPECT_EQ(grid.coordinates(rank)[static_cast<std::size_t>(Axis::data)], grid.coordinate(rank, Axis::data));
  }
}

}  // namespace
}  // namespace rehearse::plan
