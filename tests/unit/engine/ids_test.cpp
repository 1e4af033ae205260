// Indices of one kind do not pass for another's.
#include "sim/engine/ids.h"

#include <gtest/gtest.h>

#include <concepts>
#include <vector>

namespace rehearse::engine {
namespace {

template <class Table, class Key>
constexpr bool indexes = requires(Table table, Key key) {
  table[key];
};

TEST(Ids, IndexOnlyTablesOfTheirKind) {
  using ByRank = IdVector<RankId, int>;
  EXPECT_TRUE((indexes<ByRank, RankId>));
  EXPECT_FALSE((indexes<ByRank, StreamId>)) << "a stream is no rank";
  EXPECT_FALSE((indexes<ByRank, int>)) << "nor is a number, unless it is said to be one";
  EXPECT_FALSE((std::convertible_to<int, RankId>));
  EXPECT_FALSE((std::equality_comparable_with<RankId, StreamId>));
}

TEST(Ids, ATableHandsOutItsIdsInOrder) {
  IdVector<RankId, int> table;
  EXPECT_EQ(table.push_back(10), RankId(0));
  EXPECT_EQ(table.push_back(11), RankId(1));
  EXPECT_EQ(table.next(), RankId(2));
  std::vector<int> seen;
  for (const RankId id : table.ids()) seen.push_back(table[id]);
  EXPECT_EQ(seen, (std::vector<int>{10, 11}));
  EXPECT_FALSE(RankId().exists());
}

TEST(Ids, ReachMakesRoomAndKeepsWhatIsThere) {
  IdVector<RankId, int> table;
  table.reach(RankId(2));
  table[RankId(2)] = 5;
  table.reach(RankId(0));
  EXPECT_EQ(table.size(), 3u);
  EXPECT_EQ(table[RankId(2)], 5);
}

}  // namespace
}  // namespace rehearse::engine
