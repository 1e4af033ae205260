// Lags of reuse (sim/program/link/reuse_lag.h) in lowered programs: said of both buffers of a pair alike, once each,
// and the same whether rounds of micro-batches are left out or not.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "sim/lower/lower.h"
#include "sim/program/link/reuse_lag.h"
#include "tests/support/lowered.h"

namespace rehearse::lags_test {
namespace {

using program::BufferId;

void expect_sound(const program::Role& role) {
  const program::RoleWaits waits = program::resolve_waits(role);
  const program::Lifetimes lifetimes = program::lifetimes_of(role);
  const program::ReuseLags lags = program::reuse_lags(role, waits, lifetimes);
  ASSERT_EQ(lags.of.size(), role.buffers.size());
  std::size_t pairs = 0;
  for (std::size_t b = 0; b < lags.of.size(); ++b)
    for (std::size_t i = 0; i < lags.of[b].size(); ++i, ++pairs) {
      const auto [other, lag] = lags.of[b][i];
      if (i > 0) {
        EXPECT_LT(lags.of[b][i - 1].first, other) << role.name << ": a pair is there twice";
      }
      const auto& theirs = lags.of[static_cast<std::size_t>(other)];
      const std::pair<BufferId, int> mirrored{static_cast<BufferId>(b), lag};
      EXPECT_TRUE(std::binary_search(theirs.begin(), theirs.end(), mirrored))
          << role.name << ": " << role.buffers[b].name << ", " << role.buffers[static_cast<std::size_t>(other)].name;
    }
  EXPECT_GT(pairs, 10U);
  const auto every_round = program::walk_lags(role, waits, lifetimes, {});
  ASSERT_TRUE(every_round.has_value());
  EXPECT_EQ(every_round->of, lags.of);
  EXPECT_EQ(every_round->own, lags.own);
}

TEST(Lags, AreSaidOfBothBuffers) {
  for (const char* plan :
       {"{tensor: 2, pipeline: 2, micro_batch: 1, zero: 1}",
        "{tensor: 2, pipeline: 2, chunks: 2, schedule: interleaved}", "{tensor: 4, zero: 3, micro_batch: 1}",
        "{pipeline: 4, schedule: zero_bubble_v, chunks: 2, micro_batch: 1}"}) {
    const program::Program program = lower::lower(scenario_from(
        std::string("rehearse: 1\nmodel: llama2-7b\nframework: rehearse\ncluster: {topology: dgx-a100, gpus: 16}\n"
                    "training: {global_batch: 64, seq_len: 2048}\nplan: ") +
        plan + "\n"));
    for (const program::Role& role : program.roles) expect_sound(role);
  }
}

}  // namespace
}  // namespace rehearse::lags_test
