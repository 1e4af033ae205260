// What recorded ops say of their waits and of transfers, on whole plans: times fit into one another, and peers are the
// ranks that the grid says.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/account/program_facts.h"
#include "sim/run/run.h"
#include "tests/support/lowered.h"

namespace rehearse {
namespace {

result::Result simulated(const std::string& plan, int gpus) {
  run::Options options;
  options.data_root = REHEARSE_SOURCE_DIR;
  options.steps = 2;
  options.record = true;
  return run::simulate_scenario(
      scenario_from("rehearse: 1\nname: columns\n"
                    "model: {family: gpt, layers: 8, hidden: 1024, heads: 16, vocab: 51200, max_seq_len: 512}\n"
                    "cluster: {topology: dgx-a100, gpus: " +
                    std::to_string(gpus) + "}\nplan: {" + plan + "}\ntraining: {global_batch: 32}\n"),
      options);
}

TEST(Peers, AreWrittenAsRunsAndSteps) {
  EXPECT_EQ(account::peers_text({}), "");
  EXPECT_EQ(account::peers_text({3}), "3");
  EXPECT_EQ(account::peers_text({3, 4}), "3;4");
  EXPECT_EQ(account::peers_text({0, 2, 3, 4, 8}), "0;2-4;8");
  EXPECT_EQ(account::peers_text({8, 16, 24, 32, 33}), "8-32/8;33");
}

// 16 ranks, tensor fastest, then data, then pipeline: stage 1 begins at rank 8.
TEST(Peers, AreTheOtherRanksOfATransfer) {
  const result::Result r = simulated("tensor: 2, pipeline: 2, micro_batch: 2, zero: 1", 16);
  const auto peers = [&](int rank, const std::string& group) {
    const auto& names = r.names.at(r.role_of_rank.at(rank));
    for (std::size_t b = 0; b < names.size(); ++b)
      for (std::size_t o = 0; o < names[b].size(); ++o)
        if (names[b][o].group == group) return r.peers.at(rank)[b][o];
    return std::string("none");
  };
  EXPECT_EQ(peers(0, "tensor"), "1");
  EXPECT_EQ(peers(8, "tensor"), "9");
  EXPECT_EQ(peers(0, "data"), "2-6/2");
  EXPECT_EQ(peers(8, "data"), "10-14/2");
  EXPECT_EQ(peers(0, "pipeline"), "8");
  EXPECT_EQ(peers(8, "pipeline"), "0");
}

class OpColumns : public testing::TestWithParam<const char*> {};

TEST_P(OpColumns, FitIntoOneAnother) {
  const result::Result r = simulated(GetParam(), 16);
  std::int64_t moving = 0;
  bool woken = false;
  for (const result::OpRecord& record : r.records) {
    const result::OpName& name = r.names.at(
        r.role_of_rank.at(record.rank))[static_cast<std::size_t>(record.body)][static_cast<std::size_t>(record.op)];
    EXPECT_GE(record.queued_ps, 0) << name.op;
    EXPECT_LE(record.queued_ps, record.start_ps) << name.op;
    woken |= record.woken_by >= 0;
    if (name.group.empty()) {
      EXPECT_EQ(record.moving_ps, -1) << name.op;
      continue;
    }
    EXPECT_GE(record.moving_ps, 0) << name.op;
    EXPECT_LE(record.waited_ps + record.moving_ps, record.duration_ps) << name.op;
    moving += record.moving_ps;
  }
  EXPECT_GT(moving, 0);
  EXPECT_TRUE(woken);
}

INSTANTIATE_TEST_SUITE_P(Plans, OpColumns,
                         testing::Values("tensor: 2, pipeline: 2, micro_batch: 2, zero: 1",
                                         "tensor: 4, pipeline: 4, micro_batch: 2", "micro_batch: 2, zero: 3"));

}  // namespace
}  // namespace rehearse
