// Counts of experts as parts of an all-to-all, and the places of the rows that came.
#include "execute/rank/expert_rows.h"

#include <gtest/gtest.h>

#include "sim/base/diagnostics.h"

namespace rehearse::execute {
namespace {

// Two ranks with two experts each: rank 0's tokens chose them 1, 2, 0 and 3 times, rank 1's 4, 0, 2 and 0 times.
std::vector<float> counts() {
  return {1, 2, 0, 3, 4, 0, 2, 0};
}
const std::vector<int> kRanks = {6, 8};
program::Op op_called(const std::string& name) {
  program::Op op;
  op.name = name;
  return op;
}
program::Collective trade(bool back, std::int64_t rows) {
  program::Collective c{program::CollectiveKind::all_to_all, 0, 60};
  c.back = back, c.counted = true, c.own = 10 * rows, c.row = 10, c.experts = 4;
  return c;
}
using Elements = std::vector<std::int64_t>;

TEST(ExpertRows, PartsAreThoseOfTheExpertsOfEachRank) {
  std::vector<float> chosen = counts();
  const Parts there = parts_of(op_called("x"), trade(false, 7), 8, kRanks, chosen.data());
  EXPECT_EQ(there.sent, (Elements{40, 20}));
  EXPECT_EQ(there.received, (Elements{30, 20}));
  EXPECT_EQ(there.begins, (Elements{30, 40})) << "behind what goes to rank 6";
  const Parts back = parts_of(op_called("x"), trade(true, 7), 8, kRanks, chosen.data());
  EXPECT_EQ(back.sent, (Elements{30, 20}));
  EXPECT_EQ(back.received, (Elements{40, 20}));
  EXPECT_EQ(back.begins, (Elements{30, 30})) << "behind the rows of rank 6's tokens";
}

TEST(ExpertRows, ThatHaveNoRoomNameTheRankEverywhere) {
  std::vector<float> chosen = counts();
  for (const int rank : kRanks) {
    try {
      parts_of(op_called("layer3.dispatch"), trade(false, 6), rank, kRanks, chosen.data());
      FAIL() << "7 rows in room for 6";
    } catch (const InputError& error) {
      EXPECT_EQ(error.diagnostics().front().message,
                "7 rows come to the experts of rank 6 in 'layer3.dispatch', which has room for 6");
      EXPECT_EQ(error.diagnostics().front().path, "model.buffer_factor");
    }
  }
}

// The first rank's experts: 1 and 2 rows of its own tokens, then 4 of the other's for its first.
TEST(ExpertRows, ComeSortedByRankAndGoByExpert) {
  program::Router r{program::RouterPart::receive, 9, 4, 1};
  r.sources = 2, r.own = 2;
  const std::vector<float> chosen = counts();
  std::vector<std::int32_t> places(9, 77);
  std::vector<float> loads(2);
  receive_rows(r, 0, chosen.data(), places.data(), loads.data());
  EXPECT_EQ(places, (std::vector<std::int32_t>{0, 5, 6, 1, 2, 3, 4, -1, -1}));
  EXPECT_EQ(loads, (std::vector<float>{5, 2}));
  receive_rows(r, 1, chosen.data(), places.data(), loads.data());
  EXPECT_EQ(places, (std::vector<std::int32_t>{2, 3, 4, 0, 1, -1, -1, -1, -1}));
  // As two slices of a tensor group, with room after each: 4 and 4 rows.
  r.tokens = 10, r.slices = 2;
  places.resize(10);
  receive_rows(r, 0, chosen.data(), places.data(), loads.data());
  EXPECT_EQ(places, (std::vector<std::int32_t>{0, 5, 6, -1, -1, 1, 2, 3, 4, -1}));
}

// Three tokens of two choices among four experts, two a rank: rows in the order of the tokens, the other rank's have
// none.
TEST(ExpertRows, OfGatheredTokensAreOwnExpertsAlone) {
  program::Router r{program::RouterPart::place, 3, 4, 2};
  r.own = 2, r.room = 4;
  const std::vector<std::int32_t> chosen = {1, 3, 0, 1, 2, 1};
  std::vector<std::int32_t> places(6, 77);
  std::vector<float> loads(2);
  place_own_rows(r, 0, chosen.data(), places.data(), loads.data());
  EXPECT_EQ(places, (std::vector<std::int32_t>{1, -1, 0, 2, -1, 3}));
  EXPECT_EQ(loads, (std::vector<float>{1, 3}));
  place_own_rows(r, 1, chosen.data(), places.data(), loads.data());
  EXPECT_EQ(places, (std::vector<std::int32_t>{-1, 1, -1, -1, 0, -1}));
  EXPECT_EQ(loads, (std::vector<float>{1, 1}));
  r.room = 3;
  for (const int place : {0, 1}) {  // the rank with room for its own knows too
    try {
      place_own_rows(r, place, chosen.data(), places.data(), loads.data());
      FAIL() << "4 rows in room for 3";
    } catch (const InputError& error) {
      EXPECT_EQ(error.diagnostics().front().message, "4 rows come to experts 0 to 1, which have room for 3");
    }
  }
}

}  // namespace
}  // namespace rehearse::execute
