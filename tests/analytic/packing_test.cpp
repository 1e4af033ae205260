// Rows of whole sequences (sim/run/reinforcement/packing.h) against packings that can be counted by hand.
#include "sim/run/reinforcement/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "sim/run/reinforcement/reinforcement.h"

namespace rehearse::packing_test {
namespace {

using run::pack_sequences;
using run::PackedRows;
using Lengths = std::vector<std::int64_t>;

// As many sequences as a row has room for, whatever their tokens together would fill.
TEST(Packing, CutsNoSequence) {
  EXPECT_EQ(pack_sequences(Lengths(512, 2150), 4096).rows, 512);
  EXPECT_EQ(pack_sequences(Lengths(512, 1060), 4096).rows, 171);
  EXPECT_EQ(pack_sequences(Lengths(512, 2048), 4096).rows, 256);
  EXPECT_EQ(pack_sequences({4096}, 4096).rows, 1);
  EXPECT_EQ(pack_sequences({1}, 4096).rows, 1);
}

TEST(Packing, PaddingIsASequenceMore) {
  EXPECT_EQ(pack_sequences({2150, 2150}, 4096).squares, 2 * (2150.0 * 2150 + 1946.0 * 1946));
  EXPECT_EQ(pack_sequences({4096, 1000, 3096}, 4096).squares, 4096.0 * 4096 + 1000.0 * 1000 + 3096.0 * 3096);
}

// Johnson & Garey's case for the modification. First-fit decreasing puts 270 beside each 510 (room 220 is left, less
// than any), three of 260 into a row and four of 230: 6 + 2 + 3 rows. Modified, 230 and 260 fill each row of 510; what
// is left are six of 270, three to a row, and six of 230, four to a row.
TEST(Packing, FillsRowsOfALargeOneWithTwoSmallOnes) {
  Lengths lengths;
  for (int i = 0; i < 6; ++i) lengths.insert(lengths.end(), {510, 270, 260, 230, 230});
  EXPECT_EQ(pack_sequences(lengths, 1000).rows, 10);
}

// 480 goes beside 510 before the two of 170 could, which are needed to fill the row of 330 and 330.
TEST(Packing, FillsRowsOfALargeOneWithAMediumOneFirst) {
  EXPECT_EQ(pack_sequences({510, 480, 330, 330, 170, 170}, 1000).rows, 2);
}

// No packing needs fewer rows than all tokens fill, and this one at most 71/60 of the least and one more.
TEST(Packing, IsNearTheLeast) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Lengths lengths;
    for (std::uint64_t i = 0; i < 400; ++i)
      lengths.push_back(1 + static_cast<std::int64_t>((seed * 7919 + i * i * 104729) % 1000));
    const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    const std::int64_t over_half = std::count_if(lengths.begin(), lengths.end(), [](auto l) { return l > 500; });
    const std::int64_t least = std::max((tokens + 999) / 1000, over_half), rows = pack_sequences(lengths, 1000).rows;
    EXPECT_GE(rows, least);
    EXPECT_LE(static_cast<double>(rows), 71.0 / 60 * static_cast<double>(least) + 1);
  }
}

std::string micro_batches(std::vector<std::string> assignments) {
  const std::string root = REHEARSE_SOURCE_DIR;
  run::Options options;
  options.data_root = root, options.record = false;
  assignments.emplace_back("reinforcement.response_sigma=0");
  const plan::Scenario s = plan::read_scenario(root + "/scenarios/llama3-8b-grpo-16xh100.yaml", assignments, root);
  return run::simulate_reinforcement(s, assignments, options).scenario.at("plan.micro_batches");
}

// Over 8 replicas, of updates of 512 sequences in rows of 4,096 tokens: a row holds one sequence of 2,150 tokens, as
// without packing, or three of 1,060, which are 171 rows, 22 for each replica.
TEST(Step, HasRowsForWholeSequences) {
  EXPECT_EQ(micro_batches({"reinforcement.response_tokens=2000"}), "64");
  EXPECT_EQ(micro_batches({"reinforcement.response_tokens=2000", "reinforcement.packing=false"}), "64");
  EXPECT_EQ(micro_batches({"reinforcement.response_tokens=910"}), "22");
}

}  // namespace
}  // namespace rehearse::packing_test
