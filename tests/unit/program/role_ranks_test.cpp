// A role is a set of ranks, by their coordinates.
#include <gtest/gtest.h>

#include "sim/base/check.h"
#include "sim/program/program.h"

namespace rehearse::program {
namespace {

Coordinates at(int tensor, int data, int pipeline) {
  return {tensor, 0, 0, data, pipeline};
}

TEST(RoleRanks, AreThoseWhoseCoordinatesAreListed) {
  RankSet set;
  EXPECT_TRUE(set.contains(at(1, 5, 3))) << "nothing listed: all";
  set.only[static_cast<std::size_t>(Axis::pipeline)] = {3, 1};
  set.only[static_cast<std::size_t>(Axis::tensor)] = {1};
  EXPECT_TRUE(set.contains(at(1, 5, 3)));
  EXPECT_TRUE(set.contains(at(1, 0, 1)));
  EXPECT_FALSE(set.contains(at(1, 0, 2)));
  EXPECT_FALSE(set.contains(at(0, 0, 3)));
  EXPECT_EQ(set.first(), at(1, 0, 1));
}

TEST(RoleRanks, GiveEveryRankItsRole) {
  Program program;
  program.roles.resize(3);
  program.roles[0].ranks = RankSet::of_stage(1);
  program.roles[1].ranks = RankSet::of_stage(0);
  program.roles[1].ranks.only[static_cast<std::size_t>(Axis::tensor)] = {0};
  program.roles[2].ranks = RankSet::of_stage(0);
  program.roles[2].ranks.only[static_cast<std::size_t>(Axis::tensor)] = {1};
  EXPECT_EQ(role_of(program, at(0, 2, 1)), 0);
  EXPECT_EQ(role_of(program, at(0, 2, 0)), 1) << "two roles of one stage";
  EXPECT_EQ(role_of(program, at(1, 2, 0)), 2);
  EXPECT_THROW(role_of(program, at(2, 0, 0)), InternalError);
}

}  // namespace
}  // namespace rehearse::program
